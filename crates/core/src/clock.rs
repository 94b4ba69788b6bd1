//! The offset between a Redis node's wall clock and the clock of this process.
//!
//! Redis ends keys by its wall clock. A step forward ends leases early; after a step backward, later grants outlive their
//! TTL. Every reply carries the node's TIME, so a step shows as a jump of the offset that drift does not explain. The clock of
//! this process can jump as well: a virtual machine that is paused or migrated does not count that time, and then the offset of
//! every node jumps alike. [`crate::judge`] tells the two apart.

use crate::time::{Drift, Time};

/// The TIME of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// The node's Unix time, in milliseconds.
    pub node_time: u64,
    /// When the request was sent.
    pub sent: Time,
    /// When the reply was received.
    pub received: Time,
}

/// How far an offset has moved between two readings: by a value in `[low, high]`, in hundredths of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Jump {
    /// The least value.
    pub low: i128,
    /// The greatest value.
    pub high: i128,
}

impl Jump {
    /// Whether the offset has moved for certain, by however little.
    pub const fn excludes_zero(self) -> bool {
        self.low > 0 || self.high < 0
    }

    /// Whether it has moved for certain by more than a jump that [`Drift`] tolerates.
    pub const fn is_beyond(self, drift: Drift) -> bool {
        let tolerated = drift.jump.0 as i128 * HUNDREDTHS;
        self.low > tolerated || self.high < -tolerated
    }

    /// Whether it may have moved by exactly `by`.
    pub const fn contains(self, by: i128) -> bool {
        self.low <= by && by <= self.high
    }

    /// During a pause of this process the clocks drift apart for a time that this process has not counted: the jump itself.
    pub const fn widened(self, drift: Drift) -> Self {
        let (low, high) = (self.low.abs(), self.high.abs());
        let most = if low > high { low } else { high };
        let uncounted = most * drift.percent as i128 / 100;
        Self { low: self.low - uncounted, high: self.high + uncounted }
    }

    /// The same with an unknown jump that was tolerated.
    pub const fn loosened(self, drift: Drift) -> Self {
        let tolerated = drift.jump.0 as i128 * HUNDREDTHS;
        Self { low: self.low - tolerated, high: self.high + tolerated }
    }

    /// The smallest interval that contains both.
    pub fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The movements that both allow.
    pub fn common(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Self { low, high })
    }
}

/// The offset of one node: its clock less the clock of this process.
///
/// The interval in which the offset lies only narrows, except for drift. So a clock that moves a little with every reply
/// is found as well as one that steps once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockWatch {
    drift: Drift,
    known: Option<Known>,
}

/// In hundredths of a millisecond: in `[low, high]` at an instant between `sent` and `received`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    low: i128,
    high: i128,
    sent: Time,
    received: Time,
}

const HUNDREDTHS: i128 = 100;

impl Known {
    fn of(sample: Sample) -> Self {
        let Sample { node_time, sent, received } = sample;
        let (node_time, before, after) = (i128::from(node_time), i128::from(sent.0), i128::from(received.0));
        // TIME was read in between, and each of the three readings is rounded down to a millisecond.
        let (low, high) = ((node_time - after - 1) * HUNDREDTHS, (node_time + 1 - before) * HUNDREDTHS);
        Self { low, high, sent, received }
    }

    /// How far drift can have moved the offset between the two readings. One percent of a millisecond is a hundredth.
    fn drifted(&self, later: &Self, drift: Drift) -> i128 {
        let apart = later.received.since(self.sent).max(self.received.since(later.sent));
        i128::from(apart.0) * i128::from(drift.percent)
    }
}

impl ClockWatch {
    /// Starts without an offset.
    pub const fn new(drift: Drift) -> Self {
        Self { drift, known: None }
    }

    /// Whether an offset is known.
    pub const fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// How far the offset has moved since the last reading that was taken. `None` if there was none.
    pub fn jump(&self, sample: Sample) -> Option<Jump> {
        let known = self.known?;
        let sample = Known::of(sample);
        let slack = i128::from(self.drift.slack.0) * HUNDREDTHS;
        let moved = known.drifted(&sample, self.drift) + slack;
        Some(Jump { low: sample.low - known.high - moved, high: sample.high - known.low + moved })
    }

    /// Takes a reading of the same offset: the interval becomes narrower. A reading that is disjoint from it by less than the
    /// tolerance changes nothing, so that many small steps add up.
    pub fn narrow(&mut self, sample: Sample) {
        let sample = Known::of(sample);
        let Some(known) = self.known else {
            self.known = Some(sample);
            return;
        };
        let drifted = known.drifted(&sample, self.drift);
        let (low, high) = ((known.low - drifted).max(sample.low), (known.high + drifted).min(sample.high));
        if low <= high {
            self.known = Some(Known { low, high, ..sample });
        }
    }

    /// Replaces the offset by this reading.
    pub fn replace(&mut self, sample: Sample) {
        self.known = Some(Known::of(sample));
    }

    /// Moves the offset: the clock of this process has jumped.
    pub fn shift(&mut self, by: Jump) {
        if let Some(known) = &mut self.known {
            known.low += by.low;
            known.high += by.high;
        }
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

    fn sample(&(node_time, sent, received): &(u64, u64, u64)) -> Sample {
        Sample { node_time, sent: Time(sent), received: Time(received) }
    }

    /// For each reply, whether it shows a jump beyond the tolerance. Then the new offset counts.
    fn jumps(samples: &[(u64, u64, u64)]) -> alloc::vec::Vec<bool> {
        let mut watch = ClockWatch::default();
        let jumped = |reply| {
            let sample = sample(reply);
            let jumped = watch.jump(sample).is_some_and(|jump| jump.is_beyond(Drift::STANDARD));
            if jumped {
                watch.replace(sample);
            } else {
                watch.narrow(sample);
            }
            jumped
        };
        samples.iter().map(jumped).collect()
    }

    #[test]
    fn a_steady_clock_with_slow_replies_does_not_jump() {
        assert_eq!(jumps(&[(10_000, 0, 1), (10_400, 100, 600), (11_000, 1000, 1001)]), [false; 3]);
    }

    #[test]
    fn steps_in_either_direction_are_found() {
        for step in [20_000, 9_000] {
            assert!(jumps(&[(10_000, 0, 1), (step, 1000, 1001)])[1], "to {step}");
        }
    }

    #[test]
    fn after_a_step_the_new_offset_counts() {
        assert!(!jumps(&[(10_000, 0, 1), (20_000, 1000, 1001), (21_000, 2000, 2001)])[2]);
    }

    #[test]
    fn a_clock_that_moves_a_little_with_every_reply_is_found() {
        // Three milliseconds with every reply: 1.5 s in two seconds.
        let replies = (0..500_u64).map(|reply| (1_000_000 + reply * 4 + reply * 3, reply * 4, reply * 4 + 1));
        let found = jumps(&replies.collect::<alloc::vec::Vec<_>>()).into_iter().filter(|jumped| *jumped).count();
        assert!((20..=30).contains(&found), "every 50 ms and the drift, or every 18 replies: {found}");
    }

    #[test]
    fn a_slow_reply_does_not_widen_the_interval() {
        let replies = [(10_000, 0, 1), (10_700, 100, 1100), (11_100, 1200, 1201)];
        assert_eq!(jumps(&replies)[1..], [false, true], "the clock went back by 100 ms");
    }

    #[test]
    fn requests_that_overlap_show_no_jump() {
        assert_eq!(jumps(&[(10_005, 0, 10), (10_006, 2, 500), (10_007, 3, 501), (10_520, 400, 600)]), [false; 4]);
    }

    #[test]
    fn one_percent_of_drift_and_50_ms_are_tolerated() {
        assert!(!jumps(&[(10_000, 0, 1), (110_900, 100_000, 100_001)])[1]);
        assert!(!jumps(&[(10_000, 0, 1), (111_050, 100_000, 100_001)])[1]);
        assert!(jumps(&[(10_000, 0, 1), (111_075, 100_000, 100_001)])[1]);
    }

    #[test]
    fn the_jump_of_a_pause_contains_the_time_that_was_lost() {
        let mut watch = ClockWatch::default();
        watch.narrow(sample(&(10_000, 0, 1)));
        // Ten minutes are lost, during which the node's clock was fast by one percent.
        let jump = watch.jump(sample(&(617_000, 1000, 1001))).unwrap().widened(Drift::STANDARD);
        assert!(jump.contains(600_000 * HUNDREDTHS) && jump.is_beyond(Drift::STANDARD), "{jump:?}");
    }

    proptest! {
        #[test]
        fn a_clock_within_the_drift_bound_never_jumps(rate in -100_i64..=100, replies in vec((0_u64..5000, 0_u64..700, 0_u64..=100, any::<bool>()), 1..200)) {
            let mut watch = ClockWatch::default();
            let mut now = 1_000_000_u64;
            for (pause, trip, when, in_turn) in replies {
                now += pause;
                let executed = i128::from(now) * 100 + i128::from(trip * when);
                // A rate within one percent, in ten thousandths.
                let node = 5_000_000_000 + executed / 100 + executed * i128::from(rate) / 1_000_000;
                let sample = sample(&(u64::try_from(node).unwrap(), now, now + trip));
                if let Some(jump) = watch.jump(sample) {
                    prop_assert!(!jump.excludes_zero(), "{:?}", jump);
                }
                watch.narrow(sample);
                now += if in_turn { trip } else { 0 };
            }
        }
    }
}
