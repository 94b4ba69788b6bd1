//! Writes roles to pods and workloads: at most one write of an object at a time, with a back-off.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::op::Token;
use redislease_core::time::Time;

use super::activation::Activator;
use super::desired_role::{DesiredRole, carries, is_written, role_of};
use super::entitlement::Entitlement;
use super::guard::{Correction, Guard};
use super::inputs::Turn;
use super::output::Effects;
use super::verification::Verification;
use super::{Altered, Effect, Facts, Measure, PodChange, Priority, RoleOutcome, RoleWrite};
use crate::api::names::{self, PodRole};
use crate::api::validated::WorkloadKind;
use crate::election::{Electorate, Object, PodFacts};
use crate::status::NoticeReason;

/// How many pods of one lease are written concurrently.
const AT_ONCE: usize = 8;

/// Annotations of a write; `None` removes one.
pub(super) type Marks = Vec<(String, Option<String>)>;

/// The writes to pods and workloads.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleWriter {
    /// The name of the lease.
    lease: Arc<str>,
    /// Pending writes, little more than [`AT_ONCE`]. A map would allocate eleven places for the one that most leases have.
    writing: Vec<SentRole>,
    /// Pods that may carry `active` regardless of the last observation: a write to them was not answered.
    may_be_active: BTreeSet<String>,
    /// Pods whose last write, other than a deletion, was refused.
    refused: BTreeSet<String>,
    /// When a pod may be written again.
    guard: Guard<DesiredRole>,
    /// The pods to which this process has had a fence stored since it may decide about the lease, and to which it has sent no
    /// start since then. No start of another process can match their versions any more.
    fenced: BTreeSet<String>,
    /// The candidates that have the desired role under this entitlement.
    in_order: Option<(Arc<Electorate>, Entitlement)>,
    verification: Verification,
}

#[derive(Clone, Debug)]
pub(super) struct SentRole {
    pub uid: String,
    pub pod: String,
    /// The kind of the workload, if the candidate is not a pod.
    pub kind: Option<WorkloadKind>,
    pub desired: DesiredRole,
    withdrawn: bool,
}

impl RoleWriter {
    pub fn new(lease: &str) -> Self {
        Self { lease: lease.into(), ..Self::default() }
    }

    pub fn lease(&self) -> &str {
        &self.lease
    }

    pub const fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Another process decides: the pending writes are outdated, but are still answered.
    pub fn forget(&mut self, out: &mut Effects) {
        for SentRole { uid, .. } in &self.writing {
            out.emit(Effect::WithdrawRole { uid: uid.clone() });
        }
        self.guard.forget_stored();
        (self.may_be_active, self.refused, self.fenced) = Default::default();
        (self.in_order, self.verification) = Default::default();
    }

    /// Another process may start pods: each must be fenced again.
    pub fn forget_fences(&mut self) {
        self.fenced.clear();
    }

    fn note_refusal(&mut self, uid: &str, outcome: &RoleOutcome) {
        if matches!(outcome, RoleOutcome::Refused(_) | RoleOutcome::Written(Some(_))) {
            self.refused.insert(uid.to_owned());
        } else {
            remove(&mut self.refused, uid);
        }
    }

    fn note_fence(&mut self, uid: &str, change: PodChange, is_stored: bool) {
        match change {
            PodChange::Fence(_) if is_stored => _ = self.fenced.insert(uid.to_owned()),
            PodChange::Start => _ = self.fenced.remove(uid),
            _ => {}
        }
    }

    /// Takes the answer to a read of the lease: the latest token, or `None` if it has none.
    pub const fn lease_read(&mut self, latest: Option<Token>) {
        self.verification.lease_read(latest);
    }

    pub const fn entitlement_changed(&mut self) {
        self.verification.entitlement_changed();
    }

    pub fn is_refused(&self, uid: &str) -> bool {
        self.refused.contains(uid)
    }

    /// All candidates have the desired role, until the next write.
    pub fn set_in_order(&mut self, electorate: &Arc<Electorate>, entitlement: &Entitlement) {
        self.in_order = Some((electorate.clone(), entitlement.clone()));
    }

    /// Whether the labels are as desired and nothing has changed since.
    pub fn is_in_order(&self, entitlement: &Entitlement, turn: &Turn<'_>) -> bool {
        let facts = turn.facts;
        let same = |(electorate, by): &(Arc<Electorate>, Entitlement)| {
            by == entitlement && facts.electorate().is_some_and(|now| Arc::ptr_eq(now, electorate))
        };
        facts.strays.is_empty() && !turn.is_deleting() && self.in_order.as_ref().is_some_and(same)
    }

    /// Records the outcome of a write, and returns the write.
    pub fn written(&mut self, now: Time, uid: &str, outcome: &RoleOutcome) -> Option<SentRole> {
        let at = self.writing.iter().position(|writing| writing.uid == uid);
        let written = at.map(|at| self.writing.swap_remove(at));
        let is_dry = written.as_ref().is_some_and(|written| written.desired.dry_run);
        let desired = written.as_ref().map(|written| &written.desired);
        self.guard.written(now, &guarded(uid, desired.unwrap_or(&DesiredRole::NONE)), outcome.into());
        self.writing.shrink_to_fit();
        if is_dry {
            return written;
        }
        if let Some(written) = &written {
            self.note_fence(uid, written.desired.change, *outcome == RoleOutcome::Written(None));
        }
        self.in_order = None;
        // The answer to a deletion says nothing about labels: a conflict must not delay the next deletion until the label is refused again.
        let is_about_labels = !desired.is_some_and(DesiredRole::is_deletion) || *outcome == RoleOutcome::Gone;
        if is_about_labels {
            self.note_refusal(uid, outcome);
        }
        // After any other outcome, an earlier write that was not answered may still succeed.
        if matches!(outcome, RoleOutcome::Written(_) | RoleOutcome::Conflict | RoleOutcome::Gone) {
            remove(&mut self.may_be_active, uid);
        }
        written
    }

    fn pending(&self, uid: &str) -> Option<&SentRole> {
        self.writing.iter().find(|writing| writing.uid == uid)
    }

    pub fn deletions(&self) -> usize {
        self.writing.iter().filter(|writing| writing.desired.is_deletion()).count()
    }

    pub fn is_pending(&self, uid: &str) -> bool {
        self.pending(uid).is_some()
    }

    /// Whether no other pod has a pending write of `active`.
    pub fn grants_in_flight(&self, entitlement: &Entitlement) -> bool {
        let holder = entitlement.holder.as_ref().map(|(uid, _)| uid);
        self.writing.iter().all(|writing| writing.desired.role != Some(PodRole::Active) || Some(&writing.uid) == holder)
    }

    /// Whether the pod may carry `active`: it was observed with it, or a write of it was not answered.
    pub fn may_be_active(&self, pod: Object<'_>) -> bool {
        let writing = self.pending(pod.uid).is_some_and(|one| one.desired.role == Some(PodRole::Active));
        writing
            || self.may_be_active.contains(pod.uid)
            || role_of(pod, &names::role_label(&self.lease)) == Some(PodRole::Active.as_str())
    }

    pub fn needed(&self, pod: Object<'_>, desired: &DesiredRole) -> bool {
        if self.pending(pod.uid).is_some_and(|pending| pending.desired.is_deletion()) {
            // A holder, and a pod whose lease is deleted, must not be deleted: this withdraws the deletion.
            return desired.role != Some(PodRole::Standby);
        }
        let unsure = desired.role != Some(PodRole::Active) && self.may_be_active(pod);
        unsure || desired.change != PodChange::None || !carries(pod, &self.lease, desired)
    }

    /// Whether the pod has finished and keeps the token that it has. It needs no fence: no write of `active` names the version of a
    /// finished pod. Otherwise each term would cost a write to every pod that a Job has completed, before those to running pods.
    pub fn leaves(&self, pod: &PodFacts, desired: &DesiredRole) -> bool {
        let pod_has = |role| is_written(pod.object(), &self.lease) && carries(pod.object(), &self.lease, role);
        let stays_standby = desired.role == Some(PodRole::Standby) && pod_has(&DesiredRole::standby(None));
        pod.finished && stays_standby && !self.may_be_active(pod.object())
    }

    /// Whether the object shows that this process must read the lease first, which it then does.
    pub fn must_verify(&mut self, entitlement: &Entitlement, pod: Object<'_>, out: &mut Effects) -> bool {
        let token = pod.annotations.get(&names::token_annotation(&self.lease));
        let later = self.verification.later(token.and_then(|token| token.parse().ok()).map(Token), entitlement);
        if let Some(later) = later {
            self.verification.verify(later, out);
        }
        later.is_some()
    }

    /// What is known about writes to objects that do not exist any more is dropped, once it is most of what is known.
    pub fn forget_old_objects(&mut self, facts: &Facts) {
        let Some(electorate) = facts.electorate() else { return };
        let known = [&self.fenced, &self.refused, &self.may_be_active].map(BTreeSet::len).into_iter().max();
        let existing = electorate.total() + facts.strays.len() + facts.stray_workloads.len();
        if self.guard.count().max(known.unwrap_or(0)) > 2 * existing + AT_ONCE {
            let pods = facts.pods().map(|pod| &pod.uid);
            let workloads = facts.workload().into_iter().chain(facts.stray_workloads.iter().map(AsRef::as_ref));
            let exists: BTreeSet<&str> =
                pods.chain(workloads.map(|workload| &workload.uid)).map(String::as_str).collect();
            self.retain(|uid| exists.contains(uid));
        }
    }

    /// Drops what is known about other objects than these, unless a write of them is pending.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        let writing = &self.writing;
        let is_known = |uid: &str| exists(uid) || writing.iter().any(|writing| writing.uid == uid);
        self.guard.retain(|known| is_known(known.rsplit(' ').next().unwrap_or(known)));
        for uids in [&mut self.fenced, &mut self.refused, &mut self.may_be_active] {
            uids.retain(|uid| is_known(uid));
        }
    }

    /// Removes role and token from these pods.
    pub fn clear<'a>(
        &mut self,
        now: Time,
        pods: impl IntoIterator<Item = &'a Arc<PodFacts>>,
        priority: Priority,
        out: &mut Effects,
    ) {
        for pod in pods {
            if is_written(pod.object(), &self.lease) && self.needed(pod.object(), &DesiredRole::NONE) {
                self.write(now, pod.object(), DesiredRole::NONE, priority, None, out);
            }
        }
    }

    pub fn write(
        &mut self,
        now: Time,
        pod: Object<'_>,
        desired: DesiredRole,
        priority: Priority,
        not_after: Option<Time>,
        out: &mut Effects,
    ) {
        let marks = self.removed_marks(pod, &desired);
        self.write_marked(now, pod, (desired, marks), priority, not_after, out);
    }

    /// Writes the role and these annotations. Returns whether the write is sent now.
    pub fn write_marked(
        &mut self,
        now: Time,
        pod: Object<'_>,
        (desired, marks): (DesiredRole, Marks),
        priority: Priority,
        not_after: Option<Time>,
        out: &mut Effects,
    ) -> bool {
        if let Some(writing) = self.pending(pod.uid) {
            if writing.desired != desired {
                self.withdraw(pod.uid, out);
            }
            return false;
        }
        // What decides who may be active does not wait for the others.
        if self.writing.len() >= AT_ONCE && desired.role != Some(PodRole::Active) && !self.may_be_active(pod) {
            return false;
        }
        let guarded_as = guarded(pod.uid, &desired);
        let due = self.guard.due(now, &guarded_as, &desired.guarded());
        if now < due {
            out.wake_at(due);
            return false;
        }
        let annotation = names::token_annotation(&self.lease);
        let token = desired.role.and_then(|_| {
            desired.token.map(|token| token.to_string()).or_else(|| pod.annotations.get(&annotation).cloned())
        });
        if desired.role == Some(PodRole::Active) {
            // Until the write is answered, the pod counts as possibly active, because the answer may be lost.
            self.may_be_active.insert(pod.uid.to_owned());
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
            waits: false,
            dry_run: desired.dry_run,
            not_after,
        };
        self.in_order = None;
        let without_fence = write.without_fence(&self.lease);
        let altered = without_fence.as_ref().unwrap_or(&write).altered_in(&self.lease, pod);
        let stores_nothing_else = write.dry_run || (without_fence.is_some() && altered.is_none());
        let correction = self.guard.sent(now, &guarded_as, desired.guarded(), stores_nothing_else);
        report_correction(pod, &write, altered.as_ref(), correction, out);
        self.note_fence(pod.uid, write.change, false);
        let (uid, kind, pod) = (pod.uid.to_owned(), write.workload, pod.name.to_owned());
        self.writing.push(SentRole { uid, pod, kind, desired, withdrawn: false });
        out.emit(Effect::WriteRole(write));
        true
    }

    pub fn withdraw_deletions(&mut self, out: &mut Effects) {
        self.withdraw_if(|writing| writing.desired.is_deletion(), out);
    }

    /// Everything but the removal of marks.
    pub fn withdraw_roles(&mut self, out: &mut Effects) {
        self.withdraw_if(|writing| writing.desired.role.is_some() || writing.desired.is_deletion(), out);
    }

    pub fn withdraw_all(&mut self, out: &mut Effects) {
        self.withdraw_if(|_| true, out);
    }

    fn withdraw(&mut self, uid: &str, out: &mut Effects) {
        self.withdraw_if(|writing| writing.uid == uid, out);
    }

    fn withdraw_if(&mut self, outdated: impl Fn(&SentRole) -> bool, out: &mut Effects) {
        for writing in self.writing.iter_mut().filter(|writing| outdated(writing)) {
            if !std::mem::replace(&mut writing.withdrawn, true) {
                out.emit(Effect::WithdrawRole { uid: writing.uid.clone() });
            }
        }
    }

    /// Whether the pod is `standby` with the token of the latest term. Then this process knows that term: with an older status it
    /// could take a running term for one that has ended. A lease that was created again knows no term yet: it must have been read
    /// since then. So must one whose label the API server refuses.
    pub fn is_fenced(&mut self, pod: &PodFacts, entitlement: &Entitlement, out: &mut Effects) -> bool {
        let token = Some(entitlement.latest).filter(|latest| *latest > Token(0));
        let is_refused = self.is_refused(&pod.uid);
        let is_known = token.is_some() && !is_refused || self.verification.is_verified(entitlement);
        if !is_known {
            self.verification.verify(Token(0), out);
        }
        is_known && (is_refused || carries(pod.object(), &self.lease, &DesiredRole::standby(token)))
    }

    /// Adds a fence to the write of each pod that an earlier start may still reach: before the next start, of every pod that has
    /// its gate, and of a pod to which a write was not answered.
    pub fn fence(&self, activator: &Activator, desired_roles: &mut [(Arc<PodFacts>, DesiredRole)]) {
        if !activator.starts_pods() {
            return;
        }
        let starts = desired_roles.iter().any(|(_, desired)| desired.change == PodChange::Start);
        let withdrawn = names::withdrawn_annotation(&self.lease);
        for (pod, desired) in desired_roles {
            let is_reached = !pod.gates.is_empty() && !self.fenced.contains(&pod.uid);
            let may_be_sent = starts || self.may_be_active(pod.object());
            if desired.role == Some(PodRole::Standby) && is_reached && may_be_sent {
                desired.change = PodChange::Fence(next_withdrawal(pod.annotations.get(&withdrawn)));
            }
        }
    }

    /// The marks that a write removes with the role.
    fn removed_marks(&self, workload: Object<'_>, desired: &DesiredRole) -> Marks {
        if workload.workload.is_none() || desired.role.is_some() {
            return Vec::new();
        }
        let lease = &self.lease;
        [names::owner_annotation(lease), names::withdrawn_annotation(lease)].map(|mark| (mark, None)).into()
    }
}

fn remove(uids: &mut BTreeSet<String>, uid: &str) {
    if uids.remove(uid) && uids.is_empty() {
        // An emptied set keeps its memory.
        *uids = BTreeSet::new();
    }
}

/// As what the back-off knows the object. The dry run, the deletion and the other writes of an object have a back-off each, so that a
/// refused label and a refused deletion do not replace each other at once, again and again. A UID contains no space.
fn guarded<'a>(uid: &'a str, desired: &DesiredRole) -> Cow<'a, str> {
    match desired {
        DesiredRole { dry_run: true, .. } => format!("dry run of {uid}").into(),
        DesiredRole { change: PodChange::Delete, .. } => format!("deletion of {uid}").into(),
        _ => uid.into(),
    }
}

/// Others have changed what the API server had stored.
fn report_correction(
    pod: Object<'_>,
    write: &RoleWrite,
    altered: Option<&Altered>,
    correction: Option<Correction>,
    out: &mut Effects,
) {
    // A second deletion only means that the watch lags behind: nobody has undone the first one.
    let Some(Correction { tell }) = correction.filter(|_| write.change != PodChange::Delete) else { return };
    out.emit(Effect::Measure(Measure::Corrected { kind: write.workload }));
    if let Some(altered) = altered.filter(|_| tell) {
        let note = format!(
            "{} was changed after the operator had written it: {}. The operator writes it again; if that happens again and again, after \
             longer pauses, up to 5 minutes.",
            pod.name,
            altered.difference()
        );
        out.report(NoticeReason::ChangedByOthers, note, vec![(pod.name.to_owned(), pod.uid.to_owned())]);
    }
}

/// The next number in the annotation `<token>.<n>`.
pub(super) fn next_withdrawal(annotation: Option<&String>) -> u64 {
    let last = annotation.and_then(|value| value.rsplit_once('.')?.1.parse().ok());
    last.unwrap_or(0_u64).checked_add(1).unwrap_or(0)
}
