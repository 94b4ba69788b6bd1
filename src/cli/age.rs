//! Formats ages as kubectl does.

use std::time::Duration;

/// Formats an age as kubectl does, such as `119s`, `9m59s`, `154m` or `2d2h`.
pub(super) fn format_age(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = age.as_secs();
    let two_units = |unit: u64, name: char, rest: u64, rest_name: char| match seconds % unit / rest {
        0 => format!("{}{name}", seconds / unit),
        more => format!("{}{name}{more}{rest_name}", seconds / unit),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two_units(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two_units(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two_units(DAY, 'd', HOUR, 'h'),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (9_240, "154m"),
            (10_800, "3h"),
            (28_799, "7h59m"),
            (100_000, "27h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (900_000, "10d"),
        ] {
            assert_eq!(format_age(Duration::from_secs(seconds)), text);
        }
    }
}
