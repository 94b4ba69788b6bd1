//! The Kubernetes objects of the simulated clusters. Everything has a number; names and UIDs are made from it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time};
use redislease_core::lease::TermId;
use redislease_core::op::{Attempt, Token};
use redislease_plan::api;
use redislease_plan::api::conditions::{ConditionStatus, ConditionType};
use redislease_plan::api::lease::{
    ActivationSpec, CandidatesSpec, ElectionSpec, Granularity, QuorumRef, RetrySpec, RetryStrategy, ScaleSpec,
    WorkloadRef,
};
use redislease_plan::api::lease_status::HandoverState;
use redislease_plan::api::quorum::{Leader, RedisQuorumSpec, RedisQuorumStatus};
use redislease_plan::api::{RedisLease, RedisLeaseSpec, RedisQuorum, names};
use redislease_plan::election::{Annotations, Cluster, PodFacts};

use crate::redis::clock::{Micros, SECOND};

/// The namespace of every lease and pod.
pub const NAMESPACE: &str = "team";
/// The name of the only quorum.
pub const QUORUM: &str = "default";
/// 2026-11-21, in seconds of Unix time: when every run starts.
pub const START: i64 = 1_795_238_400;

/// The replicas of a workload whose cluster holds the lease.
pub const RUNNING: i32 = 2;

/// The label that makes a pod a candidate of a lease.
const APP: &str = "app";
/// The label that excludes a pod from the candidates of a lease that [excludes](LeaseSpec::excludes) it.
const APART: &str = "apart";

/// Keys as bits.
pub type Keys = u128;
/// The number of different keys.
pub const KEYS: usize = Keys::BITS as usize;

/// The numbers of these keys.
pub fn numbers(keys: Keys) -> impl Iterator<Item = u8> {
    (0..KEYS as u8).filter(move |key| keys & 1 << key != 0)
}

/// What a lease's spec says, beside its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
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
            keys: Some(numbers(keys).map(key_name).collect()),
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

fn seconds(seconds: u64) -> api::Duration {
    Duration::from_secs(seconds).into()
}

fn millis(millis: u64) -> api::Duration {
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

fn key_name(key: u8) -> String {
    format!("key-{key}")
}

/// The number that a name or UID ends in.
pub fn number(text: &str) -> u32 {
    text.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The key that a name stands for.
pub fn key_number(name: &str) -> u8 {
    number(name) as u8
}

/// The pod that a term's holder names.
pub fn pod_of(id: &TermId) -> u32 {
    number(&id.holder.0)
}

/// The number in a resource version, or in an annotation.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The wall clock of an API server: true time.
pub fn timestamp(now: Micros) -> Timestamp {
    Timestamp::from_second(START + (now / SECOND) as i64).unwrap()
}

/// A lease without a status.
pub fn lease(place: usize, uid: u32, keys: Keys, spec: &LeaseSpec, now: Micros) -> RedisLease {
    let mut lease = RedisLease::new(&lease_name(place), spec.object(place, keys));
    lease.metadata.namespace = Some(NAMESPACE.into());
    lease.metadata.uid = Some(lease_uid(uid));
    lease.metadata.generation = Some(1);
    lease.metadata.creation_timestamp = Some(Time(timestamp(now)));
    lease
}

/// The `RedisQuorum` in this version, with this leader. Nothing reads its spec.
pub fn quorum(version: u64, leader: Option<String>) -> RedisQuorum {
    let spec = RedisQuorumSpec {
        nodes: Vec::new(),
        key_prefix: "redislease".into(),
        max_lease_duration: seconds(60),
        auth: None,
        tls: None,
        allowed_namespaces: None,
        command_timeout: millis(500),
        allow_single_node: false,
    };
    let mut quorum = RedisQuorum::new(QUORUM, spec);
    quorum.metadata.namespace = Some(NAMESPACE.into());
    quorum.metadata.resource_version = Some(version.to_string());
    let leader = leader.map(|instance| Leader { instance, since: Time(timestamp(0)), transitions: 0 });
    quorum.status = Some(RedisQuorumStatus { leader, ..RedisQuorumStatus::default() });
    quorum
}

/// The version of the `RedisQuorum`, and the leader that it names.
pub fn leader_of(quorum: &RedisQuorum) -> (u64, Option<String>) {
    let leader = quorum.status.as_ref().and_then(|status| status.leader.as_ref());
    (version(quorum.metadata.resource_version.as_deref()), leader.map(|leader| leader.instance.clone()))
}

/// A pod that runs and is Ready, on a Kubernetes node of its own; with a gate, a pod that has not started.
pub fn pod(pod: u32, place: usize, gated: bool, now: Micros) -> PodFacts {
    let running = PodFacts {
        namespace: NAMESPACE.into(),
        name: pod_name(pod),
        uid: pod_uid(pod),
        resource_version: None,
        labels: BTreeMap::from([(APP.to_owned(), lease_name(place))]),
        annotations: Annotations::default(),
        gates: Box::default(),
        created: Some(timestamp(now)),
        node: Some(format!("node-{pod}")),
        ready: true,
        running: true,
        finished: false,
        deletion_grace: None,
        stopped: false,
    };
    if !gated {
        return running;
    }
    let gate = names::scheduling_gate(&lease_name(place));
    PodFacts { gates: [gate].into(), node: None, ready: false, running: false, ..running }
}

/// The pod is scheduled, starts, and is Ready.
pub fn start(pod: &mut PodFacts) {
    let number = number(&pod.uid);
    pod.node = Some(format!("node-{number}"));
    pod.ready = true;
    pod.running = true;
}

/// Whether the operator let the pod start for the lease.
pub fn was_started(pod: &PodFacts, place: usize) -> bool {
    pod.annotations.get(&names::started_annotation(&lease_name(place))).is_some()
}

/// Whether the pod waits for a node, or carries the label of the lease.
pub fn is_startable(pod: &PodFacts, place: usize) -> bool {
    (pod.node.is_none() && !pod.finished) || pod.labels.contains_key(&names::role_label(&lease_name(place)))
}

/// The lease for which a pod was created.
pub fn place_of(pod: &PodFacts) -> Option<usize> {
    pod.labels.get(APP).map(|app| number(app) as usize)
}

/// Whether the lease with this spec selects the pod.
pub fn is_candidate(pod: &PodFacts, place: usize, spec: &LeaseSpec) -> bool {
    if spec.excludes { !pod.labels.contains_key(APART) } else { place_of(pod) == Some(place) }
}

/// Takes the pod out of every lease's candidates.
pub fn relabel(pod: &mut PodFacts) {
    pod.labels.remove(APP);
    pod.labels.insert(APART.into(), String::new());
}

/// Whether the pod carries the label `active` of the lease.
pub fn is_active(pod: &PodFacts, place: usize) -> bool {
    let label = pod.labels.get(&names::role_label(&lease_name(place)));
    label.is_some_and(|role| role == names::PodRole::Active.as_str())
}

/// The lease's own part of a pod's labels and annotations.
pub fn role_of(pod: &PodFacts, place: usize) -> (Option<&String>, Option<&String>) {
    let name = lease_name(place);
    (pod.labels.get(&names::role_label(&name)), pod.annotations.get(&names::token_annotation(&name)))
}

/// The number of a lease's UID.
pub fn uid_of(lease: &RedisLease) -> u32 {
    lease.metadata.uid.as_deref().map_or(0, number)
}

/// The term that a lease's status names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub attempt: Attempt,
    pub token: Token,
    pub pod: u32,
    /// What the condition Active says: `None` for Unknown.
    pub active: Option<bool>,
}

/// Reads the term from a lease's status.
pub fn named(lease: &RedisLease) -> Option<Named> {
    let status = lease.status.as_ref()?;
    let active = if status.says(ConditionType::Active, ConditionStatus::True) {
        Some(true)
    } else {
        status.says(ConditionType::Active, ConditionStatus::False).then_some(false)
    };
    Some(Named {
        attempt: status.attempt.as_ref()?.parse().ok()?,
        token: token(lease),
        pod: status.holder.as_ref().map_or(0, |holder| number(&holder.pod_uid)),
        active,
    })
}

/// The handover that a lease's annotations request.
pub fn requested_handover(lease: &RedisLease) -> Option<&str> {
    lease.metadata.annotations.as_ref()?.get(names::HANDOVER_REQUESTED_ANNOTATION).map(String::as_str)
}

/// The last requested handover that a lease's status shows.
pub fn handover(lease: Option<&RedisLease>) -> Option<(&str, HandoverState)> {
    let handover = lease?.status.as_ref()?.handover.as_deref()?;
    Some((&handover.id, handover.state))
}

/// The greatest token that a lease's status has shown.
pub fn token(lease: &RedisLease) -> Token {
    let token = lease.status.as_ref().and_then(|status| status.fencing_token);
    Token(token.and_then(|token| u64::try_from(token).ok()).unwrap_or(0))
}
