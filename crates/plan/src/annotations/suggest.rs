//! The nearest valid text for an invalid one.

use crate::api::{Duration, names};

pub use crate::api::spelling::nearest;

/// A valid object name of at most `longest` characters that resembles `text`; `None` if no character is usable.
pub fn object_name(text: &str, longest: usize) -> Option<String> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let replaced: String =
        text.to_ascii_lowercase().chars().map(|c| if valid(c) { c } else { '-' }).take(longest).collect();
    let parts = replaced.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join(".");
    names::is_object_name(&name).then_some(name)
}

/// A valid duration of at most 1 h that resembles `text`; `default` if it has no number.
pub fn duration(text: &str, default: &str) -> String {
    const HOUR: f64 = 3_600_000.0;
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let scale = match unit.as_bytes() {
        [b'm', b's' | b'i', rest @ ..] if unit.starts_with("ms") || rest.first() == Some(&b'l') => 1.0,
        [b'm', ..] => 60_000.0,
        [b'h', ..] => HOUR,
        [b'd', ..] => 24.0 * HOUR,
        _ => 1000.0,
    };
    let millis = number.parse::<f64>().map(|number| number * scale).unwrap_or_default();
    if millis < 1.0 {
        return default.to_owned();
    }
    let limited = core::time::Duration::from_secs_f64(millis.min(HOUR) / 1000.0);
    Duration::from(limited).to_string()
}

/// The integer that `text` begins with, or one for the word that it is.
pub fn integer(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text.as_str()), |digits| (true, digits));
    let digits = digits.trim_start_matches('+').chars().filter(|c| !matches!(c, '_' | ',' | '\''));
    let digits: String = digits.take_while(char::is_ascii_digit).collect();
    let sign = if is_negative { "-" } else { "" };
    match format!("{sign}{digits}").parse::<i64>() {
        Ok(number) => number.to_string(),
        Err(_) if !digits.is_empty() => if is_negative { i64::MIN } else { i64::MAX }.to_string(),
        Err(_) if ["high", "max", "first"].iter().any(|word| text.contains(word)) => "100".to_owned(),
        Err(_) if ["low", "min", "last"].iter().any(|word| text.contains(word)) => "-100".to_owned(),
        Err(_) => "0".to_owned(),
    }
}

/// `false` for a word that means no, otherwise `true`.
pub fn truth(text: &str) -> &'static str {
    let text = text.trim().to_ascii_lowercase();
    let means_no = ["0", "disabled", "f", "n", "never", "no", "none", "off"].contains(&text.as_str());
    if means_no || nearest(&text, &["true", "false"]) == Some("false") { "false" } else { "true" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_suggested_for_a_text() {
        for (text, wanted) in [
            ("10.5", "10"),
            ("1_000", "1000"),
            ("1,000", "1000"),
            ("+7%", "7"),
            ("-3x", "-3"),
            ("99999999999999999999", "9223372036854775807"),
            ("-99999999999999999999", "-9223372036854775808"),
            ("high", "100"),
            ("Lowest", "-100"),
            ("ten", "0"),
            ("-", "0"),
            ("", "0"),
        ] {
            assert_eq!(integer(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn true_or_false_is_suggested_for_a_text() {
        for (text, wanted) in [
            ("yes", "true"),
            (" True", "true"),
            ("1", "true"),
            ("", "true"),
            ("No", "false"),
            ("0", "false"),
            (" FALSE", "false"),
        ] {
            assert_eq!(truth(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_suggested_name_is_valid() {
        assert_eq!(object_name("Billing_Job", 63).as_deref(), Some("billing-job"));
        assert_eq!(object_name("-a..b-", 63).as_deref(), Some("a.b"));
        assert_eq!(object_name("___", 63), None);
        assert_eq!(object_name(&"a".repeat(70), 63), Some("a".repeat(63)));
    }

    #[test]
    fn a_suggested_duration_is_valid() {
        for (text, wanted) in [
            ("30", "30s"),
            ("30 s", "30s"),
            ("30sec", "30s"),
            ("30S", "30s"),
            ("1.5s", "1s500ms"),
            ("2 minutes", "2m"),
            ("5min", "5m"),
            ("250 ms", "250ms"),
            ("250 milliseconds", "250ms"),
            ("2h", "1h"),
            ("1d", "1h"),
            ("99999999999999999999h", "1h"),
            ("soon", "30s"),
            ("0s", "30s"),
            ("", "30s"),
        ] {
            let suggested = duration(text, "30s");
            assert_eq!(suggested, wanted, "{text:?}");
            assert!(Duration::new(suggested).parse().is_some_and(|valid| !valid.is_zero()), "{text:?}");
        }
    }
}
