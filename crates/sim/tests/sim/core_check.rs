//! The items that the core exports for checkers only.

pub use redislease_core::check::reference::Node;
pub use redislease_core::check::{Layer, Mutant};
