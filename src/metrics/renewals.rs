//! Metrics of the renewals and of the ended terms, for each quorum.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use redislease_core::lease::Renewal;
use redislease_plan::status::TermEnd;

use super::families::Families;
use crate::locked::locked;

/// The possible results of a renewal round.
const RESULTS: [&str; 4] = ["success", "no_quorum", "lost", "timeout"];

/// Buckets from a quorum on the same machine to a round that exhausts the longest timeout, in seconds.
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5];

/// Buckets of the remaining share of the lease. At a half something is wrong; at a third the next failure may end the
/// lease.
const SHARES: [f64; 8] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.95];

/// The quorums of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct RenewalMetrics {
    transitions: IntCounterVec,
    renewals: IntCounterVec,
    duration: HistogramVec,
    margin: HistogramVec,
    quorums: Arc<Mutex<BTreeMap<String, Weak<QuorumRenewals>>>>,
}

impl RenewalMetrics {
    /// Registers the metrics with `registry`.
    ///
    /// # Errors
    /// A name is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let families = Families(registry);
        let counter = |name, help, label| families.counter(name, help, &["quorum", label]);
        let histogram = |name, help, buckets: &[f64]| families.histogram(name, help, &["quorum"], buckets);
        Ok(Self {
            transitions: counter("redislease_transitions_total", "Terms that ended, by quorum and reason.", "reason")?,
            renewals: counter("redislease_renewals_total", "Renewals, by quorum and result.", "result")?,
            duration: histogram(
                "redislease_renew_duration_seconds",
                "Duration of a successful renewal, until a majority has confirmed it.",
                &SECONDS,
            )?,
            margin: histogram(
                "redislease_renew_margin_ratio",
                "Share of the lease duration, from 0 to 1, that was left of the lease when a renewal of it succeeded.",
                &SHARES,
            )?,
            quorums: Arc::default(),
        })
    }

    /// Adds the series of a quorum that exists. A name that only a lease uses adds none. The series are removed with the
    /// last clone of the `Arc`.
    pub fn quorum(&self, name: &str) -> Arc<QuorumRenewals> {
        let mut quorums = locked(&self.quorums);
        if let Some(known) = quorums.get(name).and_then(Weak::upgrade) {
            return known;
        }
        for end in TermEnd::all() {
            self.transitions.with_label_values(&[name, end.as_str()]);
        }
        let new = Arc::new(QuorumRenewals {
            name: name.to_owned(),
            renewals: RESULTS.map(|result| self.renewals.with_label_values(&[name, result])),
            duration: self.duration.with_label_values(&[name]),
            margin: self.margin.with_label_values(&[name]),
            families: self.clone(),
        });
        quorums.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }
}

/// The renewals and ended terms on one quorum.
#[derive(Debug)]
pub struct QuorumRenewals {
    name: String,
    renewals: [IntCounter; RESULTS.len()],
    duration: Histogram,
    margin: Histogram,
    families: RenewalMetrics,
}

impl QuorumRenewals {
    /// Counts the end of a term.
    pub fn ended(&self, end: TermEnd) {
        self.families.transitions.with_label_values(&[&self.name, end.as_str()]).inc();
    }

    /// Counts a renewal round of a lease with duration `ttl_ms`.
    pub fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        let [success, no_quorum, lost, timeout] = &self.renewals;
        match renewal {
            Renewal::Success { took, left } => {
                success.inc();
                self.duration.observe(Duration::from(*took).as_secs_f64());
                if let Some(left) = left {
                    let ttl = Duration::from_millis(ttl_ms.max(1)).as_secs_f64();
                    self.margin.observe(Duration::from(*left).as_secs_f64() / ttl);
                }
            }
            Renewal::NoQuorum => no_quorum.inc(),
            Renewal::Lost => lost.inc(),
            Renewal::Timeout => timeout.inc(),
        }
    }
}

impl Drop for QuorumRenewals {
    fn drop(&mut self) {
        let RenewalMetrics { transitions, renewals, duration, margin, quorums } = &self.families;
        let name = self.name.as_str();
        let mut quorums = locked(quorums);
        // A newer quorum with this name uses the series.
        if quorums.get(name).is_none_or(|other| other.strong_count() > 0) {
            return;
        }
        quorums.remove(name);
        // An error means that the series is already removed.
        for end in TermEnd::all() {
            let _ = transitions.remove_label_values(&[name, end.as_str()]);
        }
        for result in RESULTS {
            let _ = renewals.remove_label_values(&[name, result]);
        }
        let _ = duration.remove_label_values(&[name]);
        let _ = margin.remove_label_values(&[name]);
    }
}
