//! The objects of a cluster: one lease, and its workload or its two pods; and how the API server stores a write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use redislease_plan::api::conditions::{ConditionStatus, ConditionType};
use redislease_plan::api::lease::{
    ActivationSpec, CandidatesSpec, ElectionSpec, Granularity, QuorumRef, RetrySpec, RetryStrategy, ScaleSpec,
    WorkloadRef,
};
use redislease_plan::api::names::{self, PodRole};
use redislease_plan::api::validated::WorkloadKind;
use redislease_plan::api::{RedisLease, RedisLeaseSpec, RedisLeaseStatus};
use redislease_plan::election::{Annotations, Candidate, Cluster, PodFacts, Run, WorkloadFacts};
use redislease_plan::plan::{PodChange, RoleWrite, StatusWrite, withdrawal};

/// The namespace of every object.
pub const NAMESPACE: &str = "team";
/// The name of the lease.
pub const LEASE: &str = "web";
/// The replicas of a workload that holds the lease.
pub const RUNNING: i32 = 2;
/// The deletion grace period of every pod.
pub const GRACE: Duration = Duration::from_secs(30);

/// What the lease starts and stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One Deployment, with these replicas at first.
    Workload(i32),
    /// Two pods with a scheduling gate.
    Pods,
}

/// The cluster with this number.
pub fn cluster(number: usize) -> Cluster {
    Cluster { name: ["east", "west"][number].into(), uid: format!("cluster-{number}") }
}

/// The lease without a status.
pub fn lease(kind: Kind) -> RedisLease {
    let is_workload = matches!(kind, Kind::Workload(_));
    let labels = BTreeMap::from([("app".to_owned(), LEASE.to_owned())]);
    let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
    let deployment = WorkloadRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: LEASE.into() };
    let candidates = if is_workload {
        CandidatesSpec { selector: None, workload_ref: Some(deployment) }
    } else {
        CandidatesSpec { selector: Some(selector), workload_ref: None }
    };
    let spec = RedisLeaseSpec {
        quorum_ref: QuorumRef { name: "default".into() },
        keys: None,
        candidates,
        lease_duration: Duration::from_secs(30).into(),
        renew_interval: Duration::from_secs(5).into(),
        grace_period: Duration::from_secs(10).into(),
        retry: RetrySpec {
            strategy: RetryStrategy::None,
            min_delay: Duration::from_secs(1).into(),
            max_delay: Duration::from_secs(1).into(),
            limit: None,
            jitter: 0,
        },
        election: ElectionSpec { require_ready: true, unhealthy_after: None },
        granularity: if is_workload { Granularity::Cluster } else { Granularity::Pod },
        activation: Some(ActivationSpec {
            scheduling_gate: !is_workload,
            scale: is_workload.then_some(ScaleSpec { replicas: RUNNING }),
            suspend: false,
        }),
        suspend: false,
    };
    let mut lease = RedisLease::new(LEASE, spec);
    lease.metadata.namespace = Some(NAMESPACE.into());
    lease.metadata.uid = Some("lease".into());
    lease.metadata.generation = Some(1);
    lease.metadata.resource_version = Some("1".into());
    lease
}

/// The objects that the lease starts and stops.
pub fn startable(kind: Kind) -> Vec<Candidate> {
    match kind {
        Kind::Workload(replicas) => vec![Candidate::Workload(Arc::new(deployment(replicas)))],
        Kind::Pods => ["a", "b"].map(|name| Candidate::Pod(Arc::new(gated(name)))).into(),
    }
}

fn deployment(replicas: i32) -> WorkloadFacts {
    WorkloadFacts {
        kind: WorkloadKind::Deployment,
        namespace: NAMESPACE.into(),
        name: LEASE.into(),
        uid: "uid-workload".into(),
        resource_version: Some("1".into()),
        labels: BTreeMap::new(),
        annotations: [(names::ACTIVATED_BY_ANNOTATION.to_owned(), LEASE.to_owned())].into_iter().collect(),
        run: Run::Replicas(replicas),
    }
}

/// A pod that waits for its election.
fn gated(name: &str) -> PodFacts {
    PodFacts {
        namespace: NAMESPACE.into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        resource_version: Some("1".into()),
        labels: BTreeMap::from([("app".to_owned(), LEASE.to_owned())]),
        annotations: Annotations::default(),
        gates: [names::scheduling_gate(LEASE)].into(),
        created: None,
        node: None,
        ready: false,
        running: false,
        finished: false,
        deletion_grace: None,
        stopped: false,
    }
}

/// The number of a resource version.
pub fn version(text: Option<&String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn next(text: Option<&String>) -> String {
    (version(text) + 1).to_string()
}

/// The lease after a status write; `None` if the write names another version.
pub fn with_status(lease: &RedisLease, write: &StatusWrite) -> Option<RedisLease> {
    if write.version != lease.metadata.resource_version {
        return None;
    }
    let mut written = lease.clone();
    if lease.status.as_ref() != Some(&*write.status) {
        written.status = Some((*write.status).clone());
        written.metadata.resource_version = Some(next(lease.metadata.resource_version.as_ref()));
    }
    Some(written)
}

/// The object after a role write; `None` if the write names another version. A write that changes nothing stores no new
/// version.
pub fn with_role(object: &Candidate, write: &RoleWrite) -> Option<Candidate> {
    if write.version != *object.object().resource_version {
        return None;
    }
    let written = match object {
        Candidate::Workload(workload) => {
            let mut written = WorkloadFacts::clone(workload);
            set_role(&mut written.labels, &mut written.annotations, write);
            for (key, value) in &write.marks {
                written.annotations.set(key, value.as_deref());
            }
            if let PodChange::Run(run) = write.change {
                written.run = run;
            }
            if written != **workload {
                written.resource_version = Some(next(workload.resource_version.as_ref()));
            }
            Candidate::Workload(Arc::new(written))
        }
        Candidate::Pod(pod) => {
            let mut written = PodFacts::clone(pod);
            change_pod(&mut written, write);
            if written != **pod {
                written.resource_version = Some(next(pod.resource_version.as_ref()));
            }
            Candidate::Pod(Arc::new(written))
        }
    };
    Some(written)
}

fn set_role(labels: &mut BTreeMap<String, String>, annotations: &mut Annotations, write: &RoleWrite) {
    match write.role {
        Some(role) => labels.insert(names::role_label(LEASE), role.as_str().into()),
        None => labels.remove(&names::role_label(LEASE)),
    };
    annotations.set(&names::token_annotation(LEASE), write.token.as_deref());
}

fn change_pod(pod: &mut PodFacts, write: &RoleWrite) {
    if write.change == PodChange::Delete {
        pod.deletion_grace = Some(GRACE);
        return;
    }
    set_role(&mut pod.labels, &mut pod.annotations, write);
    match write.change {
        PodChange::Fence(number) => {
            let withdrawn = withdrawal(write.token.as_deref(), number);
            pod.annotations.set(&names::withdrawn_annotation(LEASE), Some(&withdrawn));
        }
        PodChange::Start if !pod.gates.is_empty() => {
            pod.gates = Box::default();
            pod.annotations.set(&names::started_annotation(LEASE), write.token.as_deref());
            (pod.node, pod.ready, pod.running) = (Some("node-1".into()), true, true);
        }
        PodChange::Start | PodChange::None | PodChange::Delete | PodChange::Run(_) => {}
    }
}

/// The pod after all its processes have ended.
pub fn ended(pod: &PodFacts) -> PodFacts {
    let resource_version = Some(next(pod.resource_version.as_ref()));
    PodFacts { resource_version, ready: false, running: false, finished: true, stopped: true, ..pod.clone() }
}

/// What the checks need to know about a stored lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseShows {
    /// The version.
    pub version: u64,
    /// The token of the term that the status names and does not call ended.
    pub named: Option<u64>,
    /// The latest token.
    pub latest: u64,
}

impl LeaseShows {
    /// Reads the status.
    pub fn of(lease: &RedisLease) -> Self {
        let version = version(lease.metadata.resource_version.as_ref());
        lease.status.as_ref().map_or(Self { version, ..Self::default() }, |status| Self::of_status(version, status))
    }

    /// Reads a status that is stored in this version.
    pub fn of_status(version: u64, status: &RedisLeaseStatus) -> Self {
        let latest = status.fencing_token.and_then(|token| u64::try_from(token).ok()).unwrap_or(0);
        let is_ended = status.says(ConditionType::Active, ConditionStatus::False);
        let named = (status.attempt.is_some() && status.holder.is_some() && !is_ended).then_some(latest);
        Self { version, named, latest }
    }
}

/// What the checks need to know about a stored object.
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the object")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectShows {
    /// The version.
    pub version: u64,
    /// Whether it runs, or was let start and has not stopped.
    pub runs: bool,
    /// Whether it is a pod that was asked to stop.
    pub is_deleted: bool,
    /// Whether it is a pod with a gate.
    pub is_gated: bool,
    /// Whether it shows the whole standby state.
    pub is_standby: bool,
}

impl ObjectShows {
    /// Reads the object.
    pub fn of(candidate: &Candidate) -> Self {
        let object = candidate.object();
        let version = version(object.resource_version.as_ref());
        let is_standby =
            object.labels.get(&names::role_label(LEASE)).is_some_and(|role| role == PodRole::Standby.as_str());
        match candidate {
            Candidate::Workload(workload) => {
                let runs = workload.run != Run::Replicas(0);
                Self { version, runs, is_standby: is_standby && !runs, ..Self::default() }
            }
            Candidate::Pod(pod) => {
                let is_gated = !pod.gates.is_empty();
                Self {
                    version,
                    runs: !is_gated && !pod.stopped,
                    is_deleted: pod.deletion_grace.is_some(),
                    is_gated,
                    is_standby: is_standby && is_gated,
                }
            }
        }
    }
}
