//! Durations as texts, in the format of Gateway API (GEP-2257), such as `30s`, `250ms` or `1m30s`.

use alloc::string::{String, ToString as _};
use core::fmt::Write as _;

use crate::time::Millis;

/// The units, the longest first, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The duration of a text: one to four numbers of one to five digits, each with a unit. The parts are summed. `None` for another text.
pub fn parse(text: &str) -> Option<Millis> {
    let (mut rest, mut millis) = (text, 0);
    for _ in 0..4 {
        let (value, tail) = segment(rest)?;
        millis += value;
        rest = tail;
        if rest.is_empty() {
            return Some(Millis(millis));
        }
    }
    None
}

/// Splits the first number and its unit from `text`: its value in milliseconds, and the rest of the text.
fn segment(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=5).contains(&digits) {
        return None;
    }
    let (number, unit) = text.split_at(digits);
    // "ms" before "m", which is its prefix.
    let (scale, rest) = UNITS.iter().rev().find_map(|(name, scale)| Some((scale, unit.strip_prefix(name)?)))?;
    Some((number.parse::<u64>().ok()? * scale, rest))
}

/// The shortest text for a duration. The text of more than 99,999 hours (11 years) cannot be parsed again.
pub fn text(span: Millis) -> String {
    let mut rest = span.0;
    if rest == 0 {
        return "0s".to_string();
    }
    let mut text = String::new();
    for (unit, scale) in UNITS {
        if rest >= scale {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{unit}", rest / scale);
            rest %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_gep_2257_format_is_accepted() {
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
            assert_eq!(parse(text), Some(Millis(millis)), "{text}");
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
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in "\\PC{0,40}|[0-9hms]{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_text_is_parsed_to_the_same_duration(millis in 0..=99_999u64 * 3_600_000) {
            prop_assert_eq!(parse(&text(Millis(millis))), Some(Millis(millis)));
        }
    }
}
