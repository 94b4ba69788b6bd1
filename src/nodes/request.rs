//! What the rest of the house asks a node, and the one answer it gets.

use std::fmt;
use std::sync::Arc;

use redislease_core::op::{Op, Vote};
use redislease_core::time::Time;

/// A question to one node about the keys of one lease.
#[derive(Clone, Debug)]
pub struct Request {
    /// The keys, each as [`super::Keyspace::lock`] writes it; at least one.
    pub keys: Arc<[String]>,
    /// What is asked.
    pub op: Op,
    /// When the asker stops waiting. The node refuses to act later than this, as far as its clock can tell.
    pub give_up_at: Time,
}

/// Takes the vote. Exactly one is given: dropped unused, it answers [`Vote::Unknown`].
pub(super) struct Reply(Option<Box<dyn FnOnce(Vote) + Send>>);

impl Reply {
    pub fn new(reply: impl FnOnce(Vote) + Send + 'static) -> Self {
        Self(Some(Box::new(reply)))
    }

    pub fn answer(mut self, vote: Vote) {
        if let Some(reply) = self.0.take() {
            reply(vote);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(Vote::Unknown);
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_reply_answers_once_and_unknown_when_it_is_dropped() {
        let (votes, received) = mpsc::channel();
        let reply = |votes: &mpsc::Sender<Vote>| {
            let votes = votes.clone();
            Reply::new(move |vote| votes.send(vote).unwrap())
        };
        reply(&votes).answer(Vote::Extended);
        drop(reply(&votes));
        drop(votes);
        assert_eq!(received.iter().collect::<Vec<_>>(), [Vote::Extended, Vote::Unknown]);
    }
}
