//! Durations in a spec: strings in the format of Gateway API (GEP-2257), such as `30s` or `1m30s`.

use core::fmt;
use core::time;

use redislease_core::duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Regular expression of a duration: one to four numbers of one to five digits, each with a unit. The parts are summed.
/// The admission rules use this expression; [`Duration::parse`] accepts the same texts.
pub(super) const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

/// Length of the longest text that matches [`PATTERN`]. The API server estimates the cost of CEL rules from it.
const MAX_LENGTH: usize = 4 * (5 + 2);

/// A duration as the user wrote it, such as `30s`, `250ms` or `1m30s`.
///
/// Deserialization accepts any text, so that an invalid duration does not make the whole object unreadable.
/// [`parse`](Self::parse) checks the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Duration(#[schemars(length(max = MAX_LENGTH))] String);

impl Duration {
    /// Stores the text without checking it; see [`parse`](Self::parse).
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The duration, in whole milliseconds; `None` if the text is not a GEP-2257 duration. Zero is allowed.
    pub fn parse(&self) -> Option<time::Duration> {
        duration::parse(&self.0).map(|span| time::Duration::from_millis(span.0))
    }
}

impl From<time::Duration> for Duration {
    /// The shortest text for this duration. Fractions of a millisecond are dropped.
    ///
    /// The text for more than 99,999 hours (11 years) cannot be parsed again. The longest duration in this API is 24 h.
    fn from(span: time::Duration) -> Self {
        Self(duration::text(span.into()))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deserialize_accepts_any_text_and_parse_rejects_it() {
        let read: Duration =
            serde_json::from_str("\"99999999999999999999h\"").expect("deserialization accepts any text");
        assert_eq!(read.as_str(), "99999999999999999999h");
        assert_eq!(read.parse(), None);
    }

    proptest! {
        #[test]
        fn every_text_that_matches_the_pattern_parses(text in &PATTERN[1..PATTERN.len() - 1]) {
            prop_assert!(text.len() <= MAX_LENGTH);
            prop_assert!(Duration::new(text).parse().is_some());
        }
    }
}
