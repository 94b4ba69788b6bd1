//! The Prometheus metrics at `/metrics`.
//!
//! Every counter exists from the start with the value zero, because `increase()` misses a first event without a previous
//! zero. A series is removed with its object. Label values come from fixed sets or are names of RedisLease resources.

pub mod lease;
pub mod nodes;
pub mod operator;
pub mod panics;
pub mod renewals;

use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::{Registry, TextEncoder};

/// The metrics page of a process.
#[derive(Clone, Debug)]
pub struct Page {
    /// The metrics of the metrics library.
    pub registry: Registry,
    /// The leases.
    pub leases: lease::LeaseMetrics,
}

impl Page {
    /// The page in the text format that Prometheus scrapes, in parts: with 10,000 leases it has 24 MB. Each part takes less
    /// than a millisecond, except the first one with thousands of Redis nodes.
    ///
    /// # Errors
    /// Never for the families of this crate: only a family without series or without a name fails.
    pub fn parts(&self) -> prometheus::Result<impl Iterator<Item = String> + Send + use<>> {
        Ok(iter::once(registered(&self.registry)?).chain(self.leases.parts()))
    }
}

/// The registered metrics as text.
fn registered(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// A poisoned lock is used anyway: a metric may be off by one update.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(feature = "operator")]
mod names_tests;
