//! The objects of a cluster: one lease, and its workload or its two pods; and how the API server stores a write.

use std::sync::Arc;
use std::time::Duration;

use redislease_plan::api::conditions::{ConditionStatus, ConditionType};
use redislease_plan::api::names::{self, PodRole};
use redislease_plan::api::{RedisLease, RedisLeaseStatus};
use redislease_plan::election::{Candidate, PodFacts, Run, WorkloadFacts};
use redislease_plan::plan::{PodChange, RoleWrite, StatusWrite};

use crate::shared::{self, LeaseSpec, version};

/// The name of the lease, which is at place 0, and of its workload.
pub const LEASE: &str = "lease-0";
/// The number of the lease's UID.
pub const LEASE_UID: u32 = 1;
/// The number of the workload's UID.
pub const WORKLOAD_UID: u32 = 2;
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

/// The lease without a status.
pub fn lease(kind: Kind) -> RedisLease {
    let clustered = matches!(kind, Kind::Workload(_));
    let spec = LeaseSpec {
        lease: 30,
        renew: 5000,
        grace: 10,
        min_delay: 1000,
        max_delay: 1000,
        gated: !clustered,
        clustered,
        ..LeaseSpec::default()
    };
    let mut lease = shared::lease(0, LEASE_UID, 1, &spec, 0);
    lease.metadata.resource_version = Some("1".into());
    lease
}

/// The objects that the lease starts and stops.
pub fn startable(kind: Kind) -> Vec<Candidate> {
    let first = Some("1".to_owned());
    match kind {
        Kind::Workload(replicas) => {
            let workload = shared::deployment(WORKLOAD_UID, 0, replicas);
            vec![Candidate::Workload(Arc::new(WorkloadFacts { resource_version: first, ..workload }))]
        }
        Kind::Pods => {
            let gated = |pod| PodFacts { resource_version: first.clone(), ..shared::pod(pod, 0, true, 0) };
            [1, 2].map(|pod| Candidate::Pod(Arc::new(gated(pod)))).into()
        }
    }
}

fn next(text: Option<&str>) -> String {
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
        written.metadata.resource_version = Some(next(lease.metadata.resource_version.as_deref()));
    }
    Some(written)
}

/// The object after a role write; `None` if the write names another version. A write that changes nothing stores no new
/// version, and so does a dry run.
pub fn with_role(object: &Candidate, write: &RoleWrite) -> Option<Candidate> {
    if write.version != *object.object().resource_version {
        return None;
    }
    if write.dry_run {
        return Some(object.clone());
    }
    let written = match object {
        Candidate::Workload(workload) => {
            let mut written = WorkloadFacts::clone(workload);
            shared::store_role(0, write, false, &mut written.labels, &mut written.annotations);
            if let PodChange::Run(run) = write.change {
                written.run = run;
            }
            if written != **workload {
                written.resource_version = Some(next(workload.resource_version.as_deref()));
            }
            Candidate::Workload(Arc::new(written))
        }
        Candidate::Pod(pod) => {
            let mut written = PodFacts::clone(pod);
            change_pod(&mut written, write);
            if written != **pod {
                written.resource_version = Some(next(pod.resource_version.as_deref()));
            }
            Candidate::Pod(Arc::new(written))
        }
    };
    Some(written)
}

fn change_pod(pod: &mut PodFacts, write: &RoleWrite) {
    if write.change == PodChange::Delete {
        pod.deletion_grace = Some(GRACE);
        return;
    }
    shared::store_role(0, write, false, &mut pod.labels, &mut pod.annotations);
    if write.change == PodChange::Start && !pod.gates.is_empty() {
        pod.gates = Box::default();
        (pod.node, pod.ready, pod.running) = (Some("node-1".into()), true, true);
    }
}

/// The pod after all its processes have ended.
pub fn ended(pod: &PodFacts) -> PodFacts {
    let resource_version = Some(next(pod.resource_version.as_deref()));
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
        let version = version(lease.metadata.resource_version.as_deref());
        lease.status.as_ref().map_or(Self { version, ..Self::default() }, |status| Self::of_status(version, status))
    }

    /// Reads a status that is stored in this version.
    pub fn of_status(version: u64, status: &RedisLeaseStatus) -> Self {
        let latest = status.token().0;
        let is_ended = status.says(ConditionType::Active, ConditionStatus::False);
        let named = (status.attempt.is_some() && status.holder.is_some() && !is_ended).then_some(latest);
        Self { version, named, latest }
    }
}

/// What the checks need to know about a stored object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectShows {
    /// The version.
    pub version: u64,
    /// Whether it runs, or was let start and has not stopped.
    pub runs: bool,
    /// Whether it is a pod that was asked to stop.
    pub is_deleted: bool,
    /// Whether it shows the whole standby state.
    pub is_standby: bool,
}

impl ObjectShows {
    /// Reads the object.
    pub fn of(candidate: &Candidate) -> Self {
        let object = candidate.object();
        let version = version(object.resource_version.as_deref());
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
                    is_standby: is_standby && is_gated,
                }
            }
        }
    }
}
