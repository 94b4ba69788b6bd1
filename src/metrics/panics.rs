//! Metrics of contained panics and of broken invariants.

use std::sync::Arc;

use prometheus::{IntCounter, Registry};
use redislease_lock::PanicObserver;

use super::families::Families;

/// Contained panics and broken invariants, by component. Each of them is a bug.
#[derive(Clone, Debug)]
pub struct Panics {
    /// In the machine or the observer of one lease, which was dropped from its shard; or in a shard, which dropped all its leases.
    /// Or a machine broke an invariant: then a new one seals its term, or confirms it again.
    pub keeper: IntCounter,
    /// In the task of one Redis node, which was restarted.
    pub nodes: IntCounter,
    /// In the reconciliation of one lease, annotated workload or RedisQuorum, in a call to the API server, while an object of a
    /// watch was read, or while the page of metrics was written.
    pub operator: IntCounter,
}

impl Panics {
    /// Registers the family with `registry`.
    ///
    /// # Errors
    /// The name is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Contained panics and broken invariants, by the part of the process; each is a defect to report.";
        let family = Families(registry).counter("redislease_panics_total", help, &["part"])?;
        let part = |name| family.with_label_values(&[name]);
        Ok(Self { keeper: part("keeper"), nodes: part("nodes"), operator: part("operator") })
    }

    /// The observer for a keeper.
    pub fn keeper_observer(&self) -> Arc<dyn PanicObserver> {
        Arc::new(Counted(self.keeper.clone()))
    }
}

/// Counts the panics that are reported to it.
#[derive(Debug)]
struct Counted(IntCounter);

impl PanicObserver for Counted {
    fn panicked(&self) {
        self.0.inc();
    }
}
