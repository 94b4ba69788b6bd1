//! Reports for metrics and logs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redislease_lock::contain::contained;
use redislease_lock::nodes::{NodeStatus, NodesObserver};

use crate::{AcquireError, Lost, Node};

/// Receives what happens to the locks of a [`Locker`](crate::Locker), for the metrics or the log of a program, see
/// [`LockerBuilder::observer`](crate::LockerBuilder::observer). It depends on no library of either kind. A method that is not
/// implemented ignores its report. `key` is the first key of the request.
///
/// Some methods are called on the thread that renews all locks, so none may block: a report that takes longer than the validity of
/// the locks loses them. A panic is caught, and ends only its report. A method may call the [`Locker`](crate::Locker).
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
///
/// use redislease_locker::{Locker, Lost, Observer};
///
/// #[derive(Default)]
/// struct Metrics {
///     acquired_total: AtomicU64,
///     lost_total: AtomicU64,
/// }
///
/// impl Observer for Metrics {
///     fn acquired(&self, _key: &str, _token: u64, _waited: Duration) {
///         self.acquired_total.fetch_add(1, Relaxed);
///     }
///
///     fn lost(&self, key: &str, token: u64, why: Lost) {
///         self.lost_total.fetch_add(1, Relaxed);
///         eprintln!("lost the lock of {key} with the token {token}: {why}");
///     }
/// }
///
/// # fn main() -> Result<(), redislease_locker::InvalidConfig> {
/// let urls = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
/// let locker = Locker::builder(urls).observer(Metrics::default()).build()?;
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A request got its lock after `waited`.
    fn acquired(&self, _key: &str, _token: u64, _waited: Duration) {}

    /// A request ended without a lock, also because a value of it is invalid. A request that was cancelled is not reported.
    fn failed(&self, _key: &str, _error: &AcquireError) {}

    /// A round of renewal ended: a majority confirmed the lock within this time, or `None`: no majority did.
    fn renewed(&self, _key: &str, _took: Option<Duration>) {}

    /// A lock was lost before its guard was released.
    fn lost(&self, _key: &str, _token: u64, _why: Lost) {}

    /// A guard was released or dropped `held` after its request had got the lock. A lock that was lost, or abandoned, is not reported.
    fn released(&self, _key: &str, _token: u64, _held: Duration) {}

    /// The state of a server changed. Also called when the [`Locker`](crate::Locker) is built.
    fn nodes_changed(&self, _nodes: &[Node]) {}
}

/// The observer of a `Locker`, if it has one.
#[derive(Clone, Default)]
pub struct Observed(Option<Arc<dyn Observer>>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer" } else { "no Observer" })
    }
}

impl Observed {
    pub fn by(observer: impl Observer) -> Self {
        Self(Some(Arc::new(observer)))
    }

    pub fn report(&self, report: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.0 {
            // A panic of the observer ends only its report: the panic hook of the program has shown it.
            let _ = contained(|| report(&**observer));
        }
    }
}

/// Reports the states of the servers of a `Locker`.
#[derive(Debug)]
pub struct ObservedNodes {
    pub observer: Observed,
    /// The text of [`beside_operator`](crate::node::beside_operator).
    pub beside: Option<Arc<str>>,
}

impl NodesObserver for ObservedNodes {
    fn changed(&self, statuses: &[NodeStatus]) {
        self.observer.report(|observer| observer.nodes_changed(&Node::list(statuses, self.beside.as_deref())));
    }

    fn message(&self, status: &NodeStatus) -> String {
        Node::of(status, self.beside.as_deref()).message
    }
}
