//! The backoff of an operator task after a failure.

use std::time::Duration;

use redislease_core::backoff::{Backoff as Policy, Entropy, Strategy};
use redislease_core::time::Millis;

/// kube-runtime's default backoff grows to 30 s and would delay a failover by that much.
const POLICY: Policy =
    Policy { strategy: Strategy::Exponential, min: Millis(100), max: Millis(3000), limit: None, jitter: 20 };

/// One of this many failures is logged as a warning.
const WARN_EVERY: u32 = 16;

/// A backoff that doubles with each failure up to a maximum. A success resets it.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the pause after a failure, and whether to log the failure as a warning: the first failure since a success,
    /// and then about one a minute. `random` sets the jitter of the pause.
    pub fn failed(&mut self, random: u64) -> (Duration, bool) {
        let warn = self.failures.is_multiple_of(WARN_EVERY);
        self.failures = self.failures.saturating_add(1);
        (POLICY.jittered(self.failures, Entropy(random)).into(), warn)
    }

    /// Records a success. Returns whether there were failures before it.
    pub const fn succeeded(&mut self) -> bool {
        let recovered = self.failures > 0;
        self.failures = 0;
        recovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_there_is_a_success() {
        let mut backoff = Backoff::default();
        assert!(!backoff.succeeded());
        let failed: Vec<(u128, bool)> =
            (0..20).map(|_| backoff.failed(u64::MAX / 2 + 1)).map(|(pause, warn)| (pause.as_millis(), warn)).collect();
        let pauses: Vec<u128> = failed.iter().take(7).map(|(pause, _)| *pause).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3000, 3000]);
        let warned: Vec<usize> = failed.iter().enumerate().filter(|(_, (_, warn))| *warn).map(|(at, _)| at).collect();
        assert_eq!(warned, [0, 16]);
        assert!(backoff.succeeded());
        assert_eq!(backoff.failed(0), (Duration::from_millis(80), true));
    }
}
