//! Reads who holds the keys, for a process that can make no attempt.
//!
//! The request is the seal of an attempt that nobody makes. It changes nothing, and its answer has the value of a key. It is no vote:
//! the keys may have changed when the answer arrives.

use alloc::vec::Vec;

use crate::lease::context::Context;
use crate::lease::event::Round;
use crate::op::{Attempt, Op, Stage, Stored, Vote};
use crate::quorum::Quorum;
use crate::time::Time;

/// One read of the keys on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyRead {
    round: Round,
    outstanding: usize,
    answers: usize,
    /// The terms that nodes have shown.
    terms: Vec<Stored>,
}

impl KeyRead {
    pub fn begin(context: &mut Context, now: Time) -> Self {
        let (round, quorum) = (context.new_round(), context.config.quorum);
        context.reads = context.reads.wrapping_add(1);
        for node in quorum.nodes() {
            context.send(now, round, node, Op::Seal { attempt: Attempt::NOBODY });
        }
        Self { round, outstanding: quorum.size(), answers: 0, terms: Vec::new() }
    }

    /// Takes an answer, if it is one to this read. Each request has exactly one.
    pub fn vote(&mut self, round: Round, vote: &Vote) -> bool {
        if self.round != round {
            return false;
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Vote::Miss(found) = vote {
            self.answers += 1;
            self.terms.extend(found.iter().filter(|found| found.stage == Stage::Term).cloned());
        }
        true
    }

    pub const fn is_over(&self) -> bool {
        self.outstanding == 0
    }

    /// The term that a majority shows: other keys are left over, or of attempts. `Err` if too few answered to know it.
    pub fn result(&self, quorum: Quorum) -> Result<Option<&Stored>, ()> {
        if self.answers < quorum.majority() {
            return Err(());
        }
        let shown_by = |by: &&Stored| self.terms.iter().filter(|other| other.attempt == by.attempt).count();
        let unknown = quorum.size() - self.answers.min(quorum.size());
        let may_have_it = |by: &&Stored| shown_by(by) + unknown >= quorum.majority();
        let term = self.terms.iter().max_by_key(shown_by).filter(may_have_it);
        let is_known = |by: &Stored| shown_by(&by) >= quorum.majority() || !quorum.has_proposals();
        if term.is_none_or(is_known) { Ok(term) } else { Err(()) }
    }
}
