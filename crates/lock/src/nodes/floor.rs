//! The highest token in the statuses of a quorum's leases: counters are seeded above it.
//!
//! A watch delivers statuses late. That is harmless while Redis nodes or clocks know a greater token. If all nodes have
//! lost their data and the clocks are behind, only the statuses know the highest token. Then they are read again, after
//! the time in which a term from before the loss could still be published.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redislease_core::op::Token;
use tokio::sync::watch;

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

    /// Raises the highest token. An implausible one is ignored: otherwise every later token would be greater, permanently.
    pub fn raise(&self, token: Token) {
        if !token.is_plausible() {
            tracing::error!(%token, limit = %Token::FIRST_IMPLAUSIBLE, "ignored a fencing token in a status that no Redis node can have given: delete the lease and create it again");
            return;
        }
        self.token.fetch_max(token.0, Ordering::AcqRel);
    }

    pub fn complete(&self) {
        self.is_complete.send_replace(true);
    }

    /// Returns when every status was read once.
    pub async fn completed(&self) {
        // It cannot fail: `self` holds the sender.
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
        self.read_again_every(REQUEST_AGAIN).await;
    }

    async fn read_again_every(&self, pause: Duration) {
        let mut answered = self.answered.subscribe();
        // A later request must not raise this number: a read that takes longer than the pause would never suffice.
        let first = self.request();
        while tokio::time::timeout(pause, answered.wait_for(|answered| *answered >= first)).await.is_err() {
            tracing::warn!(
                "The API server has not listed the leases within {} s. Until it does, nodes that have lost their data have no vote.",
                pause.as_secs()
            );
            self.request();
        }
    }

    fn request(&self) -> u64 {
        let mut request = 0;
        self.requested.send_modify(|requested| {
            *requested += 1;
            request = *requested;
        });
        request
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
        floor.raise(Token::FIRST_IMPLAUSIBLE);
        assert_eq!(floor.token(), Token(7));
    }

    #[tokio::test]
    async fn a_read_that_takes_longer_than_the_pause_between_requests_suffices() {
        let (floor, pause) = (Floor::new(true), Duration::from_millis(20));
        let answering = async {
            floor.requests().wait_for(|requested| *requested == 3).await.unwrap();
            floor.answer(1);
        };
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(floor.read_again_every(pause), answering) })
            .await
            .unwrap();
    }
}
