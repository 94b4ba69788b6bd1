//! How soon a keeper machine that panicked is started again.

use redislease_core::backoff::Backoff;
use redislease_core::time::{Millis, Time};

/// The pause before a machine that panicked soon after its start is started again. Each start sends requests to all nodes.
const PAUSE: Backoff = Backoff::exponential(1000, 30_000, 0);
/// A machine that ran for this time before it panicked is started again at once.
const RAN: Millis = Millis(60_000);

/// The panics in a row of one keeper machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Restarts {
    started_at: Time,
    panics: u32,
    not_before: Time,
}

impl Restarts {
    pub const fn started(&mut self, now: Time) {
        self.started_at = now;
    }

    /// The machine has panicked. After the first panic it is started again at once.
    pub fn panicked(&mut self, now: Time) {
        self.panics = if now.since(self.started_at) < RAN { self.panics.saturating_add(1) } else { 1 };
        self.not_before = if self.panics == 1 { now } else { now + PAUSE.delay(self.panics - 1) };
    }

    pub fn waits_until(&self, now: Time) -> Option<Time> {
        (now < self.not_before).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_in_a_row_delay_the_next_start() {
        let mut restarts = Restarts::default();
        let mut now = Time(1000);
        for pause in [0, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            restarts.started(now);
            restarts.panicked(now);
            assert_eq!(restarts.waits_until(now), (pause > 0).then(|| now + Millis(pause)));
            now += Millis(pause);
            assert_eq!(restarts.waits_until(now), None);
        }
        restarts.started(now);
        now += RAN;
        restarts.panicked(now);
        assert_eq!(restarts.waits_until(now), None, "it ran for long enough");
    }
}
