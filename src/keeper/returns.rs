//! The return of the nodes of a quorum.

use std::sync::Arc;

use tokio::sync::watch;

use super::handle::{Message, Shared};
use crate::nodes::{NodeState, NodeStatus};

/// Notifies the shard whenever a node votes again, and whenever a majority of the nodes votes again.
pub(super) async fn watch_returns(
    mut nodes: watch::Receiver<Vec<NodeStatus>>,
    majority: usize,
    quorum: u32,
    shared: Arc<Shared>,
) {
    let votes = |nodes: &[NodeStatus]| nodes.iter().map(|node| node.state == NodeState::Up).collect::<Vec<bool>>();
    let count = |votes: &[bool]| votes.iter().filter(|votes| **votes).count();
    let mut before = votes(&nodes.borrow_and_update());
    while nodes.changed().await.is_ok() {
        let now = votes(&nodes.borrow_and_update());
        if count(&now) >= majority && count(&before) < majority {
            let _ = shared.inbox.send(Message::MajorityBack(quorum));
        }
        if now.iter().zip(&before).any(|(now, before)| *now && !before) {
            let _ = shared.inbox.send(Message::NodeBack(quorum));
        }
        before = now;
    }
}
