//! Two operators that observe the Redis nodes differently overwrite each other's quorum status. A new status is written
//! at once. A status that another process overwrote is written again only after a pause that doubles each time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use redislease_core::time::{Millis, Time};

use crate::api::RedisQuorumStatus;

/// The first pause.
const FIRST: Millis = Millis(1000);
/// The longest pause.
const LONGEST: Millis = Millis(64_000);

/// Limits the repetition of one status.
#[derive(Clone, Debug)]
pub(super) struct ConflictBackoff {
    last: Option<(RedisQuorumStatus, Time)>,
    pause: Millis,
}

impl Default for ConflictBackoff {
    fn default() -> Self {
        Self { last: None, pause: FIRST }
    }
}

impl ConflictBackoff {
    /// The earliest time at which this status may be written.
    pub fn due(&self, status: &RedisQuorumStatus) -> Time {
        match &self.last {
            Some((last, at)) if *last == timeless(status) => *at + self.pause,
            _ => Time(0),
        }
    }

    /// Records that the status was written.
    pub fn wrote(&mut self, now: Time, status: &RedisQuorumStatus) {
        let status = timeless(status);
        let again = self.last.as_ref().is_some_and(|(last, _)| *last == status);
        self.pause = if again { Millis((self.pause.0 * 2).min(LONGEST.0)) } else { FIRST };
        self.last = Some((status, now));
    }
}

/// The status without the times of its conditions, which change whenever it is overwritten.
fn timeless(status: &RedisQuorumStatus) -> RedisQuorumStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        condition.last_transition_time = Timestamp(jiff::Timestamp::UNIX_EPOCH);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

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
    fn a_new_status_is_written_at_once_and_an_overwritten_one_with_growing_pauses() {
        let mut backoff = ConflictBackoff::default();
        let mut now = Time(0);
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 64].map(|seconds| Millis(seconds * 1000)) {
            let wanted = votes("2/3", i64::try_from(now.0).unwrap());
            assert_eq!(backoff.due(&wanted), now + pause, "a new transition time alone is not a new status");
            now += pause;
            backoff.wrote(now, &wanted);
        }
        assert_eq!(backoff.due(&votes("3/3", 0)), Time(0));
        backoff.wrote(now, &votes("3/3", 0));
        assert_eq!(backoff.due(&votes("3/3", 1)), now + Millis(1000));
        assert_eq!(backoff.due(&votes("2/3", 1)), Time(0));
    }
}
