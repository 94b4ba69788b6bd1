//! What the shard reports about one lock.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redislease_core::lease::{EndReason, Renewal, Standing, TermView, View};
use redislease_core::time::Time;
use redislease_lock::keeper::Observer;
use tokio::sync::Notify;

use crate::Lost;

/// What is known about one lock, and who waits for it to change. A channel costs several times as much for each change.
#[derive(Debug, Default)]
pub struct Status {
    state: Mutex<State>,
    changed: Notify,
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A state is consistent between any two statements that change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state. `read` is short: the shard serves other locks.
    pub fn read<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        read(&self.lock())
    }

    /// Changes the state, and wakes the readers if `change` says so.
    pub fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        let wakes = change(&mut self.lock());
        if wakes {
            self.changed.notify_waiters();
        }
    }

    /// Returns what `probe` finds, when it finds something.
    pub async fn wait_for<R>(&self, mut probe: impl FnMut(&State) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change between the probe and the wait counts.
            changed.as_mut().enable();
            if let Some(found) = self.read(&mut probe) {
                return found;
            }
            changed.await;
        }
    }
}

/// What is known about one lock.
#[derive(Debug, Default)]
pub struct State {
    /// The newest view.
    pub view: View,
    /// How many attempts have ended without a lock.
    pub failed: u32,
    /// Whether an attempt is under way.
    attempting: bool,
    /// Set when the lock was acquired and is not valid any more.
    pub lost: Option<Lost>,
    /// A majority of the nodes has deleted the keys.
    pub released: bool,
    /// The shard has dropped the lock.
    pub ended: bool,
    /// The number of changes for which readers wait.
    pub reports: u64,
}

impl State {
    /// The term of the lock. It is never published, so it is never in another state than this.
    pub const fn term(&self) -> Option<&TermView> {
        match &self.view.standing {
            Standing::Publishing(term) => Some(term),
            _ => None,
        }
    }

    /// Why the lock is not valid at `now`.
    pub fn lost_at(&self, now: Time) -> Result<&TermView, Lost> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        self.term().filter(|term| term.stop_at.is_some_and(|stop_at| now < stop_at)).ok_or(Lost::Expired)
    }

    /// Begins another attempt. A term that was lost before anybody had a guard for it is one more attempt that failed. No reader waits
    /// for that.
    pub fn begin(&mut self) -> bool {
        self.lost = None;
        false
    }

    /// Takes a view. Returns whether a reader waits for it.
    fn show(&mut self, view: &View) -> bool {
        let was_held = self.term().is_some();
        self.view.clone_from(view);
        if let Standing::Acquiring(..) = view.standing {
            self.attempting = true;
            return false;
        }
        self.reports = self.reports.wrapping_add(1);
        let is_held = self.term().is_some();
        if is_held {
            self.attempting = false;
        } else if was_held {
            let reason = view.ending.as_ref().map(|ending| ending.reason);
            let lost = if reason == Some(EndReason::Misses) { Lost::Missing } else { Lost::Expired };
            self.lost.get_or_insert(lost);
        } else if std::mem::take(&mut self.attempting) {
            self.failed = self.failed.saturating_add(1);
        }
        true
    }
}

/// Passes on the reports.
pub struct Reports(pub Arc<Status>);

impl Drop for Reports {
    /// The thread of the shard may end without another report.
    fn drop(&mut self) {
        self.ended();
    }
}

impl Observer for Reports {
    fn renewed(&self, _: &Renewal, _: u64) {}

    fn changed(&self, view: &View) {
        self.0.change(|state| state.show(view));
    }

    fn released(&self) {
        self.0.change(|state| {
            state.released = true;
            true
        });
    }

    fn ended(&self) {
        self.0.change(|state| {
            state.lost.get_or_insert(Lost::Closed);
            !std::mem::replace(&mut state.ended, true)
        });
    }
}
