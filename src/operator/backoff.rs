//! How long a task of the operator waits after a failure before it tries again.

use std::time::Duration;

use redislease_core::backoff::{Backoff as Policy, Entropy, Strategy};
use redislease_core::time::Millis;

/// The library's own pause grows to half a minute, and a failover would wait for it.
const POLICY: Policy =
    Policy { strategy: Strategy::Exponential, min: Millis(100), max: Millis(3000), limit: None, jitter: 20 };

/// Of so many failures one is worth a warning.
const WARN_EVERY: u32 = 16;

/// The pause after a failure: doubled up to its longest, and short again after a success.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after a failure, and whether the failure is worth a warning: the first one since a success, and then about
    /// one in a minute. `random` moves the pause by its jitter.
    pub fn failed(&mut self, random: u64) -> (Duration, bool) {
        let warn = self.failures.is_multiple_of(WARN_EVERY);
        self.failures = self.failures.saturating_add(1);
        (POLICY.jittered(self.failures, Entropy(random)).into(), warn)
    }

    /// There was a success. Whether there had been failures.
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
