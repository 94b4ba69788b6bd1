//! The Kubernetes objects of the simulated clusters, and how the API server stores a role. Everything has a number; names and UIDs are
//! made from it.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::struct_excessive_bools,
    reason = "as in the simulator"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time};
use redislease_plan::api::lease::{
    ActivationSpec, CandidatesSpec, ElectionSpec, Granularity, QuorumRef, RetrySpec, RetryStrategy, ScaleSpec,
    WorkloadRef,
};
use redislease_plan::api::validated::WorkloadKind;
use redislease_plan::api::{self, RedisLease, RedisLeaseSpec, names};
use redislease_plan::election::{Annotations, Cluster, PodFacts, Run, WorkloadFacts};
use redislease_plan::plan::RoleWrite;

/// The namespace of the operator, and of the first leases.
pub const NAMESPACE: &str = "team";
/// The name of the only quorum.
pub const QUORUM: &str = "default";
/// 2026-11-21, in seconds of Unix time: when every run starts.
pub const START: i64 = 1_795_238_400;

/// The replicas of a workload whose cluster holds the lease.
pub const RUNNING: i32 = 2;

/// The label that makes a pod a candidate of a lease.
pub const APP: &str = "app";
/// The label that excludes a pod from the candidates of a lease that [excludes](LeaseSpec::excludes) it.
pub const APART: &str = "apart";

/// The namespaces of leases and their candidates. Only a world with many leases has several.
const NAMESPACES: [&str; 3] = [NAMESPACE, "shop", "bank"];
/// How many leases a namespace has at most.
pub const OF_NAMESPACE: usize = 40;

/// Keys as bits.
pub type Keys = u128;
/// The number of different keys.
pub const KEYS: usize = Keys::BITS as usize;

/// The numbers of these keys.
pub fn numbers(keys: Keys) -> impl Iterator<Item = u8> {
    (0..KEYS as u8).filter(move |key| keys & 1 << key != 0)
}

/// What a lease's spec says, beside its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSpec {
    /// Seconds.
    pub lease: u64,
    /// Milliseconds.
    pub renew: u64,
    /// Seconds.
    pub grace: u64,
    /// Seconds; `None` for the default, one lease.
    pub unhealthy_after: Option<u64>,
    pub linear: bool,
    /// Milliseconds.
    pub min_delay: u64,
    /// Milliseconds.
    pub max_delay: u64,
    pub limit: Option<i32>,
    /// The selector names no label that every candidate has: it only excludes a label.
    pub excludes: bool,
    /// Only the elected pod starts.
    pub gated: bool,
    /// The cluster holds the lease, and a Deployment runs in it.
    pub clustered: bool,
    /// The place of the workload that the lease names, if it is the workload of another lease.
    pub workload: Option<usize>,
    pub suspend: bool,
}

impl LeaseSpec {
    /// The spec as it stands in the object. `keys` has one bit for each key.
    pub fn object(&self, place: usize, keys: Keys) -> RedisLeaseSpec {
        let labels = BTreeMap::from([(APP.to_owned(), lease_name(place))]);
        let selector = if self.excludes {
            let without = LabelSelectorRequirement { key: APART.into(), operator: "DoesNotExist".into(), values: None };
            LabelSelector { match_labels: None, match_expressions: Some(vec![without]) }
        } else {
            LabelSelector { match_labels: Some(labels), match_expressions: None }
        };
        let deployment = WorkloadRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: lease_name(self.workload.unwrap_or(place)),
        };
        let candidates = if self.clustered {
            CandidatesSpec { selector: None, workload_ref: Some(deployment) }
        } else {
            CandidatesSpec { selector: Some(selector), workload_ref: None }
        };
        let activation = ActivationSpec {
            scheduling_gate: self.gated,
            scale: self.clustered.then_some(ScaleSpec { replicas: RUNNING }),
            suspend: false,
        };
        RedisLeaseSpec {
            quorum_ref: QuorumRef { name: QUORUM.into() },
            keys: Some(numbers(keys).map(|key| format!("key-{key}")).collect()),
            candidates,
            lease_duration: seconds(self.lease),
            renew_interval: millis(self.renew),
            grace_period: seconds(self.grace),
            retry: RetrySpec {
                strategy: if self.linear { RetryStrategy::Linear } else { RetryStrategy::Exponential },
                min_delay: millis(self.min_delay),
                max_delay: millis(self.max_delay),
                limit: self.limit,
                jitter: 10,
            },
            election: ElectionSpec {
                require_ready: true,
                unhealthy_after: self.unhealthy_after.filter(|_| !self.clustered).map(seconds),
            },
            granularity: if self.clustered { Granularity::Cluster } else { Granularity::Pod },
            activation: (self.gated || self.clustered).then_some(activation),
            suspend: self.suspend,
        }
    }
}

/// The namespace of the lease at this place.
pub const fn namespace(place: usize) -> &'static str {
    NAMESPACES[place / OF_NAMESPACE]
}

pub fn seconds(seconds: u64) -> api::Duration {
    Duration::from_secs(seconds).into()
}

pub fn millis(millis: u64) -> api::Duration {
    Duration::from_millis(millis).into()
}

pub fn cluster(number: usize) -> Cluster {
    Cluster { name: ["east", "west"][number].into(), uid: format!("cluster-{number}") }
}

pub fn lease_name(place: usize) -> String {
    format!("lease-{place}")
}

pub fn lease_uid(uid: u32) -> String {
    format!("lease-uid-{uid}")
}

pub fn pod_name(pod: u32) -> String {
    format!("pod-{pod}")
}

pub fn pod_uid(pod: u32) -> String {
    format!("pod-uid-{pod}")
}

/// The number in a resource version, or in an annotation.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The wall clock of an API server: true time.
pub fn timestamp(now: u64) -> Timestamp {
    Timestamp::from_second(START + (now / 1_000_000) as i64).unwrap()
}

/// A lease without a status.
pub fn lease(place: usize, uid: u32, keys: Keys, spec: &LeaseSpec, now: u64) -> RedisLease {
    let mut lease = RedisLease::new(&lease_name(place), spec.object(place, keys));
    lease.metadata.namespace = Some(namespace(place).into());
    lease.metadata.uid = Some(lease_uid(uid));
    lease.metadata.generation = Some(1);
    lease.metadata.creation_timestamp = Some(Time(timestamp(now)));
    lease
}

/// A pod that runs and is Ready, on a Kubernetes node of its own; with a gate, a pod that has not started.
pub fn pod(pod: u32, place: usize, gated: bool, now: u64) -> PodFacts {
    let running = PodFacts {
        namespace: namespace(place).into(),
        name: pod_name(pod),
        uid: pod_uid(pod),
        labels: BTreeMap::from([(APP.to_owned(), lease_name(place))]),
        created: Some(timestamp(now)),
        node: Some(format!("node-{pod}")),
        ready: true,
        running: true,
        ..PodFacts::default()
    };
    if !gated {
        return running;
    }
    let gate = names::scheduling_gate(&lease_name(place));
    PodFacts { gates: [gate].into(), node: None, ready: false, running: false, ..running }
}

/// The Deployment of the lease at this place.
pub fn deployment(number: u32, place: usize, replicas: i32) -> WorkloadFacts {
    WorkloadFacts {
        kind: WorkloadKind::Deployment,
        namespace: namespace(place).into(),
        name: lease_name(place),
        uid: pod_uid(number),
        resource_version: None,
        labels: BTreeMap::new(),
        annotations: [(names::ACTIVATED_BY_ANNOTATION.to_owned(), lease_name(place))].into_iter().collect(),
        run: Run::Replicas(replicas),
        deletes_volumes: false,
        stops_in_order: false,
        deleting: false,
    }
}

/// Stores the label and the annotations of a write. With `strips`, a webhook removes the label from it.
pub fn store_role(
    place: usize,
    write: &RoleWrite,
    strips: bool,
    labels: &mut BTreeMap<String, String>,
    annotations: &mut Annotations,
) {
    let name = lease_name(place);
    match write.role.filter(|_| !strips) {
        Some(role) => labels.insert(names::role_label(&name), role.as_str().into()),
        None => labels.remove(&names::role_label(&name)),
    };
    write.annotations(&name).iter().for_each(|(key, value)| annotations.set(key, value.as_deref()));
}
