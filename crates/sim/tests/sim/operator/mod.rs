//! The operators: the shell around the core's machines and the reconcilers, reduced to what matters here.

pub mod admission;
pub mod calls;
pub mod engine;
pub mod keeper;
pub mod leader;
pub mod process;
pub mod state;
pub mod wires;
