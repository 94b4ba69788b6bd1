//! Annotations under `redislease.io/`: what they request, and what is wrong with them.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`] | what is known about a workload and a lease |
//! | [`parse`] | what the annotations of a workload request, and what is wrong with them |
//! | [`ways`] | what holds a lease, and how it becomes active |
//! | [`leases`] | what is wrong with the annotations of a RedisLease |
//! | [`pods`] | what is wrong with the annotations of a pod |
//! | [`problem`] | the text of an event about an annotation |
//! | [`parser`] | reads the annotations and gathers problems |
//! | [`suggest`] | the nearest valid text |
//! | [`decide`] | what to do about one workload and its lease |

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
