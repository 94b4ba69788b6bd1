//! The durations of a lock, checked with the names of the options.

use std::time::Duration;

use crate::clock::KILL_MARGIN;

/// The durations of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub ttl: Duration,
    pub renew_every: Duration,
    pub grace: Duration,
    /// The stop signal is sent so long before the lock expires.
    pub stop_budget: Duration,
}

impl Timing {
    /// # Errors
    /// The durations do not fit. The text says which would.
    pub fn of(
        ttl: Duration,
        renew_every: Option<Duration>,
        grace: Duration,
        longest: Duration,
    ) -> Result<Self, String> {
        if ttl > longest {
            return Err(format!(
                "--ttl {ttl:?} is longer than --longest-lease {longest:?}: use a shorter ttl, or a longer longest lease in all \
                 programs on these servers"
            ));
        }
        let stop_budget = grace.saturating_add(KILL_MARGIN);
        let renew = renew_every.unwrap_or(ttl.saturating_sub(stop_budget) / 3);
        let fits = |renew: Duration| renew.saturating_mul(2).saturating_add(stop_budget) < valid(ttl);
        if renew < Duration::from_millis(1) || !fits(renew) {
            return Err(format!(
                "--ttl {ttl:?} has no room for two renewals{} and --grace {grace:?}: use a ttl of at least {:?}, or a shorter grace \
                 period{}",
                renew_every.map(|renew| format!(" of --renew-every {renew:?}")).unwrap_or_default(),
                shortest(renew_every, stop_budget),
                renew_every.map_or("", |_| " or interval"),
            ));
        }
        Ok(Self { ttl, renew_every: renew, grace, stop_budget })
    }
}

/// How long a lock is certainly valid: the clocks of the servers may be 1 % faster.
fn valid(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100).saturating_sub(Duration::from_millis(52))
}

/// The shortest ttl that fits, in whole seconds.
fn shortest(renew_every: Option<Duration>, stop_budget: Duration) -> Duration {
    let fits = |ttl: Duration| {
        let renew = renew_every.unwrap_or(ttl.saturating_sub(stop_budget) / 3);
        renew.saturating_mul(2).saturating_add(stop_budget) < valid(ttl)
    };
    // Every longer one fits too.
    let (mut short, mut long) = (0, u64::MAX / 2);
    while short + 1 < long {
        let middle = short.midpoint(long);
        if fits(Duration::from_secs(middle)) { long = middle } else { short = middle }
    }
    Duration::from_secs(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn defaults_fit() {
        let timing = Timing::of(s(30), None, s(10), s(30)).unwrap();
        assert_eq!((timing.stop_budget, timing.renew_every), (s(11), s(19) / 3));
    }

    #[test]
    fn an_error_names_a_ttl_that_fits() {
        let error = Timing::of(s(10), None, s(10), s(30)).unwrap_err();
        assert!(error.contains("--ttl 10s") && error.contains("at least 12s"), "{error}");
        assert!(Timing::of(s(12), None, s(10), s(30)).is_ok() && Timing::of(s(11), None, s(10), s(30)).is_err());
        let error = Timing::of(s(20), Some(s(8)), s(5), s(30)).unwrap_err();
        assert!(error.contains("--renew-every 8s") && error.contains("at least 23s"), "{error}");
        assert!(Timing::of(s(40), None, s(10), s(30)).unwrap_err().contains("--longest-lease 30s"));
        assert!(Timing::of(s(1), None, s(0), s(30)).is_err());
        let century = Duration::from_hours(876_000);
        assert!(Timing::of(s(30), Some(century), Duration::MAX, s(30)).is_err());
    }
}
