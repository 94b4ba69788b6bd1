use core::hash::{Hash, Hasher};

use super::Ending;
use crate::check::rebase::{Renumbering, Shift, permute};
use crate::lease::Round;
use crate::quorum::Node;

impl Ending {
    pub fn rounds(&self) -> impl Iterator<Item = Round> {
        self.round.into_iter()
    }

    pub fn rebase(&mut self, shift: &Shift, rounds: &Renumbering) {
        self.round.iter_mut().for_each(|round| rounds.apply(round));
        shift.due(&mut self.valid_until);
        shift.due(&mut self.view.keys_until);
        if self.view.sealed {
            (self.sent, self.next_round_at, self.valid_until) = (shift.origin, shift.origin, shift.origin);
            self.sealed_until.fill(None);
            return;
        }
        // No key lives longer than its TTL, so the answers to an older round cannot count.
        self.sent = self.sent.max(shift.now - shift.config.ttl);
        shift.exact(&mut self.sent);
        shift.due(&mut self.next_round_at);
        for until in &mut self.sealed_until {
            if until.is_some_and(|until| until <= shift.now) && !shift.expired_seals_count {
                *until = None;
            }
            if let Some(until) = until {
                shift.due(until);
            }
        }
    }

    pub fn permute(&mut self, order: &[Node]) {
        permute(&mut self.sealed_until, order);
    }

    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        self.sealed_until.get(node.index()).hash(state);
    }
}
