//! The status of the nodes, for other modules.

use std::fmt;

use redislease_core::time::Time;

use super::Reason;

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
    /// One sentence for users; empty while the node is up, unless an earlier password or certificate is in use.
    pub message: String,
    /// The server's last refusal, in one sentence. It stays after the refusal has ended.
    pub last_refusal: Option<String>,
    /// The version that the server last reported.
    pub version: String,
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
    /// The address of another node of this quorum leads, or led shortly before, to the same server, which votes for that node.
    SharedServer,
    /// Its marker names another configuration of the quorum.
    ConfigMismatch,
    /// It refuses a command that a lease needs: the user may not run it, the memory is full, or it cannot save. It takes
    /// part in no new term; terms that it holds are extended as far as it allows.
    Refusing,
}

/// The name of a node with its address, if that is not its name.
pub(super) fn named(name: &str, address: &str) -> String {
    if name == address { name.to_owned() } else { format!("{name} ({address})") }
}
