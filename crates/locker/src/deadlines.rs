//! The ends of locks with `max_hold`: one timer of the operating system for all of them. A timer is a file descriptor, of which a
//! process may have about a thousand.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redislease_core::backoff::Entropy;
use redislease_core::lock::Input;
use redislease_core::time::Time;
use redislease_lock::clock::{self, Alarm};
use redislease_lock::nodes::Nodes;
use tokio::sync::Notify;

use crate::state::Driver;

/// How often the clock is read if the process has no free file descriptor for the timer.
const POLL: Duration = Duration::from_millis(50);

/// The place of a lock in [`Deadlines`].
pub type Place = (Time, u64);

#[derive(Debug, Default)]
struct Waiting {
    /// Whether the task runs.
    watched: bool,
    count: u64,
    locks: BTreeMap<Place, Arc<Driver>>,
}

/// The locks that end at a time.
#[derive(Debug, Default)]
pub struct Deadlines {
    waiting: Mutex<Waiting>,
    earlier: Notify,
}

impl Deadlines {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // The map is consistent between any two statements that change it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the lock at its time. The caller removes it when the lock is over.
    pub fn add(self: &Arc<Self>, nodes: &Nodes, at: Time, lock: Arc<Driver>) -> Place {
        let mut waiting = self.waiting();
        waiting.count += 1;
        let place = (at, waiting.count);
        waiting.locks.insert(place, lock);
        if !std::mem::replace(&mut waiting.watched, true) {
            nodes.spawn(self.clone().watch());
        } else if waiting.locks.keys().next() == Some(&place) {
            self.earlier.notify_one();
        }
        place
    }

    /// Forgets a lock.
    pub fn remove(&self, place: Place) {
        self.waiting().locks.remove(&place);
    }

    /// Wakes each lock at its time. Ends with the thread of the nodes.
    async fn watch(self: Arc<Self>) {
        let mut alarm = None;
        loop {
            let next = self.waiting().locks.keys().next().map(|(at, _)| *at);
            tokio::select! {
                () = self.earlier.notified() => {}
                () = reached(&mut alarm, next) => self.wake(),
            }
        }
    }

    fn wake(&self) {
        let now = clock::now();
        loop {
            let mut waiting = self.waiting();
            let Some(due) = waiting.locks.first_entry().filter(|first| first.key().0 <= now) else { return };
            let lock = due.remove();
            // The lock reports to the observer of the program.
            drop(waiting);
            lock.input(Input::Wake { paused_until: None, entropy: Entropy(0) });
        }
    }
}

/// Returns at `at`, or a little earlier.
async fn reached(alarm: &mut Option<Alarm>, at: Option<Time>) {
    let Some(at) = at else { return pending().await };
    if alarm.is_none() {
        *alarm = Alarm::new().ok();
    }
    if let Some(timer) = alarm
        && timer.set(Some(at)).is_ok()
        && timer.expired().await.is_ok()
    {
        return;
    }
    *alarm = None;
    tokio::time::sleep(POLL).await;
}
