//! What is counted and shown on `/metrics`, one file a room.
//!
//! Every series exists from the start, at zero, or `increase()` would miss the first event; and it vanishes with the
//! thing it describes. Label values come from fixed sets or are names of our own resources.

pub mod lease;
pub mod nodes;
pub mod operator;

use prometheus::{Registry, TextEncoder};

/// Everything that is registered, in the text format that Prometheus scrapes.
///
/// # Errors
/// Never for the families of this room: when a family has no series or no name.
pub fn page(registry: &Registry) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(&registry.gather())
}
