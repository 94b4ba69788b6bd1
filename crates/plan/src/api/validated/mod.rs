//! Specs after validation. A spec is parsed into a type with valid values, or into an error that says what to change.
//!
//! The admission rules reject most invalid specs already. The operator checks them again for two reasons: an object may be
//! older than the rules, and CEL cannot express all of them.

mod error;
mod lease;
mod limits;
mod quorum;
mod selector;

pub use error::{InvalidSpec, Mismatch};
pub use lease::{Candidates, ClusterActivation, Readiness, Retry, ValidLease, Workload, WorkloadKind};
pub use limits::{MAX_LEASE, REAP_MARGIN};
pub use quorum::{Address, Fingerprint, ValidNode, ValidQuorum, ValidTls};

#[cfg(test)]
mod tests;
