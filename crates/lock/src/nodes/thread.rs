//! The thread of the tasks of one quorum's nodes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::node::{NodeTask, RECONNECT};
use super::{NodeState, Reason};
use crate::contain::{contain_this_thread, contained_task};
use crate::own_thread;

/// Starts the thread. It ends after `stop` is cancelled and answers the waiting requests. Tasks that are spawned on the
/// returned runtime end with it.
///
/// # Errors
/// The operating system cannot create a thread or an event queue.
pub(super) fn start(quorum: &str, contexts: Vec<Arc<Context>>, stop: CancellationToken) -> io::Result<Handle> {
    let run = move |runtime: Runtime| {
        // The runtime catches panics outside of the tasks that are contained themselves.
        contain_this_thread();
        runtime.block_on(async {
            for context in &contexts {
                tokio::spawn(keep_running(context.clone()));
            }
            stop.cancelled().await;
        });
        // The tasks end with their runtime; no message may be sent to them afterwards. A lookup of a host name may go on for long.
        runtime.shutdown_background();
        for context in &contexts {
            drop(context.inbox().close());
        }
    };
    // The operating system truncates longer names.
    let name: String = format!("redis {quorum}").chars().take(15).collect();
    own_thread::start(std::thread::Builder::new().name(name), run)
}

/// Runs the task of one node, and restarts it after a panic or a timer error.
async fn keep_running(context: Arc<Context>) {
    loop {
        let text = match NodeTask::new(context.clone()) {
            Err(error) => format!("cannot get a timer: {error}; raise the limit of open files"),
            Ok(task) => match contained_task(task.run()).await {
                Ok(error) => format!("cannot set a timer: {error}"),
                Err(panicked) => {
                    context.observer.panicked();
                    format!("the task of this node panicked and is restarted. Report this bug: {panicked}")
                }
            },
        };
        tracing::error!(node = %context.name, "{text}");
        context.reach().set(false, false);
        context.failed(Reason::Internal);
        context.stopped(&context.address(), NodeState::Down, Some(Reason::Internal), &text);
        // Uses the timer of tokio, because the task's own timer may be unavailable.
        tokio::time::sleep(Duration::from(RECONNECT.max)).await;
    }
}
