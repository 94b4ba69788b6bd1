//! What a lease is opened with.

use std::sync::Arc;

use redislease_core::driver::{Command, Input};
use redislease_core::lease::{Config, Renewal, View};
use redislease_core::time::{Millis, Time};

use crate::nodes::Nodes;

/// Receives the reports of one lease. It is called on the thread of the lease's shard, which serves thousands of other
/// leases, so it must not block. If it panics, its lease is dropped.
pub trait Observer: Send + 'static {
    /// A renewal round completed; `ttl_ms` is the lease duration.
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64);
    /// The view changed.
    fn changed(&self, view: &View);
    /// A majority of the nodes has deleted the keys after [`super::LeaseHandle::release`], or set their end.
    fn released(&self) {}
    /// The machine ended: it retired, was closed, or failed because of a bug. This is the last call.
    fn ended(&self) {}
}

/// An observer that ignores everything.
impl Observer for () {
    fn renewed(&self, _: &Renewal, _: u64) {}
    fn changed(&self, _: &View) {}
}

/// What the process decides about one of its leases. It is asked on the thread of the lease's shard, so it must not block.
pub trait Policy: Send + Sync + 'static {
    /// Whether this process may end terms by its own clock at `now`. The right can end with the lock of the leader, and a process
    /// that was paused has no other news of that.
    fn may_end(&self, now: Time) -> bool {
        let _ = now;
        true
    }
    /// The command that the lease carries out instead of `input`, which is [`Input::Wake`] or [`Command::Close`].
    fn instead(&self, now: Time, input: &Input) -> Option<Command> {
        let _ = (now, input);
        None
    }
}

/// The parameters for opening a lease.
pub struct Setup {
    /// The nodes of the lease's quorum; `None` if their addresses are unknown. Then no term can be confirmed, and an
    /// adopted term is lost at its deadline.
    pub nodes: Option<Nodes>,
    /// The lease's keys on the nodes.
    pub keys: Arc<[String]>,
    /// The lease's durations.
    pub config: Config,
    /// Without it, `config.deadline` always applies, and a lease that is closed leaves its term.
    pub policy: Option<Arc<dyn Policy>>,
    /// How long no attempt begins after a jump of this process's clock; `None` for the longest lease of the quorum. Shorter only
    /// if no attempt for these keys uses a longer TTL than that.
    pub jump_wait: Option<Millis>,
    /// Receives views and renewals.
    pub observer: Box<dyn Observer>,
}
