//! The writes of one quorum's status: one at a time, at most one a second, and the same content ever more rarely.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use redislease_lock::clock;
use redislease_plan::api::RedisQuorumStatus;
use redislease_plan::plan::repeat::RepeatLimit;
use redislease_plan::status::Notice;

/// The minimum pause between two writes, also after a failed one.
const PACE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct StatusWrites {
    /// The status that is being written, and the events to report when it is.
    writing: Option<(RedisQuorumStatus, Vec<Notice>)>,
    repeat: RepeatLimit<RedisQuorumStatus>,
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
    pub fn ended(&mut self, written: bool) -> Vec<Notice> {
        let Some((status, events)) = self.writing.take() else { return Vec::new() };
        self.wait_until(Instant::now() + PACE);
        if !written {
            return Vec::new();
        }
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
    use super::*;

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
