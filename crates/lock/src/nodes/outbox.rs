//! Batches the requests of one shard to one quorum during one tick.

use redislease_core::quorum::Node;

use super::message::Message;
use super::{Nodes, Reply, Request};

/// Requests that are not sent yet. [`Outbox::flush`] sends them.
#[derive(Debug)]
pub(crate) struct Outbox {
    nodes: Nodes,
    /// By node.
    requests: Vec<Vec<Message>>,
}

impl Outbox {
    pub fn new(nodes: Nodes) -> Self {
        let requests = nodes.quorum().nodes().map(|_| Vec::new()).collect();
        Self { nodes, requests }
    }

    pub const fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Adds a request to `node`, or answers it if the node has no vote.
    pub fn put(&mut self, node: Node, request: Request, reply: Reply) {
        let Some((port, requests)) = self.nodes.shared.ports.get(node.index()).zip(self.requests.get_mut(node.index()))
        else {
            return;
        };
        match port.vote_at_once(&request.op) {
            Some(vote) => reply.give(vote),
            None => requests.push(Message::Vote(request, reply)),
        }
    }

    /// Sends all requests, with at most one wake-up of each node.
    pub fn flush(&mut self) {
        for (port, requests) in self.nodes.shared.ports.iter().zip(&mut self.requests) {
            port.inbox.send_all(requests);
            // Requests remain only if the inbox is closed; dropping them answers them.
            requests.clear();
            requests.shrink_to(1024);
        }
    }
}
