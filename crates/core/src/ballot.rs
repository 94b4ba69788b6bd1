//! The votes of one round, one per node.

use alloc::vec;
use alloc::vec::Vec;

use crate::quorum::{Decision, Node, Quorum};

/// Where one node stands in a round of yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ballot {
    /// Not asked in this round: it has no part in the decision.
    NotAsked,
    /// Asked, no answer yet.
    Outstanding,
    /// It said yes.
    Yes,
    /// It said no.
    No,
    /// It said neither, or nothing.
    Unknown,
}

/// The ballots of one round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballots(Vec<Ballot>);

impl Ballots {
    /// Every node is asked.
    pub fn all(quorum: Quorum) -> Self {
        Self(vec![Ballot::Outstanding; quorum.size()])
    }

    /// Nobody is asked yet.
    pub fn none(quorum: Quorum) -> Self {
        Self(vec![Ballot::NotAsked; quorum.size()])
    }

    /// How `node` stands.
    pub fn of(&self, node: Node) -> Ballot {
        self.0.get(node.index()).copied().unwrap_or(Ballot::NotAsked)
    }

    /// Sets how `node` stands.
    pub fn set(&mut self, node: Node, ballot: Ballot) {
        if let Some(slot) = self.0.get_mut(node.index()) {
            *slot = ballot;
        }
    }

    /// How many stand so.
    pub fn count(&self, ballot: Ballot) -> usize {
        self.0.iter().filter(|&&other| other == ballot).count()
    }

    /// Whoever has not answered by now is unknown.
    pub fn close(&mut self) {
        for ballot in &mut self.0 {
            if *ballot == Ballot::Outstanding {
                *ballot = Ballot::Unknown;
            }
        }
    }

    /// What the ballots allow to say.
    pub fn decide(&self, quorum: Quorum) -> Decision {
        quorum.decide(self.count(Ballot::Yes), self.count(Ballot::No), self.count(Ballot::Outstanding))
    }
}
