//! `CLOCK_BOOTTIME`, which also counts the time in suspend, as the TTLs on the Redis servers do.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// A time of `CLOCK_BOOTTIME`, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootTime(pub u64);

impl BootTime {
    /// The current time, rounded down: what is computed from it is never late.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(seconds.saturating_mul(1000) + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000)
    }

    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn timespec(self) -> Timespec {
        Timespec {
            tv_sec: i64::try_from(self.0 / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(self.0 % 1000).unwrap_or_default() * 1_000_000,
        }
    }
}

/// Until when the command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// The command gets the stop signal.
    pub stop_at: BootTime,
    /// The kernel kills the command. The lock is valid for another [`KILL_MARGIN`].
    pub kill_at: BootTime,
}

/// The time from the SIGKILL to the end of the validity: the kernel needs milliseconds, and a busy machine more.
pub const KILL_MARGIN: Duration = Duration::from_secs(1);
