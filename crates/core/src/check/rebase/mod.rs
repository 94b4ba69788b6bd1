//! The canonical form of a lease machine, for checkers that compare states.
//!
//! Two machines behave alike from now on if they differ only in the origin of their time, in the numbers of their rounds,
//! or in the order of the nodes. In canonical form they are equal, so a search visits them as one state.

use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::{Config, Round};
use crate::quorum::{MAX_NODES, Node};
use crate::time::Time;

/// The rounds whose answers can still change a machine, in ascending order. The new number of a round is its index here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renumbering(Vec<Round>);

impl Renumbering {
    pub(crate) fn new(mut rounds: Vec<Round>) -> Self {
        rounds.sort_unstable();
        rounds.dedup();
        Self(rounds)
    }

    /// The new number of a round, or `None` if no answer to it can change the machine any more.
    pub fn of(&self, round: Round) -> Option<Round> {
        self.0.binary_search(&round).ok().and_then(|place| u32::try_from(place).ok()).map(Round)
    }

    pub(crate) fn apply(&self, round: &mut Round) {
        *round = self.of(*round).unwrap_or_default();
    }

    pub(crate) fn next(&self) -> Round {
        Round(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

/// How the instants of a machine move.
pub(crate) struct Shift {
    pub now: Time,
    pub origin: Time,
    pub config: Config,
    /// Whether seals count whose keys have ended.
    pub expired_seals_count: bool,
}

impl Shift {
    /// Moves an instant from which the machine computes other instants.
    pub fn exact(&self, instant: &mut Time) {
        *instant = (self.origin + instant.since(self.now)) - self.now.since(*instant);
    }

    /// Moves an instant of which the machine only asks whether it has passed: all past instants become `origin`.
    pub fn due(&self, instant: &mut Time) {
        *instant = self.origin + instant.since(self.now);
    }
}

impl Ballots {
    pub(crate) fn permute(&mut self, order: &[Node]) {
        let before = *self;
        (0..MAX_NODES).map(Node).zip(order).for_each(|(node, &other)| self.set(node, before.of(other)));
    }

    pub(crate) fn clear(&mut self) {
        (0..MAX_NODES).map(Node).for_each(|node| self.set(node, Ballot::NotAsked));
    }
}

pub(crate) fn permute<T: Clone>(values: &mut Vec<T>, order: &[Node]) {
    *values = order.iter().filter_map(|node| values.get(node.index()).cloned()).collect();
}
