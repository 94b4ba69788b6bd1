//! Reads the fences of all nodes to seed the counter of a node that lost its data.

use std::sync::Arc;

use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Floor, Unseedable, seed};
use tokio::sync::oneshot;

use super::Shared;
use super::node::Message;
use crate::clock;

/// The counter for `target`. The fences are read after this call, because one read before the end of the wait may be
/// lower than the token of a term that was confirmed meanwhile. `None` if `target` itself does not reply.
///
/// If the fences do not suffice, all statuses are read again, and then the fences.
pub(super) async fn ask(shared: Arc<Shared>, target: Node) -> Option<Result<Token, Unseedable>> {
    shared.floor.completed().await;
    let mut is_current = !shared.floor.has_statuses();
    loop {
        let (own, others) = read_fences(&shared, target).await;
        let floor = Floor { token: shared.floor.token(), is_current };
        let seeded = seed(shared.quorum, own?, &others, floor, clock::unix_micros());
        if seeded != Err(Unseedable::StatusesUnread) {
            return Some(seeded);
        }
        shared.floor.read_again().await;
        is_current = true;
    }
}

/// The fence of `target`, if it replies, and the fences of the other nodes that reply.
async fn read_fences(shared: &Shared, target: Node) -> (Option<FenceReport>, Vec<FenceReport>) {
    let asked: Vec<_> = shared
        .quorum
        .nodes()
        .zip(&shared.ports)
        .map(|(node, port)| {
            let (answer, answered) = oneshot::channel();
            // A task that has ended drops the sender, which counts as an answer.
            let _ = port.inbox.send(Message::Fence(answer));
            (node, answered)
        })
        .collect();
    let mut own = None;
    let mut others = Vec::new();
    for (node, answered) in asked {
        match answered.await {
            Ok(report) if node == target => own = Some(report),
            Ok(report) => others.push(report),
            Err(_no_answer) => {}
        }
    }
    (own, others)
}
