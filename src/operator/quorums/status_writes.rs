//! The writes of one quorum's status: one at a time, at most one a second, and the same content ever more rarely.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use redislease_lock::clock;
use redislease_plan::api::RedisQuorumStatus;
use redislease_plan::plan::repeat::RepeatLimit;
use redislease_plan::status::Notice;

use crate::operator::kube_api::CallError;

/// The minimum pause between two writes, also after a failed one.
const PACE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct StatusWrites {
    /// The status that is being written, and the events to report when it is.
    writing: Option<(RedisQuorumStatus, Vec<Notice>)>,
    /// The last write that had no answer: the API server may have stored it.
    unanswered: Option<(RedisQuorumStatus, Vec<Notice>)>,
    /// While a write waits, none is begun, so what alternates must not wait: the leader contradicts claims in this status.
    repeat: RepeatLimit<RedisQuorumStatus, 1>,
    /// The earliest time of the next write.
    at: Option<Instant>,
}

impl StatusWrites {
    /// When the status must be compared again.
    pub const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Compares the status at this time again.
    pub const fn wait_until(&mut self, at: Instant) {
        self.at = Some(at);
    }

    /// This process may not write now. A change that allows it wakes the controller; a time in the past would wake it in a busy loop.
    pub const fn put_off(&mut self) {
        self.at = None;
    }

    /// Whether a write may begin now.
    pub fn may_begin(&mut self) -> bool {
        if self.writing.is_some() {
            self.put_off();
            return false;
        }
        if self.at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        self.put_off();
        true
    }

    /// Begins the write of a status, unless it repeats one that another process overwrote and has to wait.
    pub fn begin(&mut self, status: RedisQuorumStatus, events: Vec<Notice>) -> Option<RedisQuorumStatus> {
        let wait: Duration = self.repeat.due(&timeless(&status)).since(clock::now()).into();
        if !wait.is_zero() {
            self.wait_until(Instant::now() + wait);
            return None;
        }
        self.writing = Some((status.clone(), events));
        Some(status)
    }

    /// The write has ended. Returns the events to report.
    pub fn ended(&mut self, written: Result<(), &CallError>) -> Vec<Notice> {
        let Some(write) = self.writing.take() else { return Vec::new() };
        self.wait_until(Instant::now() + PACE);
        match written {
            Ok(()) => self.stored(write),
            Err(error) => {
                // A conflict may be the answer to a write whose version the earlier one has changed.
                if error.unknown().is_some() {
                    self.unanswered = Some(write);
                }
                Vec::new()
            }
        }
    }

    /// The status that the API server shows: if it is that of the write without an answer, returns the events to report.
    pub fn shown(&mut self, status: Option<&RedisQuorumStatus>) -> Vec<Notice> {
        let write = self.unanswered.take_if(|(written, _)| status == Some(written));
        write.map(|write| self.stored(write)).unwrap_or_default()
    }

    fn stored(&mut self, (status, events): (RedisQuorumStatus, Vec<Notice>)) -> Vec<Notice> {
        self.unanswered = None;
        self.repeat.wrote(clock::now(), timeless(&status));
        events
    }
}

/// The status without the times of its conditions, which change whenever another replica overwrites it.
fn timeless(status: &RedisQuorumStatus) -> RedisQuorumStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        condition.last_transition_time = Timestamp(jiff::Timestamp::UNIX_EPOCH);
    }
    status
}

#[cfg(test)]
mod tests {
    use redislease_core::time::Time;
    use redislease_plan::status::NoticeReason;

    use super::*;

    /// A write of a status and one event that ended with this outcome.
    fn written(outcome: Result<(), &CallError>) -> (StatusWrites, RedisQuorumStatus, Vec<Notice>) {
        let mut writes = StatusWrites::default();
        let status: RedisQuorumStatus = serde_json::from_value(serde_json::json!({"votes": "1/3"})).unwrap();
        let lost = Notice { reason: NoticeReason::QuorumLost, note: "lost".into(), on_pods: Vec::new() };
        assert!(writes.begin(status.clone(), vec![lost]).is_some());
        let events = writes.ended(outcome);
        (writes, status, events)
    }

    #[test]
    fn the_events_of_a_write_without_an_answer_are_reported_once_it_is_seen() {
        let unanswered = CallError::Unanswered("a timeout".into());
        let (mut writes, status, events) = written(Err(&unanswered));
        assert_eq!(events.len(), 0);
        assert_eq!(writes.shown(None).len(), 0);
        assert_eq!(writes.shown(Some(&status)).len(), 1);
        assert_eq!(writes.shown(Some(&status)).len(), 0);
        // It conflicts with the next one, before it is seen.
        let (mut writes, status, _) = written(Err(&unanswered));
        let next: RedisQuorumStatus = serde_json::from_value(serde_json::json!({"votes": "0/3"})).unwrap();
        writes.begin(next, Vec::new());
        writes.ended(Err(&CallError::Conflict));
        assert_eq!(writes.shown(Some(&status)).len(), 1);
        // What was refused is composed again.
        let (mut writes, status, events) = written(Err(&CallError::Conflict));
        assert_eq!((events.len(), writes.shown(Some(&status)).len()), (0, 0));
        assert_eq!(written(Ok(())).2.len(), 1);
    }

    /// While a write waits, none is begun: the leader could not contradict a claim in time.
    #[test]
    fn a_status_that_alternates_waits_for_no_repetition() {
        let mut writes = StatusWrites::default();
        for votes in ["3/3", "2/3"].into_iter().cycle().take(8) {
            let status: RedisQuorumStatus = serde_json::from_value(serde_json::json!({"votes": votes})).unwrap();
            assert_eq!(writes.repeat.due(&status), Time(0), "{votes}");
            writes.repeat.wrote(Time(1), status);
        }
    }

    #[test]
    fn a_new_transition_time_alone_is_not_a_new_status() {
        let status = |votes: &str, second| -> RedisQuorumStatus {
            let at = jiff::Timestamp::from_second(second).unwrap().to_string();
            let ready = serde_json::json!({"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at});
            serde_json::from_value(serde_json::json!({"votes": votes, "conditions": [ready]})).unwrap()
        };
        assert_ne!(status("2/3", 1), status("2/3", 2));
        assert_eq!(timeless(&status("2/3", 1)), timeless(&status("2/3", 2)));
        assert_ne!(timeless(&status("2/3", 1)), timeless(&status("3/3", 1)));
    }
}
