//! Detection of steps of a node's wall clock.
//!
//! Redis ends keys by its wall clock. A step forward ends leases early; after a step backward, later grants outlive their
//! TTL. Every reply carries the node's TIME, so a step shows as an offset that drift does not explain.

use crate::time::{Drift, Time};

/// The result of one reply about a node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// The offset is within the bound of drift.
    Steady,
    /// The clock stepped: the vote in this reply must not count.
    Stepped,
}

/// Tracks the offset between a node's clock and the process's clock.
///
/// The interval in which the offset lies only narrows, except for drift. So a clock that moves a little with every reply
/// is found as well as one that steps once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockWatch {
    drift: Drift,
    known: Option<Known>,
}

/// The node's clock less the process's clock, in hundredths of a millisecond: in `[low, high]` at an instant between
/// `sent` and `received`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    low: i128,
    high: i128,
    sent: Time,
    received: Time,
}

const HUNDREDTHS: i128 = 100;

impl ClockWatch {
    /// Starts without an offset.
    pub const fn new(drift: Drift) -> Self {
        Self { drift, known: None }
    }

    /// Takes the TIME of one reply in milliseconds of Unix time, and when the request was sent and the reply received.
    pub fn read(&mut self, node_time: u64, sent: Time, received: Time) -> Reading {
        let (node_time, before, after) = (i128::from(node_time), i128::from(sent.0), i128::from(received.0));
        // TIME was read in between, and each of the three readings is rounded down to a millisecond.
        let sample = Known {
            low: (node_time - after - 1) * HUNDREDTHS,
            high: (node_time + 1 - before) * HUNDREDTHS,
            sent,
            received,
        };
        let Some(known) = self.known else {
            self.known = Some(sample);
            return Reading::Steady;
        };
        let apart = received.since(known.sent).max(known.received.since(sent));
        // One percent of a millisecond is a hundredth.
        let drifted = i128::from(apart.0) * i128::from(self.drift.percent);
        let (low, high) = (known.low - drifted, known.high + drifted);
        let slack = i128::from(self.drift.slack.0) * HUNDREDTHS;
        if sample.low > high + slack || sample.high < low - slack {
            self.known = Some(sample);
            return Reading::Stepped;
        }
        let (low, high) = (low.max(sample.low), high.min(sample.high));
        // Disjoint by less than the slack: the old interval stays, so that many small steps add up.
        if low <= high {
            self.known = Some(Known { low, high, ..sample });
        }
        Reading::Steady
    }

    /// The middle of the interval: the node's Unix time less the process's clock, in milliseconds.
    pub fn offset(&self) -> Option<i128> {
        self.known.map(|known| i128::midpoint(known.low, known.high).div_euclid(HUNDREDTHS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn readings(samples: &[(u64, u64, u64)]) -> alloc::vec::Vec<Reading> {
        let mut watch = ClockWatch::default();
        samples.iter().map(|&(time, sent, received)| watch.read(time, Time(sent), Time(received))).collect()
    }

    #[test]
    fn a_steady_clock_with_slow_replies_is_steady() {
        assert_eq!(
            readings(&[(10_000, 0, 1), (10_400, 100, 600), (11_000, 1000, 1001)]),
            [Reading::Steady, Reading::Steady, Reading::Steady]
        );
    }

    #[test]
    fn steps_in_either_direction_are_found() {
        for step in [20_000_u64, 9_000] {
            assert_eq!(readings(&[(10_000, 0, 1), (step, 1000, 1001)])[1], Reading::Stepped, "to {step}");
        }
    }

    #[test]
    fn a_step_is_found_once_and_then_the_new_offset_counts() {
        assert_eq!(readings(&[(10_000, 0, 1), (20_000, 1000, 1001), (21_000, 2000, 2001)])[2], Reading::Steady);
    }

    #[test]
    fn a_clock_that_moves_a_little_with_every_reply_is_found() {
        let mut watch = ClockWatch::default();
        // Three milliseconds with every reply: 1.5 s in two seconds.
        let stepped = (0..500_u64).filter(|reply| {
            let now = reply * 4;
            watch.read(1_000_000 + now + reply * 3, Time(now), Time(now + 1)) == Reading::Stepped
        });
        assert!(stepped.count() > 100);
    }

    #[test]
    fn a_slow_reply_does_not_widen_the_interval() {
        let readings = readings(&[(10_000, 0, 1), (10_700, 100, 1100), (11_150, 1200, 1201)]);
        assert_eq!(readings[1..], [Reading::Steady, Reading::Stepped], "the clock went back by 50 ms");
    }

    #[test]
    fn requests_that_overlap_are_no_step() {
        let overlapping = [(10_005, 0, 10), (10_006, 2, 500), (10_007, 3, 501), (10_520, 400, 600)];
        assert_eq!(readings(&overlapping), [Reading::Steady; 4]);
    }

    #[test]
    fn one_percent_of_drift_is_no_step() {
        assert_eq!(readings(&[(10_000, 0, 1), (110_900, 100_000, 100_001)])[1], Reading::Steady);
        assert_eq!(readings(&[(10_000, 0, 1), (111_100, 100_000, 100_001)])[1], Reading::Stepped);
    }

    proptest! {
        #[test]
        fn a_clock_within_the_drift_bound_never_steps(rate in -100_i64..=100, replies in vec((0_u64..5000, 0_u64..700, 0_u64..=100, any::<bool>()), 1..200)) {
            let mut watch = ClockWatch::default();
            let mut now = 1_000_000_u64;
            for (pause, trip, when, in_turn) in replies {
                now += pause;
                let executed = i128::from(now) * 100 + i128::from(trip * when);
                // A rate within one percent, in ten thousandths.
                let node = 5_000_000_000 + executed / 100 + executed * i128::from(rate) / 1_000_000;
                let node = u64::try_from(node).unwrap();
                prop_assert_eq!(watch.read(node, Time(now), Time(now + trip)), Reading::Steady);
                now += if in_turn { trip } else { 0 };
            }
        }
    }
}
