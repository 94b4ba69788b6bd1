//! A token bucket: how often something may happen.

use redislease_core::time::Time;

/// `BURST` at once after a pause, and one more after each `INTERVAL` of microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket<const BURST: u64, const INTERVAL: u64> {
    /// Until when everything that was taken counts, in microseconds: one interval for each.
    used_until: u64,
}

impl<const BURST: u64, const INTERVAL: u64> Bucket<BURST, INTERVAL> {
    /// From when on `count` more may be taken at once.
    pub const fn available_at(&self, count: u64) -> Time {
        let used_until = self.used_until.saturating_add(count.saturating_mul(INTERVAL));
        Time(used_until.saturating_sub(BURST * INTERVAL).div_ceil(1000))
    }

    /// Whether `count` more may be taken now.
    pub fn has(&self, now: Time, count: u64) -> bool {
        self.available_at(count) <= now
    }

    /// Takes one, also if there is none: then it is missing later.
    pub fn take(&mut self, now: Time) {
        self.used_until = self.used_until.max(now.0.saturating_mul(1000)).saturating_add(INTERVAL);
    }

    /// What was taken did not happen.
    pub const fn give_back(&mut self) {
        self.used_until = self.used_until.saturating_sub(INTERVAL);
    }

    /// Whether nothing that was taken counts any more.
    pub const fn is_full(&self, now: Time) -> bool {
        self.used_until <= now.0.saturating_mul(1000)
    }
}
