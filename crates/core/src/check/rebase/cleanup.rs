use core::hash::{Hash, Hasher};

use super::Cleanups;
use crate::check::rebase::{Renumbering, Shift};
use crate::lease::Round;
use crate::quorum::Node;

impl Cleanups {
    pub fn rounds(&self) -> impl Iterator<Item = Round> {
        self.0.iter().flat_map(|cleanup| [Some(cleanup.round), cleanup.release.acquire]).flatten()
    }

    pub fn rebase(&mut self, shift: &Shift, rounds: &Renumbering) {
        for cleanup in &mut self.0 {
            shift.due(&mut cleanup.release.until);
            shift.due(&mut cleanup.repeat_at);
            rounds.apply(&mut cleanup.round);
            cleanup.release.acquire = cleanup.release.acquire.and_then(|round| rounds.of(round));
        }
    }

    pub fn permute(&mut self, order: &[Node]) {
        self.0.iter_mut().for_each(|cleanup| cleanup.release.ballots.permute(order));
    }

    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        self.0.iter().for_each(|cleanup| cleanup.release.ballots.of(node).hash(state));
    }

    /// Drops the releases that every node has answered.
    pub fn drop_done(&mut self) {
        self.0.retain(|cleanup| !cleanup.done());
    }
}
