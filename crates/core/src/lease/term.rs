//! A running term: its publication, its validity, its end.

use alloc::vec;
use alloc::vec::Vec;

use crate::lease::ending::Ending;
use crate::lease::extension::Extension;
use crate::lease::join::NodeState;
use crate::lease::{
    Config, Effect, EndReason, LATE_WAKE, Lease, OnDeadline, Publication, Renewal, Standing, TermId, TermView,
};
use crate::op::{Attempt, Stages};
use crate::time::Time;

/// Whether the status names a term, and whether a majority has confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lease) enum Phase {
    /// The publication was sent and is not answered.
    Publishing,
    /// The status names the term, and a majority confirmed it to this process.
    Held,
    /// The status names the term, and no majority has confirmed it to this process. At `unconfirmed_at` it becomes
    /// `overdue`: this process says that it cannot confirm the term. With [`OnDeadline::Seal`] the term is lost at
    /// `ends_at`, but not before the status has `shown` for one renewal interval that it is unconfirmed. Earlier, if it is
    /// `overrun`.
    Adopting { unconfirmed_at: Time, ends_at: Time, overdue: bool, shown: Option<Time>, overrun: Overrun },
}

/// Whether a term passed its deadline in time, while this process had no right to end it. Another process that got the right may
/// have kept it since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lease) enum Overrun {
    No,
    Yes,
    /// This process has the right again, and one round asks the nodes whether another process has kept the term.
    Asked,
}

impl Phase {
    /// The status names the term; nothing else is known of it.
    fn unconfirmed(config: &Config, now: Time) -> Self {
        let (unconfirmed_at, ends_at) = (now + config.renew_interval, now + config.drift.most(config.ttl));
        Self::Adopting { unconfirmed_at, ends_at, overdue: false, shown: None, overrun: Overrun::No }
    }
}

/// A running term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::lease) struct Term {
    pub id: TermId,
    pub phase: Phase,
    pub nodes: Vec<NodeState>,
    pub valid_until: Option<Time>,
    pub stop_at: Option<Time>,
    pub extension: Option<Extension>,
    pub next_round_at: Time,
    pub failed_rounds: u32,
    /// The last instant at which a key of this term can exist.
    pub keys_until: Time,
}

impl Term {
    /// A term that this process took, after round 2. `times` are the start of round 1, the end of validity, and
    /// `stop_at`.
    pub fn acquired(
        config: &Config,
        id: TermId,
        nodes: Vec<NodeState>,
        times: (Time, Time, Time),
        keys_until: Time,
    ) -> Self {
        let (t0, valid_until, stop_at) = times;
        Self {
            id,
            phase: Phase::Publishing,
            nodes,
            valid_until: Some(valid_until),
            stop_at: Some(stop_at),
            extension: None,
            next_round_at: t0 + config.renew_interval,
            failed_rounds: 0,
            keys_until,
        }
    }

    fn adopted(config: &Config, id: TermId, now: Time) -> Self {
        Self {
            id,
            phase: Phase::unconfirmed(config, now),
            nodes: vec![NodeState::Holding; config.quorum.size()],
            valid_until: None,
            stop_at: None,
            extension: None,
            next_round_at: now,
            failed_rounds: 0,
            keys_until: now + config.drift.most(config.ttl),
        }
    }

    pub fn standing(&self) -> Standing {
        let view = TermView {
            id: self.id.clone(),
            valid_until: self.valid_until,
            stop_at: self.stop_at,
            failed_rounds: self.failed_rounds,
        };
        match self.phase {
            Phase::Publishing => Standing::Publishing(view),
            Phase::Held => Standing::Held(view),
            Phase::Adopting { overdue: false, .. } => Standing::Adopting(view),
            Phase::Adopting { overdue: true, .. } => Standing::Uncertain(view),
        }
    }

    /// After a round that failed, the next one begins now.
    pub fn try_now(&mut self, now: Time) {
        if self.failed_rounds > 0 {
            self.next_round_at = self.next_round_at.min(now);
        }
    }

    /// Continues as after a restart: a strict extension decides whether the term still runs.
    fn unconfirm(&mut self, config: &Config, now: Time) {
        self.phase = Phase::unconfirmed(config, now);
        self.valid_until = None;
        self.stop_at = None;
        self.next_round_at = self.next_round_at.min(now);
        // Another process may have extended it at any time until now.
        self.keys_until = self.keys_until.max(now + config.drift.most(config.ttl));
    }

    /// Asks once more about a term that is overrun when this process has the right to end it again.
    fn ask_if_overrun(&mut self, now: Time, deadline: OnDeadline) {
        let Phase::Adopting { overrun, .. } = &mut self.phase else { return };
        match (*overrun, deadline) {
            (Overrun::Yes, OnDeadline::Seal) => {
                *overrun = Overrun::Asked;
                // A round that began before says nothing about what another process did meanwhile.
                self.extension = None;
                self.next_round_at = now;
            }
            (Overrun::Asked, OnDeadline::Unconfirm) => *overrun = Overrun::Yes,
            _ => {}
        }
    }

    /// A round has failed. Returns whether the term ends with it.
    pub const fn note_failure(&mut self) -> bool {
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        matches!(self.phase, Phase::Adopting { overrun: Overrun::Asked, .. })
    }

    /// When an unconfirmed term is given up.
    fn lost_at(&self, config: &Config) -> Option<Time> {
        match self.phase {
            Phase::Adopting { ends_at, shown, .. } if config.deadline == OnDeadline::Seal => {
                shown.map(|shown| ends_at.max(shown + config.renew_interval))
            }
            _ => None,
        }
    }

    /// The round that is under way.
    pub fn open_round(&self) -> Option<&Extension> {
        self.extension.as_ref().filter(|extension| extension.outcome.is_none())
    }
}

impl Lease {
    /// When the term needs a wake.
    pub(super) fn term_deadline(&self) -> Option<Time> {
        let term = self.term.as_ref()?;
        let round = match term.open_round() {
            Some(extension) => extension.t0 + self.config.command_timeout,
            None => term.next_round_at.max(self.held_until),
        };
        let adoption = match term.phase {
            Phase::Adopting { unconfirmed_at, overdue: false, .. } => Some(unconfirmed_at),
            Phase::Adopting { .. } | Phase::Publishing | Phase::Held => term.lost_at(&self.config),
        };
        let stop_at = term.stop_at.filter(|_| !breaks!(self.rules, NoLocalDeadline));
        [Some(round), adoption, stop_at, term.next_join_at()].into_iter().flatten().min()
    }

    /// Adopts a term, unless this process runs one or ends this one: then it knows more than the status.
    pub(super) fn adopt(&mut self, now: Time, id: TermId) {
        let ends = self.ending.as_ref().is_some_and(|ending| ending.id.attempt == id.attempt);
        if self.term.is_some() || ends {
            return;
        }
        self.abandon(now);
        self.wanted = None;
        self.term = Some(Term::adopted(&self.config, id, now));
    }

    /// Another process renews this term. Postpones the unconfirmed state by one lease.
    pub(super) fn kept_elsewhere(&mut self, now: Time, attempt: Attempt) {
        let lease = self.config.drift.most(self.config.ttl);
        if let Some(term) = self.term.as_mut().filter(|term| term.id.attempt == attempt)
            && let Phase::Adopting { .. } = term.phase
        {
            let (unconfirmed_at, ends_at) = (now + lease, now + lease + lease);
            let overrun = Overrun::No;
            term.phase = Phase::Adopting { unconfirmed_at, ends_at, overdue: false, shown: None, overrun };
        }
    }

    /// The status shows that this process cannot confirm the term; a process that can may contradict.
    pub(super) fn unconfirmed_shown(&mut self, now: Time, attempt: Attempt) {
        if let Some(term) = self.term.as_mut().filter(|term| term.id.attempt == attempt)
            && let Phase::Adopting { overdue: true, shown, .. } = &mut term.phase
        {
            shown.get_or_insert(now);
        }
    }

    pub(super) fn published(&mut self, now: Time, attempt: Attempt, outcome: Publication) {
        let Some(term) = &mut self.term else { return };
        if term.id.attempt != attempt || term.phase != Phase::Publishing {
            return;
        }
        match outcome {
            Publication::Written => term.phase = Phase::Held,
            #[cfg(feature = "check")]
            Publication::Unknown if breaks!(self.rules, UnknownWriteReleased) => self.release_unpublished(now),
            Publication::Unknown => {}
            Publication::NotWritten => {
                let id = term.id.clone();
                self.effects.push_back(Effect::Publish(id));
            }
            Publication::Superseded => self.give_up(now, EndReason::Superseded),
        }
    }

    /// Acts on the deadlines that have come.
    pub(super) fn expire_term(&mut self, now: Time) {
        self.expire_validity(now);
        self.expire_adoption(now);
        self.expire_round(now);
    }

    fn expire_validity(&mut self, now: Time) {
        let watched = !breaks!(self.rules, NoLocalDeadline);
        let Some(term) = &self.term else { return };
        let Some(stop_at) = term.stop_at.filter(|&stop_at| watched && now >= stop_at) else { return };
        // Only a published term can be kept by another process.
        let others_may_keep = term.phase == Phase::Held;
        // A renewal that was due long ago shows the pause, too, when this deadline has only just passed. The driver may have
        // given it a turn at this moment.
        let due = [self.term_deadline(), self.next_round_at()].into_iter().flatten().fold(stop_at, Time::min);
        let is_late = now.since(due) > LATE_WAKE && !breaks!(self.rules, SealOnLateWake);
        if others_may_keep && (is_late || self.config.deadline == OnDeadline::Unconfirm) {
            self.unconfirm(now);
            if let Some(Term { phase: Phase::Adopting { overrun, .. }, .. }) = &mut self.term
                && !is_late
            {
                *overrun = Overrun::Yes;
            }
            return;
        }
        if term.open_round().is_some() {
            self.effects.push_back(Effect::Renewed(Renewal::Timeout));
        }
        self.give_up(now, EndReason::Deadline);
    }

    fn expire_adoption(&mut self, now: Time) {
        let Some(term) = &mut self.term else { return };
        if let Phase::Adopting { unconfirmed_at, overdue, .. } = &mut term.phase {
            *overdue |= now >= *unconfirmed_at;
        }
        term.ask_if_overrun(now, self.config.deadline);
        match term.lost_at(&self.config) {
            Some(lost_at) if now >= lost_at && now.since(lost_at) > LATE_WAKE => term.unconfirm(&self.config, now),
            Some(lost_at) if now >= lost_at => self.give_up(now, EndReason::NeverConfirmed),
            _ => {}
        }
    }

    /// Nothing that began before now counts: the clock by which its deadlines were set may have stood still.
    pub(super) fn void(&mut self, now: Time) {
        if breaks!(self.rules, BeliefOutlivesClockJump) {
            return;
        }
        self.wanted = None;
        self.abandon(now);
        if let Some(ending) = &mut self.ending {
            ending.void(now);
        }
        let Some(term) = &mut self.term else { return };
        if term.phase == Phase::Publishing {
            return self.give_up(now, EndReason::Deadline);
        }
        term.extension = None;
        for node in &mut term.nodes {
            if matches!(node, NodeState::Granted { .. }) {
                *node = NodeState::Missing;
            }
        }
        self.unconfirm(now);
    }

    /// No longer treats a term as held that another process may renew.
    fn unconfirm(&mut self, now: Time) {
        let Some(term) = &mut self.term else { return };
        term.unconfirm(&self.config, now);
        if !breaks!(self.rules, ShownLast) {
            self.emit_view();
        }
    }

    /// Ends the term for a reason that this process found itself.
    pub(super) fn give_up(&mut self, now: Time, reason: EndReason) {
        let Some(term) = self.term.take() else { return };
        if reason != EndReason::Superseded && breaks!(self.rules, ReleaseOnLocalDeadline) {
            self.release_everywhere(now, term.id.attempt, Stages::All, term.keys_until);
            return;
        }
        self.seal(now, term, reason);
    }

    /// Ends a term by decision. With proof, its keys may be kept until a time.
    pub(super) fn end(&mut self, now: Time, id: TermId, proof: bool, keep_until: Option<Time>) {
        self.wanted = None;
        let Some(term) = self.term.take_if(|term| term.id.attempt == id.attempt) else {
            self.end_known(now, id, proof, keep_until);
            return;
        };
        if proof {
            self.emit_view();
            self.release_term(now, term.id.attempt, term.keys_until, keep_until);
            self.not_before = now;
        } else {
            self.seal(now, term, EndReason::Decided);
        }
    }

    fn seal(&mut self, now: Time, term: Term, reason: EndReason) {
        let valid_until = term.valid_until.unwrap_or(term.keys_until);
        self.ending = Some(Ending::new(&self.config, now, term.id, reason, valid_until, term.keys_until));
        // Readers of the view learn that the term is over before any node does.
        if !breaks!(self.rules, ShownLast) {
            self.emit_view();
        }
    }
}
