//! How measured spans of time are spread.

use std::{fmt, time::Duration};

/// Spans of time in order, one at least.
#[derive(Debug, Clone)]
pub struct Spread(Vec<Duration>);

impl Spread {
    /// Puts them in order; `None` when there are none.
    pub fn of(mut spans: Vec<Duration>) -> Option<Self> {
        spans.sort_unstable();
        (!spans.is_empty()).then_some(Self(spans))
    }

    /// The shortest span that this many of a hundred do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

/// `p50 64.9 ms, p99 80.1 ms, max 80.1 ms`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent).as_secs_f64() * 1e3);
        write!(f, "p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_spans_that_were_measured() {
        let spread = Spread::of((1..=50).rev().map(Duration::from_millis).collect()).expect("fifty");
        assert_eq!(spread.percentile(50), Duration::from_millis(25));
        assert_eq!(spread.to_string(), "p50 25.0 ms, p99 50.0 ms, max 50.0 ms");
        assert_eq!(spread.percentile(0), Duration::from_millis(1));
        assert!(Spread::of(Vec::new()).is_none());
    }
}
