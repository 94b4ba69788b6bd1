//! Sees when a node's wall clock steps.
//!
//! Redis ends keys by its wall clock: a step forward ends leases early, a step backward makes later grants outlive
//! their TTL. Every reply carries the node's TIME, so a step shows as an offset that no drift explains.

use crate::time::{Drift, Time};

/// What one reply says about a node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// The offset moved no further than drift allows.
    Steady,
    /// The clock was set: the vote in this reply must not count.
    Stepped,
}

/// Follows the offset of one node's clock from ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockWatch {
    drift: Drift,
    last: Option<Sample>,
}

/// The node's clock less ours, in milliseconds: somewhere in `[low, high]`, because TIME was read in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sample {
    low: i128,
    high: i128,
    sent: Time,
}

impl ClockWatch {
    /// Watches with the given drift bound.
    pub const fn new(drift: Drift) -> Self {
        Self { drift, last: None }
    }

    /// Takes the TIME of one reply, in milliseconds of Unix time, with when the request was sent and the reply received.
    pub fn read(&mut self, node_time: u64, sent: Time, received: Time) -> Reading {
        let sample = Sample {
            low: i128::from(node_time) - i128::from(received.0),
            high: i128::from(node_time) - i128::from(sent.0),
            sent,
        };
        let reading = match self.last {
            Some(last) => {
                let room = i128::from(self.drift.margin(received.since(last.sent)).0);
                let apart = sample.low > last.high + room || sample.high < last.low - room;
                if apart { Reading::Stepped } else { Reading::Steady }
            }
            None => Reading::Steady,
        };
        self.last = Some(sample);
        reading
    }

    /// The middle of the last offset: the node's Unix time less our clock, in milliseconds.
    pub fn offset(&self) -> Option<i128> {
        self.last.map(|sample| i128::midpoint(sample.low, sample.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn steps_in_either_direction_show() {
        for step in [20_000_u64, 9_000] {
            assert_eq!(readings(&[(10_000, 0, 1), (step, 1000, 1001)])[1], Reading::Stepped, "to {step}");
        }
    }

    #[test]
    fn a_step_shows_once_and_the_new_offset_is_the_next_measure() {
        assert_eq!(readings(&[(10_000, 0, 1), (20_000, 1000, 1001), (21_000, 2000, 2001)])[2], Reading::Steady);
    }

    #[test]
    fn one_percent_of_drift_is_no_step() {
        assert_eq!(readings(&[(10_000, 0, 1), (110_900, 100_000, 100_001)])[1], Reading::Steady);
        assert_eq!(readings(&[(10_000, 0, 1), (111_100, 100_000, 100_001)])[1], Reading::Stepped);
    }
}
