//! What the shard reports about one lock.

use redislease_core::lease::{EndReason, Renewal, Standing, TermView, View};
use redislease_core::time::Time;
use redislease_lock::keeper::Observer;
use tokio::sync::watch;

use crate::Lost;

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

    /// Begins another attempt. A term that was lost before anybody had a guard for it is one more attempt that failed.
    pub fn begin(&mut self) {
        self.lost = None;
    }

    /// Takes a view. Returns whether a reader waits for it.
    fn show(&mut self, view: &View) -> bool {
        let was_held = self.term().is_some();
        self.view.clone_from(view);
        if let Standing::Acquiring(..) = view.standing {
            self.attempting = true;
            return false;
        }
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

/// Passes on the reports. A reader of the state must not hold it for long: the shard serves other locks.
pub struct Reports(pub watch::Sender<State>);

impl Observer for Reports {
    fn renewed(&self, _: &Renewal, _: u64) {}

    fn changed(&self, view: &View) {
        self.0.send_if_modified(|state| state.show(view));
    }

    fn released(&self) {
        self.0.send_modify(|state| state.released = true);
    }

    fn ended(&self) {
        self.0.send_modify(|state| {
            state.ended = true;
            state.lost.get_or_insert(Lost::Closed);
        });
    }
}
