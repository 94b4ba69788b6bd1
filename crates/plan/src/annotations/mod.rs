//! Annotations under `redislease.io/`: what they request, and what is wrong with them.

pub mod decide;
pub mod facts;
mod leases;
pub mod parse;
#[cfg(test)]
mod parse_tests;
mod parser;
mod pods;
mod problem;
mod suggest;
mod ways;

pub use leases::problems as problems_of_lease;
pub use parse::default_quorum;
pub use pods::problems as problems_of_pod;
pub use problem::Problem;
