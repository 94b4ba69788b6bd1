//! One deadline for each key: of leases, workloads, calls.

use redislease_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// One deadline for each key.
#[derive(Debug)]
pub struct Timers<K> {
    queue: BTreeSet<(Time, K)>,
    by_key: BTreeMap<K, Time>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Clone + Ord> Timers<K> {
    /// Sets the deadline of a key; `None` removes it.
    pub fn set(&mut self, key: K, at: Option<Time>) {
        let before = match at {
            Some(at) => self.by_key.insert(key.clone(), at),
            None => self.by_key.remove(&key),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.queue.insert((at, key));
        }
    }

    /// The deadline of a key.
    pub fn get(&self, key: &K) -> Option<Time> {
        self.by_key.get(key).copied()
    }

    /// The first deadline.
    pub fn first(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Returns a key whose deadline has passed, and removes the deadline.
    pub fn expired(&mut self, now: Time) -> Option<K> {
        let (at, key) = self.queue.first()?;
        if now < *at {
            return None;
        }
        let key = key.clone();
        self.set(key.clone(), None);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deadline_of_a_lease_counts() {
        let mut timers = Timers::default();
        timers.set(1, Some(Time(50)));
        timers.set(2, Some(Time(20)));
        timers.set(1, Some(Time(10)));
        assert_eq!((timers.first(), timers.expired(Time(9))), (Some(Time(10)), None));
        assert_eq!(timers.expired(Time(30)), Some(1));
        assert_eq!(timers.expired(Time(30)), Some(2));
        assert_eq!((timers.first(), timers.expired(Time(99))), (None, None));
        timers.set(1, Some(Time(5)));
        timers.set(1, None);
        assert!(timers.queue.is_empty() && timers.by_key.is_empty());
    }
}
