//! The thread on which the tasks of one quorum's nodes run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use super::Reason;
use super::context::Context;
use super::node::{BACKOFF_MOST, NodeTask};
use crate::contain::{contain_this_thread, contained_task};

/// Starts the thread. It ends after `stop` is cancelled; requests that wait are answered then.
///
/// # Errors
/// When the system gives no thread or no event queue.
pub(super) fn start(
    quorum: &str,
    contexts: Vec<Arc<Context>>,
    stop: CancellationToken,
    panics: IntCounter,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        // What the client library spawns is caught by the runtime; its connection is then lost, and opened again.
        contain_this_thread();
        runtime.block_on(async {
            for context in &contexts {
                tokio::spawn(keep_running(context.clone(), panics.clone()));
            }
            stop.cancelled().await;
        });
        // The tasks end with their runtime; nobody may send to them any more.
        drop(runtime);
        for context in &contexts {
            drop(context.inbox().close());
        }
    };
    // Longer names are cut by the system.
    let name: String = format!("redis {quorum}").chars().take(15).collect();
    std::thread::Builder::new().name(name).spawn(run).map(drop)
}

/// Runs the task of one node, and starts it again when it ends by a defect or for want of a timer.
async fn keep_running(context: Arc<Context>, panics: IntCounter) {
    loop {
        let text = match NodeTask::new(context.clone()) {
            Err(error) => format!("cannot get a timer: {error}; raise the limit of open files"),
            Ok(task) => match contained_task(task.run()).await {
                Ok(error) => format!("cannot set a timer: {error}"),
                Err(panicked) => {
                    panics.inc();
                    format!("the task of this node failed by a defect and is started again; report it: {panicked}")
                }
            },
        };
        tracing::error!(node = %context.name, "{text}");
        context.reach().set(false, false);
        context.series.error(Reason::Internal.as_str());
        context.down(&context.address(), Reason::Internal, &text);
        // Not by our own timers, of which there may be none.
        tokio::time::sleep(Duration::from(BACKOFF_MOST)).await;
    }
}
