//! A workload that is the only candidate of its lease: when the operator starts it, stops it, and fences it.
//!
//! - *Consent.* The workload names the one lease that may start and stop it. Without it, the term ends, and what the operator has
//!   written is removed; the workload runs on as it is.
//! - *First contact.* A workload is ours if its owner annotation names this lease and this object, or did so while this process
//!   decided. One that is not ours runs on until a term of it is held, or until an attempt that began after it was first seen was
//!   answered: another holds the lease.
//! - *Withdrawal.* Each write of `standby` raises the number in the withdrawn annotation, so that a start that is still under way
//!   names an earlier version. A withdrawal is due after a gain of authority, after each end or doubt of a term, and after a
//!   restore of the API server. Nothing starts while one is due.
//! - *Start.* The object is seen first; then the status is read directly; the write names the version that was seen before.
//! - *Doubt.* While a term is unconfirmed, only the label moves.

use redislease_core::lease::{Refusal, Standing};
use redislease_core::op::Token;
use redislease_core::time::Time;

use super::Reconciler;
use super::activation::switched;
use super::desired_roles::{DesiredRole, carries};
use super::effect::{Command, PodChange, Priority};
use super::entitlement::Entitlement;
use super::facts::{CandidateFacts, Facts};
use super::inputs::Inputs;
use crate::api::names::{self, PodRole};
use crate::election::{HolderName, Object, WorkloadFacts};

mod consent;
mod state;

pub(super) use consent::Missing;
pub(super) use state::WorkloadState;

/// Annotations of a write; `None` removes one.
type Marks = Vec<(String, Option<String>)>;

impl Reconciler {
    /// Reconciles the workload with the entitlement.
    pub(super) fn assign_workload(&mut self, now: Time, inputs: &Inputs, facts: &Facts, entitlement: &Entitlement) {
        // Pods of an earlier spec.
        for pod in &facts.strays {
            if self.needed(pod.object(), &DesiredRole::NONE) {
                self.write_role(now, pod.object(), DesiredRole::NONE, Priority::Standby, None);
            }
        }
        let Some(workload) = inputs.electorate.as_ref().and_then(|electorate| electorate.workload()).cloned() else {
            return;
        };
        if inputs.refused {
            self.workload = WorkloadState::default();
        } else if self.workload.see(now, &workload, self.is_marked(&workload)) {
            self.attempt_at_once(now);
        }
        if inputs.deleting || inputs.refused {
            self.unmark(now, &workload);
        } else if entitlement.holder.as_ref().is_some_and(|(uid, _)| *uid == workload.uid) {
            // How it is to run is not certain.
            if !inputs.differs {
                self.start_workload(now, facts, entitlement, &workload);
            }
        } else if self.is_contending() && !self.may_be_active(workload.object()) {
            // If the attempt succeeds, one write sets role and token.
        } else if self.is_ours(&workload) || (!inputs.differs && self.others_hold(now)) {
            self.stop_workload(now, entitlement, &workload);
        }
    }

    /// Why the lease must not start or stop its workload, if the workload was read.
    pub(super) fn missing_consent(&self, facts: &Facts) -> Option<Missing> {
        let CandidateFacts::Known(electorate) = &facts.candidates else { return None };
        let spec = self.spec.valid.as_ref().filter(|spec| spec.cluster.is_some())?;
        consent::missing(spec, electorate.workload()?)
    }

    /// The workload holds the lease.
    fn start_workload(&mut self, now: Time, facts: &Facts, entitlement: &Entitlement, workload: &WorkloadFacts) {
        let Some((_, token)) = entitlement.holder else { return };
        let active = self.switched(workload, PodRole::Active, Some(token));
        let change = active.change;
        let is_active = carries(workload.object(), &self.identity.name, &active);
        if is_active && change == PodChange::None && self.is_marked(workload) {
            return;
        }
        if !is_active && self.workload.is_due() {
            // A start of an earlier term may still be under way: this write moves the version past it.
            return self.withdraw_workload(now, entitlement, workload, DesiredRole::standby(Some(token)));
        }
        let may_grant = self.status.is_known() && self.grants_in_flight(entitlement) && self.holds(entitlement);
        if !may_grant || facts.stop_at.is_some_and(|stop_at| now >= stop_at) {
            return;
        }
        if !self.is_start_confirmed(now, workload.object()) {
            return;
        }
        let marks = vec![(names::owner_annotation(&self.identity.name), Some(self.owner_of(workload)))];
        self.write_marked(now, workload.object(), (active, marks), Priority::Active, facts.stop_at);
    }

    /// The workload does not hold the lease.
    fn stop_workload(&mut self, now: Time, entitlement: &Entitlement, workload: &WorkloadFacts) {
        let standing = self.link.as_ref().map(|link| &link.view.standing);
        if matches!(standing, Some(Standing::Held(_))) {
            // The status does not name the term any more, for example after a restore of the API server. It is published again, or
            // its end follows.
            return;
        }
        // An unconfirmed term may continue: only the label moves.
        let doubtful = matches!(standing, Some(Standing::Uncertain(_)));
        let token = entitlement.newest_token();
        let standby =
            if doubtful { DesiredRole::standby(token) } else { self.switched(workload, PodRole::Standby, token) };
        let is_standby = carries(workload.object(), &self.identity.name, &standby) && standby.change == PodChange::None;
        if !is_standby || self.workload.is_due() || !self.is_marked(workload) {
            self.withdraw_workload(now, entitlement, workload, standby);
        }
    }

    fn withdraw_workload(
        &mut self,
        now: Time,
        entitlement: &Entitlement,
        workload: &WorkloadFacts,
        standby: DesiredRole,
    ) {
        if let Some(later) = self.later_token(entitlement, workload.object()) {
            return self.verify_latest(later);
        }
        let lease = &self.identity.name;
        let (owner, withdrawn) = (names::owner_annotation(lease), names::withdrawn_annotation(lease));
        let next = withdrawals(workload.annotations.get(&withdrawn)).checked_add(1).unwrap_or(0);
        let marks =
            vec![(owner, Some(self.owner_of(workload))), (withdrawn, Some(format!("{}.{next}", entitlement.latest)))];
        // A stop is as urgent as the status that shows the end: another cluster may start one stop budget later.
        let priority = if standby.change == PodChange::None { Priority::Active } else { Priority::End };
        if self.write_marked(now, workload.object(), (standby, marks), priority, None) {
            self.workload.withdrawal_sent();
        }
    }

    /// The marks that a write removes with the role.
    pub(super) fn removed_marks(&self, workload: Object<'_>, desired: &DesiredRole) -> Marks {
        if workload.workload.is_none() || desired.role.is_some() {
            return Vec::new();
        }
        let lease = &self.identity.name;
        [names::owner_annotation(lease), names::withdrawn_annotation(lease)].map(|mark| (mark, None)).into()
    }

    /// Removes label and annotations of the lease. Nothing else of the workload changes.
    fn unmark(&mut self, now: Time, workload: &WorkloadFacts) {
        if workload.marked_by().any(|lease| lease == self.identity.name) {
            self.write_role(now, workload.object(), DesiredRole::NONE, Priority::Active, None);
        }
    }

    /// Unmarks the workloads that are not the candidate of the lease any more.
    pub(super) fn unmark_strays(&mut self, now: Time, facts: &Facts) {
        for workload in &facts.stray_workloads {
            if facts.allowed.switches(workload.kind) {
                self.unmark(now, workload);
            }
        }
    }

    /// What the workload is to be with this role.
    fn switched(&self, workload: &WorkloadFacts, role: PodRole, token: Option<Token>) -> DesiredRole {
        match self.spec.valid.as_ref().and_then(|spec| spec.cluster) {
            Some(activation) => switched(activation, workload, role, token),
            None => DesiredRole { role: Some(role), token, ..DesiredRole::NONE },
        }
    }

    fn owner_of(&self, workload: &WorkloadFacts) -> String {
        format!("{}.{}", self.identity.uid, workload.uid)
    }

    /// Whether this lease has written this object. A tool that replaces all annotations removes the mark again and again; the
    /// workload is stopped all the same when its term ends.
    fn is_ours(&self, workload: &WorkloadFacts) -> bool {
        self.is_marked(workload) || self.workload.was_ours(workload)
    }

    /// Whether the mark of the workload says that this lease has written this object.
    fn is_marked(&self, workload: &WorkloadFacts) -> bool {
        let owner = workload.annotations.get(&names::owner_annotation(&self.identity.name));
        owner.is_some_and(|owner| *owner == self.owner_of(workload))
    }

    /// Whether an attempt that began after the workload was first seen was answered: another cluster or another lease holds the
    /// lease, and its keys still last.
    fn others_hold(&self, now: Time) -> bool {
        let Some(link) = &self.link else { return false };
        let (Some(Refusal { asked_at, until }), Some(by)) = (link.view.refusal, &link.view.refused_by) else {
            return false;
        };
        let Ok(name) = by.metadata.parse::<HolderName>() else { return false };
        let is_other = name.cluster.uid != self.identity.cluster.uid
            || (&name.namespace, &name.lease) != (&self.identity.namespace, &self.identity.name);
        is_other && self.workload.is_known_before(asked_at) && now < until
    }

    /// Only an attempt can tell who holds the lease.
    fn attempt_at_once(&mut self, now: Time) {
        let waits = self.link.as_ref().is_some_and(|link| link.next_attempt_at().is_some_and(|at| now < at));
        if waits {
            self.command(Command::TryNow);
        }
    }
}

/// The number in the annotation `<token>.<n>`.
fn withdrawals(annotation: Option<&String>) -> u64 {
    annotation.and_then(|value| value.rsplit_once('.')?.1.parse().ok()).unwrap_or(0)
}
