//! The status of a quorum.

use jiff::Timestamp;

use crate::api::conditions::{QuorumHealth, QuorumReady};
use crate::api::quorum::{NodeState, NodeStatus};
use crate::api::{ConditionType, RedisQuorumStatus};
use crate::status::conditions::Conditions;
use crate::status::{Notice, NoticeReason};

/// Everything a quorum's status is composed of.
#[derive(Clone, Debug)]
pub struct QuorumInputs<'a> {
    /// What the API server holds now.
    pub previous: &'a RedisQuorumStatus,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
    /// The fingerprint of the configuration; `None` while there is no valid one.
    pub fingerprint: Option<&'a str>,
    /// The configured nodes; empty while there is no valid configuration.
    pub nodes: &'a [NodeReport<'a>],
    /// How many nodes must give votes.
    pub majority: usize,
    /// Whether each node was reached or tried in vain at least once.
    pub evaluated: bool,
    /// What keeps leases from being taken: InvalidReference or InvalidSpec, and a sentence.
    pub obstacle: Option<(QuorumReady, &'a str)>,
    /// What is wrong with a node's marker.
    pub mismatch: Option<&'a str>,
}

/// How one node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is good for.
    pub state: NodeState,
    /// The version the server gives itself.
    pub version: Option<&'a str>,
    /// By how many milliseconds its clock is ahead of ours.
    pub clock_offset_millis: Option<i64>,
    /// What is wrong, in one sentence that does not change by itself.
    pub message: Option<String>,
}

/// What the API server should hold, and what has happened.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedQuorum {
    /// The status. Equal to the previous one when nothing has happened.
    pub status: RedisQuorumStatus,
    /// What has happened, to be told after the status was written: on the quorum alone.
    pub events: Vec<Notice>,
}

/// A clock offset is shown in whole steps of so many milliseconds ...
const OFFSET_STEP: i64 = 100;

/// ... and stays as it is until it has moved by so many: a clock that wanders costs no write.
const OFFSET_MOVES: u64 = 500;

/// Composes the status of a quorum.
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
    events.extend(obstacle_event(&conditions));
    events.extend(health.and_then(|health| health_event(health, inputs, &conditions)));
    let status = RedisQuorumStatus {
        observed_generation: generation,
        fingerprint: inputs.fingerprint.map_or_else(|| previous.fingerprint.clone(), |now| Some(now.to_owned())),
        votes: (!nodes.is_empty()).then(|| format!("{}/{}", up(inputs), nodes.len())),
        nodes,
        conditions: conditions.finish(),
    };
    ComposedQuorum { status, events }
}

fn node_status(node: &NodeReport<'_>, previous: &RedisQuorumStatus) -> NodeStatus {
    let before = previous.nodes.iter().find(|before| before.name == node.name);
    let shown = before.and_then(|before| before.clock_offset_millis);
    NodeStatus {
        name: node.name.to_owned(),
        state: node.state,
        // A node that is away is still the one it was.
        version: node
            .version
            .filter(|version| !version.is_empty())
            .map(str::to_owned)
            .or_else(|| before.and_then(|before| before.version.clone())),
        clock_offset_millis: node.clock_offset_millis.map_or(shown, |offset| Some(show_offset(offset, shown))),
        message: node.message.clone().filter(|message| !message.is_empty()),
    }
}

fn show_offset(offset: i64, shown: Option<i64>) -> i64 {
    let moved = shown.is_none_or(|shown| offset.abs_diff(shown) >= OFFSET_MOVES);
    shown.filter(|_| !moved).unwrap_or_else(|| {
        let half = OFFSET_STEP / 2 * offset.signum();
        offset.saturating_add(half) / OFFSET_STEP * OFFSET_STEP
    })
}

fn up(inputs: &QuorumInputs<'_>) -> usize {
    inputs.nodes.iter().filter(|node| node.state == NodeState::Up).count()
}

fn count(inputs: &QuorumInputs<'_>) -> String {
    format!("{} of {} nodes give votes, {} must.", up(inputs), inputs.nodes.len(), inputs.majority)
}

fn ready(inputs: &QuorumInputs<'_>, conditions: &mut Conditions<'_>) {
    if let Some((reason, message)) = inputs.obstacle {
        conditions.set(reason, message);
    } else if up(inputs) >= inputs.majority && !inputs.nodes.is_empty() {
        conditions.set(QuorumReady::QuorumAvailable, count(inputs));
    } else if inputs.evaluated {
        conditions.set(QuorumReady::QuorumUnavailable, count(inputs));
    } else {
        conditions.set(QuorumReady::Starting, "The operator has not reached a majority of the nodes yet.");
    }
}

/// Sets QuorumHealthy, unless nothing is known of the nodes.
fn health(inputs: &QuorumInputs<'_>, conditions: &mut Conditions<'_>) -> Option<QuorumHealth> {
    let (up, all, majority) = (up(inputs), inputs.nodes.len(), inputs.majority);
    if inputs.nodes.is_empty() || (up < majority && !inputs.evaluated) {
        conditions.keep(ConditionType::QuorumHealthy);
        return None;
    }
    let health = by_count(up, all, majority);
    match inputs.mismatch.filter(|_| health != QuorumHealth::Lost) {
        Some(message) => conditions.set(QuorumHealth::ConfigMismatch, message),
        None => conditions.set(health, count(inputs)),
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
        let message = node.message.as_deref().unwrap_or("no details");
        // Most messages name the node themselves.
        let note =
            if message.contains(&node.name) { message.to_owned() } else { format!("node {}: {message}", node.name) };
        (!known).then_some(Notice { reason, note, on_pods: Vec::new() })
    };
    nodes.iter().filter_map(event).collect()
}

fn obstacle_event(conditions: &Conditions<'_>) -> Option<Notice> {
    let news = conditions.news(ConditionType::Ready)?;
    let invalid = [NoticeReason::InvalidReference, NoticeReason::InvalidSpec];
    let reason = invalid.into_iter().find(|reason| reason.as_str() == news.reason)?;
    let is_news = news.another_reason || news.another_message;
    is_news.then(|| Notice { reason, note: news.message.into(), on_pods: Vec::new() })
}

/// How bad it is.
const fn rank(health: QuorumHealth) -> u8 {
    match health {
        QuorumHealth::AllReachable | QuorumHealth::MajorityReachable => 0,
        QuorumHealth::Degraded | QuorumHealth::ConfigMismatch | QuorumHealth::ClusterNameConflict => 1,
        QuorumHealth::AtRisk => 2,
        QuorumHealth::Lost => 3,
    }
}

/// The first evaluation of a quorum is no change.
fn health_event(health: QuorumHealth, inputs: &QuorumInputs<'_>, conditions: &Conditions<'_>) -> Option<Notice> {
    conditions.previous(ConditionType::QuorumHealthy)?;
    // By the nodes, not by the condition: there, a mismatch hides the number of votes.
    let nodes = &inputs.previous.nodes;
    let before =
        by_count(nodes.iter().filter(|node| node.state == NodeState::Up).count(), nodes.len(), inputs.majority);
    let reason = match (rank(before), rank(health)) {
        (before, now) if now == before => return None,
        (before, now) if now < before => NoticeReason::QuorumRestored,
        _ if health == QuorumHealth::Lost => NoticeReason::QuorumLost,
        _ => NoticeReason::QuorumDegraded,
    };
    let away = inputs.nodes.iter().filter(|node| node.state != NodeState::Up);
    let away: Vec<&str> = away.map(|node| node.name).collect();
    let without = if away.is_empty() { String::new() } else { format!(" Without a vote: {}.", away.join(", ")) };
    Some(Notice { reason, note: count(inputs) + &without, on_pods: Vec::new() })
}

#[cfg(test)]
#[path = "quorum_tests.rs"]
mod tests;
