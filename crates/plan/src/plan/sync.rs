//! Reconciles the keeper machine with the resource: opens and configures it, and adopts or ends the term in the status.

use std::sync::Arc;

use redislease_core::lease::{OnDeadline, Standing};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::effect::Command;
use super::facts::{Authority, OpenQuorum};
use super::inputs::Inputs;
use super::keeper_link::KeeperLink;
use super::recorded::{Recorded, latest_token};
use super::{Reconciler, durations};
use crate::api::RedisLease;
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::election::EndCause;
use crate::status::ObservedTerms;

/// How long another replica has to contradict an unconfirmed status before the labels follow it.
const CONTRADICTION: Millis = Millis(1000);

impl Reconciler {
    /// Opens or replaces the keeper machine, and continues or ends the term in the status.
    pub(super) fn sync_keeper(&mut self, now: Time, lease: &RedisLease, inputs: &Inputs) {
        // While the old nodes are unknown, the operator can only wait until their keys expire.
        let quorum = inputs.quorum.clone().filter(|_| !inputs.blocked && self.spec.valid.is_some());
        let recorded = Recorded::of(lease);
        if self.is_outgrown(recorded.as_ref(), inputs, quorum.is_some()) {
            self.link = None;
            self.command(Command::Close);
        }
        if self.link.is_none() && (quorum.is_some() || recorded.is_some()) {
            self.open(now, quorum);
        }
        let Some(link) = &mut self.link else { return };
        let floor = latest_token(lease);
        if link.quorum.is_some() && floor > link.floor {
            link.floor = floor;
            self.command(Command::RaiseFloor(floor));
        }
        self.reconcile_unconfirmed(now, lease);
        if let Some(recorded) = recorded {
            self.adopt_or_end(&recorded, inputs);
        }
    }

    /// Drops a term that no majority has confirmed for one lease duration, while this process does not lead. Its keys have
    /// expired on a majority of the nodes, unless another replica renews them. To renew those on the other nodes has no use,
    /// and with an even number of nodes, keys on half of them keep every other cluster from the lease.
    pub(super) fn drop_unconfirmed(&mut self, now: Time) {
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
            return self.wake_at(until);
        }
        self.link = None;
        self.terms = ObservedTerms::default();
        self.command(Command::Close);
    }

    /// Whether the machine uses nodes that the lease no longer uses or may no longer use, and has no term left to end
    /// there.
    fn is_outgrown(&self, recorded: Option<&Recorded<'_>>, inputs: &Inputs, usable: bool) -> bool {
        let Some(link) = &self.link else { return false };
        if link.quorum.is_none() {
            // The nodes have become known: the term is adopted again on them.
            return usable;
        }
        // A term that ended on the old nodes is removed from the status first: it is unknown to the new nodes.
        let shown = recorded.is_none_or(|recorded| !link.knows(recorded.attempt));
        let denied = inputs.denied && inputs.quorum.is_none();
        (denied || inputs.replaces(link)) && link.is_idle() && shown
    }

    fn open(&mut self, now: Time, quorum: Option<Arc<OpenQuorum>>) {
        self.restarts.started(now);
        let config = match &self.spec.valid {
            Some(spec) => durations::of(spec, quorum.as_deref()),
            None => durations::longest(quorum.as_deref()),
        };
        let keys = match (&quorum, &self.spec.valid) {
            (Some(_), Some(spec)) => spec.keys.clone(),
            _ => Vec::new(),
        };
        self.terms = ObservedTerms::default();
        self.link = Some(KeeperLink::new(quorum.clone(), config.clone()));
        self.command(Command::Open { quorum, keys, config });
    }

    /// Durations of a held lease apply from the next successful extension that starts after the change.
    pub(super) fn configure(&mut self, authority: Authority) {
        let Some(link) = &mut self.link else { return };
        let mut config = match &self.spec.valid {
            Some(spec) => durations::of(spec, link.quorum.as_deref()),
            None => durations::longest(link.quorum.as_deref()),
        };
        config.deadline = match authority {
            Authority::Lead | Authority::End => OnDeadline::Seal,
            // Another replica may hold the term.
            Authority::Renew | Authority::Follow => OnDeadline::Unconfirm,
        };
        if config != link.config {
            link.config = config.clone();
            self.command(Command::Configure(config));
        }
    }

    /// Continues the term in the status, or ends it if it must not continue.
    fn adopt_or_end(&mut self, recorded: &Recorded<'_>, inputs: &Inputs) {
        let Some(link) = &mut self.link else { return };
        if link.running().is_some() || link.knows(recorded.attempt) {
            return;
        }
        let term = recorded.term(&self.identity.name, &self.identity.cluster.uid);
        let revoked = [
            (inputs.deleting, EndCause::Deleted),
            (inputs.suspended, EndCause::Suspended),
            (inputs.denied, EndCause::NamespaceNotAllowed),
        ];
        let revoked = revoked.into_iter().find_map(|(revoked, cause)| revoked.then_some(cause));
        if recorded.active && revoked.is_none() {
            // Until the machine's view contains the term, nothing is decided about it.
            if link.requested_adoption.replace(term.attempt) != Some(term.attempt) {
                self.command(Command::Adopt(term));
            }
            return;
        }
        // The term was ended or must end. Sealing again is always safe; continuing is not.
        if let Some(cause) = revoked {
            self.terms.record_decision(term.attempt, cause, false);
        }
        if link.request_end(term.attempt, false) {
            self.command(Command::End { term, proof: false });
        }
    }

    /// This process wrote that it cannot confirm a term. If the status calls the term active again, another process has
    /// confirmed it since.
    pub(super) fn reconcile_unconfirmed(&mut self, now: Time, lease: &RedisLease) {
        let (Some(link), Some(recorded)) = (&self.link, Recorded::of(lease)) else { return };
        let says = |status| lease.status.as_ref().is_some_and(|shown| shown.says(ConditionType::Active, status));
        let attempt = recorded.attempt;
        match &link.view.standing {
            Standing::Uncertain(term) if term.id.attempt == attempt => {
                let shown = self.roles.unconfirmed_since(attempt).is_some();
                if says(ConditionStatus::Unknown) && !shown {
                    self.roles.set_unconfirmed(Some((attempt, now)));
                    self.command(Command::UnconfirmedShown(attempt));
                } else if says(ConditionStatus::True) && shown {
                    self.roles.set_unconfirmed(None);
                    self.command(Command::KeptElsewhere(attempt));
                }
            }
            _ => self.roles.set_unconfirmed(None),
        }
    }

    /// Until when another replica may contradict an unconfirmed status. Until then the labels stay unchanged.
    pub(super) fn label_grace_deadline(&self) -> Option<Time> {
        let attempt: Attempt = self.link.as_ref()?.running()?.attempt;
        self.roles.unconfirmed_since(attempt).map(|since| since + CONTRADICTION)
    }
}
