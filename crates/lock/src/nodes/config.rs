//! The configuration of the nodes of a quorum.

use std::io;

use redislease_core::marker::Membership;
use redislease_core::quorum::MAX_NODES;
use redislease_core::time::Millis;

use super::{Credentials, Tls};

/// The configuration for using a quorum.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the quorum in metrics and messages.
    pub quorum: String,
    /// The nodes, in the order in which [`Node`](redislease_core::quorum::Node) counts them.
    pub nodes: Vec<NodeConfig>,
    /// The prefix of every key.
    pub key_prefix: String,
    /// The configuration under which the nodes vote.
    pub membership: Membership,
    /// The longest lease duration on this quorum.
    pub longest_lease: Millis,
    /// The time without an answer after which a connection is closed.
    pub command_timeout: Millis,
    /// The credentials for the nodes.
    pub credentials: Option<Credentials>,
    /// TLS for the connections to all nodes; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// Whether statuses outside of Redis show tokens of this quorum. Then counters are seeded only after
    /// [`floor_complete`](super::Nodes::floor_complete), and the caller must answer [`floor_requests`](super::Nodes::floor_requests).
    pub has_statuses: bool,
    /// The names of nodes that were misconfigured according to an earlier process. They connect a second after the others: if the
    /// address of one leads to the server of another node, that server votes for the other one again.
    pub connect_last: Vec<String>,
}

/// One node of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name, which stays the same when its address changes.
    pub name: String,
    /// `host:port`; an IPv6 address in brackets.
    pub address: String,
}

/// Why a quorum cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum StartError {
    #[error("quorum {quorum}: {count} nodes: a quorum has 1 to {MAX_NODES}")]
    Size { quorum: String, count: usize },
    #[error("quorum {quorum}: node {node}: address `{address}` is not `host:port`")]
    Address { quorum: String, node: String, address: String },
    #[error("quorum {quorum}: cannot start the thread of its nodes: {source}")]
    System { quorum: String, source: io::Error },
}
