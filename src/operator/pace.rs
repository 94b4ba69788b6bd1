//! Two operators that see the nodes differently contradict each other in a status: not without a pause.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as Timestamp};
use redislease_core::time::{Millis, Time};

use crate::api::{RedisLeaseStatus, RedisQuorumStatus};

/// The first pause.
const FIRST: Millis = Millis(1000);
/// The longest.
const MOST: Millis = Millis(64_000);

/// What can contradict another of its kind in more than the time it was written.
pub(super) trait Statement: Clone + PartialEq {
    /// Its conditions, which carry those times.
    fn conditions(&mut self) -> &mut [Condition];
}

impl Statement for RedisLeaseStatus {
    fn conditions(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

impl Statement for RedisQuorumStatus {
    fn conditions(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

/// The writes of one status. What stood there once by our own hand, and was changed by another's, is written again
/// after a pause that doubles each time; what is new is written at once.
#[derive(Clone, Debug)]
pub(super) struct Pace<S> {
    last: Option<(S, Time)>,
    pause: Millis,
}

impl<S> Default for Pace<S> {
    fn default() -> Self {
        Self { last: None, pause: FIRST }
    }
}

impl<S: Statement> Pace<S> {
    /// From when on `status` may be written.
    pub fn due(&self, status: &S) -> Time {
        match &self.last {
            Some((last, at)) if *last == timeless(status) => *at + self.pause,
            _ => Time(0),
        }
    }

    /// `status` was written.
    pub fn wrote(&mut self, now: Time, status: &S) {
        let status = timeless(status);
        let again = self.last.as_ref().is_some_and(|(last, _)| *last == status);
        self.pause = if again { Millis((self.pause.0 * 2).min(MOST.0)) } else { FIRST };
        self.last = Some((status, now));
    }
}

fn timeless<S: Statement>(status: &S) -> S {
    let mut status = status.clone();
    for condition in status.conditions() {
        condition.last_transition_time = Timestamp(jiff::Timestamp::UNIX_EPOCH);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(votes: &str, written: i64) -> RedisQuorumStatus {
        let condition = Condition {
            last_transition_time: Timestamp(jiff::Timestamp::from_second(written).unwrap()),
            message: String::new(),
            observed_generation: None,
            reason: votes.into(),
            status: "True".into(),
            type_: "Ready".into(),
        };
        RedisQuorumStatus { votes: Some(votes.into()), conditions: vec![condition], ..Default::default() }
    }

    #[test]
    fn what_is_new_is_written_at_once_and_what_was_contradicted_ever_later() {
        let mut pace = Pace::default();
        let mut now = Time(0);
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 64].map(|seconds| Millis(seconds * 1000)) {
            let wanted = votes("2/3", i64::try_from(now.0).unwrap());
            assert_eq!(pace.due(&wanted), now + pause, "the time of a transition is no news");
            now += pause;
            pace.wrote(now, &wanted);
        }
        assert_eq!(pace.due(&votes("3/3", 0)), Time(0));
        pace.wrote(now, &votes("3/3", 0));
        assert_eq!(pace.due(&votes("3/3", 1)), now + Millis(1000));
        assert_eq!(pace.due(&votes("2/3", 1)), Time(0));
    }
}
