//! The return of a majority of a quorum's nodes.

use std::sync::Arc;

use tokio::sync::watch;

use super::handle::{Message, Shared};
use crate::nodes::{NodeState, NodeStatus};

/// Notifies the shard whenever a majority of the nodes votes again.
pub(super) async fn watch_majority(
    mut nodes: watch::Receiver<Vec<NodeStatus>>,
    majority: usize,
    quorum: u32,
    shared: Arc<Shared>,
) {
    let votes = |nodes: &[NodeStatus]| nodes.iter().filter(|node| node.state == NodeState::Up).count() >= majority;
    let mut before = votes(&nodes.borrow_and_update());
    while nodes.changed().await.is_ok() {
        let now = votes(&nodes.borrow_and_update());
        if now && !before {
            let _ = shared.inbox.send(Message::MajorityBack(quorum));
        }
        before = now;
    }
}
