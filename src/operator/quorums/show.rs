//! The status of a RedisQuorum.

use jiff::{SignedDuration, Timestamp, Unit};
use kube::Resource;
use redislease_core::time::Time;
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
    let previous = resource.status.as_ref().unwrap_or(&none);
    let reports: Vec<ShownNode> = statuses.iter().map(|node| report(node, &previous.nodes)).collect();
    let composed = compose_quorum(&QuorumInputs {
        previous,
        generation: resource.meta().generation,
        now: Timestamp::now(),
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

fn report(node: &NodeStatus, previous: &[ShownNode]) -> ShownNode {
    let (state, message) = match node.state {
        NodeState::Up => (ShownState::Up, node.message.clone()),
        NodeState::Down => (ShownState::Down, node.message.clone()),
        NodeState::Quarantined { until } => {
            let second = votes_again_at(until, previous.iter().find(|before| before.name == node.name));
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

/// When the node votes again, to the second. The conversion to wall-clock time differs a little each time, so the time in the status
/// stays unless the new one is more than a second away.
fn votes_again_at(until: Time, before: Option<&ShownNode>) -> Timestamp {
    let until = Timestamp::try_from(clock::wall(until)).unwrap_or_default();
    let is_near = |shown: &Timestamp| until.duration_since(*shown).abs() <= SignedDuration::from_secs(1);
    let shown = before.and_then(ShownNode::votes_again_at).filter(is_near);
    shown.unwrap_or_else(|| until.round(Unit::Second).unwrap_or(until))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use redislease_core::time::Millis;
    use serde_json::json;

    use super::*;

    /// The status of a quorum whose only node votes again at `until`, if it differs from that of the resource.
    fn status(resource: &RedisQuorum, until: Time) -> Option<RedisQuorumStatus> {
        let node = NodeStatus {
            name: "a".to_owned(),
            address: "a:6379".to_owned(),
            state: NodeState::Quarantined { until },
            reason: None,
            message: "it has lost its data".to_owned(),
            last_refusal: None,
            version: String::new(),
            clock_offset_ms: None,
        };
        compose(resource, None, None, &[node], None, None).map(|composed| composed.status)
    }

    #[test]
    fn a_time_that_rounds_to_another_second_is_no_change() {
        let spec = json!({"nodes": [{"name": "a", "address": "a:6379"}]});
        let quorum = json!({"metadata": {"name": "default", "namespace": "n"}, "spec": spec});
        let mut resource: RedisQuorum = serde_json::from_value(quorum).unwrap();
        let soon = clock::now() + Millis(60_000);
        let past_second = clock::wall(soon).duration_since(UNIX_EPOCH).unwrap().subsec_millis();
        let half = soon + Millis(u64::from(1500 - past_second));
        resource.status = status(&resource, half - Millis(1));
        assert!(resource.status.is_some());
        assert_eq!(status(&resource, half + Millis(1)), None);
        assert!(status(&resource, half + Millis(2000)).is_some(), "it lost its data again");
    }
}
