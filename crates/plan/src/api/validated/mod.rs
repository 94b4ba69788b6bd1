//! Specs after validation. A spec is parsed into a type with valid values, or into an error that says what to change.
//!
//! The admission rules reject most invalid specs already. The operator checks them again for two reasons: an object may be
//! older than the rules, and CEL cannot express all of them.

mod error;
mod lease;
mod quorum;
mod selector;

pub use error::{InvalidSpec, MAX_LEASE};
pub use lease::{
    Candidates, ClusterActivation, REAP_MARGIN, Readiness, ValidLease, Workload, WorkloadKind, shortest_lease,
};
pub use quorum::{Address, ValidNode, ValidQuorum, ValidTls};
pub use selector::keys as selector_keys;

#[cfg(test)]
mod tests;
