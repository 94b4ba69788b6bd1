//! Ends a term without proof that its holder has stopped: its keys are sealed, and then they end by their TTL.
//!
//! An effective seal prevents every process from extending the term. A seal is effective when N-q+1 nodes hold sealed keys
//! at one instant. A node whose keys have ended does not count, because another process could join it again.

use alloc::vec;
use alloc::vec::Vec;

use crate::lease::config::{Config, OnDeadline};
use crate::lease::context::Context;
use crate::lease::event::Round;
use crate::lease::view::{EndReason, EndingView, TermId};
use crate::op::{Op, Vote};
use crate::quorum::Node;
use crate::time::Time;

#[cfg(feature = "check")]
#[path = "../check/rebase/ending.rs"]
mod rebase;

/// A term that this process is ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    view: EndingView,
    /// Whether this process seals, which ends the term for all processes.
    seals: bool,
    /// Until then the seal is repeated. No attempt begins before, unless the seal is effective.
    valid_until: Time,
    /// The last round of seals. The first round is sent even after `valid_until`.
    round: Option<Round>,
    /// When that round was sent.
    sent: Time,
    next_round_at: Time,
    /// For each node the end of its sealed keys: the life that it reported, counted from when the seal was sent.
    sealed_until: Vec<Option<Time>>,
}

impl Ending {
    pub fn new(config: &Config, now: Time, id: TermId, reason: EndReason, valid_until: Time, keys_until: Time) -> Self {
        // After these the term is over for all processes, not only for this one. A deadline of a process that does not lead is
        // not among them: the status may name a term whose publication was not answered, and another process may keep it.
        let is_over = matches!(reason, EndReason::Decided | EndReason::Superseded | EndReason::Defect);
        Self {
            view: EndingView { id, reason, sealed: false, keys_until },
            seals: is_over || config.deadline == OnDeadline::Seal,
            valid_until,
            round: None,
            sent: now,
            next_round_at: now,
            sealed_until: vec![None; config.quorum.size()],
        }
    }

    pub const fn view(&self) -> &EndingView {
        &self.view
    }

    /// The answers so far do not count: their lives were counted by a clock that may have stood still.
    pub fn void(&mut self, now: Time) {
        self.sealed_until.fill(None);
        self.view.sealed = false;
        self.round = None;
        self.next_round_at = now;
    }

    fn sealing(&self, now: Time) -> bool {
        self.seals && !self.view.sealed && (self.round.is_none() || now < self.valid_until)
    }

    pub fn next_deadline(&self) -> Time {
        if self.seals && !self.view.sealed && self.next_round_at < self.valid_until {
            self.next_round_at.min(self.view.keys_until)
        } else {
            self.view.keys_until
        }
    }

    /// From when on another attempt may begin.
    pub const fn allows_attempts_from(&self) -> Time {
        if self.view.sealed { Time(0) } else { self.valid_until }
    }

    /// Takes an answer, if it is one to the last round of seals.
    pub fn vote(&mut self, context: &Context, now: Time, round: Round, node: Node, vote: &Vote) -> bool {
        if self.round != Some(round) {
            return false;
        }
        let (config, rules) = (&context.config, context.rules);
        let Some(slot) = self.sealed_until.get_mut(node.index()) else { return true };
        match vote {
            Vote::Sealed { ttl_left } => {
                let from = if breaks!(rules, SealLifeFromReply) { now } else { self.sent };
                *slot = Some(from + config.drift.least(*ttl_left));
            }
            Vote::Miss(None) if breaks!(rules, AbsentCountedAsSealed) => *slot = Some(Time(u64::MAX)),
            _ => {}
        }
        let expired_count = breaks!(rules, SealVotesExpired);
        let needed = config.quorum.blocking() - usize::from(breaks!(rules, SealOnTooFew));
        let sealed = self.sealed_until.iter().flatten().filter(|&&until| now < until || expired_count).count();
        self.view.sealed |= sealed >= needed;
        true
    }

    /// Sends the next round of seals if it is due.
    pub fn advance(&mut self, context: &mut Context, now: Time) {
        if now < self.next_round_at {
            return;
        }
        if !self.sealing(now) {
            // A deadline in the past would make the driver wake the machine again and again.
            self.next_round_at = self.view.keys_until;
            return;
        }
        let round = context.new_round();
        (self.round, self.sent) = (Some(round), now);
        self.next_round_at = now + context.config.retry_pace();
        if breaks!(context.rules, SealNotRepeated) {
            self.next_round_at = self.view.keys_until;
        }
        let attempt = self.view.id.attempt;
        for node in context.config.quorum.nodes() {
            if self.sealed_until[node.index()].is_none_or(|until| now >= until) {
                context.send(now, round, node, Op::Seal { attempt });
            }
        }
    }
}
