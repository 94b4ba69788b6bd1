//! Durations on the command line: in the syntax of the resources, and `0`.

use std::time::Duration;

use redislease_core::duration;

/// A duration such as `500ms`, `30s` or `1m30s`; `0` needs no unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let span = duration::parse(if text == "0" { "0s" } else { text });
    span.map(Duration::from).ok_or_else(|| {
        "the duration must be written in h, m, s and ms, with at most five digits each, such as 30s, 1m30s or 250ms"
            .to_owned()
    })
}

/// The text of a duration, as [`parse`] accepts it.
pub fn show(span: Duration) -> String {
    duration::text(span.into())
}

/// A century: longer than any program runs.
pub const FOREVER: Duration = Duration::from_hours(100 * 365 * 24);

/// The value of `--wait`: a duration or `forever`.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "forever" { Ok(FOREVER) } else { parse(text).map_err(|error| error + ", or `forever`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syntax_is_that_of_the_resources_and_zero_needs_no_unit() {
        for (text, millis) in [("0", 0), ("0s", 0), ("250ms", 250), ("1m30s", 90_000), ("1h", 3_600_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5", "00", "1.5s", "-1s", "5d", "123456s", "30s "] {
            assert!(parse(text).unwrap_err().contains("such as 30s"), "{text}");
        }
        assert_eq!(parse_wait("forever"), Ok(FOREVER));
        assert!(parse_wait("ever").unwrap_err().contains("`forever`"));
        assert_eq!([0, 90_000].map(|millis| show(Duration::from_millis(millis))), ["0s", "1m30s"]);
    }
}
