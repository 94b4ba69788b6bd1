//! Reports about the nodes of one quorum.

use std::fmt;

use redislease_core::quorum::Node;
use redislease_core::time::Millis;

use super::{NodeStatus, Reason};

/// Receives the reports about the nodes of one quorum. It is called on the thread of the nodes, which also renews the leases
/// on them, so it must not block. A method that is not implemented ignores its report.
pub trait NodesObserver: fmt::Debug + Send + Sync + 'static {
    /// The statuses changed in more than their clock offsets. Also called once before any node is reached.
    fn changed(&self, _statuses: &[NodeStatus]) {}
    /// What the log says of a node, in the words of those who read it.
    fn message(&self, status: &NodeStatus) -> String {
        status.message.clone()
    }
    /// The clock of `node` minus the wall clock of this process, in milliseconds, was measured.
    fn clock_offset(&self, _node: Node, _offset_ms: i64) {}
    /// `node` answered a command after `took`, counted from before the command was sent.
    fn answered(&self, _node: Node, _took: Millis) {}
    /// A request to `node` got no vote, or a connection to it failed.
    fn failed(&self, _node: Node, _reason: Reason) {}
    /// `node` returned as another server process.
    fn restarted(&self, _node: Node) {}
    /// The task of a node panicked, and is restarted.
    fn panicked(&self) {}
    /// The last of the [`Nodes`](super::Nodes) was dropped: nodes with the same name may be started from now on. Tasks that are
    /// ending may still report.
    fn closed(&self) {}
}

/// Ignores all reports.
impl NodesObserver for () {}
