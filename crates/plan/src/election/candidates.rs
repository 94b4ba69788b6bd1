//! Which pods are eligible, and which of them is elected first.

use std::sync::Arc;

use crate::api::lease_status::Holder;
use crate::api::names;
use crate::api::validated::ValidLease;
use crate::election::{PodFacts, WorkloadFacts};

/// Why a pod is not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ineligible {
    /// Its annotation `redislease.io/exclude` is `"true"`.
    Excluded,
    /// Its annotation `redislease.io/priority` is not a 64-bit integer.
    InvalidPriority,
    /// Its phase is Succeeded or Failed.
    Finished,
    /// It is being deleted.
    Terminating,
    /// It is not scheduled to a Kubernetes node yet.
    NotScheduled,
    /// It is not Ready.
    NotReady,
    /// It does not have the scheduling gate of the lease.
    NotGated,
    /// The operator has removed its scheduling gate for an earlier term.
    Started,
    /// It has another scheduling gate.
    OtherGate,
}

/// Which candidates can be elected.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eligibility {
    /// Whether only a Ready pod can be elected.
    pub requires_ready: bool,
    /// The name of the lease, if it has `schedulingGate`; otherwise `None`.
    pub gated: Option<Box<str>>,
}

impl From<&ValidLease> for Eligibility {
    fn from(lease: &ValidLease) -> Self {
        Self { requires_ready: lease.readiness.required, gated: lease.gated.then(|| lease.name.as_str().into()) }
    }
}

words!(
    Ineligible: Excluded, InvalidPriority, Finished, Terminating, NotScheduled, NotReady, NotGated, Started, OtherGate
);

impl Ineligible {
    /// The inverse of [`Ineligible::as_str`].
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The reason as a clause about the pod.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Excluded => "its annotation redislease.io/exclude is \"true\"",
            Self::InvalidPriority => "its annotation redislease.io/priority is not a 64-bit integer",
            Self::Finished => "its phase is Succeeded or Failed",
            Self::Terminating => "it is being deleted",
            Self::NotScheduled => "it is not scheduled to a Kubernetes node",
            Self::NotReady => "it is not Ready",
            Self::NotGated => "it does not have the scheduling gate of the lease",
            Self::Started => "it was started for an earlier term",
            Self::OtherGate => "it has another scheduling gate",
        }
    }
}

/// The candidates of a lease: pods, divided into eligible and ineligible ones, or one workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Electorate {
    /// The eligible pods. The first one is elected.
    pub eligible: Vec<Arc<PodFacts>>,
    /// The other pods with the reason, sorted by name.
    pub ineligible: Vec<(Arc<PodFacts>, Ineligible)>,
    /// The only candidate of a lease with granularity Cluster.
    workload: Option<Arc<WorkloadFacts>>,
}

impl Electorate {
    /// The electorate of a lease with granularity Cluster.
    pub fn of_workload(workload: Arc<WorkloadFacts>) -> Self {
        Self { workload: Some(workload), ..Self::default() }
    }

    /// The workload that is the only candidate, also while it is being deleted.
    pub const fn workload(&self) -> Option<&Arc<WorkloadFacts>> {
        self.workload.as_ref()
    }

    /// The workload that is the only candidate, unless it is being deleted.
    pub fn lasting_workload(&self) -> Option<&Arc<WorkloadFacts>> {
        self.workload.as_ref().filter(|workload| !workload.deleting)
    }

    /// Whether a candidate can be elected.
    pub fn has_eligible(&self) -> bool {
        self.lasting_workload().is_some() || !self.eligible.is_empty()
    }

    /// Whether the object with this UID is a candidate, eligible or not.
    pub fn contains(&self, uid: &str) -> bool {
        self.find(uid).is_some() || self.lasting_workload().is_some_and(|workload| workload.uid == uid)
    }

    /// Sorts eligible pods by priority (greatest first), then by age (oldest first), then by name.
    pub fn of(pods: impl IntoIterator<Item = Arc<PodFacts>>, eligibility: &Eligibility) -> Self {
        let gate = eligibility.gated.as_deref().map(Gate::new);
        let mut electorate = Self::default();
        let mut ranked: Vec<(i64, Arc<PodFacts>)> = Vec::new();
        for pod in pods {
            match priority_if_eligible(&pod, eligibility.requires_ready, gate.as_ref()) {
                Ok(priority) => ranked.push((priority, pod)),
                Err(reason) => electorate.ineligible.push((pod, reason)),
            }
        }
        ranked.sort_by(|(a, pod_a), (b, pod_b)| (b, pod_a.created, &pod_a.name).cmp(&(a, pod_b.created, &pod_b.name)));
        electorate.eligible = ranked.into_iter().map(|(_, pod)| pod).collect();
        electorate.ineligible.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        electorate
    }

    /// The pod with this UID, eligible or not.
    pub fn find(&self, uid: &str) -> Option<&Arc<PodFacts>> {
        self.pods().find(|pod| pod.uid == uid)
    }

    /// The pods that cannot be elected, without this holder if it is ineligible only because it was started.
    pub fn ineligible_but<'a>(
        &'a self,
        holder: Option<&'a Holder>,
    ) -> impl Iterator<Item = &'a (Arc<PodFacts>, Ineligible)> {
        let is_holder = move |pod: &PodFacts| holder.is_some_and(|holder| holder.pod_uid == pod.uid);
        self.ineligible.iter().filter(move |(pod, why)| !(*why == Ineligible::Started && is_holder(pod)))
    }

    /// The number of candidates that are not being deleted, eligible or not.
    pub fn lasting(&self) -> usize {
        self.eligible.len() + self.ineligible.len() + usize::from(self.lasting_workload().is_some())
    }

    /// All pods, the eligible ones first.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodFacts>> {
        self.eligible.iter().chain(self.ineligible.iter().map(|(pod, _)| pod))
    }

    /// The number of all candidates.
    pub fn total(&self) -> usize {
        self.eligible.len() + self.ineligible.len() + usize::from(self.workload.is_some())
    }
}

/// The scheduling gate of a lease.
struct Gate {
    name: String,
    started: String,
}

impl Gate {
    fn new(lease: &str) -> Self {
        Self { name: names::scheduling_gate(lease), started: names::started_annotation(lease) }
    }

    /// Whether the pod waits only for its election.
    fn check(&self, pod: &PodFacts) -> Result<(), Ineligible> {
        let is_its = |mark: &String| names::is_started_mark(mark, &pod.uid);
        if pod.gates.iter().any(|gate| *gate != self.name) {
            Err(Ineligible::OtherGate)
        } else if !pod.gates.is_empty() {
            Ok(())
        } else if pod.annotations.get(&self.started).is_some_and(is_its) {
            Err(Ineligible::Started)
        } else {
            Err(Ineligible::NotGated)
        }
    }
}

fn priority_if_eligible(pod: &PodFacts, requires_ready: bool, gate: Option<&Gate>) -> Result<i64, Ineligible> {
    if pod.annotations.excludes() {
        return Err(Ineligible::Excluded);
    }
    let priority = pod.annotations.priority().ok_or(Ineligible::InvalidPriority)?;
    if pod.finished {
        Err(Ineligible::Finished)
    } else if pod.deletion_grace.is_some() {
        Err(Ineligible::Terminating)
    } else if let Some(gate) = gate {
        gate.check(pod).map(|()| priority)
    } else if pod.node.is_none() {
        Err(Ineligible::NotScheduled)
    } else if !pod.ready && requires_ready {
        Err(Ineligible::NotReady)
    } else {
        Ok(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use jiff::Timestamp;

    const REQUIRED: Eligibility = Eligibility { requires_ready: true, gated: None };

    fn pod(name: &str, age: i64) -> PodFacts {
        let created = Timestamp::from_second(1_000_000 - age).unwrap();
        PodFacts { created: Some(created), ..PodFacts::running(name) }
    }

    fn annotated(name: &str, age: i64, key: &str, value: &str) -> PodFacts {
        PodFacts { annotations: [(key.into(), value.into())].into_iter().collect(), ..pod(name, age) }
    }

    fn shared(pods: &[PodFacts]) -> Vec<Arc<PodFacts>> {
        pods.iter().cloned().map(Arc::new).collect()
    }

    fn ranked(pods: &[PodFacts]) -> Vec<String> {
        Electorate::of(shared(pods), &REQUIRED).eligible.iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn eligible_pods_are_sorted_by_priority_age_and_name() {
        let pods = [
            pod("young", 1),
            pod("old", 9),
            annotated("chosen", 0, names::PRIORITY_ANNOTATION, "10"),
            annotated("last", 99, names::PRIORITY_ANNOTATION, "-1"),
            pod("also-old", 9),
        ];
        assert_eq!(ranked(&pods), ["chosen", "also-old", "old", "young", "last"]);
    }

    #[test]
    fn each_obstacle_has_its_reason() {
        let table = [
            (annotated("a", 0, names::EXCLUDE_ANNOTATION, "true"), Ineligible::Excluded),
            (annotated("a", 0, names::PRIORITY_ANNOTATION, "high"), Ineligible::InvalidPriority),
            (PodFacts { finished: true, ..pod("a", 0) }, Ineligible::Finished),
            (PodFacts { deletion_grace: Some(Duration::ZERO), ..pod("a", 0) }, Ineligible::Terminating),
            (PodFacts { node: None, ..pod("a", 0) }, Ineligible::NotScheduled),
            (PodFacts { ready: false, ..pod("a", 0) }, Ineligible::NotReady),
        ];
        for (pod, reason) in table {
            let pod = Arc::new(pod);
            let electorate = Electorate::of([pod.clone()], &REQUIRED);
            assert_eq!(electorate.ineligible, [(pod.clone(), reason)]);
            assert_eq!(electorate.find("uid-a"), Some(&pod));
        }
    }

    #[test]
    fn not_ready_pods_are_eligible_if_readiness_is_ignored() {
        let pod = Arc::new(PodFacts { ready: false, ..pod("a", 0) });
        assert_eq!(Electorate::of([pod.clone()], &Eligibility::default()).eligible, [pod]);
    }

    #[test]
    fn with_a_gate_only_pods_that_wait_for_their_election_are_eligible() {
        let eligibility = Eligibility { requires_ready: true, gated: Some("billing".into()) };
        let gated = |name: &str, gates: &[&str]| PodFacts {
            gates: gates.iter().map(|gate| (*gate).to_owned()).collect(),
            node: None,
            ready: false,
            ..pod(name, 0)
        };
        let ours = "lease.redislease.io/billing";
        let pods = [
            gated("waits", &[ours]),
            gated("two-gates", &[ours, "example.com/quota"]),
            gated("misspelt", &["lease.redislease.io/Billing"]),
            annotated("copied", 0, "started.redislease.io/billing", "7.uid-started"),
            annotated("started", 0, "started.redislease.io/billing", "7.uid-started"),
            pod("without", 0),
            PodFacts { deletion_grace: Some(Duration::ZERO), ..gated("deleted", &[ours]) },
        ];
        let electorate = Electorate::of(shared(&pods), &eligibility);
        assert!(electorate.eligible.iter().map(|pod| pod.name.as_str()).eq(["waits"]));
        let ineligible: Vec<_> = electorate.ineligible.iter().map(|(pod, why)| (pod.name.as_str(), *why)).collect();
        assert_eq!(
            ineligible,
            [
                ("copied", Ineligible::NotGated),
                ("deleted", Ineligible::Terminating),
                ("misspelt", Ineligible::OtherGate),
                ("started", Ineligible::Started),
                ("two-gates", Ineligible::OtherGate),
                ("without", Ineligible::NotGated),
            ]
        );
    }
}
