//! The interval of the renewals.

use std::time::Duration;

use redislease_core::time::Drift;

/// The shortest interval of the renewals. A round has no longer than this to be answered.
pub const MIN_RENEW: Duration = Duration::from_millis(10);

/// The interval of the renewals, the one asked for or a third of what the stop budget leaves. `None` if two renewals and the stop
/// budget do not fit into the validity.
pub fn renewal(ttl: Duration, asked_for: Option<Duration>, stop_budget: Duration) -> Option<Duration> {
    let renew = asked_for.unwrap_or(ttl.saturating_sub(stop_budget) / 3);
    let valid = Duration::from(Drift::STANDARD.least(ttl.into()));
    let needed = renew.saturating_mul(2).saturating_add(stop_budget);
    (renew >= MIN_RENEW && needed < valid).then_some(renew)
}

/// The shortest ttl with room for the renewals, in whole seconds.
pub fn shortest(asked_for: Option<Duration>, stop_budget: Duration) -> Duration {
    // Every longer one has room too.
    let (mut short, mut long) = (0, u64::from(u32::MAX));
    while short + 1 < long {
        let middle = short.midpoint(long);
        let has_room = renewal(Duration::from_secs(middle), asked_for, stop_budget).is_some();
        if has_room { long = middle } else { short = middle }
    }
    Duration::from_secs(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_shortest_ttl_has_room_and_one_second_less_has_none() {
        assert_eq!(renewal(s(30), None, s(11)), Some(s(19) / 3));
        for (renew, budget, shortest_ttl) in [(None, s(11), s(12)), (Some(s(8)), s(6), s(23)), (None, s(0), s(1))] {
            assert_eq!(shortest(renew, budget), shortest_ttl);
            assert!(renewal(shortest_ttl, renew, budget).is_some());
            assert!(renewal(shortest_ttl.saturating_sub(s(1)), renew, budget).is_none());
        }
        assert!(renewal(s(30), Some(Duration::MAX), Duration::MAX).is_none(), "nothing overflows");
        assert!(renewal(s(30), Some(Duration::ZERO), s(1)).is_none());
        assert!(shortest(Some(Duration::MAX), s(1)) > s(1_000_000));
    }
}
