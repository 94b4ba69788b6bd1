//! Ends a term without proof that its holder has stopped: its keys are sealed, and then they end by their TTL.
//!
//! An effective seal prevents every process from extending the term. A seal is effective when N-q+1 nodes hold sealed keys
//! at one instant. A node whose keys have ended does not count, because another process could join it again.

use alloc::vec;
use alloc::vec::Vec;

use crate::lease::view::{EndReason, EndingView};
use crate::lease::{Config, Effect, Lease, OnDeadline, Round, TermId};
use crate::op::{Op, Vote};
use crate::quorum::Node;
use crate::rules::Rules;
use crate::time::Time;

/// A term that this process is ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    pub id: TermId,
    reason: EndReason,
    /// Whether this process seals, which ends the term for all processes.
    seals: bool,
    /// Until then the seal is repeated. No attempt begins before, unless the seal is effective.
    pub valid_until: Time,
    /// When the last of the keys has ended at the latest.
    pub keys_until: Time,
    /// Whether the seal is effective.
    pub effective: bool,
    /// The last round of seals. The first round is sent even after `valid_until`.
    pub round: Option<Round>,
    /// When that round was sent.
    pub sent: Time,
    pub next_round_at: Time,
    /// For each node the end of its sealed keys: the life that it reported, counted from when the seal was sent.
    pub sealed_until: Vec<Option<Time>>,
}

impl Ending {
    pub fn new(config: &Config, now: Time, id: TermId, reason: EndReason, valid_until: Time, keys_until: Time) -> Self {
        let sealed_until = vec![None; config.quorum.size()];
        // After these the term is over for all processes, not only for this one.
        let is_over =
            matches!(reason, EndReason::Decided | EndReason::Superseded | EndReason::Deadline | EndReason::Defect);
        Self {
            id,
            reason,
            seals: is_over || config.deadline == OnDeadline::Seal,
            valid_until,
            keys_until,
            effective: false,
            round: None,
            sent: now,
            next_round_at: now,
            sealed_until,
        }
    }

    pub fn view(&self) -> EndingView {
        EndingView { id: self.id.clone(), reason: self.reason, sealed: self.effective, keys_until: self.keys_until }
    }

    /// The answers so far do not count: their lives were counted by a clock that may have stood still.
    pub fn void(&mut self, now: Time) {
        self.sealed_until.fill(None);
        self.effective = false;
        self.round = None;
        self.next_round_at = now;
    }

    fn sealing(&self, now: Time) -> bool {
        self.seals && !self.effective && (self.round.is_none() || now < self.valid_until)
    }

    pub fn next_deadline(&self) -> Time {
        if self.seals && !self.effective && self.next_round_at < self.valid_until {
            self.next_round_at.min(self.keys_until)
        } else {
            self.keys_until
        }
    }

    pub fn vote(&mut self, now: Time, config: &Config, rules: Rules, node: Node, vote: &Vote) {
        let Some(slot) = self.sealed_until.get_mut(node.index()) else { return };
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
        self.effective |= sealed >= needed;
    }
}

impl Lease {
    /// Ends a term that this process does not run: one that it is already ending, or one that only the status names.
    pub(super) fn end_known(&mut self, now: Time, id: TermId, proof: bool, keep_until: Option<Time>) {
        if self.term.is_some() {
            return;
        }
        let known = self.ending.as_ref().filter(|ending| ending.id.attempt == id.attempt);
        let until = known.map_or(now + self.config.drift.most(self.config.ttl), |ending| ending.keys_until);
        if proof {
            // The proof says nothing about another term, which is still to be sealed.
            if known.is_some() {
                self.ending = None;
            }
            self.emit_view();
            self.release_term(now, id.attempt, until, keep_until);
            self.not_before = now;
        } else if known.is_none() {
            self.ending = Some(Ending::new(&self.config, now, id, EndReason::Decided, until, until));
            self.emit_view();
        }
    }

    pub(super) fn advance_ending(&mut self, now: Time) {
        let Some(ending) = self.ending.as_mut().filter(|ending| now >= ending.next_round_at) else { return };
        if !ending.sealing(now) {
            // A deadline in the past would make the driver wake the machine again and again.
            ending.next_round_at = ending.keys_until;
            return;
        }
        let round = self.new_round();
        let give_up_at = now + self.config.command_timeout;
        let Some(ending) = &mut self.ending else { return };
        ending.round = Some(round);
        ending.sent = now;
        ending.next_round_at = now + self.config.retry_pace();
        if breaks!(self.rules, SealNotRepeated) {
            ending.next_round_at = ending.keys_until;
        }
        let attempt = ending.id.attempt;
        let open: Vec<Node> = self
            .config
            .quorum
            .nodes()
            .filter(|node| ending.sealed_until[node.index()].is_none_or(|until| now >= until))
            .collect();
        for node in open {
            self.effects.push_back(Effect::Send { round, node, op: Op::Seal { attempt }, give_up_at });
        }
    }
}
