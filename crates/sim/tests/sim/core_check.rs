//! What the core offers to checkers only, in one place.

pub use redislease_core::check::reference::{Call, Node};
pub use redislease_core::check::{Layer, Mutant, seed_with};
