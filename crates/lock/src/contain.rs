//! Contains panics: a panic ends one piece of work, not the process.
//!
//! One process keeps the leases of many tenants, so a bug that affects one lease must not end the others. The work on one
//! lease runs in [`contained`]: the caller logs and counts the panic and drops that lease. A panic hook that ends the
//! process checks [`is_contained`] first.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    /// The number of calls of [`contained`] on the stack of this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Receives a report of each contained panic. It must not block.
pub trait PanicObserver: fmt::Debug + Send + Sync + 'static {
    /// A panic was contained. Each one is a bug.
    fn panicked(&self);
}

/// Ignores all reports.
impl PanicObserver for () {
    fn panicked(&self) {}
}

/// The message of a contained panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Panicked {}

impl Panicked {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("a panic without a message").to_owned())
    }
}

/// Runs `work`. If it panics, the caller must drop the state that `work` has changed: it may be inconsistent.
///
/// # Errors
/// The message of the panic.
pub fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    DEPTH.set(DEPTH.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    done.map_err(|payload| Panicked::of(payload.as_ref()))
}

/// Runs `work` to completion, and each poll as in [`contained`].
///
/// # Errors
/// The message of the panic.
pub async fn contained_task<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| match contained(|| work.as_mut().poll(context)) {
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Declares that a runtime catches every panic on this thread, ending only the task.
pub(crate) fn contain_this_thread() {
    DEPTH.set(DEPTH.get() + 1);
}

/// Whether a panic on this thread is caught and must not end the process.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(contained(|| 7), Ok(7));
        assert_eq!(contained(|| panic!("lease {}", 7)).map(|()| 0), Err(Panicked("lease 7".to_owned())));
        let error = contained(|| std::panic::panic_any(7)).unwrap_err();
        assert_eq!(error.to_string(), "a panic without a message");
    }

    #[test]
    fn only_work_inside_is_contained() {
        assert!(!is_contained());
        let inside = contained(|| {
            let _ = contained(|| panic!("inner"));
            is_contained()
        });
        assert_eq!((inside, is_contained()), (Ok(true), false));
    }

    #[tokio::test]
    async fn a_task_is_contained_in_every_step() {
        let stepping = |panics: bool| async move {
            tokio::task::yield_now().await;
            assert!(is_contained());
            assert!(!panics, "in the second step");
            7
        };
        assert_eq!(contained_task(stepping(false)).await, Ok(7));
        assert_eq!(contained_task(stepping(true)).await, Err(Panicked("in the second step".to_owned())));
        assert!(!is_contained());
    }
}
