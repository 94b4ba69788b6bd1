//! The metrics page of a process.

use std::iter;

use prometheus::{Registry, TextEncoder};

use super::lease;

/// The metrics page of a process.
#[derive(Clone, Debug)]
pub struct Page {
    /// The metrics of the metrics library.
    pub registry: Registry,
    /// One set of series for each lease, written as text without the metrics library.
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
pub(super) fn registered(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}
