//! Specs after validation. A spec is parsed into a type with valid values, or into an error that says what to change.
//!
//! The admission rules reject most invalid specs already. The operator checks them again for two reasons: an object may be
//! older than the rules, and CEL cannot express all of them.

mod error;
mod lease;
mod quorum;
mod selector;

pub use error::{InvalidSpec, Mismatch};
pub use lease::{Candidates, ClusterActivation, Readiness, Retry, ValidLease, Workload, WorkloadKind};
pub use quorum::{Address, Fingerprint, ValidNode, ValidQuorum, ValidTls};

use core::time::Duration;

/// The longest lease that any quorum allows: 1 h. The operator waits this long for keys on an earlier quorum whose longest lease
/// it does not know.
pub const MAX_LEASE: Duration = Duration::from_hours(1);

/// The part of the stop budget beyond the grace period: 1 s to reap the holder's processes after SIGKILL.
pub const REAP_MARGIN: Duration = Duration::from_secs(1);

/// The maximum of `election.unhealthyAfter`: 24 h. To ignore readiness, users set `election.requireReady: false`.
const MAX_UNHEALTHY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
