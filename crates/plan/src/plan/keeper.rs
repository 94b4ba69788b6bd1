//! Reconciles the keeper machine with the resource: opens and configures it, and adopts or ends the term in the status.

use std::sync::Arc;

use redislease_core::lease::{EndReason, OnDeadline, Standing, TermId, TermView, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::durations;
use super::effect::Effect;
use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::recorded::{Recorded, latest_token};
use super::restarts::Restarts;
use super::{Authority, Command, OpenQuorum};
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::{RedisLease, ValidLease};
use crate::election::EndCause;
use crate::status::{NoticeReason, ObservedTerms, renewal_notice};

/// How long another replica has to contradict an unconfirmed status before the labels follow it.
const CONTRADICTION: Millis = Millis(1000);

/// The keeper machine of the lease, as long as one runs, and what is known about its terms.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeper {
    link: Option<KeeperLink>,
    restarts: Restarts,
    /// The terms that this keeper machine has run, and why they were ended.
    terms: ObservedTerms,
    /// Whether the holder of the last term was proven to have stopped.
    last_end_was_proven: bool,
    /// The term that the status calls unconfirmed, and since when.
    unconfirmed: Option<(Attempt, Time)>,
    /// The term that was dropped because no majority had confirmed it for one lease.
    dropped: Option<Attempt>,
}

impl Keeper {
    pub const fn link(&self) -> Option<&KeeperLink> {
        self.link.as_ref()
    }

    pub const fn link_mut(&mut self) -> Option<&mut KeeperLink> {
        self.link.as_mut()
    }

    pub fn view(&self) -> Option<&View> {
        self.link().map(|link| &link.view)
    }

    pub fn standing(&self) -> Option<&Standing> {
        self.view().map(|view| &view.standing)
    }

    pub const fn terms(&self) -> &ObservedTerms {
        &self.terms
    }

    pub const fn last_end_was_proven(&self) -> bool {
        self.last_end_was_proven
    }

    pub fn publishing(&self) -> Option<&TermView> {
        match self.standing() {
            Some(Standing::Publishing(term)) => Some(term),
            _ => None,
        }
    }

    pub fn held(&self) -> Option<&TermId> {
        match self.standing() {
            Some(Standing::Held(term)) => Some(&term.id),
            _ => None,
        }
    }

    /// Whether the view is older than the last command: then it must be ignored.
    pub fn is_behind(&self) -> bool {
        self.link().is_some_and(KeeperLink::is_behind)
    }

    /// Until when no machine must be started: one has panicked.
    pub fn waits_until(&self, now: Time) -> Option<Time> {
        self.restarts.waits_until(now)
    }

    pub fn show(&mut self, view: View, out: &mut Effects) {
        let Some(link) = &mut self.link else { return };
        let notice = renewal_notice(&link.view, &view);
        self.terms.record_view(&view);
        if view.ending.as_ref().is_some_and(|ending| ending.reason != EndReason::Decided) {
            self.last_end_was_proven = false;
        }
        if !matches!(view.standing, Standing::Uncertain(_)) {
            // If the machine doubts anew, it waits to hear again that the status says so.
            self.unconfirmed = None;
        }
        if matches!(view.standing, Standing::Held(_)) {
            self.dropped = None;
        }
        link.show(view);
        if let Some(notice) = notice {
            out.emit(notice);
        }
    }

    pub fn ended(&mut self, now: Time, out: &mut Effects) {
        let Some(link) = self.link.take() else { return };
        // The observations of this machine do not apply to the next one.
        self.terms = ObservedTerms::default();
        if !link.retiring {
            self.restarts.panicked(now);
            let note = "The operator has a defect that affects this lease: the keeper of its term panicked and is started \
                        again. The operator's log has the message to report.";
            out.report(NoticeReason::InternalError, note.into(), Vec::new());
        }
    }

    /// Another replica leads: a running term is dropped, not ended, because the leader renews it.
    pub fn close(&mut self, out: &mut Effects) {
        if self.link.is_some() {
            out.emit(Command::Close);
        }
        *self = Self { restarts: self.restarts.clone(), ..Self::default() };
    }

    /// Opens or replaces the keeper machine, and continues or ends the term in the status.
    pub fn sync(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        let &Turn { now, lease, ref inputs, spec, .. } = turn;
        // While the old nodes are unknown, the operator can only wait until their keys expire.
        let quorum = inputs.quorum.clone().filter(|_| !inputs.blocked && spec.is_some());
        let recorded = Recorded::of(lease);
        if self.is_outgrown(recorded.as_ref(), turn, quorum.is_some()) {
            self.link = None;
            out.emit(Command::Close);
        }
        if self.link.is_none() && (quorum.is_some() || recorded.is_some()) {
            self.open(now, spec, quorum, out);
        }
        let Some(link) = &mut self.link else { return };
        let floor = latest_token(lease);
        if link.quorum.is_some() && floor > link.floor {
            link.floor = floor;
            out.emit(Effect::RaiseFloor(floor));
        }
        self.reconcile_unconfirmed(now, lease, out);
        if let Some(recorded) = recorded {
            self.adopt_or_end(&recorded, turn, out);
        }
    }

    /// Drops a term that no majority has confirmed for one lease duration, while this process does not lead. Its keys have
    /// expired on a majority of the nodes, unless another replica renews them. To renew those on the other nodes has no use,
    /// and with an even number of nodes, keys on half of them keep every other cluster from the lease.
    pub fn drop_unconfirmed(&mut self, now: Time, out: &mut Effects) {
        // If this process decides again, it says once more that the term is unconfirmed: the machine may have begun to doubt anew.
        self.unconfirmed = None;
        let Some(link) = &mut self.link else { return };
        let Standing::Uncertain(term) = &link.view.standing else {
            link.unconfirmed = None;
            return;
        };
        let attempt = term.id.attempt;
        let until = match link.unconfirmed {
            Some((known, until)) if known == attempt => until,
            _ => now + link.config.drift.most(link.config.ttl),
        };
        link.unconfirmed = Some((attempt, until));
        if now < until {
            return out.wake_at(until);
        }
        (self.link, self.dropped) = (None, Some(attempt));
        self.terms = ObservedTerms::default();
        out.emit(Command::Close);
    }

    /// Whether the machine uses nodes that the lease no longer uses or may no longer use, and has no term left to end
    /// there.
    fn is_outgrown(&self, recorded: Option<&Recorded<'_>>, turn: &Turn<'_>, usable: bool) -> bool {
        let Some(link) = &self.link else { return false };
        if link.quorum.is_none() {
            // The nodes have become known: the term is adopted again on them.
            return usable;
        }
        // A term that ended on the old nodes is removed from the status first: it is unknown to the new nodes.
        let shown = recorded.is_none_or(|recorded| !link.knows(recorded.attempt));
        let denied = turn.facts.quorum.denied && turn.inputs.quorum.is_none();
        (denied || turn.replaces(link)) && link.is_idle() && shown
    }

    fn open(&mut self, now: Time, spec: Option<&ValidLease>, quorum: Option<Arc<OpenQuorum>>, out: &mut Effects) {
        self.restarts.started(now);
        let config = durations::of(spec, quorum.as_deref());
        let keys = spec.filter(|_| quorum.is_some()).map(|spec| spec.keys.clone()).unwrap_or_default();
        self.terms = ObservedTerms::default();
        self.link = Some(KeeperLink::new(quorum.clone(), config.clone()));
        out.emit(Effect::Open { quorum, keys, config });
    }

    /// Durations of a held lease apply from the next successful extension that starts after the change.
    pub fn configure(&mut self, turn: &Turn<'_>, out: &mut Effects) {
        let Some(link) = &mut self.link else { return };
        // An edit of `commandTimeout` keeps the connections.
        if !turn.replaces(link) && turn.inputs.quorum.is_some() && link.quorum.is_some() {
            link.quorum.clone_from(&turn.inputs.quorum);
        }
        let mut config = durations::of(turn.spec, link.quorum.as_deref());
        config.deadline = match turn.facts.authority {
            Authority::Lead | Authority::End => OnDeadline::Seal,
            // Another replica may hold the term.
            Authority::Renew | Authority::Follow => OnDeadline::Unconfirm,
        };
        if config != link.config {
            link.config = config.clone();
            out.emit(Command::Configure(Box::new(config)));
        }
    }

    /// Continues the term in the status, or ends it if it must not continue.
    fn adopt_or_end(&mut self, recorded: &Recorded<'_>, turn: &Turn<'_>, out: &mut Effects) {
        let Some(link) = &mut self.link else { return };
        if link.running().is_some() || link.knows(recorded.attempt) {
            return;
        }
        let term = recorded.term(&turn.identity.name, &turn.identity.cluster.uid);
        let revoked = turn.revoked();
        if recorded.active && revoked.is_none() {
            // Until the machine's view contains the term, nothing is decided about it.
            if link.requested_adoption.replace(term.attempt) != Some(term.attempt) {
                let is_overrun = self.dropped == Some(term.attempt);
                out.emit(if is_overrun { Command::AdoptOverrun(term) } else { Command::Adopt(term) });
            }
            return;
        }
        // The machine ignores an end while it adopts another term.
        if link.requested_adoption.is_some_and(|other| other != term.attempt && !link.knows(other)) {
            return;
        }
        // The term was ended or must end. Sealing again is always safe; continuing is not.
        if let Some(cause) = revoked {
            self.terms.record_decision(term.attempt, cause, false);
        }
        if link.request_end(&term, false) {
            out.emit(Command::End { term, proof: false });
        }
    }

    /// This process wrote that it cannot confirm a term. If the status calls the term active again, another process has
    /// confirmed it since.
    pub fn reconcile_unconfirmed(&mut self, now: Time, lease: &RedisLease, out: &mut Effects) {
        let (Some(link), Some(recorded)) = (&self.link, Recorded::of(lease)) else { return };
        let says = |status| lease.status.as_ref().is_some_and(|shown| shown.says(ConditionType::Active, status));
        let attempt = recorded.attempt;
        match &link.view.standing {
            Standing::Uncertain(term) if term.id.attempt == attempt => {
                let shown = self.unconfirmed_since(attempt).is_some();
                if says(ConditionStatus::Unknown) && !shown {
                    self.unconfirmed = Some((attempt, now));
                    out.emit(Command::UnconfirmedShown(attempt));
                } else if says(ConditionStatus::True) && shown {
                    self.unconfirmed = None;
                    out.emit(Command::KeptElsewhere(attempt));
                }
            }
            _ => {}
        }
    }

    /// Since when the status has called this term unconfirmed.
    fn unconfirmed_since(&self, attempt: Attempt) -> Option<Time> {
        self.unconfirmed.filter(|(unconfirmed, _)| *unconfirmed == attempt).map(|(_, since)| since)
    }

    /// Until when another replica may contradict an unconfirmed status. Until then the labels stay unchanged.
    pub fn label_grace_deadline(&self) -> Option<Time> {
        let attempt = self.link()?.running()?.attempt;
        self.unconfirmed_since(attempt).map(|since| since + CONTRADICTION)
    }

    /// Whether the term is unconfirmed and the status does not say so yet.
    pub fn is_newly_unconfirmed(&self) -> bool {
        match self.standing() {
            Some(Standing::Uncertain(term)) => self.unconfirmed_since(term.id.attempt).is_none(),
            _ => false,
        }
    }

    /// Ends a term after [`KeeperLink::request_end`].
    pub fn end(&mut self, term: TermId, proof: bool, cause: EndCause, out: &mut Effects) {
        self.terms.record_decision(term.attempt, cause, proof);
        self.last_end_was_proven = proof;
        out.emit(Command::End { term, proof });
    }

    /// The resource is deleted: the term ends, and the machine stays until the last key has expired. `stopped`: the holder is
    /// proven to have stopped.
    pub fn retire(&mut self, stopped: bool, out: &mut Effects) {
        let Some(link) = &mut self.link else { return };
        let ending = link.view.ending.as_ref().filter(|_| stopped).map(|ending| ending.id.clone());
        if let Some(term) = link.running().cloned().or(ending)
            && link.request_end(&term, stopped)
        {
            out.emit(Command::End { term, proof: stopped });
        }
        if !std::mem::replace(&mut link.retiring, true) {
            out.emit(Command::Retire);
        }
    }
}
