//! Durations in a spec: strings in the format of Gateway API (GEP-2257), such as `30s` or `1m30s`.

use core::fmt;
use core::time;

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

    /// The duration, in whole milliseconds. Zero is allowed.
    ///
    /// # Errors
    /// The text is not a GEP-2257 duration.
    pub fn parse(&self) -> Result<time::Duration, ParseDurationError> {
        let mut rest = self.0.as_str();
        let mut millis = 0;
        for _ in 0..4 {
            let (value, tail) = segment(rest).ok_or(ParseDurationError)?;
            millis += value;
            rest = tail;
            if rest.is_empty() {
                return Ok(time::Duration::from_millis(millis));
            }
        }
        Err(ParseDurationError)
    }
}

/// Splits the first number and its unit from `text`: its value in milliseconds, and the rest of the text.
fn segment(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=5).contains(&digits) {
        return None;
    }
    let (number, unit) = text.split_at(digits);
    // "ms" is tried before "m", which is its prefix.
    let (scale, rest) = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]
        .into_iter()
        .find_map(|(name, scale)| Some((scale, unit.strip_prefix(name)?)))?;
    let number: u64 = number.parse().ok()?;
    Some((number * scale, rest))
}

impl From<time::Duration> for Duration {
    /// The shortest text for this duration. Fractions of a millisecond are dropped.
    ///
    /// The text for more than 99,999 hours (11 years) cannot be parsed again. The longest duration in this API is 24 h.
    fn from(duration: time::Duration) -> Self {
        use fmt::Write as _;
        let mut rest = duration.as_millis();
        if rest == 0 {
            return Self::new("0s");
        }
        let mut text = String::new();
        for (unit, scale) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if rest >= scale {
                // Writing to a String cannot fail.
                let _ = write!(text, "{}{unit}", rest / scale);
                rest %= scale;
            }
        }
        Self(text)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseDurationError;

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration must be written in h, m, s and ms, such as 30s, 1m30s or 250ms")
    }
}

impl core::error::Error for ParseDurationError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<u128, ParseDurationError> {
        Duration::new(text).parse().map(|d| d.as_millis())
    }

    #[test]
    fn parse_accepts_the_gep_2257_format_only() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
            ("1m1ms", 60_001),
            ("00010s", 10_000),
            ("1s1s1s1s", 4_000),
            ("99999h99999h99999h99999h", 4 * 99_999 * 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(millis), "{text}");
        }
        for text in [
            "",
            "s",
            "30",
            "30 s",
            " 30s",
            "30s ",
            "-30s",
            "+30s",
            "1.5s",
            "30S",
            "30sec",
            "1d",
            "100us",
            "123456s",
            "1s1s1s1s1s",
            "١s",
            "30s\n",
            "1e3s",
            "ms",
            "1m s",
        ] {
            assert_eq!(parse(text), Err(ParseDurationError), "{text:?}");
        }
    }

    #[test]
    fn deserialize_accepts_any_text_and_parse_rejects_it() {
        let read: Duration =
            serde_json::from_str("\"99999999999999999999h\"").expect("deserialization accepts any text");
        assert_eq!(read.as_str(), "99999999999999999999h");
        assert_eq!(
            read.parse().map_err(|e| e.to_string()),
            Err("a duration must be written in h, m, s and ms, such as 30s, 1m30s or 250ms".into())
        );
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in "\\PC{0,40}|[0-9hms]{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_formatted_duration_parses_to_the_same_duration(millis in 0..=99_999u64 * 3_600_000) {
            let duration = time::Duration::from_millis(millis);
            prop_assert_eq!(Duration::from(duration).parse(), Ok(duration));
        }

        #[test]
        fn every_text_that_matches_the_pattern_parses(text in &PATTERN[1..PATTERN.len() - 1]) {
            prop_assert!(text.len() <= MAX_LENGTH);
            prop_assert!(parse(&text).is_ok());
        }
    }
}
