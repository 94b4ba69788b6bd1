//! What `/metrics` shows.
//!
//! Every counter exists from the start, at zero, because `increase()` misses a first event without a zero before it; and
//! a series vanishes with what it describes. Label values come from fixed sets or are names of our own resources.

pub mod lease;
pub mod nodes;
pub mod operator;
pub mod panics;

use prometheus::{Registry, TextEncoder};

/// The page of a process.
#[derive(Clone, Debug)]
pub struct Page {
    /// What is counted by objects of the metrics library.
    pub registry: Registry,
    /// The leases.
    pub leases: lease::LeaseMetrics,
}

impl Page {
    /// Everything, in the text format that Prometheus scrapes. With thousands of leases this takes long enough to be done
    /// on a thread that nothing else waits for.
    ///
    /// # Errors
    /// Never for the families of this crate: when a family has no series or no name.
    pub fn encode(&self) -> prometheus::Result<String> {
        let mut page = registered(&self.registry)?;
        self.leases.encode(&mut page);
        Ok(page)
    }
}

/// What is registered, as text.
fn registered(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}

#[cfg(test)]
#[cfg(feature = "operator")]
mod names_tests;
