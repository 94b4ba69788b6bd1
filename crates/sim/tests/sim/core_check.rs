//! What the core offers to checkers only, in one place.

pub use redislease_core::mutant::Mutant;
pub use redislease_core::reference::{Call, Node};
