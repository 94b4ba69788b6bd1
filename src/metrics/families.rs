//! Registers families of metrics.

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, Result};

/// The registry of a process, in which each name is registered once.
#[derive(Clone, Copy)]
pub struct Families<'a>(pub &'a Registry);

impl Families<'_> {
    /// Registers `family` and returns it.
    ///
    /// # Errors
    /// The name is already registered, or the family is invalid.
    pub fn add<C: Collector + Clone + 'static>(self, family: Result<C>) -> Result<C> {
        let family = family?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub fn counter(self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub fn gauge(self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    pub fn histogram(self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}
