//! The nodes of a connection, as the status of the RedisQuorum shows them.

use jiff::{SignedDuration, Timestamp, Unit};
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_lock::nodes::{Misconfiguration, NodeState, NodeStatus};
use redislease_plan::api::quorum::{NodeState as ShownState, NodeStatus as ShownNode};

/// The message of the first node whose marker names another configuration.
pub(super) fn mismatch(statuses: &[NodeStatus]) -> Option<String> {
    let mismatched = NodeState::Misconfigured(Misconfiguration::ConfigMismatch);
    statuses.iter().find(|node| node.state == mismatched).map(|node| node.message.clone())
}

/// The node for the status. `previous` are the nodes in it.
pub(super) fn shown(node: &NodeStatus, previous: &[ShownNode]) -> ShownNode {
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

    use super::*;
    use redislease_core::time::Millis;

    /// The node, if it votes again at `until`.
    fn quarantined(until: Time, previous: &[ShownNode]) -> ShownNode {
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
        shown(&node, previous)
    }

    #[test]
    fn a_time_that_rounds_to_another_second_is_no_change() {
        let soon = clock::now() + Millis(60_000);
        let past_second = clock::wall(soon).duration_since(UNIX_EPOCH).unwrap().subsec_millis();
        let half = soon + Millis(u64::from(1500 - past_second));
        let before = [quarantined(half - Millis(1), &[])];
        assert!(before[0].votes_again_at().is_some());
        assert_eq!(quarantined(half + Millis(1), &before), before[0]);
        assert_ne!(quarantined(half + Millis(2000), &before), before[0], "it lost its data again");
    }
}
