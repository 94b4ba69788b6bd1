//! Two processes that observe the Redis nodes differently overwrite each other's status. A new status is written at once.
//! A status that another process overwrote is written again only after a pause that doubles each time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use redislease_core::time::{Millis, Time};

use crate::api::RedisLeaseStatus;

/// The first pause.
const FIRST: Millis = Millis(1000);
/// The longest pause.
const LONGEST: Millis = Millis(64_000);

/// Limits the repetition of one status.
#[derive(Clone, Debug)]
pub(super) struct RepeatLimit {
    /// The fingerprint of the last status that was written, and when.
    last: Option<(u64, Time)>,
    pause: Millis,
}

impl Default for RepeatLimit {
    fn default() -> Self {
        Self { last: None, pause: FIRST }
    }
}

impl RepeatLimit {
    /// The earliest time at which this status may be written.
    pub fn due(&self, status: &RedisLeaseStatus) -> Time {
        match self.last {
            Some((last, at)) if last == fingerprint(status) => at + self.pause,
            _ => Time(0),
        }
    }

    /// Records that the status was written.
    pub fn wrote(&mut self, now: Time, status: &RedisLeaseStatus) {
        let fingerprint = fingerprint(status);
        let again = self.last.is_some_and(|(last, _)| last == fingerprint);
        self.pause = if again { Millis((self.pause.0 * 2).min(LONGEST.0)) } else { FIRST };
        self.last = Some((fingerprint, now));
    }
}

/// The content of a status without its timestamps.
fn fingerprint(status: &RedisLeaseStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&status.attempt, status.fencing_token, status.transitions, status.observed_generation).hash(&mut hasher);
    if let Some(candidates) = &status.candidates {
        (candidates.total, candidates.eligible).hash(&mut hasher);
        for pod in &candidates.ineligible {
            (&pod.pod, &pod.reason).hash(&mut hasher);
        }
    }
    for condition in &status.conditions {
        (&condition.type_, &condition.status, &condition.reason, &condition.message).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(token: i64) -> RedisLeaseStatus {
        RedisLeaseStatus { fencing_token: Some(token), ..RedisLeaseStatus::default() }
    }

    #[test]
    fn a_new_status_is_written_at_once_and_an_overwritten_one_with_growing_pauses() {
        let mut limit = RepeatLimit::default();
        let mut now = Time(0);
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 64].map(|seconds| Millis(seconds * 1000)) {
            assert_eq!(limit.due(&status(1)), now + pause);
            now += pause;
            limit.wrote(now, &status(1));
        }
        assert_eq!(limit.due(&status(2)), Time(0));
        limit.wrote(now, &status(2));
        assert_eq!(limit.due(&status(2)), now + Millis(1000));
        assert_eq!(limit.due(&status(1)), Time(0));
    }
}
