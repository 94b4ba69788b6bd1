//! The backoff of an operator task after a failure.

use std::time::{Duration, Instant};

use redislease_core::backoff::{Backoff as Policy, Entropy};

/// kube-runtime's default backoff grows to 30 s and would delay a failover by that much.
const POLICY: Policy = Policy::exponential(100, 3000, 20);

/// One of this many failures is logged as a warning.
const WARN_EVERY: u32 = 16;

/// How long a watch must work after a list or a failure before the backoff begins again with its shortest pause: longer than all
/// pauses.
const CALM: Duration = Duration::from_secs(10);

/// A backoff that doubles with each failure up to a maximum. A success resets it, and so does a list after which the watch works.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// The last failure, or the list after it.
    last: Option<Instant>,
    /// Whether a failure was logged as a warning since the last recovery.
    warned: bool,
}

impl Backoff {
    /// Returns the pause after a failure, and whether to log the failure as a warning: the first failure since a success,
    /// and then about one a minute. `random` sets the jitter of the pause.
    pub fn failed(&mut self, now: Instant, random: u64) -> (Duration, bool) {
        if self.last.replace(now).is_some_and(|last| now.duration_since(last) >= CALM) {
            self.failures = 0;
        }
        let warn = self.failures.is_multiple_of(WARN_EVERY);
        self.warned |= warn;
        self.failures = self.failures.saturating_add(1);
        (POLICY.jittered(self.failures, Entropy(random)).into(), warn)
    }

    /// Records a complete list. The API server may refuse the watch that follows: then the next list must not come at once. Returns
    /// whether to log the recovery from the failures before it.
    pub const fn listed(&mut self, now: Instant) -> bool {
        self.last = Some(now);
        std::mem::replace(&mut self.warned, false)
    }

    /// Records a success. Returns whether to log the recovery from the failures before it.
    pub const fn succeeded(&mut self) -> bool {
        (self.failures, self.last) = (0, None);
        std::mem::replace(&mut self.warned, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u64 = u64::MAX / 2 + 1;

    #[test]
    fn the_pause_doubles_until_there_is_a_success() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        assert!(!backoff.succeeded());
        let failed: Vec<(u128, bool)> =
            (0..20).map(|_| backoff.failed(now, MIDDLE)).map(|(pause, warn)| (pause.as_millis(), warn)).collect();
        let pauses: Vec<u128> = failed.iter().take(7).map(|(pause, _)| *pause).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3000, 3000]);
        let warned: Vec<usize> = failed.iter().enumerate().filter(|(_, (_, warn))| *warn).map(|(at, _)| at).collect();
        assert_eq!(warned, [0, 16]);
        assert!(backoff.succeeded() && !backoff.succeeded());
        assert_eq!(backoff.failed(now, 0), (Duration::from_millis(80), true));
    }

    /// While it reads its objects from etcd, the API server serves lists and refuses watches.
    #[test]
    fn a_list_resets_the_pause_if_the_watch_works_after_it() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        for pause in [100, 200, 400, 800] {
            assert_eq!(backoff.failed(now, MIDDLE).0, Duration::from_millis(pause));
            now += CALM.saturating_sub(Duration::from_millis(1));
            assert_eq!(backoff.listed(now), pause == 100, "it is logged once for each warning");
        }
        assert_eq!(backoff.failed(now + CALM, MIDDLE), (Duration::from_millis(100), true));
    }
}
