//! The writes of one quorum's status: by which replica, one at a time, at most one a second, and the same content ever more rarely.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Timestamp;
use redislease_core::time::{Millis, Time};

use crate::api::RedisQuorumStatus;
use crate::plan::calls::CallError;
use crate::plan::facts::Authority;
use crate::plan::repeat::RepeatLimit;
use crate::status::{ComposedQuorum, Notice};

/// The minimum pause between two writes, also after a failed one.
const PACE: Millis = Millis(1000);

/// Whether this replica writes its name into the status although it does not hold the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Claim {
    #[default]
    None,
    Wanted,
    /// The write under way says so.
    Sent,
}

/// Decides when one replica writes the status of one quorum. The leader writes it, also one without the lock that only ends terms; a replica
/// that claims the leader's name writes this name and nothing else.
#[derive(Clone, Debug, Default)]
pub struct QuorumStatusWriter {
    claim: Claim,
    /// The status that is being written, and the events to report when it is.
    writing: Option<ComposedQuorum>,
    /// The last write that had no answer: the API server may have stored it.
    unanswered: Option<ComposedQuorum>,
    /// While a write waits, none is begun, so what alternates must not wait: the leader contradicts claims in this status.
    repeat: RepeatLimit<RedisQuorumStatus, 1>,
    /// The earliest time of the next write.
    at: Option<Time>,
}

impl QuorumStatusWriter {
    /// The election claims the name of the leader.
    pub fn claim(&mut self) {
        if self.claim == Claim::None {
            self.claim = Claim::Wanted;
        }
    }

    /// A claim is needed only while the quorum is lost, even if it was not written yet.
    pub const fn withdraw_claim(&mut self) {
        self.claim = Claim::None;
    }

    /// When the status must be compared again.
    pub const fn next_deadline(&self) -> Option<Time> {
        self.at
    }

    /// Returns the status to write now. `grant` is the authority of this replica, and whether it has the lock. `shown` is the status that
    /// the API server has. If this replica is to be named as the leader, `compose` gets whether it only claims that. It returns the
    /// status that the API server should have, or `None` if it has it.
    pub fn next(
        &mut self,
        now: Time,
        grant: (Authority, bool),
        shown: Option<&RedisQuorumStatus>,
        compose: impl FnOnce(Option<bool>) -> Option<ComposedQuorum>,
    ) -> Option<RedisQuorumStatus> {
        let (authority, has_lock) = grant;
        let decides = authority.decides();
        let claims = self.claim != Claim::None;
        // The change that allows the next write gives another turn. A time in the past would do so again and again.
        if self.writing.is_some() || !(decides || claims) {
            self.at = None;
            return None;
        }
        if self.at.is_some_and(|at| now < at) {
            return None;
        }
        self.at = None;
        let leads = has_lock && authority == Authority::Lead;
        let mut composed = compose((claims || leads).then_some(!leads))?;
        // Until the time has passed in which the leader can contradict a claim, the status says what that leader sees.
        if !decides && let Some(shown) = shown {
            composed.status = RedisQuorumStatus { leader: composed.status.leader, ..shown.clone() };
            composed.events.clear();
        }
        let due = self.repeat.due(&timeless(&composed.status));
        if now < due {
            self.at = Some(due);
            return None;
        }
        if self.claim == Claim::Wanted {
            self.claim = Claim::Sent;
        }
        Some(self.writing.insert(composed).status.clone())
    }

    /// The write has ended. Returns the events to report.
    pub fn ended(&mut self, now: Time, written: Result<(), &CallError>) -> Vec<Notice> {
        // A claim that came later is not in it.
        if self.claim == Claim::Sent {
            self.claim = Claim::None;
        }
        let Some(write) = self.writing.take() else { return Vec::new() };
        // A claim has waited for this write. The API server may have been silent for long, and another replica's claim must be
        // contradicted in time.
        self.at = (self.claim != Claim::Wanted).then_some(now + PACE);
        match written {
            Ok(()) => self.stored(now, write),
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
    pub fn shown(&mut self, now: Time, status: Option<&RedisQuorumStatus>) -> Vec<Notice> {
        let write = self.unanswered.take_if(|write| status == Some(&write.status));
        write.map(|write| self.stored(now, write)).unwrap_or_default()
    }

    fn stored(&mut self, now: Time, write: ComposedQuorum) -> Vec<Notice> {
        self.unanswered = None;
        self.repeat.wrote(now, timeless(&write.status));
        write.events
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
    use serde_json::json;

    use super::*;
    use crate::status::NoticeReason;

    const LEADS: (Authority, bool) = (Authority::Lead, true);
    const FOLLOWS: (Authority, bool) = (Authority::Follow, false);

    fn status(votes: &str) -> RedisQuorumStatus {
        serde_json::from_value(json!({ "votes": votes })).unwrap()
    }

    /// This status, and one event.
    fn lost(votes: &str) -> ComposedQuorum {
        let lost = Notice { reason: NoticeReason::QuorumLost, note: "lost".into(), on_pods: Vec::new() };
        ComposedQuorum { status: status(votes), events: vec![lost] }
    }

    /// The composed status with the name of this replica, if it is to be named.
    fn named(claims: Option<bool>) -> ComposedQuorum {
        let leader = |claimed| json!({"instance": "operator-0", "since": "2026-01-01T00:00:00Z", "transitions": 1, "claimed": claimed});
        let status =
            claims.map(|claimed| serde_json::from_value(json!({"votes": "0/3", "leader": leader(claimed)})).unwrap());
        ComposedQuorum { status: status.unwrap_or_else(status_of_another), events: Vec::new() }
    }

    fn status_of_another() -> RedisQuorumStatus {
        let leader = json!({"instance": "operator-1", "since": "2026-01-01T00:00:00Z", "transitions": 1});
        serde_json::from_value(json!({"votes": "3/3", "leader": leader})).unwrap()
    }

    /// A write of a status and one event that ended with this outcome.
    fn written(outcome: Result<(), &CallError>) -> (QuorumStatusWriter, RedisQuorumStatus, Vec<Notice>) {
        let mut writer = QuorumStatusWriter::default();
        let status = writer.next(Time(1), LEADS, Some(&status("3/3")), |_| Some(lost("1/3"))).unwrap();
        let events = writer.ended(Time(1), outcome);
        (writer, status, events)
    }

    #[test]
    fn the_events_of_a_write_without_an_answer_are_reported_once_it_is_seen() {
        let unanswered = CallError::Unanswered("a timeout".into());
        let (mut writer, status, events) = written(Err(&unanswered));
        assert_eq!(events.len(), 0);
        assert_eq!(writer.shown(Time(2), None).len(), 0);
        assert_eq!(writer.shown(Time(2), Some(&status)).len(), 1);
        assert_eq!(writer.shown(Time(2), Some(&status)).len(), 0);
        // It conflicts with the next one, before it is seen.
        let (mut writer, status, _) = written(Err(&unanswered));
        assert!(writer.next(Time(2000), LEADS, None, |_| Some(lost("0/3"))).is_some());
        writer.ended(Time(2000), Err(&CallError::Conflict));
        assert_eq!(writer.shown(Time(2000), Some(&status)).len(), 1);
        // What was refused is composed again.
        let (mut writer, status, events) = written(Err(&CallError::Conflict));
        assert_eq!((events.len(), writer.shown(Time(2), Some(&status)).len()), (0, 0));
        assert_eq!(written(Ok(())).2.len(), 1);
    }

    #[test]
    fn one_write_is_under_way_and_one_begins_in_a_second() {
        let mut writer = QuorumStatusWriter::default();
        let before = status("3/3");
        assert!(writer.next(Time(0), LEADS, Some(&before), |_| Some(lost("2/3"))).is_some());
        assert_eq!(writer.next(Time(5000), LEADS, Some(&before), |_| Some(lost("1/3"))), None, "one is under way");
        assert_eq!(writer.next_deadline(), None, "its end gives another turn");
        writer.ended(Time(5000), Ok(()));
        assert_eq!(writer.next(Time(5999), LEADS, Some(&before), |_| Some(lost("1/3"))), None);
        assert_eq!(writer.next_deadline(), Some(Time(6000)));
        assert!(writer.next(Time(6000), LEADS, Some(&before), |_| Some(lost("1/3"))).is_some());
    }

    /// A time in the past would give it a turn at once, again and again.
    #[test]
    fn a_follower_writes_nothing_and_waits_for_no_time() {
        let (mut writer, _, _) = written(Ok(()));
        assert_eq!(writer.next(Time(5000), FOLLOWS, Some(&status("3/3")), |_| Some(lost("0/3"))), None);
        assert_eq!(writer.next_deadline(), None);
    }

    /// While a write waits, none is begun: the leader could not contradict a claim in time.
    #[test]
    fn a_status_that_alternates_waits_for_no_repetition() {
        let mut writer = QuorumStatusWriter::default();
        for (second, votes) in (0..8).zip(["3/3", "2/3"].into_iter().cycle()) {
            let now = Time(second * 1000);
            assert!(writer.next(now, LEADS, None, |_| Some(lost(votes))).is_some(), "{second}");
            writer.ended(now, Ok(()));
        }
        // It was overwritten, and is written again.
        assert!(writer.next(Time(8000), LEADS, None, |_| Some(lost("2/3"))).is_some());
        writer.ended(Time(8000), Ok(()));
        assert_eq!(writer.next(Time(9000), LEADS, None, |_| Some(lost("2/3"))), None, "ever more rarely");
        assert_eq!(writer.next_deadline(), Some(Time(10_000)));
    }

    /// Another replica has claimed the name while this one wrote a status: that write conflicts, and the claim must follow it.
    #[test]
    fn a_claim_outlives_a_write_that_was_sent_before_it() {
        let mut writer = QuorumStatusWriter::default();
        assert!(writer.next(Time(0), LEADS, Some(&status("3/3")), |_| Some(lost("1/3"))).is_some());
        writer.claim();
        assert_eq!(
            writer.next(Time(1), FOLLOWS, Some(&status_of_another()), |leads| Some(named(leads))),
            None,
            "a write is under way"
        );
        writer.ended(Time(10), Err(&CallError::Conflict));
        assert!(writer.next(Time(10), FOLLOWS, Some(&status_of_another()), |leads| Some(named(leads))).is_some());
        writer.ended(Time(1020), Err(&CallError::Conflict));
        assert_eq!(
            writer.next(Time(9000), FOLLOWS, Some(&status_of_another()), |leads| Some(named(leads))),
            None,
            "one write for each claim"
        );
    }

    /// Otherwise one that reaches no node would say for the others that the quorum is lost.
    #[test]
    fn a_claim_changes_only_the_name_of_the_leader() {
        let mut writer = QuorumStatusWriter::default();
        writer.claim();
        let after =
            writer.next(Time(0), FOLLOWS, Some(&status_of_another()), |leads| Some(named(leads))).expect("a claim");
        let leader = after.leader.as_ref().expect("a leader");
        assert_eq!((leader.instance.as_str(), leader.claimed), ("operator-0", true));
        assert_eq!(RedisQuorumStatus { leader: status_of_another().leader, ..after }, status_of_another());
        writer.withdraw_claim();
        writer.ended(Time(1), Ok(()));
        assert_eq!(writer.next(Time(9000), FOLLOWS, Some(&status_of_another()), |leads| Some(named(leads))), None);
    }

    #[test]
    fn a_replica_that_only_ends_terms_is_not_named() {
        let no_name = [(Authority::Lead, false), (Authority::End, true)];
        for (grant, names) in no_name.map(|grant| (grant, None)).into_iter().chain([(LEADS, Some(false))]) {
            let mut named = None;
            let composed = |leads| {
                named = Some(leads);
                Some(lost("0/3"))
            };
            assert!(QuorumStatusWriter::default().next(Time(0), grant, Some(&status("3/3")), composed).is_some());
            assert_eq!(named, Some(names), "{grant:?}");
        }
    }

    #[test]
    fn a_new_transition_time_alone_is_not_a_new_status() {
        let status = |votes: &str, second| -> RedisQuorumStatus {
            let at = jiff::Timestamp::from_second(second).unwrap().to_string();
            let ready =
                json!({"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": at});
            serde_json::from_value(json!({"votes": votes, "conditions": [ready]})).unwrap()
        };
        assert_ne!(status("2/3", 1), status("2/3", 2));
        assert_eq!(timeless(&status("2/3", 1)), timeless(&status("2/3", 2)));
        assert_ne!(timeless(&status("2/3", 1)), timeless(&status("3/3", 1)));
    }
}
