//! The label `active` or `standby` and the token on each candidate pod.
//!
//! After a new term, every other pod first gets `standby` *and the new token*. This always changes its resource version,
//! so a late write of a process that was paused during the change conflicts. Only then does the holder get `active`.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::lease::Standing;
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;

use super::desired_roles::{DesiredRole, carries, desired_roles, role_of};
use super::effect::{Effect, PodChange, Priority, Read, RoleWrite};
use super::entitlement::Entitlement;
use super::event::RoleOutcome;
use super::facts::Facts;
use super::guard::Guard;
use super::inputs::Inputs;
use super::recorded::{Recorded, latest_token};
use super::workload::WorkloadState;
use super::{Reconciler, Shared};
use crate::api::names::{self, PodRole};
use crate::api::validated::WorkloadKind;
use crate::election::{Electorate, Object, PodFacts};

/// How many pods of one lease are written concurrently.
const AT_ONCE: usize = 8;

/// The state about the pods' roles.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleState {
    /// Pending writes, little more than [`AT_ONCE`]. A map would allocate eleven places for the one that most leases have.
    writing: Vec<Writing>,
    /// Pods that may carry `active` regardless of the last observation: a write to them was not answered.
    may_be_active: BTreeSet<String>,
    /// Pods whose last write was refused.
    refused: BTreeSet<String>,
    /// When a pod may be written again.
    guard: Guard<DesiredRole>,
    /// The entitlement by which the labels are written.
    entitlement: Option<Entitlement>,
    /// The latest token according to a read since the entitlement changed, and the greatest token that objects carried when
    /// the read was requested.
    verified: Option<(Token, Token)>,
    /// A read is under way, requested when objects carried this token.
    verifying: Option<Token>,
    /// The term that the status calls unconfirmed, and since when.
    unconfirmed: Option<(Attempt, Time)>,
    /// The candidates that have the desired role under this entitlement.
    in_order: Option<(Arc<Electorate>, Entitlement)>,
}

#[derive(Clone, Debug)]
pub(super) struct Writing {
    /// The pod's UID.
    uid: String,
    pub pod: String,
    /// The kind of the workload, if the candidate is not a pod.
    pub kind: Option<WorkloadKind>,
    pub desired: DesiredRole,
    withdrawn: bool,
}

impl RoleState {
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    pub fn being_written(&self) -> Vec<String> {
        self.writing.iter().map(|writing| writing.uid.clone()).collect()
    }

    pub const fn set_unconfirmed(&mut self, unconfirmed: Option<(Attempt, Time)>) {
        self.unconfirmed = unconfirmed;
    }

    /// Since when the status has called this term unconfirmed.
    pub fn unconfirmed_since(&self, attempt: Attempt) -> Option<Time> {
        self.unconfirmed.filter(|(unconfirmed, _)| *unconfirmed == attempt).map(|(_, since)| since)
    }

    /// Records the outcome of a write, and returns the write.
    pub fn written(&mut self, now: Time, uid: &str, outcome: &RoleOutcome) -> Option<Writing> {
        let at = self.writing.iter().position(|writing| writing.uid == uid);
        let written = at.map(|at| self.writing.swap_remove(at));
        self.guard.written(now, uid, outcome.into());
        self.writing.shrink_to_fit();
        self.in_order = None;
        if matches!(outcome, RoleOutcome::Refused(_) | RoleOutcome::Altered(_)) {
            self.refused.insert(uid.to_owned());
        } else if self.refused.remove(uid) && self.refused.is_empty() {
            self.refused = BTreeSet::new();
        }
        // After any other outcome, an earlier write that was not answered may still succeed.
        if matches!(outcome, RoleOutcome::Written | RoleOutcome::Altered(_) | RoleOutcome::Conflict | RoleOutcome::Gone)
        {
            self.may_be_active.remove(uid);
            if self.may_be_active.is_empty() {
                // An emptied set keeps its memory.
                self.may_be_active = BTreeSet::new();
            }
        }
        written
    }

    fn pending(&self, uid: &str) -> Option<&Writing> {
        self.writing.iter().find(|writing| writing.uid == uid)
    }

    /// The pods that are being deleted.
    pub fn deletions(&self) -> impl Iterator<Item = &str> {
        let deletions = self.writing.iter().filter(|writing| writing.desired.change == PodChange::Delete);
        deletions.map(|writing| writing.uid.as_str())
    }

    pub fn is_pending(&self, uid: &str) -> bool {
        self.pending(uid).is_some()
    }

    pub const fn lease_read(&mut self, latest: Token) {
        if let Some(carried) = self.verifying.take() {
            self.verified = Some((latest, carried));
        }
    }

    pub const fn read_failed(&mut self) {
        self.verifying = None;
    }

    /// Whether the lease was read since the entitlement changed, and the status shows no other token.
    pub fn is_verified(&self, entitlement: &Entitlement) -> bool {
        self.verified.is_some_and(|(latest, _)| latest == entitlement.latest)
    }

    /// The token that an object carries, if it is later than that of the status. Either an older resource with this name left it
    /// there, which has no effect, or a later term exists, which this process must read first.
    pub fn later(&self, token: Option<Token>, entitlement: &Entitlement) -> Option<Token> {
        let is_verified =
            |token| self.verified.is_some_and(|(latest, carried)| latest == entitlement.latest && token <= carried);
        token.filter(|token| *token > entitlement.latest && !is_verified(*token))
    }

    /// Clears the state. Pending writes are still answered.
    pub fn forget(&mut self) {
        let (writing, mut guard) = (std::mem::take(&mut self.writing), std::mem::take(&mut self.guard));
        guard.forget_stored();
        *self = Self { writing, guard, ..Self::default() };
    }
}

impl Reconciler {
    /// Reconciles the labels of all pods with the entitlement.
    pub(super) fn assign_roles(&mut self, now: Time, lease: &Shared, inputs: &Inputs, facts: &Facts) {
        let undecided = self.label_grace_deadline().filter(|deadline| now < *deadline);
        if let Some(deadline) = undecided {
            self.wake_at(deadline);
        }
        let entitlement = self.entitlement(lease, undecided.is_some() || self.is_newly_unconfirmed());
        let is_named = Recorded::of(lease).is_some_and(|recorded| recorded.active);
        self.workload.follow(entitlement.as_ref(), self.link.as_ref().map(|link| &link.view), is_named);
        if self.roles.entitlement != entitlement {
            self.roles.entitlement.clone_from(&entitlement);
            self.roles.verified = None;
        }
        let Some(entitlement) = entitlement else { return };
        if !self.may_write_candidates(facts) {
            return;
        }
        self.unmark_strays(now, facts);
        if self.spec.valid.as_ref().is_some_and(|spec| spec.cluster.is_some()) {
            return self.assign_workload(now, inputs, facts, &entitlement);
        }
        self.workload = WorkloadState::default();
        if !self.is_in_order(&entitlement, inputs, facts) {
            self.write_roles(now, &entitlement, inputs, facts);
        }
        self.delete_lost_pods(now, lease, inputs, facts, &entitlement);
    }

    fn write_roles(&mut self, now: Time, entitlement: &Entitlement, inputs: &Inputs, facts: &Facts) {
        let activator = self.activator(facts);
        let mut desired_roles = desired_roles(&self.identity.name, entitlement, inputs, facts, &activator);
        self.fence(&activator, &mut desired_roles);
        let desired_roles = desired_roles
            .into_iter()
            .filter_map(|(pod, desired)| self.needed(pod.object(), &desired).then_some((pod, desired)));
        let (grants, others): (Vec<_>, Vec<_>) =
            desired_roles.partition(|(_, desired)| desired.role == Some(PodRole::Active));
        self.forget_old_pods(inputs, facts);
        if let Some(electorate) = &inputs.electorate
            && grants.is_empty()
            && others.is_empty()
            && !self.roles.is_writing()
        {
            self.roles.in_order = Some((electorate.clone(), entitlement.clone()));
            return;
        }
        // Each of these pods first gets the new token, so a late write of an earlier term conflicts and cannot start it. A pod
        // whose write the API server refuses does not delay the start of another pod.
        let is_unfenced = |pod: &PodFacts| !pod.gates.is_empty() && !self.roles.refused.contains(&pod.uid);
        let unfenced = others.iter().any(|(pod, _)| is_unfenced(pod));
        let starts_pods = activator.starts_pods();
        let elsewhere = others.iter().any(|(pod, _)| self.may_be_active(pod.object()));
        let (first, then): (Vec<_>, Vec<_>) = others.into_iter().partition(|(pod, _)| self.may_be_active(pod.object()));
        // During an attempt the other pods wait: if it succeeds, one write sets role and token.
        let then = if self.is_contending() { Vec::new() } else { then };
        for (pod, desired) in first.into_iter().chain(then) {
            if let Some(later) = self.later_token(entitlement, pod.object()) {
                self.verify_latest(later);
                continue;
            }
            let priority =
                if starts_pods || self.may_be_active(pod.object()) { Priority::Active } else { Priority::Standby };
            self.write_role(now, pod.object(), desired, priority, None);
        }
        // Pods that were not listed yet may carry `active` too.
        let may_grant = facts.pods_listed && !elsewhere && self.status.is_known() && self.grants_in_flight(entitlement);
        for (pod, desired) in grants {
            if let Some(later) = self.later_token(entitlement, pod.object()) {
                self.verify_latest(later);
            } else if desired.change == PodChange::Start && (unfenced || self.start.waits().is_some()) {
                // The answers to the writes above cause the next turn.
            } else if may_grant
                && self.holds(entitlement)
                && facts.stop_at.is_none_or(|stop_at| now < stop_at)
                && (desired.change != PodChange::Start
                    || (self.are_pods_known(now) && self.is_start_confirmed(now, pod.object())))
            {
                self.write_role(now, pod.object(), desired, Priority::Active, facts.stop_at);
            }
        }
    }

    /// What is known about writes to pods that do not exist any more is dropped, once it is most of what is known.
    fn forget_old_pods(&mut self, inputs: &Inputs, facts: &Facts) {
        let Some(electorate) = &inputs.electorate else { return };
        if self.roles.guard.count() > 2 * (electorate.total() + facts.strays.len()) + AT_ONCE {
            let is_writing = |uid: &str| self.roles.writing.iter().any(|writing| writing.uid == uid);
            let exists: BTreeSet<String> = electorate.pods().chain(&facts.strays).map(|pod| pod.uid.clone()).collect();
            let kept: BTreeSet<String> = self
                .roles
                .guard
                .uids()
                .filter(|uid| exists.contains(*uid) || is_writing(uid))
                .map(str::to_owned)
                .collect();
            self.roles.guard.retain(|uid| kept.contains(uid));
        }
    }

    /// Removes label and token from every pod: the resource is deleted.
    pub(super) fn clear_roles(&mut self, now: Time, facts: &Facts) {
        self.withdraw_deletions();
        if facts.has_successor {
            for uid in self.roles.being_written() {
                self.withdraw_role(&uid);
            }
            return;
        }
        self.unmark_strays(now, facts);
        let desired = DesiredRole::NONE;
        for pod in &facts.strays {
            if self.needed(pod.object(), &desired) {
                self.write_role(now, pod.object(), desired.clone(), Priority::Active, None);
            }
        }
    }

    /// Whether the labels are as desired and nothing has changed since.
    fn is_in_order(&self, entitlement: &Entitlement, inputs: &Inputs, facts: &Facts) -> bool {
        let same = |(electorate, by): &(Arc<Electorate>, Entitlement)| {
            by == entitlement && inputs.electorate.as_ref().is_some_and(|now| Arc::ptr_eq(now, electorate))
        };
        facts.strays.is_empty() && !inputs.deleting && self.roles.in_order.as_ref().is_some_and(same)
    }

    /// Whether the term is unconfirmed and the status does not say so yet.
    fn is_newly_unconfirmed(&self) -> bool {
        let Some(link) = &self.link else { return false };
        match &link.view.standing {
            Standing::Uncertain(term) => self.roles.unconfirmed_since(term.id.attempt).is_none(),
            _ => false,
        }
    }

    /// The current entitlement; `None` while it is unknown and the labels stay unchanged.
    fn entitlement(&self, lease: &Shared, undecided: bool) -> Option<Entitlement> {
        let recorded = Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.attempt);
        let view = self.link.as_ref().map(|link| &link.view);
        let known = |attempt| self.link.as_ref().is_some_and(|link| link.knows(attempt));
        Entitlement::of(view, recorded, recorded.is_some_and(known), undecided, latest_token(lease))
    }

    /// The attempt of the term that this process holds.
    pub(super) fn held_attempt(&self) -> Option<Attempt> {
        match self.link.as_ref().map(|link| &link.view.standing) {
            Some(Standing::Held(term)) => Some(term.id.attempt),
            _ => None,
        }
    }

    /// Whether this process holds the entitled term.
    pub(super) fn holds(&self, entitlement: &Entitlement) -> bool {
        let token = entitlement.holder.as_ref().map(|(_, token)| *token);
        match self.link.as_ref().map(|link| &link.view.standing) {
            Some(Standing::Held(term)) => Some(term.id.token) == token,
            _ => false,
        }
    }

    /// Whether no other pod has a pending write of `active`.
    pub(super) fn grants_in_flight(&self, entitlement: &Entitlement) -> bool {
        let holder = entitlement.holder.as_ref().map(|(uid, _)| uid);
        self.roles
            .writing
            .iter()
            .all(|writing| writing.desired.role != Some(PodRole::Active) || Some(&writing.uid) == holder)
    }

    /// Whether the pod may carry `active`: it was observed with it, or a write of it was not answered.
    pub(super) fn may_be_active(&self, pod: Object<'_>) -> bool {
        let writing = self.roles.pending(pod.uid).is_some_and(|one| one.desired.role == Some(PodRole::Active));
        writing
            || self.roles.may_be_active.contains(pod.uid)
            || role_of(pod, &names::role_label(&self.identity.name)) == Some(PodRole::Active.as_str())
    }

    /// Whether the pod must be written to reach the desired role.
    pub(super) fn needed(&self, pod: Object<'_>, desired: &DesiredRole) -> bool {
        if self.roles.pending(pod.uid).is_some_and(|pending| pending.desired.change == PodChange::Delete) {
            // A holder, and a pod whose lease is deleted, must not be deleted: this withdraws the deletion.
            return desired.role != Some(PodRole::Standby);
        }
        let unsure = desired.role != Some(PodRole::Active) && self.may_be_active(pod);
        unsure || desired.change != PodChange::None || !carries(pod, &self.identity.name, desired)
    }

    pub(super) fn later_token(&self, entitlement: &Entitlement, pod: Object<'_>) -> Option<Token> {
        let token = pod.annotations.get(&names::token_annotation(&self.identity.name));
        self.roles.later(token.and_then(|token| token.parse().ok()).map(Token), entitlement)
    }

    /// Reads the lease, because an object carries this token. A read that was requested for a lower one does not count.
    pub(super) fn verify_latest(&mut self, carried: Token) {
        if self.roles.verifying.is_none() {
            self.roles.verifying = Some(carried);
            self.emit(Effect::Read(Read::Lease));
        }
    }

    pub(super) fn write_role(
        &mut self,
        now: Time,
        pod: Object<'_>,
        desired: DesiredRole,
        priority: Priority,
        not_after: Option<Time>,
    ) {
        let marks = self.removed_marks(pod, &desired);
        self.write_marked(now, pod, (desired, marks), priority, not_after);
    }

    /// Writes the role and these annotations. Returns whether the write is sent now.
    pub(super) fn write_marked(
        &mut self,
        now: Time,
        pod: Object<'_>,
        (desired, marks): (DesiredRole, Vec<(String, Option<String>)>),
        priority: Priority,
        not_after: Option<Time>,
    ) -> bool {
        if let Some(writing) = self.roles.pending(pod.uid) {
            if writing.desired != desired {
                self.withdraw_role(pod.uid);
            }
            return false;
        }
        if self.roles.writing.len() >= AT_ONCE && desired.role != Some(PodRole::Active) {
            return false;
        }
        let due = self.roles.guard.due(now, pod.uid, &desired.guarded());
        if now < due {
            self.wake_at(due);
            return false;
        }
        let annotation = names::token_annotation(&self.identity.name);
        let token = desired.role.and_then(|_| {
            desired.token.map(|token| token.to_string()).or_else(|| pod.annotations.get(&annotation).cloned())
        });
        if desired.role == Some(PodRole::Active) {
            // Until the write is answered, the pod counts as possibly active, because the answer may be lost.
            self.roles.may_be_active.insert(pod.uid.to_owned());
        }
        let write = RoleWrite {
            priority,
            pod: pod.name.to_owned(),
            uid: pod.uid.to_owned(),
            version: pod.resource_version.clone(),
            role: desired.role,
            token,
            change: desired.change,
            marks,
            workload: pod.workload,
            not_after,
        };
        self.roles.in_order = None;
        let without_fence = write.without_fence(&self.identity.name);
        let altered = without_fence.as_ref().unwrap_or(&write).altered_in(&self.identity.name, pod);
        let only_fences = without_fence.is_some() && altered.is_none();
        if let Some(correction) = self.roles.guard.sent(now, pod.uid, desired.guarded(), only_fences) {
            self.report_correction(pod, write.workload, altered.as_ref(), correction);
        }
        self.start.wrote(pod.uid, write.change, false);
        let (uid, kind, pod) = (pod.uid.to_owned(), write.workload, pod.name.to_owned());
        self.roles.writing.push(Writing { uid, pod, kind, desired, withdrawn: false });
        self.emit(Effect::WriteRole(write));
        true
    }

    pub(super) fn withdraw_deletions(&mut self) {
        for uid in self.roles.deletions().map(str::to_owned).collect::<Vec<_>>() {
            self.withdraw_role(&uid);
        }
    }

    pub(super) fn withdraw_role(&mut self, uid: &str) {
        if let Some(writing) = self.roles.writing.iter_mut().find(|writing| writing.uid == uid)
            && !std::mem::replace(&mut writing.withdrawn, true)
        {
            self.emit(Effect::WithdrawRole { uid: uid.to_owned() });
        }
    }
}
