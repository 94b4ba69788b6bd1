//! Leases whose pods start only after their election.

mod start;
mod unstoppable;

use super::*;
use crate::api::conditions::LeaseReady;
use crate::api::names::PodRole;

const GATE: &str = "lease.redislease.io/billing";
const STARTED: &str = "started.redislease.io/billing";

/// A pod that waits for its election.
fn gated(name: &str) -> PodFacts {
    PodFacts { gates: [GATE.to_owned()].into(), node: None, ready: false, running: false, ..pod(name) }
}

impl Story {
    /// A free lease with two gated candidates.
    fn gated() -> Self {
        let mut story = Self::new();
        story.store(&json!({"activation": {"schedulingGate": true}}), &json!(null));
        story.candidates(&[gated("a"), gated("b")]);
        story
    }

    /// `a` holds the lease with token 7, and the operator has not started it yet.
    fn elected_a() -> Self {
        let mut story = Self::gated();
        story.turn();
        story.answer();
        story.holder(gated("a"));
        story.view(publishing(term(1, 7, "a")));
        story.write();
        story.view(held(term(1, 7, "a")));
        story
    }

    /// `a` holds the lease with token 7, and the operator has started it.
    fn started_a() -> Self {
        let mut story = Self::elected_a();
        story.pods();
        story.confirm();
        story.pods();
        story
    }

    /// The status names the term, also according to a direct read, if one is wanted.
    fn confirm(&mut self) {
        if self.wants(&Effect::Read(Read::Lease)) {
            self.read_lease();
        }
    }

    fn changes(&self) -> Vec<(String, PodChange)> {
        self.role_writes().into_iter().map(|write| (write.pod, write.change)).collect()
    }

    fn pod(&self, name: &str) -> PodFacts {
        let CandidateFacts::Known(electorate) = &self.facts.candidates else { panic!("candidates are known") };
        electorate.find(&format!("uid-{name}")).unwrap().as_ref().clone()
    }

    /// The API server accepts the pending standby write of this pod.
    fn accept_standby(&mut self, uid: &str) {
        let CandidateFacts::Known(electorate) = &self.facts.candidates else { panic!("candidates are known") };
        let mut pods: Vec<PodFacts> = electorate.pods().map(|pod| pod.as_ref().clone()).collect();
        for pod in pods.iter_mut().filter(|pod| pod.uid == uid) {
            pod.labels.insert(GATE.into(), "standby".into());
        }
        self.candidates(&pods);
        self.event(Event::RoleWritten { uid: uid.into(), outcome: RoleOutcome::Written(None) });
    }

    /// The API server accepts the only role write of the last turn.
    fn accept(&mut self, uid: &str) {
        for write in self.role_writes() {
            self.apply(&write);
        }
        self.event(Event::RoleWritten { uid: uid.into(), outcome: RoleOutcome::Written(None) });
    }
}

#[test]
fn the_elected_pod_is_started_only_when_the_status_names_its_term() {
    let mut story = Story::gated();
    story.turn();
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"), "readiness is not required of a pod that has not started");
    story.holder(gated("a"));
    story.view(publishing(term(1, 7, "a")));
    assert!(story.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", story.effects);
    story.write();
    story.facts.stop_at = Some(Time(1_000_000_000));
    story.view(held(term(1, 7, "a")));
    // A late write of an earlier term must not start `b`: its version changes first.
    assert_eq!(story.changes(), [("b".into(), PodChange::Fence(1))]);
    story.accept("uid-b");
    assert_eq!(story.changes(), [], "the status is read first");
    story.confirm();
    let start = story.role_writes().into_iter().find(|write| write.pod == "a").unwrap();
    assert_eq!(
        (start.change, start.role, start.token.as_deref()),
        (PodChange::Start, Some(PodRole::Active), Some("7"))
    );
    assert!(start.not_after.is_some(), "a late write starts no pod");
    story.pods();
    assert_eq!(story.pod("a").annotations.get(STARTED).map(String::as_str), Some("7.uid-a"));
    assert!(story.pod("b").gates.contains(&GATE.to_owned()), "only the holder starts");
    // It runs: nothing is written to the pods any more.
    let running = PodFacts { node: Some("node-1".into()), ready: true, ..story.pod("a") };
    story.candidates(&[running.clone(), story.pod("b")]);
    story.holder(running);
    story.pass(60_000);
    assert_eq!(story.role_writes(), []);
    let status = story.status_write().expect("the node of the holder is known now").status;
    assert_eq!(status.holder.as_ref().unwrap().node.as_deref(), Some("node-1"));
    assert_eq!(status.candidates.as_ref().unwrap().eligible, 2, "the holder counts");
}

#[test]
fn a_pod_that_lost_the_lease_is_deleted_when_the_status_says_so() {
    let mut story = Story::started_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert_eq!(story.changes(), [("a".into(), PodChange::None)], "the status names the term");
    let standby = story.role_writes().remove(0);
    story.write();
    assert_eq!(story.changes(), [], "one write at a time");
    story.apply(&standby);
    story.event(Event::RoleWritten { uid: standby.uid, outcome: RoleOutcome::Written(None) });
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    assert_eq!(story.role_writes()[0].priority, Priority::Active);
    story.accept("uid-a");
    let notice = story.reported(NoticeReason::PodDeleted);
    assert_eq!(notice.on_pods, [("a".to_owned(), "uid-a".to_owned())]);
    assert_eq!(story.changes(), [], "it stops");
}

/// Another replica may continue the term until the status says that it has ended.
#[test]
fn a_pod_that_lost_the_lease_is_not_deleted_while_the_status_waits_for_its_turn() {
    let mut story = Story::started_a();
    story.facts.permitted.end = false;
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.accept_standby("uid-a");
    assert_eq!((story.status_write(), story.changes()), (None, vec![]), "{:?}", story.effects);
    story.facts.permitted.end = true;
    story.turn();
    story.write();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
}

/// The mark was copied from a pod that had been started, by an earlier version of the operator or by this one: with its template,
/// or with `kubectl debug --copy-to`.
#[test]
fn a_pod_with_the_mark_of_the_start_of_another_pod_is_not_deleted() {
    for (mut copy, mark) in [(gated("c"), "5"), (pod("c"), "5"), (gated("c"), "5.uid-a"), (pod("c"), "5.uid-a")] {
        for is_candidate in [true, false] {
            let mut story = Story::started_a();
            copy.annotations.set(STARTED, Some(mark));
            copy.annotations.set("token.redislease.io/billing", Some("5"));
            let known = [story.pod("a"), story.pod("b")];
            let candidates = if is_candidate { &[&known[..], &[copy.clone()]].concat()[..] } else { &known };
            story.candidates(candidates);
            story.facts.strays = if is_candidate { vec![] } else { vec![Arc::new(copy.clone())] };
            story.turn();
            let mut changes = Vec::new();
            for _ in 0..5 {
                let writes = story.role_writes();
                changes.extend(story.changes());
                if story.status_write().is_some() {
                    story.write();
                    changes.extend(story.changes());
                }
                for write in writes {
                    story.apply(&write);
                    story.event(Event::RoleWritten { uid: write.uid, outcome: RoleOutcome::Written(None) });
                    changes.extend(story.changes());
                }
                story.confirm();
            }
            assert!(changes.iter().all(|(_, change)| *change != PodChange::Delete), "{mark} {changes:?}");
        }
    }
}

/// Another replica, whose list did not show the lease, has removed label and token from the running pod.
#[test]
fn a_started_pod_without_a_token_gets_the_latest_one_and_is_deleted() {
    let mut story = Story::started_a();
    let mut a = story.pod("a");
    a.annotations.set("token.redislease.io/billing", None);
    a.labels.remove(GATE);
    story.candidates(&[a, story.pod("b")]);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    let standby = story.role_writes().remove(0);
    assert_eq!((standby.pod.as_str(), standby.token.as_deref()), ("a", Some("7")));
    story.write();
    story.apply(&standby);
    story.event(Event::RoleWritten { uid: standby.uid, outcome: RoleOutcome::Written(None) });
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
}

/// A pod that is no candidate any more is known only by its label. While it stops, the next pod must wait for it.
#[test]
fn a_started_pod_keeps_its_label_until_it_has_stopped() {
    let mut story = Story::started_a();
    let mut a = story.pod("a");
    a.labels.insert(GATE.into(), "standby".into());
    a.deletion_grace = Some(core::time::Duration::from_secs(30));
    story.facts.strays = vec![Arc::new(a)];
    story.candidates(&[gated("b")]);
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(!story.role_writes().iter().any(|write| write.pod == "a"), "{:?}", story.role_writes());
    // It has stopped.
    let stopped = PodFacts { stopped: true, finished: true, ..story.facts.strays[0].as_ref().clone() };
    story.facts.strays = vec![Arc::new(stopped)];
    story.turn();
    let roles: Vec<_> = story.role_writes().into_iter().map(|write| (write.pod, write.role)).collect();
    assert!(roles.contains(&("a".into(), None)), "{roles:?}");
}

#[test]
fn a_term_that_may_continue_costs_no_pod() {
    // Another process of the operator has just started: it knows only the status.
    let story = Story::started_a();
    let status = serde_json::to_value(story.facts.lease.as_ref().unwrap().status.as_ref().unwrap()).unwrap();
    let mut next = Story::gated();
    next.store(&json!({"activation": {"schedulingGate": true}}), &status);
    next.candidates(&[story.pod("a"), story.pod("b")]);
    next.turn();
    assert_eq!(next.changes(), []);
    next.view(View { standing: Standing::Adopting(term_view(term(1, 7, "a"))), ..View::default() });
    assert_eq!(next.changes(), []);
    next.view(View { standing: Standing::Uncertain(term_view(term(1, 7, "a"))), ..View::default() });
    let mut lease = next.facts.lease.as_deref().unwrap().clone();
    let conditions = &mut lease.status.as_mut().unwrap().conditions;
    conditions.iter_mut().filter(|condition| condition.type_ == "Active").for_each(|active| {
        active.status = ConditionStatus::Unknown.as_str().into();
    });
    next.facts.lease = Some(Arc::new(lease));
    next.turn();
    assert_eq!(next.changes(), []);
    next.pass(60_000);
    assert!(next.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", next.effects);
}

#[test]
fn a_pod_whose_later_token_the_status_does_not_show_is_not_deleted() {
    let mut story = Story::started_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.write();
    let mut a = story.pod("a");
    a.annotations.set("token.redislease.io/billing", Some("9"));
    a.labels.insert(GATE.into(), "standby".into());
    story.candidates(&[a, story.pod("b")]);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: RoleOutcome::Conflict });
    assert_eq!(story.changes(), [], "another process may have published a term");
}

#[test]
fn without_the_flag_no_term_begins_and_no_pod_is_deleted() {
    let mut story = Story::gated();
    story.facts.allowed = Allowed::default();
    story.turn();
    let status = story.status_write().unwrap().status;
    story.answer();
    assert_eq!(story.wanted(), None);
    let ready = status.condition(ConditionType::Ready).unwrap();
    assert_eq!(ready.reason, LeaseReady::ActivationNotAllowed.as_str());
    assert!(ready.message.contains("--allow-scheduling-gate"), "{}", ready.message);

    let mut story = Story::started_a();
    story.facts.allowed = Allowed::default();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.write();
    let a = PodFacts { labels: [(GATE.to_owned(), "standby".to_owned())].into(), ..story.pod("a") };
    story.candidates(&[a, story.pod("b")]);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: RoleOutcome::Written(None) });
    assert_eq!(story.changes(), []);
}

#[test]
fn refusals_to_start_a_pod_are_reported_once() {
    let mut story = Story::elected_a();
    // Also the write to `b` is refused: this does not keep `a` from its start.
    let refused = |why: &str| RoleOutcome::Refused(why.into());
    story.event(Event::RoleWritten { uid: "uid-b".into(), outcome: refused("a webhook") });
    story.confirm();
    assert!(story.changes().contains(&("a".into(), PodChange::Start)), "{:?}", story.effects);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: refused("a webhook") });
    let notice = story.reported(NoticeReason::ActivationRefused);
    assert_eq!(notice.note, "a holds the lease and cannot be started: a webhook");
    assert_eq!(story.changes(), [], "it waits");
    story.pass(1000);
    assert!(story.changes().contains(&("a".into(), PodChange::Start)), "it is tried again: {:?}", story.effects);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: refused("a webhook") });
    assert!(!story.effects.iter().any(|effect| matches!(effect, Effect::Report(_))), "{:?}", story.effects);
    story.pass(2000);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: refused("the policy") });
    assert!(story.reported(NoticeReason::ActivationRefused).note.ends_with("the policy"));
}

#[test]
fn after_a_takeover_the_lost_pod_gets_standby_before_the_next_one_starts() {
    let mut story = Story::started_a();
    // Another replica has ended the term of `a` and published one of `b`. Then it died.
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.write();
    story.view(publishing(term(2, 8, "b")));
    story.write();
    let status = serde_json::to_value(story.facts.lease.as_ref().unwrap().status.as_ref().unwrap()).unwrap();
    let mut next = Story::gated();
    next.store(&json!({"activation": {"schedulingGate": true}}), &status);
    next.candidates(&[story.pod("a"), story.pod("b")]);
    next.holder(gated("b"));
    next.turn();
    next.view(held(term(2, 8, "b")));
    assert_eq!(next.changes(), [("a".into(), PodChange::None)], "it still has `active`");
    next.accept("uid-a");
    assert_eq!(next.changes(), [], "`a` may still run");
    // A status is being written: until then it is not certain that the term of `a` has ended.
    next.event(Event::StatusWritten(StatusOutcome::Withdrawn));
    next.write();
    assert_eq!(next.changes(), [("a".into(), PodChange::Delete)]);
}

#[test]
fn a_deletion_that_waits_is_withdrawn_when_pods_start_by_themselves_again() {
    let mut story = Story::started_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.write();
    story.accept_standby("uid-a");
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    let status = serde_json::to_value(story.facts.lease.as_ref().unwrap().status.as_ref().unwrap()).unwrap();
    story.store(&json!({"activation": {"schedulingGate": false}}), &status);
    story.turn();
    assert!(story.wants(&Effect::WithdrawRole { uid: "uid-a".into() }), "{:?}", story.effects);
}

#[test]
fn a_pod_that_cannot_be_started_loses_the_lease_and_another_goes_first() {
    let mut story = Story::elected_a();
    story.pass(299_000);
    assert_eq!(story.commands(), []);
    story.pass(2000);
    assert!(
        story.effects.iter().any(|effect| matches!(effect, Effect::Read(Read::Holder { .. }))),
        "{:?}",
        story.effects
    );
    story.event(Event::HolderRead { uid: "uid-a".into(), answered: true });
    assert_eq!(story.commands(), [Command::End { term: term(1, 7, "a"), proof: false }]);
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    story.write();
    story.facts.holder = PodKnowledge::Unseen;
    story.now = Time(10_000_000);
    story.view(idle(0));
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("b"));
}

#[test]
fn a_started_pod_that_does_not_run_loses_the_lease_although_readiness_is_ignored() {
    let mut story = Story::elected_a();
    let status = serde_json::to_value(story.facts.lease.as_ref().unwrap().status.as_ref().unwrap()).unwrap();
    story.store(&json!({"activation": {"schedulingGate": true}, "election": {"requireReady": false}}), &status);
    story.turn();
    story.pods();
    let started = story.pod("a");
    story.holder(started);
    story.pass(299_000);
    assert_eq!(story.commands(), []);
    story.pass(2000);
    assert!(story.effects.iter().any(|effect| matches!(effect, Effect::Read(Read::Holder { .. }))));
    story.event(Event::HolderRead { uid: "uid-a".into(), answered: true });
    assert_eq!(story.commands(), [Command::End { term: term(1, 7, "a"), proof: false }]);
}

#[test]
fn pods_of_a_lease_that_is_deleted_run_on() {
    let mut story = Story::started_a();
    story.lease_is_deleted();
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    story.write();
    let a = PodFacts { labels: [].into(), ..story.pod("a") };
    story.candidates(&[a, story.pod("b")]);
    story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: RoleOutcome::Written(None) });
    assert!(story.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", story.effects);
}

#[test]
fn a_pod_that_is_no_candidate_any_more_keeps_its_label_until_it_is_deleted() {
    // A tool may have removed the token.
    for token in [Some("7"), None] {
        let mut story = Story::started_a();
        let mut a = story.pod("a");
        assert_eq!(a.annotations.get("token.redislease.io/billing").map(String::as_str), Some("7"));
        a.annotations.set("token.redislease.io/billing", token);
        story.candidates(&[story.pod("b")]);
        story.facts.strays = vec![Arc::new(a.clone())];
        story.holder(a.clone());
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        let [write] = &story.role_writes()[..] else { panic!("{:?}", story.effects) };
        assert_eq!((write.change, write.role), (PodChange::None, Some(PodRole::Standby)));
        assert_eq!(write.token.as_deref(), Some("7"));
        story.write();
        a.labels.insert(GATE.into(), "standby".into());
        a.annotations.set("token.redislease.io/billing", Some("7"));
        story.facts.strays = vec![Arc::new(a)];
        story.event(Event::RoleWritten { uid: "uid-a".into(), outcome: RoleOutcome::Written(None) });
        assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    }
}

/// Refused deletions leave room for other writes.
#[test]
fn at_most_four_pods_of_a_lease_are_deleted_at_a_time() {
    let mut story = Story::started_a();
    let lost = |number| {
        let mut pod = pod(&format!("p{number}"));
        pod.labels.insert(GATE.into(), "standby".into());
        pod.annotations.set("token.redislease.io/billing", Some("7"));
        pod.annotations.set(STARTED, Some(&format!("5.{}", pod.uid)));
        pod
    };
    let known = [story.pod("a"), story.pod("b")];
    story.candidates(&known.into_iter().chain((0..6).map(lost)).collect::<Vec<_>>());
    story.turn();
    story.write();
    let delete = |number| (format!("p{number}"), PodChange::Delete);
    assert_eq!(story.changes(), (0..4).map(delete).collect::<Vec<_>>());
}
