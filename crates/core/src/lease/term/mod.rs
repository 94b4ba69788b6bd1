//! A running term: its publication, its validity, its end.

use crate::lease::config::{Config, LATE_WAKE, OnDeadline};
use crate::lease::context::Context;
use crate::lease::event::{Effect, Renewal, Round};
use crate::lease::view::{EndReason, Standing, TermId, TermView};
use crate::op::Vote;
use crate::quorum::{Decision, Node};
use crate::time::{Millis, Time};

mod extension;
mod join;
#[cfg(feature = "check")]
#[path = "../../check/rebase/term.rs"]
mod rebase;

use extension::Extension;
pub(super) use join::{Joins, NodeState};

/// Whether the status names a term, and whether a majority has confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
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

/// Whether a term passed its deadline, or was lost unconfirmed, while this process had no right to end it. Another process that got the
/// right may have kept it since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Overrun {
    No,
    Yes,
    /// This process has the right again, and one round asks the nodes whether another process has kept the term.
    Asked,
}

impl Phase {
    /// The status names the term; nothing else is known of it.
    fn unconfirmed(config: &Config, now: Time, overrun: Overrun) -> Self {
        let (unconfirmed_at, ends_at) = (now + config.renew_interval, now + config.longest_life());
        Self::Adopting { unconfirmed_at, ends_at, overdue: false, shown: None, overrun }
    }
}

/// A running term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    view: TermView,
    phase: Phase,
    nodes: Joins,
    extension: Option<Extension>,
    next_round_at: Time,
    /// How long after the beginning of its round the term is valid, less the stop budget.
    span: Millis,
    /// The last instant at which a key of this term can exist.
    keys_until: Time,
}

/// Time from the start of a round to the start of the next. A longer interval of a new configuration counts only after a round with the
/// longer validity of that configuration: the interval of the one before is at most half of `span`.
fn renewal_pace(config: &Config, span: Millis) -> Millis {
    config.renew_interval.min(Millis(span.0 / 2))
}

/// What becomes of a term.
#[derive(Clone, Copy)]
#[must_use]
pub(super) enum Fate {
    /// It goes on.
    Runs,
    /// No process may treat it as held before a majority has confirmed it again.
    Unconfirmed,
    Ends(EndReason),
}

impl Term {
    /// A term that this process took. `times` are the start of round 1, the end of validity, and
    /// `stop_at`.
    pub fn acquired(config: &Config, id: TermId, nodes: Joins, times: (Time, Time, Time), keys_until: Time) -> Self {
        let (t0, valid_until, stop_at) = times;
        Self {
            view: TermView { id, valid_until: Some(valid_until), stop_at: Some(stop_at), failed_rounds: 0 },
            phase: Phase::Publishing,
            nodes,
            extension: None,
            next_round_at: t0 + renewal_pace(config, stop_at.since(t0)),
            span: stop_at.since(t0),
            keys_until,
        }
    }

    pub fn adopted(config: &Config, id: TermId, now: Time, is_overrun: bool) -> Self {
        let overrun = if is_overrun { Overrun::Yes } else { Overrun::No };
        Self {
            view: TermView { id, valid_until: None, stop_at: None, failed_rounds: 0 },
            phase: Phase::unconfirmed(config, now, overrun),
            nodes: Joins::all_hold(config.quorum),
            extension: None,
            next_round_at: now,
            span: Millis(u64::MAX),
            keys_until: now + config.longest_life(),
        }
    }

    pub const fn id(&self) -> &TermId {
        &self.view.id
    }

    pub fn standing(&self) -> Standing {
        let view = self.view.clone();
        match self.phase {
            Phase::Publishing => Standing::Publishing(view),
            Phase::Held => Standing::Held(view),
            Phase::Adopting { overdue: false, .. } => Standing::Adopting(view),
            Phase::Adopting { overdue: true, .. } => Standing::Uncertain(view),
        }
    }

    pub fn is_shown(&self, standing: &Standing) -> bool {
        match (self.phase, standing) {
            (Phase::Publishing, Standing::Publishing(view))
            | (Phase::Held, Standing::Held(view))
            | (Phase::Adopting { overdue: false, .. }, Standing::Adopting(view))
            | (Phase::Adopting { overdue: true, .. }, Standing::Uncertain(view)) => *view == self.view,
            _ => false,
        }
    }

    /// After a round that failed, the next one begins now.
    pub fn try_now(&mut self, now: Time) {
        if self.view.failed_rounds > 0 {
            self.next_round_at = self.next_round_at.min(now);
        }
    }

    /// Continues as after a restart: a strict extension decides whether the term still runs.
    fn unconfirm(&mut self, config: &Config, now: Time) {
        self.phase = Phase::unconfirmed(config, now, Overrun::No);
        self.view.valid_until = None;
        self.view.stop_at = None;
        self.next_round_at = self.next_round_at.min(now);
        // Another process may have extended it at any time until now.
        self.keys_until = self.keys_until.max(now + config.longest_life());
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

    /// When an unconfirmed term is given up, unless that was noticed already without the right to end it.
    fn lost_at(&self, config: &Config) -> Option<Time> {
        match self.phase {
            Phase::Adopting { ends_at, shown, overrun: Overrun::No, .. } => {
                shown.map(|shown| ends_at.max(shown + config.renew_interval))
            }
            _ => None,
        }
    }

    /// The round that is under way.
    fn open_round(&self) -> Option<&Extension> {
        self.extension.as_ref().filter(|extension| extension.is_open())
    }

    /// When the next round is due, unless one is under way.
    pub fn next_round_at(&self) -> Option<Time> {
        self.open_round().is_none().then_some(self.next_round_at)
    }

    /// Makes the next round begin at `at` if it would begin later.
    pub fn renew_by(&mut self, at: Time) {
        self.next_round_at = self.next_round_at.min(at);
    }

    /// What is left of the term when it ends: until when it can be treated as held, and until when its keys can exist.
    pub fn ends(self) -> (TermId, Time, Time) {
        (self.view.id, self.view.valid_until.unwrap_or(self.keys_until), self.keys_until)
    }

    pub fn is_publishing(&self) -> bool {
        self.phase == Phase::Publishing
    }

    /// The status names the term.
    pub const fn written(&mut self) {
        self.phase = Phase::Held;
    }

    /// When the term needs a wake.
    pub fn next_deadline(&self, context: &Context) -> Option<Time> {
        let config = &context.config;
        let round = match self.open_round() {
            Some(extension) => extension.t0 + config.command_timeout,
            None => self.next_round_at.max(context.held_until),
        };
        let adoption = match self.phase {
            Phase::Adopting { unconfirmed_at, overdue: false, .. } => {
                // A jump shortly before the end leaves that end.
                Some(self.lost_at(config).map_or(unconfirmed_at, |at| at.min(unconfirmed_at)))
            }
            Phase::Adopting { .. } | Phase::Publishing | Phase::Held => self.lost_at(config),
        };
        let stop_at = self.view.stop_at.filter(|_| !breaks!(context.rules, NoLocalDeadline));
        [Some(round), adoption, stop_at, self.next_join_at()].into_iter().flatten().min()
    }

    /// When the next node that refused is asked again. A term that is not confirmed, or whose last round failed, joins
    /// no node: if it is lost, the grant blocks that node for one TTL.
    fn next_join_at(&self) -> Option<Time> {
        let confirmed = self.view.failed_rounds == 0 && !matches!(self.phase, Phase::Adopting { .. });
        self.nodes.next_at().filter(|_| confirmed)
    }

    /// Another process renews this term. Postpones the unconfirmed state by one lease.
    pub fn kept_elsewhere(&mut self, now: Time, lease: Millis) {
        if let Phase::Adopting { .. } = self.phase {
            let (unconfirmed_at, ends_at) = (now + lease, now + lease + lease);
            let overrun = Overrun::No;
            self.phase = Phase::Adopting { unconfirmed_at, ends_at, overdue: false, shown: None, overrun };
        }
    }

    /// The status shows that this process cannot confirm the term; a process that can may contradict.
    pub fn unconfirmed_shown(&mut self, now: Time) {
        if let Phase::Adopting { overdue: true, shown, .. } = &mut self.phase {
            shown.get_or_insert(now);
        }
    }

    /// Nothing that was confirmed before now counts. What would have ended the term still does: a clock that stood still makes those times
    /// too late, never too early.
    pub fn void(&mut self, context: &Context, now: Time) {
        self.extension = None;
        self.nodes.void_grants();
        let (before, stop_at) = (self.phase, self.view.stop_at);
        self.unconfirm(&context.config, now);
        if breaks!(context.rules, JumpPostponesEnd) {
            return;
        }
        if let Phase::Adopting { .. } = before {
            self.phase = before;
        }
        if let Phase::Adopting { ends_at, shown, overrun, .. } = &mut self.phase {
            if let Some(stop_at) = stop_at {
                // No other process is heard before, as without the jump.
                (*ends_at, *shown) = (stop_at.min(*ends_at), Some(Time(0)));
            }
            if *overrun == Overrun::Asked {
                *overrun = Overrun::Yes;
            }
        }
    }

    /// Acts on the first deadline that has come.
    pub fn expire(&mut self, context: &mut Context, now: Time) -> Fate {
        if let Some(stop_at) = self.view.stop_at.filter(|&stop_at| now >= stop_at)
            && !breaks!(context.rules, NoLocalDeadline)
        {
            return self.expire_validity(context, now, stop_at);
        }
        if matches!(self.phase, Phase::Adopting { .. })
            && let Fate::Ends(reason) = self.expire_adoption(&context.config, now)
        {
            return Fate::Ends(reason);
        }
        if self.extension.as_mut().is_some_and(|extension| extension.expires(context, now)) {
            return self.settle_round(context, now, Renewal::Timeout);
        }
        Fate::Runs
    }

    /// Acts on the end of validity.
    fn expire_validity(&mut self, context: &mut Context, now: Time, stop_at: Time) -> Fate {
        // Only a published term can be kept by another process.
        let others_may_keep = self.phase == Phase::Held;
        // A renewal that was due long ago shows the pause, too, when this deadline has only just passed. The driver may have
        // given it a turn at this moment.
        let due = [self.next_deadline(context), self.next_round_at()].into_iter().flatten().fold(stop_at, Time::min);
        let is_late = now.since(due) > LATE_WAKE && !breaks!(context.rules, SealOnLateWake);
        if others_may_keep && (is_late || context.config.deadline == OnDeadline::Unconfirm) {
            self.unconfirm(&context.config, now);
            if let Phase::Adopting { overrun, .. } = &mut self.phase
                && !is_late
            {
                *overrun = Overrun::Yes;
            }
            return Fate::Unconfirmed;
        }
        if self.open_round().is_some() {
            context.effects.push_back(Effect::Renewed(Renewal::Timeout));
        }
        Fate::Ends(EndReason::Deadline)
    }

    /// Acts on the deadlines of a term that is not confirmed.
    fn expire_adoption(&mut self, config: &Config, now: Time) -> Fate {
        if let Phase::Adopting { unconfirmed_at, overdue, .. } = &mut self.phase {
            *overdue |= now >= *unconfirmed_at;
        }
        self.ask_if_overrun(now, config.deadline);
        let Some(lost_at) = self.lost_at(config).filter(|&lost_at| now >= lost_at) else { return Fate::Runs };
        if now.since(lost_at) > LATE_WAKE {
            self.unconfirm(config, now);
        } else if config.deadline == OnDeadline::Seal {
            return Fate::Ends(EndReason::NeverConfirmed);
        } else if let Phase::Adopting { overrun, .. } = &mut self.phase {
            *overrun = Overrun::Yes;
        }
        Fate::Runs
    }

    /// Begins what is due: joins, and the next round if none is open.
    pub fn advance(&mut self, context: &mut Context, now: Time) {
        if self.next_join_at().is_some_and(|at| now >= at) {
            let acquires = self.nodes.ask_refused(context, now, &self.view.id);
            self.note_joins(context, now, acquires);
        }
        if self.next_round_at().is_some_and(|at| now >= at.max(context.held_until)) {
            self.extension = Some(Extension::begin(context, now, &self.view.id, self.nodes.has_grants()));
            self.note_keys(context, now, context.config.ttl);
        }
    }

    fn note_joins(&mut self, context: &Context, now: Time, acquires: bool) {
        if acquires {
            self.note_keys(context, now, context.life());
        }
    }

    fn note_keys(&mut self, context: &Context, now: Time, ttl: Millis) {
        self.keys_until = self.keys_until.max(context.keys_end(now, ttl));
    }

    /// A node votes again: see [`Input::NodeReturned`](crate::lease::Input::NodeReturned).
    pub fn node_returned(&mut self, ask_by: Time) {
        if self.view.failed_rounds > 0 {
            return;
        }
        match self.extension.as_mut().filter(|extension| extension.is_open()) {
            // The node abstained from this round, or the round will show what it holds. It is not known which.
            Some(extension) => extension.node_returned = true,
            None => self.renew_by(ask_by),
        }
    }

    /// Takes the answer of one node, to an extension or to a step of its join.
    pub fn vote(&mut self, context: &mut Context, now: Time, round: Round, node: Node, vote: &Vote) -> Fate {
        let Some(extension) = self.extension.as_mut().filter(|extension| extension.round == round) else {
            if self.nodes.vote(context, now, round, node, vote, &self.view.id) {
                self.prove_grants(context, now);
                if breaks!(context.rules, JoinConfirmedAtOnce) {
                    self.continue_joins(context, now);
                }
            }
            return Fate::Runs;
        };
        let outcome = extension.outcome;
        extension.vote(context, node, vote);
        self.nodes.extended(now, node, vote, self.view.id.attempt);
        match outcome {
            None => return self.settle_round(context, now, Renewal::NoQuorum),
            Some(Decision::Yes) => self.continue_joins(context, now),
            Some(_) => {}
        }
        Fate::Runs
    }

    fn continue_joins(&mut self, context: &mut Context, now: Time) {
        let proven = self.extension.as_ref().map(|extension| extension.round);
        let acquires = self.nodes.advance(context, now, &self.view.id, proven);
        self.note_joins(context, now, acquires);
    }

    /// Lets the next round begin soon if a grant waits for one: until it is confirmed the term may stand on a bare
    /// majority, which the next fault would end. After a round that was for a grant too, and after one that failed, it
    /// begins at the retry pace: nodes that grant and never confirm do not cause one round after the other.
    pub fn prove_grants(&mut self, context: &Context, now: Time) {
        if self.nodes.has_grants() {
            let last = self.extension.as_ref().filter(|last| last.proves || self.view.failed_rounds > 0);
            self.renew_by(last.map_or(now + context.join_delay, |last| last.t0 + context.config.retry_pace()));
        }
    }

    /// Decides the round if its ballots allow. `undecided` is the outcome when neither a majority extended nor N-q+1
    /// nodes missed.
    fn settle_round(&mut self, context: &mut Context, now: Time, undecided: Renewal) -> Fate {
        let Some(extension) = &mut self.extension else { return Fate::Runs };
        let Some((decision, valid_until, stop_at)) = extension.settle(context, now) else { return Fate::Runs };
        let (t0, node_returned) = (extension.t0, core::mem::take(&mut extension.node_returned));
        match decision {
            Decision::Yes => {
                let left = self.view.valid_until.replace(valid_until).map(|until| until.since(now));
                self.view.stop_at = Some(stop_at);
                self.view.failed_rounds = 0;
                self.span = stop_at.since(t0);
                self.next_round_at = t0 + renewal_pace(&context.config, self.span);
                if matches!(self.phase, Phase::Adopting { .. }) {
                    self.phase = Phase::Held;
                }
                let took = now.since(t0);
                context.effects.push_back(Effect::Renewed(Renewal::Success { took, left }));
                self.continue_joins(context, now);
                if node_returned {
                    self.renew_by(now + context.join_delay);
                }
                self.prove_grants(context, now);
                Fate::Runs
            }
            Decision::No => {
                context.effects.push_back(Effect::Renewed(Renewal::Lost));
                Fate::Ends(EndReason::Misses)
            }
            Decision::Unknown | Decision::Open => {
                let ends = matches!(self.phase, Phase::Adopting { overrun: Overrun::Asked, .. });
                self.view.failed_rounds = self.view.failed_rounds.saturating_add(1);
                self.next_round_at = t0 + context.config.retry_pace().min(Millis(self.span.0 / 4));
                context.effects.push_back(Effect::Renewed(undecided));
                if ends { Fate::Ends(EndReason::Deadline) } else { Fate::Runs }
            }
        }
    }
}
