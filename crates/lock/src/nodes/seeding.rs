//! Reads the fences of all nodes to seed the counter of a node that lost its data.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Floor, Unseedable, seed};
use tokio::sync::oneshot;

use super::message::Message;
use super::shared::Shared;
use super::status::NodeState;
use crate::clock;

/// How long a node waits for the statuses before its message says so.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// The counter for `target`. The fences are read after this call, because one read before the end of the wait may be
/// lower than the token of a term that was confirmed meanwhile. `None` if `target` itself does not reply.
///
/// If the fences do not suffice, all statuses are read again, and then the fences.
pub(super) async fn ask(shared: Arc<Shared>, target: Node) -> Option<Result<Token, Unseedable>> {
    wait_for_statuses(&shared, target, shared.floor.completed()).await;
    let mut is_current = !shared.floor.has_statuses();
    loop {
        let (own, others) = read_fences(&shared, target).await;
        let floor = Floor { token: shared.floor.token(), is_current };
        let seeded = seed(shared.quorum, own?, &others, floor, clock::unix_micros());
        if seeded != Err(Unseedable::StatusesUnread) {
            return Some(seeded);
        }
        wait_for_statuses(&shared, target, shared.floor.read_again()).await;
        is_current = true;
    }
}

/// Waits, and shows a long wait in the node's message: only the API server can end it.
async fn wait_for_statuses(shared: &Shared, target: Node, read: impl Future<Output = ()>) {
    let mut read = pin!(read);
    if tokio::time::timeout(SILENT_WAIT, &mut read).await.is_ok() {
        return;
    }
    shared.board.update(target, |status| {
        if matches!(status.state, NodeState::Quarantined { .. }) {
            status.message = format!(
                "node {} ({}): it has lost its data. Its counter must start above the fencing tokens in the statuses of \
                 all leases, and the API server has not listed them yet",
                status.name, status.address
            );
        }
    });
    read.await;
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
