//! The rate of calls.

use redislease_core::time::{Millis, Time};

/// How many calls may start in a second, over time.
pub(super) const RATE: u32 = 2000;
/// How many calls may start at once after a pause.
pub(super) const BURST: u32 = 100;

/// A token bucket: limits how many calls start in a second.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// In thousandths of a call.
    level: u64,
    at: Time,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { level: Self::FULL, at: Time(0) }
    }
}

impl Bucket {
    const ONE: u64 = 1000;
    const FULL: u64 = Self::ONE * BURST as u64;

    fn refill(&mut self, now: Time) {
        let refill = now.since(self.at).0.saturating_mul(u64::from(RATE));
        self.level = self.level.saturating_add(refill).min(Self::FULL);
        self.at = self.at.max(now);
    }

    pub fn has_one(&mut self, now: Time) -> bool {
        self.refill(now);
        self.level >= Self::ONE
    }

    pub fn take(&mut self, now: Time) {
        self.refill(now);
        self.level = self.level.saturating_sub(Self::ONE);
    }

    /// A call that was taken did not start.
    pub fn give_back(&mut self) {
        self.level = self.level.saturating_add(Self::ONE).min(Self::FULL);
    }

    /// When the next call may begin.
    pub fn refilled_at(&self) -> Time {
        let missing = Self::ONE.saturating_sub(self.level);
        self.at + Millis(missing.div_ceil(u64::from(RATE)))
    }
}
