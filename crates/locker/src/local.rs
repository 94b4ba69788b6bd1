//! The locks and waiting requests of one `Locker`: a release wakes the request for one of its keys whose present delay began first.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use redislease_core::op::Attempt;
use tokio::sync::Notify;

/// The keys of a request, as they are named on the servers.
pub type Keys = Arc<[String]>;

/// The requests that wait for one key.
#[derive(Debug, Default)]
struct Queue {
    waiting: usize,
    released: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Locks {
    /// The attempts whose locks this `Locker` has.
    held: HashSet<Attempt>,
    queues: HashMap<String, Queue>,
}

/// The locks and waiting requests of one `Locker`.
#[derive(Debug, Default)]
pub struct Local(Mutex<Locks>);

impl Local {
    fn locks(&self) -> MutexGuard<'_, Locks> {
        // The maps are consistent between any two statements that change them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard has a lock.
    pub fn held(&self, attempt: Attempt) {
        self.locks().held.insert(attempt);
    }

    /// The guard of `attempt` has ended, and the keys in `freed` are being deleted. A request that is woken while other keys still exist
    /// would waste one of its attempts.
    pub fn ended(&self, attempt: Attempt, freed: &[String]) {
        let mut locks = self.locks();
        if !locks.held.remove(&attempt) {
            return;
        }
        for queue in freed.iter().filter_map(|key| locks.queues.get(key)) {
            queue.released.notify_one();
        }
    }

    /// Whether a guard has its lock by this attempt.
    pub fn holds(&self, attempt: Attempt) -> bool {
        self.locks().held.contains(&attempt)
    }

    /// Begins to wait for a release of one of the keys.
    pub fn wait(self: &Arc<Self>, keys: &Keys) -> Waiting {
        let mut locks = self.locks();
        let mut join = |key: &String| {
            let queue = locks.queues.entry(key.clone()).or_default();
            queue.waiting += 1;
            queue.released.clone()
        };
        let released = keys.iter().map(&mut join).collect();
        Waiting { local: self.clone(), keys: keys.clone(), released }
    }
}

/// A request that waits.
#[derive(Debug)]
pub struct Waiting {
    local: Arc<Local>,
    keys: Keys,
    /// By key.
    released: Vec<Arc<Notify>>,
}

impl Waiting {
    /// Returns after a release of one of the keys, if no request whose present delay began earlier takes it.
    pub async fn released(&self) {
        if let [released] = &*self.released {
            return released.notified().await;
        }
        let mut releases: Vec<_> = self.released.iter().map(|released| Box::pin(released.notified())).collect();
        poll_fn(|context| {
            let mut polled = releases.iter_mut().map(|release| release.as_mut().poll(context));
            if polled.any(|polled| polled.is_ready()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut locks = self.local.locks();
        for key in &*self.keys {
            let Some(queue) = locks.queues.get_mut(key) else { continue };
            queue.waiting -= 1;
            if queue.waiting == 0 {
                locks.queues.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Keys {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_release_wakes_one_request_for_each_of_its_keys() {
        let local = Arc::new(Local::default());
        local.held(Attempt(1));
        assert!(local.holds(Attempt(1)) && !local.holds(Attempt(2)));
        let (first, second) = (local.wait(&keys(&["a"])), local.wait(&keys(&["a"])));
        let (other, both) = (local.wait(&keys(&["c"])), local.wait(&keys(&["d", "b"])));
        local.ended(Attempt(1), &keys(&["a", "b"]));
        assert!(!local.holds(Attempt(1)));
        tokio::select! {
            biased;
            () = other.released() => panic!("another key"),
            () = first.released() => {}
        }
        tokio::select! {
            biased;
            () = second.released() => panic!("only one is woken"),
            () = both.released() => {}
        }
        drop((first, second, other, both));
        let locks = local.locks();
        assert!(locks.held.is_empty() && locks.queues.is_empty(), "nothing is left");
    }
}
