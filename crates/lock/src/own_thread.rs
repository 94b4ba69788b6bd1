//! Threads that have a tokio runtime of their own.

use std::io;
use std::thread::Builder;

use tokio::runtime::{self, Handle, Runtime};

/// How many host names are looked up at a time. A lookup whose connection has given up goes on in its thread until the resolver answers,
/// after 30 s or so. The lookups of one server, one a second, must leave room for those of the others.
const LOOKUPS: usize = 128;

/// Starts a thread that calls `work` with a new runtime, which runs its tasks on this thread only. Returns the handle of the
/// runtime.
///
/// # Errors
/// The operating system cannot create a thread or an event queue.
pub(crate) fn start(thread: Builder, work: impl FnOnce(Runtime) + Send + 'static) -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS).build()?;
    let handle = runtime.handle().clone();
    let mut unused = Unused(Some(runtime));
    thread.spawn(move || unused.take().map(work))?;
    Ok(handle)
}

/// A runtime whose thread has not started. Without a thread, it is dropped by the caller of [`start`], which may be a task
/// of another runtime: there, the usual drop of a runtime panics.
struct Unused(Option<Runtime>);

impl Unused {
    fn take(&mut self) -> Option<Runtime> {
        self.0.take()
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(runtime) = self.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_that_the_operating_system_refuses_is_an_error_also_in_a_task() {
        // No machine has memory for such a stack.
        let refused = || Builder::new().stack_size(1 << 60);
        let error = tokio::spawn(async move { start(refused(), drop).map(|_| ()) }).await.unwrap().unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error:?}");
    }

    #[test]
    fn tasks_run_on_the_thread_of_the_runtime() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let handle = start(Builder::new().name("own".into()), |runtime| _ = runtime.block_on(stopped)).unwrap();
        handle.spawn(async move { sender.send(std::thread::current().name().map(str::to_owned)) });
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("own"));
        stop.send(()).unwrap();
    }
}
