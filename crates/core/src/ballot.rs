//! The votes of one round, one per node.

use alloc::vec;
use alloc::vec::Vec;

use crate::quorum::{Decision, Node, Quorum};

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballots(Vec<Ballot>);

impl Ballots {
    /// A round in which every node is asked.
    pub fn all(quorum: Quorum) -> Self {
        Self(vec![Ballot::Outstanding; quorum.size()])
    }

    /// A round in which no node is asked yet.
    pub fn none(quorum: Quorum) -> Self {
        Self(vec![Ballot::NotAsked; quorum.size()])
    }

    /// The ballot of `node`.
    pub fn of(&self, node: Node) -> Ballot {
        self.0.get(node.index()).copied().unwrap_or(Ballot::NotAsked)
    }

    /// Sets the ballot of `node`.
    pub fn set(&mut self, node: Node, ballot: Ballot) {
        if let Some(slot) = self.0.get_mut(node.index()) {
            *slot = ballot;
        }
    }

    /// The number of nodes with this ballot.
    pub fn count(&self, ballot: Ballot) -> usize {
        self.0.iter().filter(|&&other| other == ballot).count()
    }

    /// Makes every outstanding ballot unknown.
    pub fn close(&mut self) {
        for ballot in &mut self.0 {
            if *ballot == Ballot::Outstanding {
                *ballot = Ballot::Unknown;
            }
        }
    }

    /// The result that the ballots allow.
    pub fn decide(&self, quorum: Quorum) -> Decision {
        quorum.decide(self.count(Ballot::Yes), self.count(Ballot::No), self.count(Ballot::Outstanding))
    }
}
