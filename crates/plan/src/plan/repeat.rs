//! Two processes that observe the Redis nodes differently overwrite each other's status. A new status is written at once.
//! A status that another process overwrote is written again only after a pause that doubles each time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use redislease_core::backoff::Backoff;
use redislease_core::time::Time;

use crate::api::RedisLeaseStatus;

/// The pause after a status was written.
const PAUSE: Backoff = Backoff::exponential(1000, 64_000, 0);

/// Limits the repetition of one status, which is identified by its content without timestamps.
#[derive(Clone, Debug)]
pub struct RepeatLimit<Content> {
    /// The last status that was written, and when.
    last: Option<(Content, Time)>,
    /// How many times in a row it was written.
    writes: u32,
}

impl<Content> Default for RepeatLimit<Content> {
    fn default() -> Self {
        Self { last: None, writes: 0 }
    }
}

impl<Content: PartialEq> RepeatLimit<Content> {
    /// The earliest time at which a status with this content may be written.
    pub fn due(&self, content: &Content) -> Time {
        match &self.last {
            Some((last, at)) if last == content => *at + PAUSE.delay(self.writes),
            _ => Time(0),
        }
    }

    /// Records that a status with this content was written.
    pub fn wrote(&mut self, now: Time, content: Content) {
        let again = self.last.as_ref().is_some_and(|(last, _)| *last == content);
        self.writes = if again { self.writes.saturating_add(1) } else { 1 };
        self.last = Some((content, now));
    }
}

/// The content of a lease's status without its timestamps.
pub(super) fn fingerprint(status: &RedisLeaseStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&status.attempt, status.fencing_token, status.transitions, status.observed_generation).hash(&mut hasher);
    if let Some(candidates) = &status.candidates {
        (candidates.total, candidates.eligible).hash(&mut hasher);
        for pod in &candidates.ineligible {
            (&pod.pod, &pod.reason).hash(&mut hasher);
        }
    }
    status.handover.as_ref().map(|handover| (&handover.id, handover.state)).hash(&mut hasher);
    for condition in &status.conditions {
        (&condition.type_, &condition.status, &condition.reason, &condition.message).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
    use redislease_core::time::Millis;

    use super::*;

    #[test]
    fn a_new_status_is_written_at_once_and_an_overwritten_one_with_growing_pauses() {
        let mut limit = RepeatLimit::default();
        let mut now = Time(0);
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 64].map(|seconds| Millis(seconds * 1000)) {
            assert_eq!(limit.due(&1), now + pause);
            now += pause;
            limit.wrote(now, 1);
        }
        assert_eq!(limit.due(&2), Time(0));
        limit.wrote(now, 2);
        assert_eq!(limit.due(&2), now + Millis(1000));
        assert_eq!(limit.due(&1), Time(0));
    }

    #[test]
    fn the_content_of_a_status_differs_with_its_token_and_not_with_its_times() {
        let status = |token, second| RedisLeaseStatus {
            fencing_token: Some(token),
            acquire_time: Some(Timestamp(jiff::Timestamp::from_second(second).unwrap())),
            ..RedisLeaseStatus::default()
        };
        assert_eq!(fingerprint(&status(1, 1)), fingerprint(&status(1, 2)));
        assert_ne!(fingerprint(&status(1, 1)), fingerprint(&status(2, 1)));
    }
}
