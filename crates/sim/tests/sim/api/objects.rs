//! What the objects of the simulated clusters show.

use redislease_core::lease::TermId;
use redislease_core::op::{Attempt, Token};
use redislease_core::quorum::{Node, Quorum};
use redislease_core::time::Millis;
use redislease_plan::api::conditions::{ConditionStatus, ConditionType};
use redislease_plan::api::lease_status::HandoverState;
use redislease_plan::api::quorum::{NodeState, NodeStatus, QuorumAuth, QuorumNode, SecretRef};
use redislease_plan::api::{RedisLease, RedisLeaseStatus, RedisQuorum, RedisQuorumSpec, RedisQuorumStatus, names};
use redislease_plan::election::PodFacts;

pub use crate::objects::*;

/// The number that a name or UID ends in.
pub fn number(text: &str) -> u32 {
    text.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The key that a name stands for.
pub fn key_number(name: &str) -> u8 {
    number(name) as u8
}

/// The key of the lock of the replicas of a cluster.
pub const fn lock_key(cluster: usize) -> u8 {
    (KEYS - 1 - cluster) as u8
}

/// The name of a replica. Each start of it has another process name.
pub fn instance(process: usize) -> String {
    format!("operator-{process}")
}

/// The pod that a term's holder names.
pub fn pod_of(id: &TermId) -> u32 {
    number(&id.holder.0)
}

/// The spec of the `RedisQuorum`.
pub fn quorum_spec(quorum: Quorum, longest: Millis, timeout: Millis) -> RedisQuorumSpec {
    let node = |node: Node| QuorumNode {
        name: node_name(node.index()),
        address: format!("redis-{}:6379", node.0),
        zone: None,
    };
    RedisQuorumSpec {
        nodes: quorum.nodes().map(node).collect(),
        key_prefix: "redislease".into(),
        max_lease_duration: millis(longest.0),
        auth: Some(QuorumAuth { secret_ref: SecretRef { name: "redis".into() } }),
        tls: None,
        allowed_namespaces: None,
        command_timeout: millis(timeout.0),
        allow_single_node: true,
    }
}

/// The `RedisQuorum` in this version, with this status.
pub fn quorum(spec: RedisQuorumSpec, (version, status): (u64, RedisQuorumStatus)) -> RedisQuorum {
    let mut quorum = RedisQuorum::new(QUORUM, spec);
    quorum.metadata.namespace = Some(NAMESPACE.into());
    quorum.metadata.resource_version = Some(version.to_string());
    quorum.status = Some(status);
    quorum
}

/// The version of the `RedisQuorum`, and its status.
pub fn status_of(quorum: &RedisQuorum) -> (u64, RedisQuorumStatus) {
    (version(quorum.metadata.resource_version.as_deref()), quorum.status.clone().unwrap_or_default())
}

fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// The nodes as a process sees them.
pub fn nodes(states: impl Iterator<Item = NodeState>) -> Vec<NodeStatus> {
    let node = |(node, state)| NodeStatus {
        name: node_name(node),
        state,
        version: None,
        clock_offset_millis: None,
        message: None,
        last_refusal: None,
    };
    states.enumerate().map(node).collect()
}

/// The leader that a status names.
pub fn leader_of(status: &RedisQuorumStatus) -> Option<&str> {
    status.leader.as_ref().map(|leader| leader.instance.as_str())
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

/// Whether the pod carries the label `active` of the lease, as an operator writes it: with a token.
pub fn is_active(pod: &PodFacts, place: usize) -> bool {
    let (label, token) = role_of(pod, place);
    label.is_some_and(|role| role == names::PodRole::Active.as_str()) && token.is_some()
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
    lease.status.as_ref().map(RedisLeaseStatus::token).unwrap_or_default()
}

/// The difference between the numbers of units for the same lease.
pub const AGAIN: u32 = 1_000_000;

/// The number of the UID of a lease.
pub const fn lease_of(unit: u32) -> u32 {
    unit % AGAIN
}
