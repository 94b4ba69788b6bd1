//! When each lease must have its next turn.

use redislease_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};

use crate::index::LeaseId;

/// One deadline for each lease.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Time, LeaseId)>,
    by_lease: BTreeMap<LeaseId, Time>,
}

impl Timers {
    /// Sets the deadline of a lease; `None` removes it.
    pub fn set(&mut self, lease: LeaseId, at: Option<Time>) {
        let before = match at {
            Some(at) => self.by_lease.insert(lease, at),
            None => self.by_lease.remove(&lease),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, lease));
        }
        if let Some(at) = at {
            self.queue.insert((at, lease));
        }
    }

    /// The first deadline.
    pub fn first(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Returns a lease whose deadline has passed, and removes the deadline.
    pub fn expired(&mut self, now: Time) -> Option<LeaseId> {
        let (at, lease) = *self.queue.first()?;
        if now < at {
            return None;
        }
        self.set(lease, None);
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deadline_of_a_lease_counts() {
        let mut timers = Timers::default();
        timers.set(LeaseId(1), Some(Time(50)));
        timers.set(LeaseId(2), Some(Time(20)));
        timers.set(LeaseId(1), Some(Time(10)));
        assert_eq!((timers.first(), timers.expired(Time(9))), (Some(Time(10)), None));
        assert_eq!(timers.expired(Time(30)), Some(LeaseId(1)));
        assert_eq!(timers.expired(Time(30)), Some(LeaseId(2)));
        assert_eq!((timers.first(), timers.expired(Time(99))), (None, None));
        timers.set(LeaseId(1), Some(Time(5)));
        timers.set(LeaseId(1), None);
        assert!(timers.queue.is_empty() && timers.by_lease.is_empty());
    }
}
