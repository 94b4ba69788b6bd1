//! What follows when the machine breaks a local invariant in a release. In a debug build it panics instead.

use alloc::boxed::Box;
use core::mem;

use crate::invariants::Violation;
use crate::lease::ending::Ending;
use crate::lease::term::Phase;
use crate::lease::{Effect, EndReason, Lease, OnDeadline, View};
use crate::time::Time;

/// A broken invariant, and the view that broke it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broken {
    /// The invariant.
    pub violation: Violation,
    /// The view.
    pub view: View,
}

impl Lease {
    /// Replaces the machine by a new one that does not hold the term. What the old one wanted to do is dropped, because it
    /// follows from a state that is wrong.
    ///
    /// The term is sealed, and its keys stay until they expire: the holder may still work, so a release would let another one
    /// begin beside it. A process that may not end terms adopts a published term instead, and must confirm it again: another
    /// process may keep it. No release of an earlier attempt is repeated, because it may be the wrong one.
    pub(crate) fn start_over(&mut self, now: Time, violation: Violation) {
        let fresh = Self {
            rules: self.rules,
            join_delay: self.join_delay,
            least_life: self.least_life,
            // A late answer to the old machine is no answer to the new one.
            next_round: self.next_round,
            ..Self::new(self.config.clone())
        };
        let old = mem::replace(self, fresh);
        self.effects.push_back(Effect::Broken(Box::new(Broken { violation, view: old.shown.clone() })));
        self.shown = old.shown;
        if let Some(term) = old.term {
            if term.phase != Phase::Publishing && self.config.deadline == OnDeadline::Unconfirm {
                self.adopt(now, term.id);
            } else {
                // The times of the old machine may be wrong, but no key of the term can last longer than this.
                let until = term.keys_until.max(now + self.config.drift.most(self.config.ttl));
                self.ending = Some(Ending::new(&self.config, now, term.id, EndReason::Defect, until, until));
            }
        }
        self.emit_view();
        self.advance(now);
    }
}
