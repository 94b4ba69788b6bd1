//! The locks and waiting requests of one `Locker`: a release wakes the request that has waited longest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redislease_core::op::Attempt;
use tokio::sync::Notify;

/// The keys of a request, as they are named on the servers.
pub type Keys = Arc<[String]>;

#[derive(Debug, Default)]
struct Entry {
    holder: Option<Attempt>,
    waiting: usize,
    released: Arc<Notify>,
}

/// The locks and waiting requests of one `Locker`, by their keys.
#[derive(Debug, Default)]
pub struct Local(Mutex<HashMap<Keys, Entry>>);

impl Local {
    fn entries(&self) -> MutexGuard<'_, HashMap<Keys, Entry>> {
        // The map is consistent between any two statements that change it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard has the lock.
    pub fn held(&self, keys: &Keys, attempt: Attempt) {
        self.entries().entry(keys.clone()).or_default().holder = Some(attempt);
    }

    /// The guard of `attempt` was released.
    pub fn released(&self, keys: &Keys, attempt: Attempt) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(keys) else { return };
        if entry.holder == Some(attempt) {
            entry.holder = None;
        }
        entry.released.notify_one();
        if entry.waiting == 0 && entry.holder.is_none() {
            entries.remove(keys);
        }
    }

    /// Whether a guard has the lock by this attempt.
    pub fn holds(&self, keys: &Keys, attempt: Attempt) -> bool {
        self.entries().get(keys).is_some_and(|entry| entry.holder == Some(attempt))
    }

    /// Begins to wait for a release of the keys.
    pub fn wait(self: &Arc<Self>, keys: &Keys) -> Waiting {
        let mut entries = self.entries();
        let entry = entries.entry(keys.clone()).or_default();
        entry.waiting += 1;
        Waiting { local: self.clone(), keys: keys.clone(), released: entry.released.clone() }
    }
}

/// A request that waits.
#[derive(Debug)]
pub struct Waiting {
    local: Arc<Local>,
    keys: Keys,
    released: Arc<Notify>,
}

impl Waiting {
    /// Returns after a release, if no request that has waited longer takes it.
    pub async fn released(&self) {
        self.released.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut entries = self.local.entries();
        let Some(entry) = entries.get_mut(&self.keys) else { return };
        entry.waiting -= 1;
        if entry.waiting == 0 && entry.holder.is_none() {
            entries.remove(&self.keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> Keys {
        [name.to_owned()].into()
    }

    #[tokio::test]
    async fn a_release_wakes_one_request_for_these_keys() {
        let local = Arc::new(Local::default());
        local.held(&keys("a"), Attempt(1));
        assert!(local.holds(&keys("a"), Attempt(1)) && !local.holds(&keys("b"), Attempt(1)));
        let (first, second, other) = (local.wait(&keys("a")), local.wait(&keys("a")), local.wait(&keys("b")));
        local.released(&keys("a"), Attempt(1));
        tokio::select! {
            biased;
            () = other.released() => panic!("other keys"),
            () = first.released() => {}
        }
        tokio::select! {
            biased;
            () = second.released() => panic!("only one is woken"),
            () = tokio::task::yield_now() => {}
        }
        drop((first, second, other));
        assert!(local.entries().is_empty(), "nothing is left");
    }
}
