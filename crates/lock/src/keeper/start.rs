//! Starts the task of a shard, restarts the shard after a panic, and closes its inbox at the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::handle::{Message, ShardHandle, Shared};
use super::shard::Shard;
use crate::PanicObserver;
use crate::clock::Alarm;
use crate::contain::{contain_this_thread, contained, contained_task};
use crate::nodes::Nodes;
use crate::own_thread;

/// The pause after a panic of the shard, so that the other tasks on this thread run also if it panics each time.
const RESTART: Duration = Duration::from_secs(1);

/// Starts a shard on a thread of its own.
///
/// # Errors
/// The operating system cannot create a thread or an event queue.
pub fn start_on_own_thread(panics: Arc<dyn PanicObserver>) -> io::Result<ShardHandle> {
    let shard = ShardHandle::new();
    let running = run(shard.0.clone(), panics);
    let run = move |runtime: Runtime| {
        contain_this_thread();
        runtime.block_on(running);
    };
    own_thread::start(std::thread::Builder::new().name("keeper".into()), run)?;
    Ok(shard)
}

/// Starts a shard on the thread of these nodes, for leases on them. Every open lease keeps the nodes, so the thread ends
/// after the last lease.
pub fn start_on_thread_of(nodes: &Nodes, panics: Arc<dyn PanicObserver>) -> ShardHandle {
    let shard = ShardHandle::new();
    nodes.spawn(run(shard.0.clone(), panics));
    shard
}

/// The task of a shard. A panic while working on one lease is contained there. A panic of the shard itself drops its
/// leases, and the shard restarts empty.
pub(super) fn run(shared: Arc<Shared>, panics: Arc<dyn PanicObserver>) -> impl Future<Output = ()> + Send {
    // A task may be dropped before it is polled.
    let closes = Closes(shared);
    async move {
        keep_running(&closes.0, &panics).await;
        drop(closes);
    }
}

async fn keep_running(shared: &Arc<Shared>, panics: &Arc<dyn PanicObserver>) {
    loop {
        let mut leases = Shard::new(shared.clone(), panics.clone());
        match contained_task(leases.run(Alarm::new())).await {
            Ok(()) => break,
            Err(panicked) => {
                panics.panicked();
                tracing::error!(
                    leases = leases.slots.len(),
                    "the task that renews leases and locks panicked; they are not renewed any more and expire with their TTL. Report this bug: {panicked}"
                );
                leases.abandon();
                if leases.ends_when_empty {
                    break;
                }
                tokio::time::sleep(RESTART).await;
            }
        }
    }
}

/// Closes the inbox when the task of a shard ends, also if it is dropped with its thread.
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        for message in self.0.inbox.close() {
            if let Message::Open(_, setup, _) = message {
                let _ = contained(|| setup.observer.ended());
            }
        }
        self.0.ended.send_replace(true);
    }
}
