//! What checkers do with a lease machine: its canonical form, and code that only planted bugs run.

use core::hash::Hasher;

use super::{Lease, Term};
use crate::check::Mutant;
use crate::check::rebase::{Renumbering, Shift};
use crate::invariants::{self, Violation};
use crate::lease::EndReason;
use crate::op::Stages;
use crate::quorum::Node;
use crate::time::Time;

impl Lease {
    /// Plants a bug in the machine, or removes it.
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.context.rules.broken = mutant;
        self
    }

    /// Moves the machine so that `now` becomes `origin`, and numbers its rounds from 0. Drops the number of failures, the values that
    /// refused, and a read of the keys: they are only shown, or only decide the back-off.
    ///
    /// All effects of the machine must have been polled. The result gives the new round of each request under way.
    pub fn rebase(&mut self, now: Time, origin: Time) -> Renumbering {
        let expired_seals_count = breaks!(self.context.rules, SealVotesExpired);
        let shift = Shift { now, origin, config: self.context.config.clone(), expired_seals_count };
        self.cleanups.drop_done();
        let open = (self.acquiring.iter().flat_map(|acquiring| acquiring.rounds()))
            .chain(self.term.iter().flat_map(Term::rounds))
            .chain(self.ending.iter().flat_map(|ending| ending.rounds()))
            .chain(self.cleanups.rounds());
        let rounds = Renumbering::new(open.collect());
        self.acquiring.iter_mut().for_each(|acquiring| acquiring.rebase(&shift, &rounds));
        self.term.iter_mut().for_each(|term| term.rebase(&shift, &rounds));
        self.ending.iter_mut().for_each(|ending| ending.rebase(&shift, &rounds));
        self.cleanups.rebase(&shift, &rounds);
        (self.context.next_round, self.context.reads) = (rounds.next(), 0);
        shift.due(&mut self.context.held_until);
        shift.due(&mut self.retry.not_before);
        self.retry.tries = 0;
        self.retry.forget_refusal();
        self.key_read = None;
        self.shown = self.present();
        rounds
    }

    /// Renames the nodes: the state of node `order[i]` becomes the state of node `i`.
    pub fn permute(&mut self, order: &[Node]) {
        self.acquiring.iter_mut().for_each(|acquiring| acquiring.permute(order));
        self.term.iter_mut().for_each(|term| term.permute(order));
        self.ending.iter_mut().for_each(|ending| ending.permute(order));
        self.cleanups.permute(order);
    }

    /// Hashes the state of one node. A checker may swap nodes with equal hashes.
    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        self.acquiring.iter().for_each(|acquiring| acquiring.hash_node(node, state));
        self.term.iter().for_each(|term| term.hash_node(node, state));
        self.ending.iter().for_each(|ending| ending.hash_node(node, state));
        self.cleanups.hash_node(node, state);
    }

    /// Breaks a local invariant of the running term, and handles that as a release does.
    pub fn break_invariant(&mut self, now: Time, violation: Violation) {
        if let Some(term) = &mut self.term {
            if violation == Violation::TwoTermsAtOnce {
                let (id, valid_until, keys_until) = term.clone().ends();
                self.seal(now, id, EndReason::Decided, valid_until, keys_until);
            } else {
                term.break_belief(now, violation);
            }
        }
        self.emit_view();
        if let Err(violation) = invariants::local(now, &self.shown) {
            self.start_over(now, violation);
        }
    }

    /// Releases a term although its publication was sent.
    pub(super) fn release_unpublished(&mut self, now: Time) {
        if let Some(term) = self.term.take_if(|term| term.is_publishing()) {
            let (id, _, keys_until) = term.ends();
            self.release(now, id.attempt, Stages::Unpublished, keys_until, None);
        }
    }
}
