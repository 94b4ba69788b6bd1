use core::fmt;
use core::time::Duration;

use super::MAX_LEASE;
use crate::api;

/// A spec that asks for something that cannot be done: which object, which field, its value and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSpec {
    /// Kind, namespace and name, such as `RedisLease shop/invoices`.
    pub object: String,
    /// The field, from the object's root.
    pub field: String,
    /// The value as it was written.
    pub value: String,
    /// What the field must be: the end of a sentence that begins with the field.
    pub must: String,
}

impl fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, value, must } = self;
        write!(f, "{object}: {field} is {value:?} and must {must}")
    }
}

impl core::error::Error for InvalidSpec {}

/// Reads the fields of one object and turns what is wrong with them into errors that name it.
pub(super) struct Reader {
    object: String,
}

impl Reader {
    pub(super) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { object: format!("{kind} {namespace}/{name}") }
    }

    pub(super) fn invalid(
        &self,
        field: impl Into<String>,
        value: impl fmt::Display,
        must: impl Into<String>,
    ) -> InvalidSpec {
        InvalidSpec { object: self.object.clone(), field: field.into(), value: value.to_string(), must: must.into() }
    }

    /// A duration longer than zero and at most an hour.
    pub(super) fn duration(&self, field: &str, text: &api::Duration) -> Result<Duration, InvalidSpec> {
        self.duration_up_to(MAX_LEASE, field, text)
    }

    /// A duration longer than zero and at most `max`.
    pub(super) fn duration_up_to(
        &self,
        max: Duration,
        field: &str,
        text: &api::Duration,
    ) -> Result<Duration, InvalidSpec> {
        match text.parse() {
            Ok(duration) if !duration.is_zero() && duration <= max => Ok(duration),
            _ => Err(self.invalid(
                field,
                text,
                format!(
                    "be a duration longer than 0s and at most {}, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
                    api::Duration::from(max)
                ),
            )),
        }
    }
}

/// A lease and a quorum, each valid, that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A node that restarted waits for the quorum's longest lease: a longer one could be forgotten.
    LeaseTooLong {
        /// Namespace and name of the lease.
        lease: String,
        /// Its leaseDuration.
        lease_duration: Duration,
        /// Namespace and name of the quorum.
        quorum: String,
        /// Its maxLeaseDuration.
        max_lease: Duration,
    },
    /// A renewal must be able to fail and be tried again within one interval.
    RenewalTooFrequent {
        /// Namespace and name of the lease.
        lease: String,
        /// Its renewInterval.
        renew_interval: Duration,
        /// Namespace and name of the quorum.
        quorum: String,
        /// Its commandTimeout.
        command_timeout: Duration,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseTooLong { lease, lease_duration, quorum, max_lease } => write!(
                f,
                "RedisLease {lease}: spec.leaseDuration ({}) must be at most spec.maxLeaseDuration ({}) of RedisQuorum {quorum}: \
                 shorten the lease or refer to a quorum for longer leases",
                api::Duration::from(*lease_duration),
                api::Duration::from(*max_lease)
            ),
            Self::RenewalTooFrequent { lease, renew_interval, quorum, command_timeout } => write!(
                f,
                "RedisLease {lease}: spec.renewInterval ({}) must be at least 2 * spec.commandTimeout ({}) of RedisQuorum {quorum}: \
                 renew less often or shorten the quorum's commandTimeout",
                api::Duration::from(*renew_interval),
                api::Duration::from(*command_timeout)
            ),
        }
    }
}

impl core::error::Error for Mismatch {}
