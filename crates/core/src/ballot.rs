//! The votes of one round, one per node.

use crate::quorum::{Decision, MAX_NODES, Node, Quorum};

/// The vote of one node in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ballot {
    /// The node was not asked: it has no part in the decision.
    NotAsked,
    /// The node was asked and has not answered.
    Outstanding,
    /// The node voted yes.
    Yes,
    /// The node voted no.
    No,
    /// The node voted neither yes nor no, or did not answer in time.
    Unknown,
}

/// The ballots of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ballots {
    quorum: Quorum,
    of: [Ballot; MAX_NODES as usize],
}

impl Ballots {
    /// A round in which every node is asked.
    pub fn all(quorum: Quorum) -> Self {
        let mut ballots = Self::none(quorum);
        ballots.of[..quorum.size()].fill(Ballot::Outstanding);
        ballots
    }

    /// A round in which no node is asked yet.
    pub const fn none(quorum: Quorum) -> Self {
        Self { quorum, of: [Ballot::NotAsked; MAX_NODES as usize] }
    }

    /// The ballot of `node`.
    pub fn of(&self, node: Node) -> Ballot {
        self.of.get(node.index()).copied().unwrap_or(Ballot::NotAsked)
    }

    /// Sets the ballot of `node`.
    pub fn set(&mut self, node: Node, ballot: Ballot) {
        if let Some(slot) = self.of[..self.quorum.size()].get_mut(node.index()) {
            *slot = ballot;
        }
    }

    /// The number of nodes with this ballot, which is not [`Ballot::NotAsked`].
    pub fn count(&self, ballot: Ballot) -> usize {
        self.of.iter().filter(|&&other| other == ballot).count()
    }

    /// Makes every outstanding ballot unknown.
    pub fn close(&mut self) {
        for ballot in &mut self.of {
            if *ballot == Ballot::Outstanding {
                *ballot = Ballot::Unknown;
            }
        }
    }

    /// The result that the ballots allow.
    pub fn decide(&self) -> Decision {
        self.quorum.decide(self.count(Ballot::Yes), self.count(Ballot::No), self.count(Ballot::Outstanding))
    }
}
