//! Parse, don't validate: a spec becomes a type whose values make sense, or an error that says what to do.
//!
//! Admission refuses most of what is refused here. It is judged again since objects outlive the rules they were admitted under,
//! and since some rules cannot be written in CEL.

mod error;
mod lease;
mod quorum;

pub use error::{InvalidSpec, Mismatch};
pub use lease::{Candidates, Readiness, Retry, ValidLease, Workload, WorkloadKind};
pub use quorum::{Address, Fingerprint, ValidNode, ValidQuorum};

use core::time::Duration;

/// Longest lease that any quorum takes. What nobody knows about an earlier quorum is waited out for this long.
pub const MAX_LEASE: Duration = Duration::from_hours(1);

/// What the holder's local deadline keeps back beside its grace period: time to reap the processes that were killed.
pub const REAP_MARGIN: Duration = Duration::from_secs(1);

/// Longest time a holder may be unhealthy, so that "never" is not written as a number.
const MAX_UNHEALTHY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests;
