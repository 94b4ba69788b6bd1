//! The status of a RedisQuorum.

use kube::Resource;
use redislease_lock::clock;
use redislease_lock::nodes::{NodeState, NodeStatus};
use redislease_plan::api::conditions::QuorumReady;
use redislease_plan::api::quorum::{NodeState as ShownState, NodeStatus as ShownNode};
use redislease_plan::api::{RedisQuorum, RedisQuorumStatus, ValidQuorum};
use redislease_plan::status::{ComposedQuorum, QuorumInputs, compose_quorum};

use super::connection::{evaluated, mismatch};

/// Composes the status from the state of the nodes; `None` while there is nothing to report. `leader` is the name of this
/// replica if it leads on this quorum.
pub(super) fn compose(
    resource: &RedisQuorum,
    valid: Option<&ValidQuorum>,
    fingerprint: Option<&str>,
    statuses: &[NodeStatus],
    obstacle: Option<(QuorumReady, &str)>,
    leader: Option<&str>,
) -> Option<ComposedQuorum> {
    if obstacle.is_none() && !evaluated(statuses) {
        // A node that was not tried yet is reported after its first connection attempt.
        return None;
    }
    let none = RedisQuorumStatus::default();
    let reports: Vec<ShownNode> = statuses.iter().map(report).collect();
    let composed = compose_quorum(&QuorumInputs {
        previous: resource.status.as_ref().unwrap_or(&none),
        generation: resource.meta().generation,
        now: jiff::Timestamp::now(),
        fingerprint,
        nodes: &reports,
        majority: valid.map_or(0, ValidQuorum::majority),
        evaluated: evaluated(statuses),
        obstacle,
        mismatch: mismatch(statuses),
        leader,
    });
    (resource.status.as_ref() != Some(&composed.status)).then_some(composed)
}

fn report(node: &NodeStatus) -> ShownNode {
    let (state, message) = match node.state {
        NodeState::Up => (ShownState::Up, node.message.clone()),
        NodeState::Down => (ShownState::Down, node.message.clone()),
        NodeState::Quarantined { until } => {
            let until = jiff::Timestamp::try_from(clock::wall(until)).unwrap_or_default();
            let second = until.round(jiff::Unit::Second).unwrap_or(until);
            (ShownState::Quarantined, format!("{}{}{second}", node.message, ShownNode::VOTES_AGAIN))
        }
        NodeState::Misconfigured(_) => (ShownState::Misconfigured, node.message.clone()),
    };
    let known = |text: String| Some(text).filter(|text| !text.is_empty());
    ShownNode {
        name: node.name.clone(),
        state,
        version: known(node.version.clone()),
        clock_offset_millis: node.clock_offset_ms,
        message: known(message),
        last_refusal: node.last_refusal.clone(),
    }
}
