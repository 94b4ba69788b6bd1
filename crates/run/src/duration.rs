//! Durations on the command line.

use std::time::Duration;

/// A number with a unit, such as `500ms`, `30s`, `2m` or `1h`; `0` needs none.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match (unit, number) {
        ("ms", _) => Some(1),
        ("s", _) => Some(1000),
        ("m", _) => Some(60_000),
        ("h", _) => Some(3_600_000),
        ("", "0") => Some(0),
        _ => None,
    };
    let millis = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    // A century is longer than anything that makes sense, and far from overflows.
    let millis = millis.filter(|millis| *millis <= FOREVER_MS);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "the duration must be a number with a unit, such as 500ms, 30s or 2m".to_owned())
}

/// A century, in milliseconds.
const FOREVER_MS: u64 = 100 * 365 * 24 * 3_600_000;
/// Longer than any program runs.
pub const FOREVER: Duration = Duration::from_millis(FOREVER_MS);

/// The value of `--wait`: a duration or `forever`.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "forever" { Ok(FOREVER) } else { parse(text).map_err(|error| error + ", or `forever`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!((parse("2m"), parse("0")), (Ok(Duration::from_mins(2)), Ok(Duration::ZERO)));
        for text in ["", "s", "5", "1.5s", "-1s", "5d", "99999999999999999999s", "9999999999h"] {
            assert!(parse(text).unwrap_err().contains("such as 500ms"), "{text}");
        }
        assert_eq!(parse_wait("forever"), Ok(FOREVER));
        assert!(parse_wait("ever").unwrap_err().contains("`forever`"));
    }
}
