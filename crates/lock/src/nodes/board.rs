//! The list of the statuses of a quorum's nodes.

use std::sync::Arc;

use redislease_core::quorum::Node;
use tokio::sync::watch;

use super::status::named;
use super::{NodeConfig, NodeState, NodeStatus, NodesObserver};

/// The statuses of all nodes of a quorum.
#[derive(Debug)]
pub(super) struct Board {
    statuses: watch::Sender<Vec<NodeStatus>>,
    observer: Arc<dyn NodesObserver>,
}

impl Board {
    /// Every node is down until it is reached.
    pub fn new(nodes: &[NodeConfig], observer: Arc<dyn NodesObserver>) -> Self {
        let statuses = nodes.iter().map(|NodeConfig { name, address }| NodeStatus {
            message: format!("node {}: not reached yet", named(name, address)),
            name: name.clone(),
            address: address.clone(),
            state: NodeState::Down,
            reason: None,
            last_refusal: None,
            version: String::new(),
            clock_offset_ms: None,
        });
        let board = Self { statuses: watch::Sender::new(statuses.collect()), observer };
        board.observer.changed(&board.statuses.borrow());
        board
    }

    pub fn subscribe(&self) -> watch::Receiver<Vec<NodeStatus>> {
        self.statuses.subscribe()
    }

    /// Changes the status of `node`; notifies the observer, and then the receivers, if anything but its clock offset changed. Only the
    /// thread of the nodes calls this.
    pub fn update(&self, node: Node, change: impl FnOnce(&mut NodeStatus)) {
        // The list is not locked while the observer is called: it may read the list.
        let mut statuses = self.statuses.borrow().clone();
        let Some(status) = statuses.get_mut(node.index()) else { return };
        let before = status.clone();
        change(status);
        let modified = NodeStatus { clock_offset_ms: status.clock_offset_ms, ..before.clone() } != *status;
        if modified {
            report(&before, status, &*self.observer);
            self.observer.changed(&statuses);
        }
        self.statuses.send_if_modified(|known| {
            *known = statuses;
            modified
        });
    }

    /// The name of a node with its address.
    pub fn named(&self, node: Node) -> String {
        self.statuses.borrow().get(node.index()).map(|status| named(&status.name, &status.address)).unwrap_or_default()
    }
}

fn report(before: &NodeStatus, after: &NodeStatus, observer: &dyn NodesObserver) {
    if before.state == after.state && before.message == after.message {
        return;
    }
    let NodeStatus { name, address, state, .. } = after;
    let message = observer.message(after);
    match state {
        NodeState::Up if message.is_empty() => {
            tracing::info!(node = %name, %address, %state, "node {} votes", named(name, address));
        }
        NodeState::Quarantined { .. } => {
            tracing::info!(node = %name, %address, %state, "{message}");
        }
        NodeState::Up | NodeState::Down | NodeState::Misconfigured(_) => {
            tracing::warn!(node = %name, %address, %state, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Board {
        let names = ["a".to_owned(), "b".to_owned()];
        Board::new(&names.map(|name| NodeConfig { address: format!("{name}:6379"), name }), Arc::new(()))
    }

    #[test]
    fn a_clock_offset_alone_sends_no_notification() {
        let board = board();
        let watch = board.subscribe();
        board.update(Node(0), |status| status.clock_offset_ms = Some(7));
        assert!(!watch.has_changed().unwrap());
        assert_eq!(watch.borrow()[0].clock_offset_ms, Some(7));
        board.update(Node(0), |status| status.state = NodeState::Up);
        assert!(watch.has_changed().unwrap());
    }
}
