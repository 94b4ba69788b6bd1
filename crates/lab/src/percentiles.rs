//! Percentiles of measured durations.

use std::{fmt, time::Duration};

/// Sorted durations; there is at least one.
#[derive(Debug, Clone)]
pub struct Percentiles(Vec<Duration>);

impl Percentiles {
    /// Sorts the durations; `None` when there are none.
    pub fn of(mut durations: Vec<Duration>) -> Option<Self> {
        durations.sort_unstable();
        (!durations.is_empty()).then_some(Self(durations))
    }

    /// The smallest measured duration that `percent` of all do not exceed (nearest rank).
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

/// `p50 64.9 ms, p99 80.1 ms, max 80.1 ms`
impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent).as_secs_f64() * 1e3);
        write!(f, "p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_measured_durations() {
        let durations = (1..=50).rev().map(Duration::from_millis).collect();
        let percentiles = Percentiles::of(durations).expect("fifty durations");
        assert_eq!(percentiles.percentile(50), Duration::from_millis(25));
        assert_eq!(percentiles.to_string(), "p50 25.0 ms, p99 50.0 ms, max 50.0 ms");
        assert_eq!(percentiles.percentile(0), Duration::from_millis(1));
        assert!(Percentiles::of(Vec::new()).is_none());
    }
}
