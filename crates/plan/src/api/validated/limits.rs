use core::time::Duration;

/// The longest lease that any quorum allows: 1 h. The operator waits this long for keys on an earlier quorum whose longest lease
/// it does not know.
pub const MAX_LEASE: Duration = Duration::from_hours(1);

/// The part of the stop budget beyond the grace period: 1 s to reap the holder's processes after SIGKILL.
pub const REAP_MARGIN: Duration = Duration::from_secs(1);

/// The maximum of `election.unhealthyAfter`: 24 h. To ignore readiness, users set `election.requireReady: false`.
pub(super) const MAX_UNHEALTHY: Duration = Duration::from_hours(24);
