//! Batches the extensions that wait for one node.
//!
//! Most requests to a node are renewals. Those that are due together are sent in calls of about a hundred leases, and
//! only a few of these calls are in flight at a time, so that other requests and marker reads wait for only a few calls.
//! Requests about one lease keep their order: before any other request about a lease is sent, its waiting extension is
//! sent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use redislease_core::op::{Attempt, Token};
use redislease_core::time::{Millis, Time};

use super::request::Reply;
use super::script::Extension;

/// How many leases one call extends at most.
const LEASES: usize = 100;
/// How many keys one call extends at most, unless one lease has more.
const KEYS: usize = 200;
/// How many calls are in flight at most. A server needs about 0.25 ms for a call, so a later request waits for a few
/// milliseconds; with a network latency of 50 ms they extend 32,000 leases a second.
pub(super) const CALLS: usize = 16;
/// The maximum difference between the deadlines of the leases of one call: the server uses the earliest for all.
const DEADLINES: Millis = Millis(50);

/// One lease to extend.
#[derive(Debug)]
pub(super) struct Extend {
    pub keys: Arc<[String]>,
    pub attempt: Attempt,
    pub token: Token,
    pub ttl: Millis,
    pub give_up_at: Time,
    /// Dropped when the sender gave up.
    pub reply: Option<Reply>,
}

impl Extend {
    pub fn extension(&self) -> Extension<'_> {
        Extension { keys: &self.keys, attempt: self.attempt, token: self.token, ttl: self.ttl }
    }
}

/// The waiting extensions of one node, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Extends {
    /// `None` if it was sent out of turn.
    queue: VecDeque<Option<Extend>>,
    /// The sequence number of the first entry; numbers are never reused.
    first: u64,
    numbers: HashMap<Attempt, u64>,
    /// How many entries give up at each time.
    expiries: BTreeMap<Time, usize>,
    /// Calls without an answer.
    pub under_way: usize,
}

impl Extends {
    pub fn push(&mut self, extend: Extend) {
        *self.expiries.entry(extend.give_up_at).or_default() += 1;
        self.numbers.insert(extend.attempt, self.first + self.queue.len() as u64);
        self.queue.push_back(Some(extend));
    }

    /// Takes the waiting extension of `attempt`, to send it out of turn.
    pub fn take(&mut self, attempt: Attempt) -> Option<Extend> {
        let number = *self.numbers.get(&attempt)?;
        let place = usize::try_from(number - self.first).ok()?;
        let extend = self.queue.get_mut(place)?.take()?;
        self.removed(&extend, number);
        Some(extend)
    }

    /// The leases of the next call, if one may be sent.
    pub fn next_call(&mut self) -> Option<Vec<Extend>> {
        if self.under_way >= CALLS {
            return None;
        }
        let mut call: Vec<Extend> = Vec::new();
        let mut keys = 0;
        while let Some(next) = self.queue.front() {
            if let (Some(next), Some(first)) = (next, call.first()) {
                let apart = next.give_up_at.since(first.give_up_at).max(first.give_up_at.since(next.give_up_at));
                if call.len() == LEASES || keys + next.keys.len() > KEYS || apart > DEADLINES {
                    break;
                }
            }
            let number = self.first;
            self.first += 1;
            if let Some(next) = self.queue.pop_front().flatten() {
                self.removed(&next, number);
                keys += next.keys.len();
                call.push(next);
            }
        }
        (!call.is_empty()).then_some(call)
    }

    fn removed(&mut self, extend: &Extend, number: u64) {
        if self.numbers.get(&extend.attempt) == Some(&number) {
            self.numbers.remove(&extend.attempt);
        }
        if let Some(count) = self.expiries.get_mut(&extend.give_up_at) {
            *count -= 1;
            if *count == 0 {
                self.expiries.remove(&extend.give_up_at);
            }
        }
    }

    /// When the first entry gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.first_key_value().map(|(at, _)| *at)
    }

    /// Removes the entries that have given up.
    pub fn expire(&mut self, now: Time) -> Vec<Extend> {
        let mut expired = Vec::new();
        if self.next_expiry().is_none_or(|at| now < at) {
            return expired;
        }
        for place in 0..self.queue.len() {
            let over = |extend: &mut Extend| extend.give_up_at <= now;
            if let Some(extend) = self.queue[place].take_if(over) {
                self.removed(&extend, self.first + place as u64);
                expired.push(extend);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extend(attempt: u128, keys: usize, give_up_at: u64) -> Extend {
        Extend {
            keys: (0..keys).map(|key| format!("{attempt}-{key}")).collect(),
            attempt: Attempt(attempt),
            token: Token(1),
            ttl: Millis(1000),
            give_up_at: Time(give_up_at),
            reply: None,
        }
    }

    fn attempts(call: Option<Vec<Extend>>) -> Vec<u128> {
        call.unwrap_or_default().iter().map(|extend| extend.attempt.0).collect()
    }

    #[test]
    fn calls_take_a_hundred_leases_in_order() {
        let mut extends = Extends::default();
        for attempt in 0..250 {
            extends.push(extend(attempt, 1, 500));
        }
        assert_eq!(attempts(extends.next_call()), (0..100).collect::<Vec<_>>());
        assert_eq!(attempts(extends.next_call()), (100..200).collect::<Vec<_>>());
        extends.under_way = CALLS;
        assert!(extends.next_call().is_none(), "the limit of calls in flight is reached");
        extends.under_way = CALLS - 1;
        assert_eq!(attempts(extends.next_call()), (200..250).collect::<Vec<_>>());
        assert!(extends.next_call().is_none() && extends.next_expiry().is_none());
    }

    #[test]
    fn many_keys_and_distant_deadlines_end_a_call() {
        let mut extends = Extends::default();
        for (attempt, keys, give_up_at) in [(1, 150, 500), (2, 50, 500), (3, 1, 500), (4, 300, 551), (5, 1, 480)] {
            extends.push(extend(attempt, keys, give_up_at));
        }
        assert_eq!(attempts(extends.next_call()), [1, 2]);
        assert_eq!(attempts(extends.next_call()), [3]);
        assert_eq!(attempts(extends.next_call()), [4], "more keys than a call takes");
        assert_eq!(attempts(extends.next_call()), [5]);
    }

    #[test]
    fn one_extension_is_taken_out_of_turn() {
        let mut extends = Extends::default();
        for attempt in 0..4 {
            extends.push(extend(attempt, 1, 500));
        }
        assert_eq!(extends.take(Attempt(2)).map(|extend| extend.attempt), Some(Attempt(2)));
        assert!(extends.take(Attempt(2)).is_none() && extends.take(Attempt(9)).is_none());
        assert_eq!(attempts(extends.next_call()), [0, 1, 3]);
        assert!(extends.take(Attempt(3)).is_none(), "it was sent");
        extends.push(extend(7, 1, 500));
        assert!(extends.take(Attempt(7)).is_some());
        assert!(extends.next_call().is_none());
    }

    #[test]
    fn each_gives_up_at_its_own_time() {
        let mut extends = Extends::default();
        for (attempt, give_up_at) in [(1, 500), (2, 400), (3, 500), (4, 400)] {
            extends.push(extend(attempt, 1, give_up_at));
        }
        extends.take(Attempt(4));
        assert_eq!(extends.next_expiry(), Some(Time(400)));
        assert!(extends.expire(Time(399)).is_empty());
        assert_eq!(attempts(Some(extends.expire(Time(400)))), [2]);
        assert_eq!(extends.next_expiry(), Some(Time(500)));
        assert_eq!(attempts(extends.next_call()), [1, 3]);
        assert_eq!(extends.next_expiry(), None);
    }
}
