//! The status of the nodes, for other modules.

use std::fmt;
use std::sync::Arc;

use redislease_core::marker::RunId;
use redislease_core::quorum::Node;
use redislease_core::time::Time;
use tokio::sync::watch;

use super::{NodeConfig, NodesObserver, Reason};

/// The status of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name in the configuration.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Whether it votes, and why not.
    pub state: NodeState,
    /// Why it is [`NodeState::Down`].
    pub reason: Option<Reason>,
    /// One sentence for users; empty while the node is up.
    pub message: String,
    /// The server's last refusal, in one sentence. It stays after the refusal has ended.
    pub last_refusal: Option<String>,
    /// The version that the server last reported.
    pub version: String,
    /// The process name of the server in markers; `None` while the node is disconnected.
    pub run_id: Option<RunId>,
    /// Its wall clock minus this process's, in milliseconds. A change of this value alone notifies no receiver.
    pub clock_offset_ms: Option<i64>,
}

/// Whether a node votes, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It votes.
    Up,
    /// There is no connection.
    Down,
    /// It may have lost leases that are still held.
    Quarantined {
        /// When the wait ends, unless the node loses its data again.
        until: Time,
    },
    /// It cannot vote until the server or the quorum is reconfigured.
    Misconfigured(Misconfiguration),
}

impl NodeState {
    /// The names of the states, by [`index`](Self::index).
    pub const NAMES: [&str; 4] = ["up", "down", "quarantined", "misconfigured"];

    /// The index of the state in [`NAMES`](Self::NAMES).
    pub const fn index(self) -> usize {
        match self {
            Self::Up => 0,
            Self::Down => 1,
            Self::Quarantined { .. } => 2,
            Self::Misconfigured(_) => 3,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[self.index()])
    }
}

/// What must be changed before a node can vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misconfiguration {
    /// It is a replica: it loses the same data as its master.
    Replica,
    /// It is part of a Redis Cluster, which moves slots between servers.
    Cluster,
    /// It evicts keys when its memory is full.
    Eviction,
    /// It is older than Redis 7.0.
    Version,
    /// The address of another node of this quorum leads to the same server.
    SharedServer,
    /// Its marker names another configuration of the quorum.
    ConfigMismatch,
    /// It refuses a command that a lease needs: the user may not run it, the memory is full, or it cannot save. It takes
    /// part in no new term; terms that it holds are extended as far as it allows.
    Refusing,
}

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
            run_id: None,
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
            report(&before, status);
            self.observer.changed(&statuses);
        }
        self.statuses.send_if_modified(|known| {
            *known = statuses;
            modified
        });
    }

    /// Another node whose address leads to the same server process, as `name (address)`.
    pub fn duplicate(&self, node: Node) -> Option<String> {
        let statuses = self.statuses.borrow();
        let own = statuses.get(node.index())?.run_id.as_ref()?;
        let same =
            |(index, status): &(usize, &NodeStatus)| *index != node.index() && status.run_id.as_ref() == Some(own);
        statuses.iter().enumerate().find(same).map(|(_, status)| named(&status.name, &status.address))
    }
}

/// The name of a node with its address, if that is not its name.
pub(super) fn named(name: &str, address: &str) -> String {
    if name == address { name.to_owned() } else { format!("{name} ({address})") }
}

fn report(before: &NodeStatus, after: &NodeStatus) {
    if before.state == after.state && before.message == after.message {
        return;
    }
    let NodeStatus { name, address, state, message, .. } = after;
    match state {
        NodeState::Up => tracing::info!(node = %name, %address, %state, "node {} votes", named(name, address)),
        NodeState::Quarantined { .. } => {
            tracing::info!(node = %name, %address, %state, "{message}");
        }
        NodeState::Down | NodeState::Misconfigured(_) => {
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

    #[test]
    fn two_names_of_one_server_are_found() {
        let board = board();
        board.update(Node(0), |status| status.run_id = Some("r1".into()));
        assert_eq!(board.duplicate(Node(0)), None);
        board.update(Node(1), |status| status.run_id = Some("r1".into()));
        assert_eq!(board.duplicate(Node(0)).as_deref(), Some("b (b:6379)"));
        board.update(Node(1), |status| status.run_id = Some("r2".into()));
        assert_eq!(board.duplicate(Node(0)), None);
    }
}
