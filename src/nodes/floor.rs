//! The highest token in the statuses of a quorum's leases: counters are seeded above it.
//!
//! A watch delivers statuses late. That is harmless while Redis nodes or clocks know a greater token. If all nodes have
//! lost their data and the clocks are behind, only the statuses know the highest token. Then they are read again, after
//! the time in which a term of before the loss could be published.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redislease_core::op::Token;
use tokio::sync::watch;

/// The year 2112 in microseconds: half of the range of tokens.
const INSANE_TOKEN: u64 = Token::END / 2;

/// How long a requested read may take before it is requested again.
const REQUEST_AGAIN: Duration = Duration::from_secs(5);

/// The floor of one quorum.
#[derive(Debug)]
pub(super) struct Floor {
    token: AtomicU64,
    /// Whether there are statuses. A process without Kubernetes has none.
    has_statuses: bool,
    /// Whether every status was read once.
    is_complete: watch::Sender<bool>,
    /// The number of requests to read all statuses again.
    requested: watch::Sender<u64>,
    /// The newest request that was followed by a complete read.
    answered: watch::Sender<u64>,
}

impl Floor {
    pub fn new(has_statuses: bool) -> Self {
        Self {
            token: AtomicU64::new(0),
            has_statuses,
            is_complete: watch::Sender::new(!has_statuses),
            requested: watch::Sender::new(0),
            answered: watch::Sender::new(0),
        }
    }

    pub const fn has_statuses(&self) -> bool {
        self.has_statuses
    }

    pub fn token(&self) -> Token {
        Token(self.token.load(Ordering::Acquire))
    }

    /// Raises the highest token. Tokens start at Unix time in microseconds, so a token that no clock reaches before the
    /// next century was written by hand. It is ignored: otherwise every later token would be greater, permanently.
    pub fn raise(&self, token: Token) {
        if token.0 >= INSANE_TOKEN {
            tracing::error!(%token, limit = INSANE_TOKEN, "ignored a fencing token in a status that no Redis node can have given: write the right token into the status");
            return;
        }
        self.token.fetch_max(token.0, Ordering::AcqRel);
    }

    pub fn complete(&self) {
        self.is_complete.send_replace(true);
    }

    /// Returns when every status was read once.
    pub async fn completed(&self) {
        // This holds the sender.
        let _ = self.is_complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// The number of requests so far. Changes with each request.
    pub fn requests(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// All statuses were read after this number of requests, and their tokens were passed to [`Floor::raise`].
    pub fn answer(&self, request: u64) {
        self.answered.send_if_modified(|answered| {
            let newer = request > *answered;
            *answered = request.max(*answered);
            newer
        });
    }

    /// Requests a read of all statuses, and returns when one that began after this call has ended.
    pub async fn read_again(&self) {
        let mut answered = self.answered.subscribe();
        loop {
            let mut request = 0;
            self.requested.send_modify(|requested| {
                *requested += 1;
                request = *requested;
            });
            if tokio::time::timeout(REQUEST_AGAIN, answered.wait_for(|answered| *answered >= request)).await.is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_read_that_was_requested_after_the_call_counts() {
        let floor = Floor::new(true);
        floor.answer(0);
        let (mut requests, reading) = (floor.requests(), floor.read_again());
        tokio::pin!(reading);
        tokio::select! {
            biased;
            () = &mut reading => panic!("nothing was read"),
            changed = requests.changed() => changed.unwrap(),
        }
        let request = *requests.borrow();
        floor.raise(Token(7));
        floor.answer(request);
        reading.await;
        assert_eq!((request, floor.token()), (1, Token(7)));
        floor.raise(Token(INSANE_TOKEN));
        assert_eq!(floor.token(), Token(7));
    }
}
