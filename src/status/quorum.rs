//! The status of a quorum.

use jiff::Timestamp;

use crate::api::RedisQuorumStatus;
use crate::api::conditions::QuorumReady;
use crate::api::quorum::NodeState;
use crate::status::Notice;

/// Everything a quorum's status is composed of.
#[derive(Clone, Debug)]
pub struct QuorumInputs<'a> {
    /// What the API server holds now.
    pub previous: &'a RedisQuorumStatus,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
    /// The fingerprint of the configuration; `None` while there is no valid one.
    pub fingerprint: Option<&'a str>,
    /// The configured nodes; empty while there is no valid configuration.
    pub nodes: &'a [NodeReport<'a>],
    /// How many nodes must give votes.
    pub majority: usize,
    /// Whether each node was reached or tried in vain at least once.
    pub evaluated: bool,
    /// What keeps leases from being taken: InvalidReference or InvalidSpec, and a sentence.
    pub obstacle: Option<(QuorumReady, &'a str)>,
    /// What is wrong with a node's marker.
    pub mismatch: Option<&'a str>,
}

/// How one node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is good for.
    pub state: NodeState,
    /// The version the server gives itself.
    pub version: Option<&'a str>,
    /// By how many milliseconds its clock is ahead of ours.
    pub clock_offset_millis: Option<i64>,
    /// What is wrong, in one sentence that does not change by itself.
    pub message: Option<String>,
}

/// What the API server should hold, and what has happened.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedQuorum {
    /// The status. Equal to the previous one when nothing has happened.
    pub status: RedisQuorumStatus,
    /// What has happened, to be told after the status was written: on the quorum alone.
    pub events: Vec<Notice>,
}

/// Composes the status of a quorum.
pub fn compose_quorum(inputs: &QuorumInputs<'_>) -> ComposedQuorum {
    let _ = inputs;
    todo!()
}
