//! How the elected pod becomes active, in addition to its label: `spec.activation`.
//!
//! `schedulingGate`: pods start only after their election.
//! - The write that labels the elected pod `active` also removes its scheduling gate, so it follows the same rules: the status
//!   names the term, no other pod may be `active`, and the write names the pod's version.
//! - The same write annotates the pod. A pod with this annotation that does not hold the lease any more is deleted, when the
//!   status says that its term has ended and the pod is `standby` with the token of the latest term. While the field is set,
//!   such a pod is never elected again, so a late deletion is right.
//! - A term whose pod cannot be started ends after `unhealthyAfter`, and another pod goes first.
//!
//! `scale` and `suspend`: the only candidate is a workload. The write of its role also starts or stops it.

use std::sync::Arc;

use redislease_core::lease::Standing;
use redislease_core::op::Token;
use redislease_core::time::{Millis, Time};

use super::Reconciler;
use super::altered::Altered;
use super::desired_roles::{DesiredRole, carries};
use super::effect::{Effect, Measure, PodChange, Priority};
use super::entitlement::Entitlement;
use super::event::{RoleOutcome, lacks_right};
use super::facts::{Allowed, Facts};
use super::guard::Correction;
use super::inputs::Inputs;
use super::recorded::Recorded;
use crate::api::RedisLease;
use crate::api::conditions::LeaseReady;
use crate::api::names::{self, PodRole};
use crate::api::validated::{ClusterActivation, WorkloadKind};
use crate::election::{HolderName, Object, PodFacts, Run, WorkloadFacts};
use crate::status::{Notice, NoticeReason};

/// How the role of a pod decides whether it runs.
#[derive(Debug)]
pub(super) enum Activator {
    /// It runs with any role.
    Role,
    /// A pod starts when this scheduling gate is removed, and then carries this annotation.
    Gate { gate: String, started: String },
}

/// What a workload is to be with this role: it is scaled, or suspended and resumed.
pub(super) fn switched(
    activation: ClusterActivation,
    workload: &WorkloadFacts,
    role: PodRole,
    token: Option<Token>,
) -> DesiredRole {
    let active = role == PodRole::Active;
    let run = match activation {
        ClusterActivation::Scale(replicas) => Run::Replicas(if active { replicas } else { 0 }),
        ClusterActivation::Suspend => Run::Suspended(!active),
    };
    let change = if workload.run == run { PodChange::None } else { PodChange::Run(run) };
    DesiredRole { role: Some(role), token, change, run: Some(run) }
}

impl Activator {
    /// What the pod is to be with this role. Nothing changes in addition to label and token if the rest is already so.
    pub fn desired(&self, pod: &PodFacts, role: PodRole, token: Option<Token>) -> DesiredRole {
        let change = match self {
            // Other gates are not the operator's to remove.
            Self::Gate { gate, .. } if role == PodRole::Active && matches!(&*pod.gates, [only] if only == gate) => {
                PodChange::Start
            }
            Self::Role | Self::Gate { .. } => PodChange::None,
        };
        DesiredRole { role: Some(role), token, change, run: None }
    }

    /// Whether only the elected pod starts.
    pub const fn starts_pods(&self) -> bool {
        matches!(self, Self::Gate { .. })
    }

    /// Whether the pod was started for a term and nothing ends it yet.
    pub fn has_started(&self, pod: &PodFacts) -> bool {
        let Self::Gate { started, .. } = self else { return false };
        pod.annotations.get(started).is_some() && !pod.finished && pod.deletion_grace.is_none()
    }
}

/// How many pods of one lease are deleted at once: refused deletions leave room for other writes.
const DELETIONS: usize = 4;

/// A role write that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The UID of the pod or workload.
    pub uid: String,
    pub change: PodChange,
    pub why: String,
    /// Until when no new term begins: the operator has no right to write to the workload.
    pub forbidden_until: Option<Time>,
}

/// How long the operator waits before it tries again whether it has the right to write to a workload.
const FORBIDDEN: Millis = Millis(300_000);

impl Reconciler {
    pub(super) fn activator(&self, facts: &Facts) -> Activator {
        let name = &self.identity.name;
        let Some(spec) = &self.spec.valid else { return Activator::Role };
        if spec.cluster.is_none() && spec.gated && facts.allowed.scheduling_gate {
            Activator::Gate { gate: names::scheduling_gate(name), started: names::started_annotation(name) }
        } else {
            Activator::Role
        }
    }

    /// The way of activation that the spec wants and the operator must not use: the field, the flag and the value of the chart.
    fn forbidden_activation(&self, facts: &Facts) -> Option<[&'static str; 3]> {
        let spec = self.spec.valid.as_ref()?;
        let Allowed { scheduling_gate, scale, suspend } = facts.allowed;
        match spec.cluster {
            None if spec.gated && !scheduling_gate => {
                Some(["schedulingGate", "--allow-scheduling-gate", "rbac.allowSchedulingGate"])
            }
            Some(ClusterActivation::Scale(_)) if !scale => Some(["scale", "--allow-scale", "rbac.allowScale"]),
            Some(ClusterActivation::Suspend) if !suspend => Some(["suspend", "--allow-suspend", "rbac.allowSuspend"]),
            _ => None,
        }
    }

    /// Whether the operator may write to the candidates of the lease: to pods always.
    pub(super) fn may_write_candidates(&self, facts: &Facts) -> bool {
        let of_cluster = self.spec.valid.as_ref().is_some_and(|spec| spec.cluster.is_some());
        !of_cluster || self.forbidden_activation(facts).is_none()
    }

    /// Why no term can begin, if the operator must not use the way of activation.
    pub(super) fn activation_obstacle(&self, facts: &Facts) -> Option<(LeaseReady, String)> {
        let [field, flag, value] = self.forbidden_activation(facts)?;
        let message = format!(
            "spec.activation.{field} is set, but this operator must not use it: it runs without {flag} ({value} in the chart)."
        );
        Some((LeaseReady::ActivationNotAllowed, message))
    }

    /// Why the workload cannot be started and stopped, if the operator has no right to write to it: the term ends, so that another
    /// cluster can start its workload.
    pub(super) fn forbidden_write(&mut self, now: Time) -> Option<String> {
        let until = self.refused.as_ref()?.forbidden_until?;
        if now >= until {
            self.refused = None;
            return None;
        }
        self.wake_at(until);
        let why = &self.refused.as_ref()?.why;
        Some(format!(
            "The operator has no right to start and stop the workload: {why}. Grant it, for example with the roles of the chart; the \
             operator tries again within 5 minutes."
        ))
    }

    /// Deletes each pod that was started for an earlier term. The status says that the term has ended: a replica that continues
    /// a term does not let the status say this.
    pub(super) fn delete_lost_pods(
        &mut self,
        now: Time,
        lease: &RedisLease,
        inputs: &Inputs,
        facts: &Facts,
        entitlement: &Entitlement,
    ) {
        let activator = self.activator(facts);
        if !activator.starts_pods() || inputs.deleting {
            return self.withdraw_deletions();
        }
        if self.status.is_writing() || !self.status.is_known() {
            return;
        }
        let recorded = Recorded::of(lease).filter(|recorded| recorded.active).map(|recorded| recorded.pod_uid());
        let running = self.holder_of_running_term();
        let may_hold = |uid: &str| recorded == Some(uid) || running.as_deref() == Some(uid);
        let is_lost = |pod: &PodFacts| activator.has_started(pod) && !may_hold(&pod.uid);
        let candidates = inputs.electorate.iter().flat_map(|electorate| electorate.pods());
        let lost: Vec<Arc<PodFacts>> = candidates.chain(&facts.strays).filter(|pod| is_lost(pod)).cloned().collect();
        for pod in lost {
            // Another pod gets `active` only after this one has lost it.
            let waits = self.roles.is_pending(&pod.uid) || self.may_be_active(pod.object());
            if waits || self.roles.deletions().count() >= DELETIONS {
                continue;
            }
            if !self.is_fenced(&pod, entitlement) {
                if entitlement.latest == Token(0) && !self.roles.is_verified(entitlement) {
                    self.verify_latest(Token(0));
                }
                continue;
            }
            self.write_role(now, pod.object(), DesiredRole::DELETED, Priority::Active, None);
        }
    }

    /// Whether the pod is `standby` with the token of the latest term. Then this process knows that term: with an older status it
    /// could take a running term for one that has ended. A lease that was created again knows no term yet: it must have been read
    /// since then.
    fn is_fenced(&self, pod: &PodFacts, entitlement: &Entitlement) -> bool {
        let token = Some(entitlement.latest).filter(|latest| *latest > Token(0));
        let has_role = carries(pod.object(), &self.identity.name, &DesiredRole::standby(token));
        has_role && (token.is_some() || self.roles.is_verified(entitlement))
    }

    fn holder_of_running_term(&self) -> Option<String> {
        let view = &self.link.as_ref()?.view;
        let holder = match &view.standing {
            Standing::Acquiring(_, holder) => holder,
            standing => &standing.term()?.id.holder,
        };
        holder.0.parse().ok().map(|name: HolderName| name.pod_uid)
    }

    /// Takes the answer to a role write. Each refusal is reported, and so is a deletion: nothing else shows the users why their pod
    /// stops or waits.
    pub(super) fn role_written(&mut self, now: Time, uid: &str, outcome: &RoleOutcome) {
        let Some(writing) = self.roles.written(now, uid, outcome) else { return };
        if writing.kind.is_some() {
            self.workload.written(&writing.desired, outcome);
        }
        let (pod, change) = (writing.pod, writing.desired.change);
        self.start.wrote(uid, change, *outcome == RoleOutcome::Written);
        let refused = match outcome {
            RoleOutcome::Refused(why) => Some(why.clone()),
            RoleOutcome::Altered(altered) => Some(altered.to_string()),
            // Only an answer says that it is not refused any more.
            RoleOutcome::Unanswered(_) | RoleOutcome::Withdrawn => return,
            RoleOutcome::Written | RoleOutcome::Conflict | RoleOutcome::Gone => None,
        };
        let Some(why) = refused else {
            if self.refused.as_ref().is_some_and(|refused| refused.uid == uid) {
                self.refused = None;
            }
            if change == PodChange::Delete && *outcome == RoleOutcome::Written {
                let note = format!(
                    "{pod} does not hold the lease any more and is deleted: spec.activation.schedulingGate is true"
                );
                self.report_on(NoticeReason::PodDeleted, note, (pod, uid.to_owned()));
            }
            return;
        };
        let altered = matches!(outcome, RoleOutcome::Altered(_));
        self.emit(Effect::Measure(Measure::WriteRefused { kind: writing.kind, altered }));
        let is_forbidden = writing.kind.is_some() && matches!(outcome, RoleOutcome::Refused(why) if lacks_right(why));
        let forbidden_until = is_forbidden.then_some(now + FORBIDDEN);
        let refusal = Refusal { uid: uid.to_owned(), change, why: why.clone(), forbidden_until };
        // A refused write is repeated: the same refusal is reported once.
        let is_same = |known: &Refusal| (&known.uid, known.change, &known.why) == (&refusal.uid, change, &why);
        let is_known = self.refused.as_deref().is_some_and(is_same);
        self.refused = Some(Box::new(refusal));
        if is_known {
            return;
        }
        let (reason, what) = match change {
            PodChange::Delete => {
                (NoticeReason::ActivationRefused, "does not hold the lease any more and cannot be deleted")
            }
            PodChange::Run(Run::Replicas(0) | Run::Suspended(true)) => {
                (NoticeReason::ActivationRefused, "does not hold the lease and runs on, because it cannot be stopped")
            }
            PodChange::Run(_) => (NoticeReason::ActivationRefused, "holds the lease and cannot be scaled or resumed"),
            PodChange::Start => (NoticeReason::ActivationRefused, "holds the lease and cannot be started"),
            PodChange::None | PodChange::Fence(_) => (NoticeReason::WriteRefused, "cannot get its label and its token"),
        };
        self.report_on(reason, format!("{pod} {what}: {why}"), (pod, uid.to_owned()));
    }

    /// Others have changed what the API server had stored.
    pub(super) fn report_correction(
        &mut self,
        pod: Object<'_>,
        kind: Option<WorkloadKind>,
        altered: Option<&Altered>,
        Correction { tell }: Correction,
    ) {
        self.emit(Effect::Measure(Measure::Corrected { kind }));
        if let Some(altered) = altered.filter(|_| tell) {
            let note = format!(
                "{} was changed after the operator had written it: {}. The operator writes it again.",
                pod.name,
                altered.difference()
            );
            let on_pods = vec![(pod.name.to_owned(), pod.uid.to_owned())];
            self.emit(Effect::Report(Notice { reason: NoticeReason::ChangedByOthers, note, on_pods }));
        }
    }

    fn report_on(&mut self, reason: NoticeReason, note: String, pod: (String, String)) {
        self.emit(Effect::Report(Notice { reason, note, on_pods: vec![pod] }));
    }
}
