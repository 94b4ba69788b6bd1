//! The releases that wait until fewer requests are in flight.
//!
//! They are not refused, because a sender may not repeat them: the keys would stay until their TTL has passed. Each one follows an
//! acquire, so they are at most as many as the leases.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::time::Time;
use crate::wire::batch::Asked;

/// Waiting releases. Those that wait longest are sent first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Releases<K, R> {
    /// By the time at which their sender gives up, and a number.
    waiting: BTreeMap<(Time, u64), Asked<K, R>>,
    next: u64,
    /// Their senders have given up. A late release is useful.
    late: VecDeque<Asked<K, R>>,
}

impl<K, R> Releases<K, R> {
    pub const EMPTY: Self = Self { waiting: BTreeMap::new(), next: 0, late: VecDeque::new() };

    pub fn push(&mut self, asked: Asked<K, R>) {
        if asked.reply.is_none() {
            return self.late.push_back(asked);
        }
        self.waiting.insert((asked.request.give_up_at, self.next), asked);
        self.next += 1;
    }

    pub fn pop(&mut self) -> Option<Asked<K, R>> {
        self.late.pop_front().or_else(|| self.waiting.pop_first().map(|(_, asked)| asked))
    }

    /// When the first sender gives up.
    pub fn next_expiry(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the receivers of the releases whose sender gives up now. The releases stay.
    pub fn expire(&mut self, now: Time) -> Vec<R> {
        let mut expired = Vec::new();
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let mut asked = first.remove();
            expired.extend(asked.reply.take());
            self.late.push_back(asked);
        }
        expired
    }
}
