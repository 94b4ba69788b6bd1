//! What happens to the nodes of a quorum: their return, and a jump of the clock of this process.

use std::sync::Arc;

use redislease_core::driver::{Input, returned};
use redislease_core::quorum::Quorum;
use redislease_core::time::Time;
use tokio::sync::watch;

use super::handle::{Message, Shared};
use crate::nodes::{NodeState, NodeStatus, Nodes};

/// Notifies the shard of everything that concerns all leases on these nodes. The nodes can be dropped meanwhile: it keeps only
/// receivers.
pub(super) fn watch_nodes(nodes: &Nodes, shared: Arc<Shared>) -> impl Future<Output = ()> + use<> {
    let jumps = watch_jumps(nodes.void_at(), shared.clone());
    let returns = watch_returns(nodes.watch(), nodes.quorum(), shared);
    async move {
        tokio::join!(returns, jumps);
    }
}

async fn watch_jumps(mut void_at: watch::Receiver<Option<Time>>, shared: Arc<Shared>) {
    while void_at.changed().await.is_ok() {
        let _ = shared.inbox.send(Message::All(Input::ClockJumped));
    }
}

/// Notifies the shard whenever a node votes again, and whenever a majority of the nodes votes again.
async fn watch_returns(mut nodes: watch::Receiver<Vec<NodeStatus>>, quorum: Quorum, shared: Arc<Shared>) {
    let votes = |nodes: &[NodeStatus]| nodes.iter().map(|node| node.state == NodeState::Up).collect::<Vec<bool>>();
    let mut before = votes(&nodes.borrow_and_update());
    while nodes.changed().await.is_ok() {
        let now = votes(&nodes.borrow_and_update());
        for input in returned(quorum, &before, &now) {
            let _ = shared.inbox.send(Message::All(input));
        }
        before = now;
    }
}
