//! Batches the extensions that wait for one node.
//!
//! Most requests to a node are renewals. Those that are due together are sent in calls of about a hundred leases, and
//! only a few of these calls are in flight at a time, so that other requests and marker reads wait for only a few calls.
//! Requests about one lease keep their order: before any other request about a lease is sent, its waiting extension is
//! sent.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::op::Attempt;
use crate::time::Time;
use crate::wire::batch::Asked;
use crate::wire::limits::{Limits, apart};

/// How many lists the waiting extensions are divided into, to find the one of an attempt.
const LISTS: usize = 1024;

/// A waiting extension.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting<K, R> {
    /// `None` if it was sent out of turn.
    asked: Option<Asked<K, R>>,
    /// The number of the entry before it in its list.
    before: u64,
}

/// The waiting extensions of one node, in the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extends<K, R> {
    queue: VecDeque<Waiting<K, R>>,
    /// The sequence number of the first entry; numbers are never reused.
    first: u64,
    /// The number of the last entry of each list. Attempts are random, so their last bits choose the list.
    lists: Vec<u64>,
    /// How many entries give up at each time.
    expiries: BTreeMap<Time, usize>,
}

impl<K, R> Extends<K, R> {
    pub const EMPTY: Self = Self { queue: VecDeque::new(), first: 1, lists: Vec::new(), expiries: BTreeMap::new() };

    #[allow(clippy::cast_possible_truncation, reason = "the last bits")]
    const fn list_of(attempt: Attempt) -> usize {
        attempt.0 as usize % LISTS
    }

    pub fn push(&mut self, asked: Asked<K, R>) {
        if self.lists.is_empty() {
            self.lists = vec![0; LISTS];
        }
        *self.expiries.entry(asked.request.give_up_at).or_default() += 1;
        let number = self.first + self.queue.len() as u64;
        let before = core::mem::replace(&mut self.lists[Self::list_of(asked.attempt())], number);
        self.queue.push_back(Waiting { asked: Some(asked), before });
    }

    /// Takes the waiting extension of `attempt`, to send it out of turn.
    pub fn take(&mut self, attempt: Attempt) -> Option<Asked<K, R>> {
        let mut number = *self.lists.get(Self::list_of(attempt))?;
        while let Some(place) = number.checked_sub(self.first) {
            let entry = self.queue.get_mut(usize::try_from(place).ok()?)?;
            if let Some(asked) = entry.asked.take_if(|asked| asked.attempt() == attempt) {
                self.removed(asked.request.give_up_at);
                return Some(asked);
            }
            number = entry.before;
        }
        None
    }

    /// The leases of the next call, if one may be sent while `in_flight` calls have no answer.
    pub fn next_call(&mut self, in_flight: usize, limits: &Limits) -> Option<Vec<Asked<K, R>>> {
        if in_flight >= limits.calls {
            return None;
        }
        let mut call: Vec<Asked<K, R>> = Vec::new();
        let mut keys = 0;
        while let Some(next) = self.queue.front() {
            if let (Some(next), Some(first)) = (&next.asked, call.first()) {
                let apart = apart(next.request.give_up_at, first.request.give_up_at);
                let many = call.len() == limits.leases || keys + next.request.keys.len() > limits.keys;
                if many || apart > limits.deadlines {
                    break;
                }
            }
            self.first += 1;
            if let Some(next) = self.queue.pop_front().and_then(|entry| entry.asked) {
                self.removed(next.request.give_up_at);
                keys += next.request.keys.len();
                call.push(next);
            }
        }
        (!call.is_empty()).then_some(call)
    }

    fn removed(&mut self, give_up_at: Time) {
        if let Some(count) = self.expiries.get_mut(&give_up_at) {
            *count -= 1;
            if *count == 0 {
                self.expiries.remove(&give_up_at);
            }
        }
    }

    /// When the first entry gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.first_key_value().map(|(at, _)| *at)
    }

    /// Removes the entries that have given up.
    pub fn expire(&mut self, now: Time) -> Vec<Asked<K, R>> {
        let mut expired = Vec::new();
        if self.next_expiry().is_none_or(|at| now < at) {
            return expired;
        }
        for place in 0..self.queue.len() {
            if let Some(asked) = self.queue[place].asked.take_if(|asked| asked.is_over(now)) {
                self.removed(asked.request.give_up_at);
                expired.push(asked);
            }
        }
        expired
    }

    /// All entries, when the connection ends.
    pub fn take_all(&mut self) -> impl Iterator<Item = Asked<K, R>> {
        core::mem::replace(self, Self::EMPTY).queue.into_iter().filter_map(|entry| entry.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::samples::{self, asked, extend};

    const LIMITS: Limits = Limits::STANDARD;

    fn attempts(call: Option<Vec<Asked<usize, u128>>>) -> Vec<u128> {
        samples::attempts(&call.unwrap_or_default())
    }

    #[test]
    fn calls_take_a_hundred_leases_in_order() {
        let mut extends = Extends::EMPTY;
        for attempt in 0..250 {
            extends.push(asked(extend(attempt), 1, 500));
        }
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), (0..100).collect::<Vec<_>>());
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), (100..200).collect::<Vec<_>>());
        assert!(extends.next_call(LIMITS.calls, &LIMITS).is_none(), "the limit of calls in flight is reached");
        assert_eq!(attempts(extends.next_call(LIMITS.calls - 1, &LIMITS)), (200..250).collect::<Vec<_>>());
        assert!(extends.next_call(0, &LIMITS).is_none() && extends.next_expiry().is_none());
    }

    #[test]
    fn many_keys_and_distant_deadlines_end_a_call() {
        let mut extends = Extends::EMPTY;
        let waiting = [(1, 150, 500), (2, 50, 550), (3, 1, 500), (4, 300, 500), (5, 1, 480), (6, 1, 531)];
        for (attempt, keys, give_up_at) in waiting {
            extends.push(asked(extend(attempt), keys, give_up_at));
        }
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [1, 2], "their deadlines are 50 ms apart");
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [3]);
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [4], "more keys than a call takes");
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [5], "51 ms before the next");
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [6]);
    }

    #[test]
    fn an_extension_behind_a_call_that_was_sent_is_found_by_any_attempt() {
        let limits = Limits { leases: 1, ..LIMITS };
        let mut extends = Extends::EMPTY;
        for attempt in [1, u128::MAX] {
            extends.push(asked(extend(attempt), 1, 500));
        }
        assert_eq!(attempts(extends.next_call(0, &limits)), [1]);
        assert_eq!(extends.take(Attempt(u128::MAX)).map(|extend| extend.attempt()), Some(Attempt(u128::MAX)));
    }

    #[test]
    fn one_extension_is_taken_out_of_turn() {
        let mut extends = Extends::EMPTY;
        for attempt in 0..4 {
            extends.push(asked(extend(attempt), 1, 500));
        }
        assert_eq!(extends.take(Attempt(2)).map(|extend| extend.attempt()), Some(Attempt(2)));
        assert!(extends.take(Attempt(2)).is_none() && extends.take(Attempt(9)).is_none());
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [0, 1, 3]);
        assert!(extends.take(Attempt(3)).is_none(), "it was sent");
        extends.push(asked(extend(7), 1, 500));
        extends.push(asked(extend(7 + LISTS as u128), 1, 500));
        assert!(extends.take(Attempt(7)).is_some() && extends.take(Attempt(7 + LISTS as u128)).is_some());
        assert!(extends.next_call(0, &LIMITS).is_none());
    }

    #[test]
    fn each_gives_up_at_its_own_time() {
        let mut extends = Extends::EMPTY;
        for (attempt, give_up_at) in [(1, 500), (2, 400), (3, 500), (4, 400)] {
            extends.push(asked(extend(attempt), 1, give_up_at));
        }
        extends.take(Attempt(4));
        assert_eq!(extends.next_expiry(), Some(Time(400)));
        assert!(extends.expire(Time(399)).is_empty());
        assert_eq!(attempts(Some(extends.expire(Time(400)))), [2]);
        assert_eq!(extends.next_expiry(), Some(Time(500)));
        assert_eq!(attempts(extends.next_call(0, &LIMITS)), [1, 3]);
        assert_eq!(extends.next_expiry(), None);
        extends.push(asked(extend(5), 1, 600));
        assert_eq!(attempts(Some(extends.expire(Time(700)))), [5], "the machine was woken late");
    }
}
