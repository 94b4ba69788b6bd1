//! A request to one node, and the return path of its vote.

use std::fmt;
use std::sync::Arc;

use redislease_core::driver::LeaseId;
use redislease_core::lease::Round;
use redislease_core::op::Vote;
use redislease_core::quorum::Node;

use crate::mailbox::Mailbox;

/// A request to one node about the keys of one lease, each as [`super::Keyspace::lock`] writes it.
pub type Request = redislease_core::wire::Request<String>;

/// The vote on a request that a shard sent.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub lease: LeaseId,
    /// The request's.
    pub round: Round,
    /// The request's.
    pub node: Node,
    /// The node's vote.
    pub vote: Vote,
}

/// Returns the vote on one request. Exactly one vote is returned: a dropped reply returns [`Vote::Unknown`].
pub(crate) struct Reply(Option<Receiver>);

/// The receiver of a vote.
enum Receiver {
    /// A shard: without an allocation, because it sends thousands of requests in one tick.
    Shard {
        ballots: Arc<Mailbox<Ballot>>,
        lease: LeaseId,
        round: Round,
        node: Node,
    },
    Function(Box<dyn FnOnce(Vote) + Send>),
}

impl Reply {
    /// A reply to a function, which must not block.
    pub fn to_function(function: impl FnOnce(Vote) + Send + 'static) -> Self {
        Self(Some(Receiver::Function(Box::new(function))))
    }

    /// A reply to the shard whose lease has the ID `lease`.
    pub fn to_shard(ballots: Arc<Mailbox<Ballot>>, lease: LeaseId, round: Round, node: Node) -> Self {
        Self(Some(Receiver::Shard { ballots, lease, round, node }))
    }

    pub fn give(mut self, vote: Vote) {
        self.deliver(vote);
    }

    fn deliver(&mut self, vote: Vote) {
        match self.0.take() {
            // A shard that has ended needs no vote.
            Some(Receiver::Shard { ballots, lease, round, node }) => {
                let _ = ballots.send(Ballot { lease, round, node, vote });
            }
            Some(Receiver::Function(function)) => function(vote),
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.deliver(Vote::Unknown);
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
    fn a_reply_gives_one_vote_and_unknown_when_it_is_dropped() {
        let (votes, received) = mpsc::channel();
        let reply = |votes: &mpsc::Sender<Vote>| {
            let votes = votes.clone();
            Reply::to_function(move |vote| votes.send(vote).unwrap())
        };
        reply(&votes).give(Vote::Extended);
        drop(reply(&votes));
        drop(votes);
        assert_eq!(received.iter().collect::<Vec<_>>(), [Vote::Extended, Vote::Unknown]);
    }

    #[test]
    fn a_ballot_names_lease_round_and_node() {
        let ballots = Arc::new(Mailbox::new());
        let id = |slot| LeaseId { slot, generation: 0 };
        let reply = |slot| Reply::to_shard(ballots.clone(), id(slot), Round(7), Node(2));
        reply(1).give(Vote::Extended);
        drop(reply(2));
        let mut received = Vec::new();
        ballots.take(&mut received);
        let received: Vec<_> = received.into_iter().map(|b| (b.lease, b.round, b.node, b.vote)).collect();
        let ballot = |slot, vote| (id(slot), Round(7), Node(2), vote);
        assert_eq!(received, [ballot(1, Vote::Extended), ballot(2, Vote::Unknown)]);
        ballots.close();
        reply(3).give(Vote::Extended);
    }
}
