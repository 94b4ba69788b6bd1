//! Two processes that observe the Redis nodes differently overwrite each other's status, and what one process observes may alternate: the
//! name of one of several leases that hold keys, for example. A new status is written at once, and so is a return to an earlier one. From
//! then on, a status is written again only after a pause that doubles each time.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use redislease_core::backoff::Backoff;
use redislease_core::time::{Millis, Time};

use crate::api::RedisLeaseStatus;

/// The pause after a status was written.
const PAUSE: Backoff = Backoff::exponential(1000, 64_000, 0);

/// After this time without a write of a status, it counts as new.
const FORGOTTEN: Millis = Millis(300_000);

/// Limits the repetition of statuses, which are identified by their content without timestamps. A repetition is noticed among the last
/// `REMEMBERED` of them.
#[derive(Clone, Debug)]
pub struct RepeatLimit<Content, const REMEMBERED: usize> {
    /// The last statuses that were written, when, and how many times; the newest one is the last.
    written: Vec<(Content, Time, u32)>,
}

impl<Content, const REMEMBERED: usize> Default for RepeatLimit<Content, REMEMBERED> {
    fn default() -> Self {
        Self { written: Vec::new() }
    }
}

impl<Content: PartialEq, const REMEMBERED: usize> RepeatLimit<Content, REMEMBERED> {
    /// The earliest time at which a status with this content may be written.
    pub fn due(&self, content: &Content) -> Time {
        let found = self.written.iter().rev().enumerate().find(|(_, (written, ..))| written == content);
        found.map_or(Time(0), |(since, (_, at, writes))| match (since, writes) {
            (0, writes) => *at + PAUSE.delay(*writes),
            (_, 1) => Time(0),
            (_, writes) => *at + PAUSE.delay(writes - 1),
        })
    }

    /// Records that a status with this content was written.
    pub fn wrote(&mut self, now: Time, content: Content) {
        self.written.retain(|(_, at, _)| now.since(*at) < FORGOTTEN);
        let before = self.written.iter().position(|(written, ..)| *written == content);
        let writes = before.map_or(0, |before| self.written.remove(before).2);
        if self.written.len() == REMEMBERED {
            self.written.remove(0);
        }
        self.written.reserve_exact(1);
        self.written.push((content, now, writes.saturating_add(1)));
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
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;

    #[test]
    fn a_new_status_is_written_at_once_and_an_overwritten_one_with_growing_pauses() {
        let mut limit = RepeatLimit::<_, 3>::default();
        let mut now = Time(0);
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 64].map(|seconds| Millis(seconds * 1000)) {
            assert_eq!(limit.due(&1), now + pause);
            now += pause;
            limit.wrote(now, 1);
        }
        assert_eq!(limit.due(&2), Time(0));
        limit.wrote(now, 2);
        assert_eq!(limit.due(&2), now + Millis(1000));
        assert_eq!(limit.due(&1), now + Millis(64_000), "another one was between");
        limit.wrote(now, 3);
        assert_eq!(limit.due(&2), Time(0), "it was written once");
        limit.wrote(now + FORGOTTEN, 2);
        assert_eq!(limit.due(&1), Time(0));
    }

    /// A lease waits for keys that several leases hold, and each answer names another one of them.
    #[test]
    fn statuses_that_alternate_are_written_with_growing_pauses() {
        let (mut limit, mut now, mut writes) = (RepeatLimit::<_, 4>::default(), Time(0), 0);
        for content in (0..4).cycle() {
            now += Millis(1000);
            if now >= Time(600_000) {
                break;
            }
            if limit.due(&content) <= now {
                limit.wrote(now, content);
                writes += 1;
            }
        }
        assert!((20..68).contains(&writes), "{writes} in ten minutes, of 600");
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
