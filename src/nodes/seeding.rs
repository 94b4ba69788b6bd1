//! Reads the fences of all nodes to seed the counter of a node that lost its data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Unseedable, seed};
use tokio::sync::oneshot;

use super::Shared;
use super::node::Message;
use crate::clock;

/// The counter for `target`. The fences are read after this call, because one read before the end of the wait may be
/// lower than the token of a term that was confirmed meanwhile. `None` if `target` itself does not reply.
pub(super) async fn ask(shared: Arc<Shared>, target: Node) -> Option<Result<Token, Unseedable>> {
    // `shared` holds its sender.
    let _ = shared.floor_is_complete.subscribe().wait_for(|complete| *complete).await;
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
    let mut others: Vec<FenceReport> = Vec::new();
    for (node, answered) in asked {
        match answered.await {
            Ok(report) if node == target => own = Some(report),
            Ok(report) => others.push(report),
            Err(_no_answer) => {}
        }
    }
    let floor = Token(shared.floor.load(Ordering::Relaxed));
    own.map(|own| seed(shared.quorum, own, &others, floor, clock::unix_micros()))
}
