//! Instants and spans, in whole milliseconds.
//!
//! Redis counts a TTL in milliseconds of its own clock, rounded down, and the process rounds its clock down too. Each
//! loses less than one millisecond. The slack in [`Drift`] covers both.

use core::ops::{Add, AddAssign, Sub};

/// An instant on a clock that counts suspend (`CLOCK_BOOTTIME`): milliseconds since an arbitrary origin.
///
/// Instants of two processes cannot be compared; only spans cross a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// An empty span.
    pub const ZERO: Self = Self(0);

    /// A whole number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1000)
    }

    /// `percent` percent of this span, rounded up.
    pub const fn percent(self, percent: u32) -> Self {
        Self(self.0.saturating_mul(percent as u64).div_ceil(100))
    }

    /// This span, shorter by `other`, never below zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Time {
    /// The span from `earlier` to this instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Time {
    type Output = Self;
    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Millis> for Time {
    type Output = Self;
    fn sub(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl AddAssign<Millis> for Time {
    fn add_assign(&mut self, span: Millis) {
        *self = *self + span;
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<core::time::Duration> for Millis {
    /// Rounds down: a lease may end early by less than a millisecond, never late.
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for core::time::Duration {
    fn from(span: Millis) -> Self {
        Self::from_millis(span.0)
    }
}

/// Instants at equal distances. What falls on the beats of one process wakes it once for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Beat {
    /// From one instant to the next, in milliseconds.
    pub every: Millis,
    /// One of the instants.
    pub phase: Time,
}

impl Beat {
    /// The first instant after `now`.
    pub const fn after(self, now: Time) -> Time {
        let past = match now.since(self.phase).0.checked_rem(self.every.0) {
            Some(past) => past,
            None => 0,
        };
        Time(now.0.saturating_sub(past).saturating_add(self.every.0))
    }
}

/// The largest difference between two clocks that measure the same span.
///
/// Every bound that compares a span on the process's clock with a span on a node's clock includes this margin once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drift {
    /// Difference of the two rates, in percent of the span.
    pub percent: u32,
    /// Constant part: both clocks round down to milliseconds.
    pub slack: Millis,
    /// The largest jump of a clock that nobody reports: a virtual machine that stands still for less loses this time on each of
    /// its clocks.
    pub jump: Millis,
}

impl Drift {
    /// One percent and two milliseconds, and jumps of 50 ms: the bound that the protocol promises to tolerate.
    pub const STANDARD: Self = Self { percent: 1, slack: Millis(2), jump: Millis(50) };
    /// Equal clocks.
    pub const NONE: Self = Self { percent: 0, slack: Millis::ZERO, jump: Millis::ZERO };

    /// The margin for `span`, without a jump.
    pub const fn margin(self, span: Millis) -> Millis {
        Millis(span.percent(self.percent).0.saturating_add(self.slack.0))
    }

    /// The part of `span` that has certainly not ended on the other clock, also if the own clock has jumped.
    pub const fn least(self, span: Millis) -> Millis {
        span.saturating_sub(self.margin(span)).saturating_sub(self.jump)
    }

    /// The shortest span of which [`Drift::least`] leaves `part`. The two rates differ by less than 100 %.
    pub const fn covering(self, part: Millis) -> Millis {
        let rest = part.0.saturating_add(self.slack.0).saturating_add(self.jump.0);
        Millis(rest.saturating_mul(100).div_ceil(100 - self.percent as u64))
    }

    /// The time after which `span` has certainly ended on the other clock. Time that the own clock has lost makes it longer.
    pub const fn most(self, span: Millis) -> Millis {
        Millis(span.0.saturating_add(self.margin(span).0))
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::STANDARD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thirty_second_lease_is_believed_for_29_648_milliseconds() {
        assert_eq!(Drift::STANDARD.least(Millis::from_secs(30)), Millis(29_648));
        assert_eq!(Drift::STANDARD.least(Millis::from_secs(15)), Millis(14_798));
    }

    #[test]
    fn margins_are_rounded_up() {
        assert_eq!(Drift::STANDARD.margin(Millis(1)), Millis(3));
        assert_eq!(Drift::STANDARD.least(Millis(56)), Millis(3));
        assert_eq!(Drift::STANDARD.least(Millis(1)), Millis::ZERO);
        assert_eq!(Drift::STANDARD.most(Millis(100)), Millis(103));
    }

    #[test]
    fn a_covering_span_is_the_shortest_one() {
        for part in (1..1000).chain([10_000, 94_000, 3_600_000]).map(Millis) {
            let span = Drift::STANDARD.covering(part);
            assert!(Drift::STANDARD.least(span) >= part, "{part:?}");
            assert!(Drift::STANDARD.least(span.saturating_sub(Millis(1))) < part, "{part:?}");
        }
        assert_eq!(Drift::NONE.covering(Millis(7)), Millis(7));
    }

    #[test]
    fn beats_have_equal_distances_from_their_phase() {
        let beat = Beat { every: Millis(1000), phase: Time(300) };
        for (now, next) in [(0, 1000), (300, 1300), (301, 1300), (1299, 1300), (1300, 2300), (7777, 8300)] {
            assert_eq!(beat.after(Time(now)), Time(next), "{now}");
        }
        let now = Time(7);
        assert_eq!(Beat { every: Millis(0), ..beat }.after(now), now);
    }

    #[test]
    fn no_arithmetic_overflows() {
        assert!(Drift::STANDARD.covering(Millis(u64::MAX)) > Millis(1));
        assert_eq!(Time(u64::MAX) + Millis(1), Time(u64::MAX));
        assert_eq!(Time(1) - Millis(2), Time(0));
        assert_eq!(Drift::STANDARD.most(Millis(u64::MAX)), Millis(u64::MAX));
    }
}
