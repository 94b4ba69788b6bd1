//! Reads what the counter of a node that lost its data is computed from: the statuses of the leases, and the fences of all nodes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redislease_core::admission::Input;
use redislease_core::quorum::Node;
use redislease_core::seed::Fences;
use tokio::sync::oneshot;

use super::message::Message;
use super::shared::Shared;
use super::status::NodeState;
use crate::clock;

/// How long a node waits for the statuses before its message says so.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// Returns when the statuses were listed, with `again` by a list that begins after this call. Shows a long wait in the node's
/// message: only the API server can end it.
pub(super) async fn list_statuses(shared: Arc<Shared>, target: Node, again: bool) -> Input {
    let listed = async { if again { shared.floor.read_again().await } else { shared.floor.completed().await } };
    let mut listed = pin!(listed);
    if tokio::time::timeout(SILENT_WAIT, &mut listed).await.is_err() {
        shared.board.update(target, |status| {
            if matches!(status.state, NodeState::Quarantined { .. }) {
                status.message = format!(
                    "node {} ({}): it has lost its data. Its counter must start above the fencing tokens in the statuses of \
                     all leases, and the API server has not listed them yet",
                    status.name, status.address
                );
            }
        });
        listed.await;
    }
    Input::StatusesListed
}

/// The fences of the nodes that reply.
pub(super) async fn read_fences(shared: Arc<Shared>, target: Node) -> Input {
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
    let mut reports = Vec::new();
    for (node, answered) in asked {
        reports.extend(answered.await.ok().map(|report| (node, report)));
    }
    Input::Fences(Fences::of(target, reports, shared.floor.token(), clock::unix_micros()))
}
