//! The context of a node's task, and the state that survives its restart.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redislease_core::marker::Membership;
use redislease_core::quorum::Node;

use super::address::Address;
use super::message::Message;
use super::shared::{Reach, Shared};
use super::status::{NodeState, NodeStatus, named};
use super::{NodesObserver, Reason};
use crate::mailbox::Mailbox;

/// One node of a quorum.
#[derive(Debug)]
pub(super) struct Context {
    pub node: Node,
    pub name: String,
    /// See [`Config::connect_last`](super::Config::connect_last).
    pub connects_last: bool,
    pub membership: Membership,
    pub shared: Arc<Shared>,
    pub observer: Arc<dyn NodesObserver>,
    /// The server could lose keys and keep its marker: it evicts keys, or it is a replica.
    pub suspect: AtomicBool,
}

impl Context {
    pub fn inbox(&self) -> &Mailbox<Message> {
        &self.shared.ports[self.node.index()].inbox
    }

    pub fn reach(&self) -> &Reach {
        &self.shared.ports[self.node.index()].reach
    }

    pub fn address(&self) -> Address {
        self.shared.ports[self.node.index()].address()
    }

    /// Reports a request without a vote, or a failed connection.
    pub fn failed(&self, reason: Reason) {
        self.observer.failed(self.node, reason);
    }

    pub fn update(&self, change: impl FnOnce(&mut NodeStatus)) {
        self.shared.board.update(self.node, change);
    }

    /// The prefix of messages about the node.
    pub fn about(&self, address: &Address) -> String {
        format!("node {}: ", named(&self.name, &address.to_string()))
    }

    /// Shows why the node has no connection.
    pub fn stopped(&self, address: &Address, state: NodeState, reason: Option<Reason>, text: &str) {
        let message = self.about(address) + text;
        self.update(|status| {
            status.state = state;
            status.reason = reason;
            status.message = message;
        });
    }
}
