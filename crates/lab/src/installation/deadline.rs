//! The end of a term that is not renewed any more, according to the operator's /metrics.

use std::time::{Duration, Instant};

use super::lease::Lease;
use crate::Metrics;

/// The end of a term that is not renewed any more; see [`Metrics::deadline`].
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    read: Instant,
    left: f64,
    stop_budget: f64,
}

impl Deadline {
    fn new(read: Instant, left: f64, stop_budget: Duration) -> Self {
        Self { read, left, stop_budget: stop_budget.as_secs_f64() }
    }

    /// Seconds from `at` until another pod may hold the lease; negative after that time.
    pub fn left(&self, at: Instant) -> f64 {
        self.left - at.saturating_duration_since(self.read).as_secs_f64()
    }

    /// Seconds from `stop_at`, when the holder must stop, until `at`; negative before that time.
    pub fn late(&self, at: Instant) -> f64 {
        self.stop_budget - self.left(at)
    }
}

impl Metrics {
    /// When the running term of a lease ends without another renewal. `stop_budget` is the lease's grace period plus 1 s.
    /// `None` if no term runs.
    pub fn deadline(&self, lease: &Lease<'_>, stop_budget: Duration) -> Option<Deadline> {
        let until = self.value("redislease_lease_expiry_timestamp_seconds", &lease.labels())?;
        (until > self.unix).then(|| Deadline::new(self.read, until - self.unix, stop_budget))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_must_be_told_one_stop_budget_before_the_end() {
        let read = Instant::now();
        let deadline = Deadline::new(read, 9.5, Duration::from_secs(4));
        let near = |seconds: f64, wanted: f64| (seconds - wanted).abs() < 1e-9;
        assert!(near(deadline.left(read + Duration::from_secs(2)), 7.5));
        assert!(near(deadline.late(read + Duration::from_secs(2)), -3.5));
        assert!(near(deadline.late(read + Duration::from_secs(6)), 0.5));
    }
}
