//! Gathers requests, so that a server executes many of them in one call.
//!
//! A call costs a server as much as several requests in it: it wakes up, reads and writes. So requests wait while they are
//! fewer than half of the requests in flight, for 2 ms at most. Without requests in flight, or with a few, a request is sent
//! at once. Requests about one lease keep their order.

use alloc::vec::Vec;

use crate::op::Attempt;
use crate::time::Time;
use crate::wire::batch::{Asked, Request};
use crate::wire::limits::{Limits, apart};

/// The requests of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List<K, R> {
    asked: Vec<Asked<K, R>>,
    /// How many keys they have together.
    keys: usize,
}

impl<K, R> List<K, R> {
    const EMPTY: Self = Self { asked: Vec::new(), keys: 0 };

    fn fits(&self, request: &Request<K>, limits: &Limits) -> bool {
        let Some(first) = self.asked.first() else { return true };
        let near = apart(first.request.give_up_at, request.give_up_at) <= limits.deadlines;
        near && self.asked.len() < limits.requests && self.keys + request.keys.len() <= limits.keys
    }

    fn push(&mut self, asked: Asked<K, R>) {
        self.keys += asked.request.keys.len();
        self.asked.push(asked);
    }

    /// The next call is probably as long.
    fn take(&mut self) -> Vec<Asked<K, R>> {
        self.keys = 0;
        let next = Vec::with_capacity(self.asked.len());
        core::mem::replace(&mut self.asked, next)
    }
}

/// Requests for votes that are not sent yet, other than extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gathered<K, R> {
    /// Seals and releases. They are sent before `votes`: a lease that is released and acquired again is free.
    ends: List<K, R>,
    votes: List<K, R>,
    /// When the first of them was gathered.
    since: Option<Time>,
}

impl<K, R> Gathered<K, R> {
    pub const EMPTY: Self = Self { ends: List::EMPTY, votes: List::EMPTY, since: None };

    /// Adds a request. Returns the calls that must be sent before it is gathered with others.
    pub fn push(&mut self, now: Time, asked: Asked<K, R>, limits: &Limits) -> Vec<Vec<Asked<K, R>>> {
        let ends = asked.request.op.is_end();
        // A release must not overtake its acquire.
        let overtakes = ends && self.votes.asked.iter().any(|earlier| earlier.attempt() == asked.attempt());
        let list = if ends { &self.ends } else { &self.votes };
        let before = if overtakes || !list.fits(&asked.request, limits) { self.take() } else { Vec::new() };
        self.since.get_or_insert(now);
        let list = if ends { &mut self.ends } else { &mut self.votes };
        list.push(asked);
        before
    }

    /// Whether a request of `attempt` is gathered.
    pub fn holds(&self, attempt: Attempt) -> bool {
        self.ends.asked.iter().chain(&self.votes.asked).any(|asked| asked.attempt() == attempt)
    }

    /// How many requests are gathered.
    pub const fn len(&self) -> usize {
        self.ends.asked.len() + self.votes.asked.len()
    }

    /// Whether the gathered requests should be sent although [`Gathered::waits_until`] has not passed, while `in_flight` others
    /// have no answer yet.
    pub const fn is_due(&self, in_flight: usize, limits: &Limits) -> bool {
        self.len() > 0 && self.len() >= in_flight / limits.part
    }

    /// When the gathered requests are sent at the latest.
    pub fn waits_until(&self, limits: &Limits) -> Option<Time> {
        self.since.map(|since| since + limits.wait)
    }

    /// The calls to send, in order.
    pub fn take(&mut self) -> Vec<Vec<Asked<K, R>>> {
        self.since = None;
        let all = [self.ends.take(), self.votes.take()];
        all.into_iter().filter(|call| !call.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;
    use crate::wire::samples::{self, asked, confirm, release};

    const NOW: Time = Time(100);
    const LIMITS: Limits = Limits::STANDARD;

    fn attempts(calls: &[Vec<Asked<usize, u128>>]) -> Vec<Vec<u128>> {
        calls.iter().map(|call| samples::attempts(call)).collect()
    }

    #[test]
    fn ends_go_first_and_both_kinds_keep_their_order() {
        let mut gathered = Gathered::EMPTY;
        for op in [confirm(1), release(2), confirm(3), release(4)] {
            assert!(gathered.push(NOW, asked(op, 1, 500), &LIMITS).is_empty());
        }
        assert_eq!(attempts(&gathered.take()), [[2, 4], [1, 3]]);
        assert!(gathered.take().is_empty());
    }

    #[test]
    fn requests_wait_only_while_many_others_are_in_flight() {
        let mut gathered = Gathered::EMPTY;
        assert!(!gathered.is_due(0, &LIMITS) && gathered.waits_until(&LIMITS).is_none(), "nothing to send");
        gathered.push(NOW, asked(confirm(1), 1, 500), &LIMITS);
        assert!(gathered.is_due(0, &LIMITS) && gathered.is_due(3, &LIMITS), "one of a few");
        assert!(!gathered.is_due(4, &LIMITS));
        gathered.push(NOW + Millis(1), asked(release(2), 1, 460), &LIMITS);
        assert!(gathered.is_due(4, &LIMITS) && !gathered.is_due(6, &LIMITS));
        assert_eq!(
            gathered.waits_until(&LIMITS),
            Some(NOW + LIMITS.wait),
            "the first one waits no longer for the second"
        );
        gathered.take();
        assert_eq!(gathered.waits_until(&LIMITS), None);
    }

    #[test]
    fn a_release_does_not_overtake_its_acquire() {
        let mut gathered = Gathered::EMPTY;
        gathered.push(NOW, asked(release(9), 1, 500), &LIMITS);
        gathered.push(NOW, asked(confirm(1), 1, 500), &LIMITS);
        assert_eq!(attempts(&gathered.push(NOW, asked(release(1), 1, 500), &LIMITS)), [[9], [1]]);
        assert_eq!(attempts(&gathered.take()), [[1]]);
    }

    #[test]
    fn many_requests_many_keys_and_distant_deadlines_begin_another_call() {
        let mut gathered = Gathered::EMPTY;
        for attempt in 0..128 {
            assert!(gathered.push(NOW, asked(confirm(attempt), 1, 500), &LIMITS).is_empty());
        }
        assert_eq!(gathered.push(NOW, asked(confirm(128), 1, 500), &LIMITS)[0].len(), 128);
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(129), 200, 500), &LIMITS)), [[128]]);
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(130), 1, 500), &LIMITS)), [[129]]);
        assert!(gathered.push(NOW, asked(confirm(131), 1, 550), &LIMITS).is_empty());
        assert_eq!(attempts(&gathered.push(NOW, asked(confirm(132), 1, 449), &LIMITS)), [[130, 131]]);
    }
}
