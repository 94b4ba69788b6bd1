//! The calls without an answer on one connection, in the order of sending, and when the senders of their requests give up.

use alloc::collections::{BTreeSet, VecDeque};

use crate::time::Time;
use crate::wire::batch::{Call, Sent};

/// Calls in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InFlight<K, R, C> {
    calls: VecDeque<Sent<K, R, C>>,
    next: u64,
    /// When the senders of the requests in flight give up; for a batch, the earliest of them.
    give_up: BTreeSet<(Time, u64)>,
    /// How many requests are in flight, extensions not counted.
    pub requests: usize,
    /// How many calls with extensions are in flight.
    pub extends: usize,
}

impl<K, R, C> InFlight<K, R, C> {
    pub const EMPTY: Self = Self { calls: VecDeque::new(), next: 0, give_up: BTreeSet::new(), requests: 0, extends: 0 };

    /// Adds a call behind the others. Returns its number.
    pub fn push(&mut self, at: Time, call: Call<K, R, C>, give_up_at: Option<Time>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.count(&call, 1);
        self.give_up.extend(give_up_at.map(|at| (at, id)));
        self.calls.push_back(Sent { id, at, call, give_up_at });
        id
    }

    fn count(&mut self, call: &Call<K, R, C>, by: isize) {
        match call {
            Call::Batch(batch) if batch.extends() => self.extends = self.extends.saturating_add_signed(by),
            Call::Batch(batch) => {
                let by = by * isize::try_from(batch.asked.len()).unwrap_or(0);
                self.requests = self.requests.saturating_add_signed(by);
            }
            Call::Admission(_) | Call::Own(_) => {}
        }
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.calls.binary_search_by_key(&id, |sent| sent.id).ok()
    }

    pub fn get(&self, id: u64) -> Option<&Sent<K, R, C>> {
        self.calls.get(self.place(id)?)
    }

    pub fn oldest(&self) -> Option<&Sent<K, R, C>> {
        self.calls.front()
    }

    /// Removes a call that was answered.
    pub fn take(&mut self, id: u64) -> Option<Call<K, R, C>> {
        let Sent { call, give_up_at, .. } = self.calls.remove(self.place(id)?)?;
        self.count(&call, -1);
        if let Some(at) = give_up_at {
            self.give_up.remove(&(at, id));
        }
        Some(call)
    }

    /// Removes the oldest call, when the connection ends.
    pub fn take_oldest(&mut self) -> Option<Call<K, R, C>> {
        self.take(self.oldest()?.id)
    }

    /// When the first sender gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        self.give_up.first().map(|(at, _)| *at)
    }

    /// Takes the receivers of the requests whose sender has given up.
    pub fn expire(&mut self, now: Time, mut expired: impl FnMut(R)) {
        while let Some(&(at, id)) = self.give_up.first()
            && at <= now
        {
            self.give_up.pop_first();
            let Some(place) = self.place(id) else { continue };
            let Sent { call: Call::Batch(batch), give_up_at, .. } = &mut self.calls[place] else { continue };
            *give_up_at = None;
            for asked in &mut batch.asked {
                let at = asked.request.give_up_at;
                if at <= now {
                    asked.reply.take().into_iter().for_each(&mut expired);
                } else if asked.reply.is_some() && give_up_at.is_none_or(|earlier| at < earlier) {
                    *give_up_at = Some(at);
                }
            }
            self.give_up.extend(give_up_at.map(|at| (at, id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::samples::{asked, batch, confirm, extend};
    use alloc::vec::Vec;

    type Calls = InFlight<usize, u128, ()>;

    #[test]
    fn requests_and_calls_with_extensions_are_counted_until_they_are_answered() {
        let mut calls = Calls::EMPTY;
        let counts = |calls: &Calls| (calls.requests, calls.extends);
        let confirms = calls.push(Time(1), batch([1, 2, 3].map(|attempt| asked(confirm(attempt), 1, 500))), None);
        let extends = calls.push(Time(1), batch([4, 5].map(|attempt| asked(extend(attempt), 1, 500))), None);
        calls.push(Time(1), Call::Own(()), None);
        assert_eq!(counts(&calls), (3, 1));
        calls.take(extends);
        assert_eq!(counts(&calls), (3, 0));
        calls.take(confirms);
        assert_eq!(counts(&calls), (0, 0));
    }

    #[test]
    fn the_next_expiry_of_a_call_is_the_earliest_of_the_senders_that_still_wait() {
        let mut calls = Calls::EMPTY;
        let waiting = [100, 300, 200, 400].map(|at| asked(confirm(at.into()), 1, at));
        let id = calls.push(Time(1), batch(waiting), Some(Time(100)));
        let mut expired = Vec::new();
        for (now, next) in [(100, Some(200)), (200, Some(300)), (400, None)] {
            calls.expire(Time(now), |reply| expired.push(reply));
            assert_eq!(calls.next_expiry(), next.map(Time), "at {now}");
        }
        assert_eq!(expired, [100, 200, 300, 400]);
        assert!(calls.get(id).is_some(), "its answer is still to come");
    }
}
