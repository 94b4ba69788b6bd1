use core::fmt;
use core::time::Duration;

use crate::api::duration;

/// The longest lease that any quorum allows: 1 h. The operator waits this long for keys on an earlier quorum whose longest lease
/// it does not know.
pub const MAX_LEASE: Duration = Duration::from_hours(1);

/// The error for an invalid spec: the object, the field, its value, and what the value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSpec {
    /// Kind, namespace and name, such as `RedisLease shop/invoices`.
    pub object: String,
    /// The path of the field, such as `spec.leaseDuration`.
    pub field: String,
    /// The value as the user wrote it.
    pub value: String,
    /// What the field must be. It completes the sentence "FIELD must ...".
    pub must: String,
}

impl fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, value, must } = self;
        write!(f, "{object}: {field} is {value:?} and must {must}")
    }
}

impl core::error::Error for InvalidSpec {}

/// Parses fields of one object. Its errors name the object.
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

    /// Parses a duration longer than 0 s and at most 1 h.
    pub(super) fn duration(&self, field: &str, text: &duration::Duration) -> Result<Duration, InvalidSpec> {
        self.duration_up_to(MAX_LEASE, field, text)
    }

    /// Parses a duration from `least` to 1 h.
    pub(super) fn duration_from(
        &self,
        least: Duration,
        field: &str,
        text: &duration::Duration,
    ) -> Result<Duration, InvalidSpec> {
        text.parse().ok().filter(|duration| (least..=MAX_LEASE).contains(duration)).ok_or_else(|| {
            let least = duration::Duration::from(least);
            let must =
                format!("be a duration from {least} to 1h, written in h, m, s and ms, such as 30s, 1m30s or 2s500ms");
            self.invalid(field, text, must)
        })
    }

    /// Parses a duration longer than 0 s and at most `max`.
    pub(super) fn duration_up_to(
        &self,
        max: Duration,
        field: &str,
        text: &duration::Duration,
    ) -> Result<Duration, InvalidSpec> {
        match text.parse() {
            Ok(duration) if !duration.is_zero() && duration <= max => Ok(duration),
            _ => Err(self.invalid(
                field,
                text,
                format!(
                    "be a duration longer than 0s and at most {}, written in h, m, s and ms, such as 30s, 1m30s or 250ms",
                    duration::Duration::from(max)
                ),
            )),
        }
    }
}

/// A valid lease and a valid quorum that cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Mismatch {
    /// The leaseDuration is longer than the quorum's maxLeaseDuration. A restarted node could lose a key of the lease and vote
    /// again while the lease is still valid.
    LeaseTooLong {
        /// Namespace and name of the lease.
        lease: String,
        lease_duration: Duration,
        /// Namespace and name of the quorum.
        quorum: String,
        max_lease: Duration,
    },
    /// The renewInterval is shorter than two times the quorum's commandTimeout. A failed renewal must fit into an interval
    /// together with its retry.
    RenewalTooFrequent {
        /// Namespace and name of the lease.
        lease: String,
        renew_interval: Duration,
        /// Namespace and name of the quorum.
        quorum: String,
        command_timeout: Duration,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseTooLong { lease, lease_duration, quorum, max_lease } => write!(
                f,
                "RedisLease {lease}: spec.leaseDuration ({}) must be at most spec.maxLeaseDuration ({}) of RedisQuorum {quorum}: \
                 use a shorter leaseDuration or another quorum",
                duration::Duration::from(*lease_duration),
                duration::Duration::from(*max_lease)
            ),
            Self::RenewalTooFrequent { lease, renew_interval, quorum, command_timeout } => write!(
                f,
                "RedisLease {lease}: spec.renewInterval ({}) must be at least 2 * spec.commandTimeout ({}) of RedisQuorum {quorum}: \
                 use a longer renewInterval or a shorter commandTimeout",
                duration::Duration::from(*renew_interval),
                duration::Duration::from(*command_timeout)
            ),
        }
    }
}

impl core::error::Error for Mismatch {}
