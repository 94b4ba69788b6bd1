//! Tasks that must run as long as the process: when one of them ends, the process ends.
//!
//! Without this, a watch that ended silently would stop all reconciliation while the probes report a healthy process.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use crate::locked::locked;

/// Tracks the tasks that must not end.
#[derive(Clone, Debug)]
pub(super) struct TaskSupervisor {
    stop: CancellationToken,
    failure: Arc<Mutex<Option<String>>>,
}

impl TaskSupervisor {
    /// Creates a supervisor that cancels `stop` when one of its tasks ends.
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, failure: Arc::default() }
    }

    /// Wraps `work`, which must not end before the process stops.
    pub fn must_not_end<W: Future<Output = ()>>(
        &self,
        what: &'static str,
        work: W,
    ) -> impl Future<Output = ()> + use<W> {
        let guard = Guard { supervisor: self.clone(), what };
        async move {
            work.await;
            drop(guard);
        }
    }

    /// The task failure that ended the process, if there was one.
    pub fn failure(&self) -> Option<String> {
        locked(&self.failure).clone()
    }
}

/// Dropped when its task ends, also after a panic.
struct Guard {
    supervisor: TaskSupervisor,
    what: &'static str,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let TaskSupervisor { stop, failure } = &self.supervisor;
        let how = if std::thread::panicking() {
            "panicked"
        } else if stop.is_cancelled() {
            return;
        } else {
            "ended by itself"
        };
        let text = format!("{} {how}: the process exits so that Kubernetes restarts it", self.what);
        locked(failure).get_or_insert(text);
        stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;

    /// Returns whether the process was stopped, and the reported failure.
    async fn after(begin: impl FnOnce(&TaskSupervisor) -> BoxFuture<'static, ()>) -> (bool, Option<String>) {
        let stop = CancellationToken::new();
        let supervisor = TaskSupervisor::new(stop.clone());
        let _ = tokio::spawn(begin(&supervisor)).await;
        (stop.is_cancelled(), supervisor.failure())
    }

    #[tokio::test]
    async fn a_task_that_ends_ends_the_process() {
        let text = |how: &str| (true, Some(format!("it {how}: the process exits so that Kubernetes restarts it")));
        assert_eq!(after(|tasks| Box::pin(tasks.must_not_end("it", async {}))).await, text("ended by itself"));
        let broken = async { panic!("planned by the test") };
        assert_eq!(after(|tasks| Box::pin(tasks.must_not_end("it", broken))).await, text("panicked"));
    }

    #[tokio::test]
    async fn after_the_stop_every_task_may_end() {
        let stopped = |tasks: &TaskSupervisor| -> BoxFuture<'static, ()> {
            tasks.stop.cancel();
            Box::pin(tasks.must_not_end("it", async {}))
        };
        assert_eq!(after(stopped).await, (true, None));
    }
}
