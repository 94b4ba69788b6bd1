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

    /// Returns the error about a field unless it `is_valid`.
    pub(super) fn require(
        &self,
        is_valid: bool,
        field: &str,
        value: impl fmt::Display,
        must: impl Into<String>,
    ) -> Result<(), InvalidSpec> {
        if is_valid { Ok(()) } else { Err(self.invalid(field, value, must)) }
    }

    /// Parses a duration longer than 0 s and at most 1 h.
    pub(super) fn duration(&self, field: &str, text: &duration::Duration) -> Result<Duration, InvalidSpec> {
        self.duration_up_to(MAX_LEASE, field, text)
    }

    /// Parses a duration longer than 0 s and at most `max`.
    pub(super) fn duration_up_to(
        &self,
        max: Duration,
        field: &str,
        text: &duration::Duration,
    ) -> Result<Duration, InvalidSpec> {
        text.parse().filter(|duration| !duration.is_zero() && *duration <= max).ok_or_else(|| {
            let max = duration::Duration::from(max);
            let must = format!(
                "be a duration longer than 0s and at most {max}, written in h, m, s and ms, such as 30s, 1m30s or 250ms"
            );
            self.invalid(field, text, must)
        })
    }
}
