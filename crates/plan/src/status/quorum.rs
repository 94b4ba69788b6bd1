//! Composes the status of a quorum.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{QuorumHealth, QuorumReady};
use crate::api::quorum::{Leader, NodeState, NodeStatus};
use crate::api::{ConditionType, RedisQuorumStatus};
use crate::status::conditions::Conditions;
use crate::status::{Notice, NoticeReason};

/// The input of [`compose_quorum`].
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct QuorumInputs<'a> {
    /// The status that the API server has.
    pub previous: &'a RedisQuorumStatus,
    pub generation: Option<i64>,
    pub now: Timestamp,
    /// The fingerprint of the configuration; `None` if there is no valid configuration.
    pub fingerprint: Option<&'a str>,
    /// The configured nodes as this process observes them; empty if there is no valid configuration. A message must not change unless
    /// the situation changes.
    pub nodes: &'a [NodeStatus],
    /// The number of nodes that must vote.
    pub majority: usize,
    /// Whether each node was reached or timed out at least once.
    pub evaluated: bool,
    /// Why no lease can be acquired: `InvalidReference` or `InvalidSpec`, and one sentence.
    pub obstacle: Option<(QuorumReady, &'a str)>,
    /// The message about a node whose marker names another configuration.
    pub mismatch: Option<&'a str>,
    /// The name of this replica if it decides about the quorum's leases, and whether it has no lock and only claims that; otherwise
    /// the leader stays as it is.
    pub leader: Option<(&'a str, bool)>,
}

/// The output of [`compose_quorum`].
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedQuorum {
    /// The status that the API server should have. It equals the previous one if nothing has happened.
    pub status: RedisQuorumStatus,
    /// The events to send, for the RedisQuorum, after the status was written.
    pub events: Vec<Notice>,
}

/// The clock offset in status is rounded to this many milliseconds.
const OFFSET_STEP: i64 = 100;

/// The clock offset in status is updated when it has changed by this many milliseconds. Small variations cause no write.
const OFFSET_CHANGE: u64 = 500;

/// Composes the status of a quorum and the events that go with it.
pub fn compose_quorum(inputs: &QuorumInputs<'_>) -> ComposedQuorum {
    let now = Timestamp::from_second(inputs.now.as_second()).unwrap_or(inputs.now);
    let previous = inputs.previous;
    let generation = inputs.generation.or(previous.observed_generation);
    let mut nodes: Vec<NodeStatus> = inputs.nodes.iter().map(|node| node_status(node, previous)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut conditions = Conditions::new(&previous.conditions, generation, now);
    ready(inputs, &mut conditions);
    let health = health(inputs, &mut conditions);
    let mut events = node_events(&nodes, previous);
    let invalid = [NoticeReason::InvalidReference, NoticeReason::InvalidSpec].into_iter();
    events.extend(invalid.filter_map(|reason| conditions.notice(ConditionType::Ready, reason)));
    events.extend(health.and_then(|health| health_event(health, inputs, &conditions)));
    let status = RedisQuorumStatus {
        observed_generation: generation,
        fingerprint: inputs.fingerprint.map_or_else(|| previous.fingerprint.clone(), |now| Some(now.to_owned())),
        votes: (!nodes.is_empty()).then(|| format!("{}/{}", up(inputs), nodes.len())),
        leader: leader(inputs, previous, now),
        nodes,
        conditions: conditions.finish(),
    };
    ComposedQuorum { status, events }
}

fn leader(inputs: &QuorumInputs<'_>, previous: &RedisQuorumStatus, now: Timestamp) -> Option<Leader> {
    let before = previous.leader.clone();
    let Some((instance, claimed)) = inputs.leader else { return before };
    if let Some(before) = before.as_ref().filter(|before| before.instance == instance) {
        // A leader whose name nobody has replaced needs no claim.
        return Some(Leader { claimed: claimed && before.claimed, ..before.clone() });
    }
    let transitions = before.map_or(0, |before| before.transitions.saturating_add(1));
    Some(Leader { instance: instance.to_owned(), since: Time(now), transitions, claimed })
}

fn node_status(node: &NodeStatus, previous: &RedisQuorumStatus) -> NodeStatus {
    let before = previous.nodes.iter().find(|before| before.name == node.name);
    let shown = before.and_then(|before| before.clock_offset_millis);
    NodeStatus {
        // The last known version stays while the node is down.
        version: node.version.clone().or_else(|| before?.version.clone()),
        clock_offset_millis: node.clock_offset_millis.map_or(shown, |offset| Some(rounded_offset(offset, shown))),
        last_refusal: node.last_refusal.clone().or_else(|| before?.last_refusal.clone()),
        ..node.clone()
    }
}

fn rounded_offset(offset: i64, shown: Option<i64>) -> i64 {
    let changed = shown.is_none_or(|shown| offset.abs_diff(shown) >= OFFSET_CHANGE);
    shown.filter(|_| !changed).unwrap_or_else(|| {
        let half = OFFSET_STEP / 2 * offset.signum();
        offset.saturating_add(half) / OFFSET_STEP * OFFSET_STEP
    })
}

fn up(inputs: &QuorumInputs<'_>) -> usize {
    inputs.nodes.iter().filter(|node| node.state == NodeState::Up).count()
}

/// Such as `3 of 5 nodes vote (3 required). Not voting: d, e.`
fn votes(inputs: &QuorumInputs<'_>) -> String {
    let votes = format!("{} of {} nodes vote ({} required).", up(inputs), inputs.nodes.len(), inputs.majority);
    let others: Vec<&str> = not_voting(inputs).map(|node| node.name.as_str()).collect();
    if others.is_empty() { votes } else { format!("{votes} Not voting: {}.", others.join(", ")) }
}

fn not_voting<'a>(inputs: &'a QuorumInputs<'_>) -> impl Iterator<Item = &'a NodeStatus> {
    inputs.nodes.iter().filter(|node| node.state != NodeState::Up)
}

/// As [`votes`], with the reason of one node that does not vote: usually all have the same one, such as a certificate that no
/// server can present. `status.nodes` has the others.
fn votes_and_reason(inputs: &QuorumInputs<'_>) -> String {
    let votes = votes(inputs);
    let reason = not_voting(inputs).find_map(|node| Some(named(&node.name, node.message.as_deref()?)));
    reason.map_or_else(|| votes.clone(), |reason| format!("{votes} {reason}"))
}

/// The message about a node. Most messages contain its name already.
fn named(node: &str, message: &str) -> String {
    if message.contains(node) { message.to_owned() } else { format!("node {node}: {message}") }
}

fn ready(inputs: &QuorumInputs<'_>, conditions: &mut Conditions<'_>) {
    if let Some((reason, message)) = inputs.obstacle {
        conditions.set(reason, message);
    } else if up(inputs) >= inputs.majority && !inputs.nodes.is_empty() {
        conditions.set(QuorumReady::QuorumAvailable, votes(inputs));
    } else if inputs.evaluated {
        conditions.set(QuorumReady::QuorumUnavailable, votes_and_reason(inputs));
    } else {
        conditions.set(QuorumReady::Starting, "The operator has not reached a majority of the nodes yet.");
    }
}

/// Sets `QuorumHealthy`, unless nothing is known about the nodes yet.
fn health(inputs: &QuorumInputs<'_>, conditions: &mut Conditions<'_>) -> Option<QuorumHealth> {
    let (up, all, majority) = (up(inputs), inputs.nodes.len(), inputs.majority);
    if inputs.nodes.is_empty() && inputs.obstacle.is_some() {
        conditions
            .set(QuorumHealth::NotConnected, "The operator is connected to no node. The condition Ready says why.");
        return None;
    }
    if inputs.nodes.is_empty() || (up < majority && !inputs.evaluated) {
        conditions.keep(ConditionType::QuorumHealthy);
        return None;
    }
    let health = by_count(up, all, majority);
    match inputs.mismatch.filter(|_| health != QuorumHealth::Lost) {
        Some(message) => conditions.set(QuorumHealth::ConfigMismatch, message),
        None => conditions.set(health, votes(inputs)),
    }
    Some(health)
}

const fn by_count(up: usize, all: usize, majority: usize) -> QuorumHealth {
    if up < majority {
        QuorumHealth::Lost
    } else if up == all {
        QuorumHealth::AllReachable
    } else if up == majority {
        QuorumHealth::AtRisk
    } else {
        QuorumHealth::Degraded
    }
}

fn node_events(nodes: &[NodeStatus], previous: &RedisQuorumStatus) -> Vec<Notice> {
    let event = |node: &NodeStatus| {
        let reason = match node.state {
            NodeState::Quarantined => NoticeReason::NodeQuarantined,
            NodeState::Misconfigured => NoticeReason::NodeMisconfigured,
            NodeState::Up | NodeState::Down => return None,
        };
        let known = previous.nodes.iter().any(|before| before.name == node.name && before.state == node.state);
        let note = named(&node.name, node.message.as_deref().unwrap_or("no details"));
        (!known).then_some(Notice { reason, note, on_pods: Vec::new() })
    };
    nodes.iter().filter_map(event).collect()
}

/// The greater, the worse.
const fn severity(health: QuorumHealth) -> u8 {
    match health {
        QuorumHealth::AllReachable | QuorumHealth::MajorityReachable => 0,
        QuorumHealth::Degraded | QuorumHealth::ConfigMismatch | QuorumHealth::ClusterNameConflict => 1,
        QuorumHealth::AtRisk | QuorumHealth::NotConnected => 2,
        QuorumHealth::Lost => 3,
    }
}

/// The event for a change of the number of votes. The first evaluation of a quorum is no change.
fn health_event(health: QuorumHealth, inputs: &QuorumInputs<'_>, conditions: &Conditions<'_>) -> Option<Notice> {
    conditions.previous(ConditionType::QuorumHealthy)?;
    // Compare the nodes, not the condition: reason ConfigMismatch hides the number of votes.
    let nodes = &inputs.previous.nodes;
    let before =
        by_count(nodes.iter().filter(|node| node.state == NodeState::Up).count(), nodes.len(), inputs.majority);
    let reason = match (severity(before), severity(health)) {
        (before, now) if now == before => return None,
        (before, now) if now < before => NoticeReason::QuorumRestored,
        _ if health == QuorumHealth::Lost => NoticeReason::QuorumLost,
        _ => NoticeReason::QuorumDegraded,
    };
    Some(Notice { reason, note: votes(inputs), on_pods: Vec::new() })
}

#[cfg(test)]
#[path = "quorum_tests.rs"]
mod tests;
