//! Clocks that differ from true time by offset and rate, and that can be set and stopped.

/// True time, in microseconds since the start of the run. No simulated process can read it.
pub type Micros = u64;

/// One millisecond of true time.
pub const MILLI: Micros = 1000;
/// One second of true time.
pub const SECOND: Micros = 1_000_000;

/// Rates in millionths of true time. Two clocks at the limits differ by almost one percent, the most that the protocol
/// tolerates.
pub const SLOWEST: u64 = 995_050;
pub const FASTEST: u64 = 1_004_950;
pub const TRUE_RATE: u64 = 1_000_000;

/// One clock: its value at one instant, and its rate since then.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its value at `since`, in microseconds.
    shown: u64,
    since: Micros,
    rate: u64,
}

impl Clock {
    pub const fn new(shown: u64, rate: u64) -> Self {
        Self { shown, since: 0, rate }
    }

    pub fn micros(&self, now: Micros) -> u64 {
        let elapsed = now - self.since;
        if self.rate == TRUE_RATE {
            return self.shown + elapsed;
        }
        self.shown + (u128::from(elapsed) * u128::from(self.rate) / u128::from(TRUE_RATE)) as u64
    }

    pub fn millis(&self, now: Micros) -> u64 {
        self.micros(now) / 1000
    }

    /// The first instant at which it shows `millis`; `u64::MAX` if it stands still before.
    pub fn when(&self, millis: u64) -> Micros {
        let ahead = (millis.saturating_mul(1000)).saturating_sub(self.shown);
        if ahead == 0 {
            return self.since;
        }
        if self.rate == 0 {
            return u64::MAX;
        }
        if self.rate == TRUE_RATE {
            return self.since.saturating_add(ahead);
        }
        let span = (u128::from(ahead) * u128::from(TRUE_RATE)).div_ceil(u128::from(self.rate));
        self.since.saturating_add(u64::try_from(span).unwrap_or(u64::MAX))
    }

    pub const fn rate(&self) -> u64 {
        self.rate
    }

    pub fn set_rate(&mut self, now: Micros, rate: u64) {
        (self.shown, self.since, self.rate) = (self.micros(now), now, rate);
    }

    /// Sets the clock forward or back by this number of microseconds.
    pub fn step(&mut self, now: Micros, by: i64) {
        (self.shown, self.since) = (self.micros(now).saturating_add_signed(by), now);
    }
}
