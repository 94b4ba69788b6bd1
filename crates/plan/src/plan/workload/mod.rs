//! A workload that is the only candidate of its lease: when the operator starts it, stops it, and fences it.
//!
//! - *Consent.* The workload names the one lease that may start and stop it. Without it, the term ends, and what the operator has
//!   written is removed; the workload runs on as it is.
//! - *First contact.* A workload is ours if its owner annotation names this lease and this object, or did so while this process
//!   decided, or if the status named it then, also as the holder of a term that has ended. One that is not ours runs on until a term of
//!   it is held, or until an attempt that began after it was first seen was answered: another holds the lease.
//! - *Created again.* A term of an earlier workload of its name can be that of the workload, see the module `heir`.
//! - *Withdrawal.* Each write of `standby` raises the number in the withdrawn annotation, so that a start that is still under way
//!   names an earlier version. A withdrawal is due after a gain of authority, after each end or doubt of a term, and after a
//!   restore of the API server. Nothing starts while one is due.
//! - *Start.* The object is seen first; then the status is read directly; the write names the version that was seen before.
//! - *Decided ends.* Before a request ends the term of a workload that runs, a dry run shows that the operator can stop it. Otherwise the
//!   term goes on, see [`super::stop_test`].
//! - *Doubt.* While a term is unconfirmed, only the label moves.

use redislease_core::lease::Standing;
use redislease_core::op::Token;
use redislease_core::time::Time;

use super::activation::switched;
use super::confirmation::Confirmation;
use super::context::Context;
use super::desired_role::{DesiredRole, carries};
use super::entitlement::Entitlement;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::recorded::Recorded;
use super::role_writer::{RoleWriter, next_withdrawal};
use super::stop_test::StopTests;
use super::{Command, Facts, PodChange, Priority};
use crate::api::names::{self, PodRole};
use crate::election::WorkloadFacts;

mod consent;
mod heir;
mod state;
mod unfit;

pub(super) use consent::{Missing, missing_consent, stop_risk};
use heir::owner_of;
pub(super) use heir::{heir, is_made_for, waits_for_deletion};
pub(super) use state::WorkloadState;
pub(super) use unfit::is_unproven;

/// One turn of a workload.
pub(super) struct Assignment<'a> {
    pub context: &'a Context<'a>,
    pub is_status_known: bool,
    pub entitlement: &'a Entitlement,
    pub state: &'a mut WorkloadState,
    pub stop_tests: &'a StopTests,
    pub writer: &'a mut RoleWriter,
    pub confirmation: &'a mut Confirmation,
    pub out: &'a mut Effects,
}

impl Assignment<'_> {
    /// Reconciles the workload with the entitlement.
    pub fn run(mut self) {
        let turn = self.context.turn;
        let (now, inputs) = (turn.now, &turn.inputs);
        // Pods of an earlier spec.
        self.writer.clear(now, &turn.facts.strays, Priority::Standby, self.out);
        self.writer.forget_old_objects(turn.facts);
        let Some(workload) = turn.facts.workload() else { return };
        let recorded = Recorded::of(turn.lease);
        if inputs.refused {
            self.state.leave(recorded);
        } else if self.state.see(now, workload, self.is_marked(workload), recorded) {
            self.attempt_at_once();
            // What is known about workloads that had the name before.
            self.writer.retain(|uid| uid == workload.uid);
        }
        if turn.is_deleting() || inputs.refused {
            unmark(now, workload, self.writer, self.out);
        } else if self.entitlement.holder.as_ref().is_some_and(|(uid, _)| *uid == workload.uid) {
            // If its annotations differ, it is not started. One that runs gets its label back after a doubt.
            if !self.tests_stop(workload) && (!inputs.differs || self.is_ours(workload)) {
                self.start(workload);
            }
        } else if self.context.is_contending() && !self.writer.may_be_active(workload.object()) {
            // If the attempt succeeds, one write sets role and token.
        } else if self.is_ours(workload) || (!inputs.differs && self.others_hold()) {
            self.stop(workload);
        } else if self.owner(workload).is_some_and(|owner| owner.ends_with(&format!(".{}", workload.uid))) {
            // An earlier lease of this name has written it: label and token show a term that has ended.
            unmark(now, workload, self.writer, self.out);
        }
    }

    /// Sends the stop as a dry run if that is due. Returns whether the workload waits for an answer.
    fn tests_stop(&mut self, workload: &WorkloadFacts) -> bool {
        if self.entitlement.holder.is_none() || !self.stop_tests.is_due(&workload.uid) {
            return false;
        }
        let stopped = self.stopped(workload, self.entitlement.holder_token(), false).tested();
        self.writer.is_pending(&workload.uid) || self.raise(workload, stopped, Priority::Active)
    }

    fn start(&mut self, workload: &WorkloadFacts) {
        let &Context { turn, keeper, .. } = self.context;
        let token = self.entitlement.holder_token();
        let active = if turn.inputs.differs {
            // How it is to run is not certain.
            DesiredRole { role: Some(PodRole::Active), token, ..DesiredRole::NONE }
        } else {
            self.switched(workload, PodRole::Active, token)
        };
        let change = active.change;
        let is_active = carries(workload.object(), &turn.identity.name, &active);
        if is_active && change == PodChange::None && self.is_marked(workload) {
            return;
        }
        if !is_active && self.state.is_due() {
            // A start of an earlier term may still be under way: this write moves the version past it.
            return self.withdraw(workload, DesiredRole::standby(token));
        }
        let may_grant = self.is_status_known
            && self.writer.grants_in_flight(self.entitlement)
            && self.context.may_grant(self.entitlement);
        if !may_grant || !self.confirmation.is_confirmed(turn.now, workload.object(), keeper.held(), self.out) {
            return;
        }
        let marks = vec![(names::owner_annotation(&turn.identity.name), Some(self.owner_of(workload)))];
        let (object, stop_at) = (workload.object(), turn.facts.stop_at);
        self.writer.write_marked(turn.now, object, (active, marks), Priority::Active, stop_at, self.out);
    }

    fn stop(&mut self, workload: &WorkloadFacts) {
        let standing = self.context.keeper.standing();
        if matches!(standing, Some(Standing::Held(_))) {
            // The status does not name the term any more, for example after a restore of the API server. It is published again, or
            // its end follows.
            return;
        }
        let is_unconfirmed = matches!(standing, Some(Standing::Uncertain(_)));
        let standby = self.stopped(workload, self.entitlement.newest_token(), is_unconfirmed);
        let lease = &self.context.turn.identity.name;
        let is_standby = carries(workload.object(), lease, &standby) && standby.change == PodChange::None;
        if !is_standby || self.state.is_due() || !self.is_marked(workload) {
            self.withdraw(workload, standby);
        }
    }

    fn withdraw(&mut self, workload: &WorkloadFacts, standby: DesiredRole) {
        // A stop is as urgent as the status that shows the end: another cluster may start one stop budget later.
        let priority = if standby.change == PodChange::None { Priority::Active } else { Priority::End };
        if self.raise(workload, standby, priority) {
            self.state.withdrawal_sent();
        }
    }

    /// Writes the role, and raises the number of withdrawals. Returns whether the write is sent now.
    fn raise(&mut self, workload: &WorkloadFacts, desired: DesiredRole, priority: Priority) -> bool {
        if self.writer.must_verify(self.entitlement, workload.object(), self.out) {
            return false;
        }
        let (now, lease) = (self.context.turn.now, &self.context.turn.identity.name);
        let (owner, withdrawn) = (names::owner_annotation(lease), names::withdrawn_annotation(lease));
        let next = next_withdrawal(workload.annotations.get(&withdrawn));
        let marks = vec![
            (owner, Some(self.owner_of(workload))),
            (withdrawn, Some(format!("{}.{next}", self.entitlement.latest))),
        ];
        self.writer.write_marked(now, workload.object(), (desired, marks), priority, None, self.out)
    }

    /// What the workload is to be without the term. An unconfirmed term may continue, and volumes must stay: only the label moves.
    fn stopped(&self, workload: &WorkloadFacts, token: Option<Token>, is_unconfirmed: bool) -> DesiredRole {
        if is_unconfirmed || workload.deletes_volumes {
            return DesiredRole::standby(token);
        }
        self.switched(workload, PodRole::Standby, token)
    }

    /// What the workload is to be with this role.
    fn switched(&self, workload: &WorkloadFacts, role: PodRole, token: Option<Token>) -> DesiredRole {
        match self.context.turn.spec.and_then(|spec| spec.cluster) {
            Some(activation) => switched(activation, workload, role, token),
            None => DesiredRole { role: Some(role), token, ..DesiredRole::NONE },
        }
    }

    fn owner_of(&self, workload: &WorkloadFacts) -> String {
        owner_of(&self.context.turn.identity.uid, workload)
    }

    /// Whether this lease has written this object. A tool that replaces all annotations removes the mark again and again; the
    /// workload is stopped all the same when its term ends.
    fn is_ours(&self, workload: &WorkloadFacts) -> bool {
        self.is_marked(workload) || self.state.was_ours(workload)
    }

    /// Whether the mark of the workload says that this lease has written this object.
    fn is_marked(&self, workload: &WorkloadFacts) -> bool {
        self.owner(workload).is_some_and(|owner| *owner == self.owner_of(workload))
    }

    /// The mark of the workload.
    fn owner<'a>(&self, workload: &'a WorkloadFacts) -> Option<&'a String> {
        workload.annotations.get(&names::owner_annotation(&self.context.turn.identity.name))
    }

    /// Whether the lease is held elsewhere, by the answer to an attempt that began after the workload was first seen.
    fn others_hold(&self) -> bool {
        self.context.held_elsewhere().is_some_and(|asked_at| self.state.is_known_before(asked_at))
    }

    /// Only an attempt can tell who holds the lease.
    fn attempt_at_once(&mut self) {
        let Context { turn, keeper, .. } = self.context;
        let waits = |link: &KeeperLink| link.next_attempt_at().is_some_and(|at| turn.now < at);
        if keeper.link().is_some_and(waits) {
            self.out.emit(Command::TryNow);
        }
    }
}

/// Removes label and annotations of the lease. Nothing else of the workload changes.
fn unmark(now: Time, workload: &WorkloadFacts, writer: &mut RoleWriter, out: &mut Effects) {
    if workload.marked_by().any(|lease| lease == writer.lease()) {
        writer.write(now, workload.object(), DesiredRole::NONE, Priority::Active, None, out);
    }
}

/// Unmarks the workloads that are not the candidate of the lease any more.
pub(super) fn unmark_strays(now: Time, facts: &Facts, writer: &mut RoleWriter, out: &mut Effects) {
    for workload in &facts.stray_workloads {
        if facts.allowed.switches(workload.kind) {
            unmark(now, workload, writer, out);
        }
    }
}
