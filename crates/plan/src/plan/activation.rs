//! How the elected pod becomes active, in addition to its label: `spec.activation`.
//!
//! `schedulingGate`: pods start only after their election.
//! - The write that labels the elected pod `active` also removes its scheduling gate, so it follows the same rules: the status
//!   names the term, no other pod may be `active`, and the write names the pod's version.
//! - The same write annotates the pod with its UID. A pod with this annotation that does not hold the lease any more is deleted:
//!   at once if this process has ended its term, else when the status says that the term has ended and the pod is `standby` with the
//!   token of the latest term. While the field is set, such a pod is never elected again, so a late deletion is right.
//! - A term whose pod cannot be started ends after `unhealthyAfter`, and another pod goes first.
//!
//! `scale` and `suspend`: the only candidate is a workload. The write of its role also starts or stops it.

use std::sync::Arc;

use redislease_core::op::Token;

use super::desired_role::DesiredRole;
use super::{Allowed, Facts, PodChange, PodKnowledge, Priority};
use crate::api::conditions::LeaseReady;
use crate::api::names::{self, PodRole};
use crate::api::validated::ClusterActivation;
use crate::election::{PodFacts, Run, WorkloadFacts};

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
    DesiredRole { role: Some(role), token, change, run: Some(run), dry_run: false }
}

impl Activator {
    pub fn of(lease: &str, facts: &Facts) -> Self {
        match &facts.spec.valid {
            Some(spec) if spec.cluster.is_none() && spec.gated && facts.allowed.scheduling_gate => {
                Self::Gate { gate: names::scheduling_gate(lease), started: names::started_annotation(lease) }
            }
            _ => Self::Role,
        }
    }

    /// What the pod is to be with this role. Nothing changes in addition to label and token if the rest is already so.
    pub fn desired(&self, pod: &PodFacts, role: PodRole, token: Option<Token>) -> DesiredRole {
        let change = match self {
            // Other gates are not the operator's to remove.
            Self::Gate { gate, .. } if role == PodRole::Active && matches!(&*pod.gates, [only] if only == gate) => {
                PodChange::Start
            }
            Self::Role | Self::Gate { .. } => PodChange::None,
        };
        DesiredRole { role: Some(role), token, change, ..DesiredRole::NONE }
    }

    /// Whether only the elected pod starts.
    pub const fn starts_pods(&self) -> bool {
        matches!(self, Self::Gate { .. })
    }

    /// How urgent the label `standby` is, on a pod that may be labelled `active`. The deletion of a pod that runs follows its label.
    pub fn standby_priority(&self, pod: &PodFacts, may_be_active: bool) -> Priority {
        match self.starts_pods() || may_be_active {
            _ if self.may_run(pod) => Priority::End,
            true => Priority::Active,
            false => Priority::Standby,
        }
    }

    /// Whether the pod was started for a term and nothing ends it yet.
    pub fn has_started(&self, pod: &PodFacts) -> bool {
        self.started(pod) && !pod.finished && pod.deletion_grace.is_none()
    }

    /// A pod that was started for a term before that of `holder`, and that nothing ends yet.
    pub fn earlier<'a>(&self, facts: &'a Facts, holder: &str) -> Option<&'a Arc<PodFacts>> {
        facts.pods().find(|pod| pod.uid != holder && self.has_started(pod))
    }

    /// Whether the operator may have let the pod start, and nothing proves that it has stopped.
    pub fn may_run(&self, pod: &PodFacts) -> bool {
        self.started(pod) && !pod.stopped
    }

    /// Whether the operator let the pod start. No gate can be added to a pod: one that has a gate was not started, and has the
    /// annotation from its template.
    fn started(&self, pod: &PodFacts) -> bool {
        let Self::Gate { started, .. } = self else { return false };
        pod.gates.is_empty() && pod.annotations.get(started).is_some_and(|mark| names::is_started_mark(mark, &pod.uid))
    }
}

/// The way of activation that the spec wants and the operator must not use: the field, the flag and the value of the chart.
fn forbidden(facts: &Facts) -> Option<[&'static str; 3]> {
    let spec = facts.spec.valid.as_ref()?;
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

/// Whether the operator must not stop what holds the lease, and it may run. What is not known may run.
pub(super) fn is_unstoppable(lease: &str, facts: &Facts) -> bool {
    let is_stopped = match (facts.workload(), &facts.holder) {
        (Some(workload), _) => workload.run.is_stopped(),
        // With the flag too, the operator deletes only pods that it has started.
        (None, PodKnowledge::Here(holder)) => !was_started(lease, &holder.facts),
        (None, _) => false,
    };
    !is_stopped && forbidden(facts).is_some()
}

/// Whether an operator has started the pod: it has no gate, and the annotation of a start.
fn was_started(lease: &str, pod: &PodFacts) -> bool {
    pod.gates.is_empty() && pod.annotations.get(&names::started_annotation(lease)).is_some()
}

/// What runs on although its term has ended, and why the operator must not stop it.
pub(super) fn runs_on(lease: &str, facts: &Facts) -> Option<(String, String)> {
    let [_, flag, value] = forbidden(facts)?;
    let electorate = facts.electorate()?;
    let is_running = |pod: &&Arc<PodFacts>| was_started(lease, pod) && !pod.finished && pod.deletion_grace.is_none();
    let what = match electorate.workload() {
        // The label says that the operator has written it.
        Some(workload) if !workload.run.is_stopped() && workload.labels.contains_key(&names::role_label(lease)) => {
            "The workload".to_owned()
        }
        Some(_) => return None,
        None => format!("The pod {}", facts.pods().find(is_running)?.name),
    };
    Some((what, format!("this operator runs without {flag} ({value} in the chart)")))
}

/// Whether the operator may write to the candidates of the lease: to pods always.
pub(super) fn may_write_candidates(facts: &Facts) -> bool {
    facts.spec.valid.as_ref().is_none_or(|spec| spec.cluster.is_none()) || forbidden(facts).is_none()
}

/// Why no term can begin, if the operator must not use the way of activation.
pub(super) fn obstacle(facts: &Facts) -> Option<(LeaseReady, String)> {
    let [field, flag, value] = forbidden(facts)?;
    let message = format!(
        "spec.activation.{field} is set, but this operator must not use it: it runs without {flag} ({value} in the chart)."
    );
    Some((LeaseReady::ActivationNotAllowed, message))
}
