//! Leases whose pods start only after their election.

mod start;
mod unstoppable;

use super::*;
use crate::api::conditions::LeaseReady;

const STARTED: &str = "started.redislease.io/billing";

/// A pod that waits for its election.
fn gated(name: &str) -> PodFacts {
    PodFacts { gates: [LABEL.to_owned()].into(), node: None, ready: false, running: false, ..pod(name) }
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
        let mut story = Self::gated().asked();
        story.holder(gated("a"));
        story.elect(term(1, 7, "a"));
        story
    }

    /// `a` holds the lease with token 7, and the operator has started it.
    fn started_a() -> Self {
        let mut story = Self::elected_a();
        story.pods();
        story.confirm();
        story.pods();
        story.holder(story.pod("a"));
        story
    }

    /// Another process of the operator, which knows only what the API server stores.
    fn next(&self) -> Self {
        let mut next = Self::gated();
        next.store(&json!({"activation": {"schedulingGate": true}}), &self.status_value());
        next.candidates(&self.known_pods());
        next
    }

    /// `a` does not run for `unhealthyAfter`.
    fn loses_the_lease_as_unhealthy(&mut self) {
        self.pass(299_000);
        assert_eq!(self.commands(), []);
        self.pass(2000);
        assert!(self.effects.iter().any(|effect| matches!(effect, Effect::Read(Read::Holder { .. }))));
        self.event(Event::HolderRead { uid: "uid-a".into(), answered: true });
        assert_eq!(self.commands(), [end(term(1, 7, "a"))]);
    }

    fn changes(&self) -> Vec<(String, PodChange)> {
        self.role_writes().into_iter().map(|write| (write.pod, write.change)).collect()
    }

    /// The API server accepts the pending standby write of `a`.
    fn accept_standby(&mut self) {
        let standby = |pod: PodFacts| if pod.name == "a" { labelled(pod, "standby") } else { pod };
        let pods: Vec<PodFacts> = self.known_pods().into_iter().map(standby).collect();
        self.candidates(&pods);
        self.role_answered("a", RoleOutcome::Written(None));
    }

    /// The API server accepts the only role write of the last turn.
    fn accept(&mut self) {
        let [write] = &self.role_writes()[..] else { panic!("{:?}", self.effects) };
        self.role_stored(write.clone());
    }
}

#[test]
fn the_elected_pod_is_started_only_when_the_status_names_its_term() {
    let mut story = Story::gated().asked();
    assert_eq!(story.wanted().as_deref(), Some("a"), "readiness is not required of a pod that has not started");
    story.holder(gated("a"));
    story.view(publishing(term(1, 7, "a")));
    assert!(story.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", story.effects);
    story.write();
    story.facts.stop_at = Some(Time(1_000_000_000));
    story.view(held(term(1, 7, "a")));
    // A late write of an earlier term must not start `b`: its version changes first.
    assert_eq!(story.changes(), [("b".into(), PodChange::Fence(1))]);
    story.accept();
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
    assert!(story.pod("b").gates.contains(&LABEL.to_owned()), "only the holder starts");
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
    // The last sighting of the holder can be older than the candidates.
    for holder in [Story::started_a().pod("a"), gated("a")] {
        let mut story = Story::started_a();
        story.holder(holder);
        story.view(ending(term(1, 7, "a"), EndReason::Deadline));
        assert_eq!(story.changes(), [("a".into(), PodChange::None)], "the status names the term");
        let standby = story.role_writes().remove(0);
        assert_eq!(standby.priority, Priority::End, "the deletion follows it");
        story.write();
        assert_eq!(story.changes(), [], "one write at a time");
        story.role_stored(standby);
        assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
        assert_eq!(story.role_writes()[0].priority, Priority::End, "it waits for no start of another lease");
        story.accept();
        let notice = story.reported(NoticeReason::PodDeleted);
        assert_eq!(notice.on_pods, [("a".to_owned(), "uid-a".to_owned())]);
        assert_eq!(story.changes(), [], "it stops");
    }
}

/// A pod without a node is deleted at once. The watch may show that after the next turn.
#[test]
fn a_repeated_deletion_is_not_counted_as_a_correction() {
    let mut story = Story::started_a();
    story.lose(term(1, 7, "a"));
    story.accept_standby();
    for _ in 0..2 {
        assert_eq!((story.changes(), story.corrected(None)), (vec![("a".into(), PodChange::Delete)], 0));
        story.role_answered("a", RoleOutcome::Written(None));
    }
}

/// Another replica may continue the term until the status says that it has ended.
#[test]
fn a_pod_that_lost_the_lease_is_not_deleted_while_the_status_waits_for_its_turn() {
    let mut story = Story::started_a();
    story.facts.permitted.end = false;
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    story.accept_standby();
    assert_eq!((story.status_write(), story.changes()), (None, vec![]), "{:?}", story.effects);
    story.facts.permitted.end = true;
    story.turn();
    story.write();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
}

/// The mark was copied from a pod that had been started: with its template, or with `kubectl debug --copy-to`. A text without a UID
/// is no mark.
#[test]
fn a_pod_with_the_mark_of_the_start_of_another_pod_is_not_deleted() {
    for (mut copy, mark) in [(gated("c"), "5"), (pod("c"), "5"), (gated("c"), "5.uid-a"), (pod("c"), "5.uid-a")] {
        for is_candidate in [true, false] {
            let mut story = Story::started_a();
            copy.annotations.set(STARTED, Some(mark));
            let copy = with_token(copy.clone(), "5");
            if is_candidate {
                story.candidates(&[story.pod("a"), story.pod("b"), copy]);
            } else {
                story.facts.strays = vec![Arc::new(copy)];
            }
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
                    story.role_stored(write);
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
    a.annotations.set(TOKEN, None);
    a.labels.remove(LABEL);
    story.candidates(&[a, story.pod("b")]);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    let standby = story.role_writes().remove(0);
    assert_eq!((standby.pod.as_str(), standby.token.as_deref()), ("a", Some("7")));
    story.write();
    story.role_stored(standby);
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
}

/// A pod that is no candidate any more is known only by its label. While it stops, the next pod must wait for it.
#[test]
fn a_started_pod_keeps_its_label_until_it_has_stopped() {
    let mut story = Story::started_a();
    let deletion_grace = Some(core::time::Duration::from_secs(30));
    let a = PodFacts { deletion_grace, ..labelled(story.pod("a"), "standby") };
    story.facts.strays = vec![Arc::new(a)];
    story.candidates(&[gated("b")]);
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(!story.role_writes().iter().any(|write| write.pod == "a"), "{:?}", story.role_writes());
    // It has stopped.
    let stopped = PodFacts { stopped: true, finished: true, ..story.facts.strays[0].as_ref().clone() };
    story.facts.strays = vec![Arc::new(stopped)];
    story.turn();
    assert!(story.roles().contains(&("a".into(), None)), "{:?}", story.effects);
}

#[test]
fn a_term_that_may_continue_costs_no_pod() {
    // Another process of the operator has just started: it knows only the status.
    let mut next = Story::started_a().next();
    next.turn();
    assert_eq!(next.changes(), []);
    next.view(adopting(term(1, 7, "a")));
    assert_eq!(next.changes(), []);
    next.view(uncertain(term(1, 7, "a")));
    next.condition_mut(ConditionType::Active).status = ConditionStatus::Unknown.as_str().into();
    next.turn();
    assert_eq!(next.changes(), []);
    next.pass(60_000);
    assert!(next.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", next.effects);
}

#[test]
fn a_pod_whose_later_token_the_status_does_not_show_is_not_deleted() {
    let mut story = Story::started_a();
    story.lose(term(1, 7, "a"));
    let a = with_token(labelled(story.pod("a"), "standby"), "9");
    story.candidates(&[a, story.pod("b")]);
    story.role_answered("a", RoleOutcome::Conflict);
    assert_eq!(story.changes(), [], "another process may have published a term");
}

#[test]
fn without_the_flag_no_term_begins_and_no_pod_is_deleted() {
    let mut story = Story::gated();
    story.facts.allowed = Allowed::default();
    story.turn();
    let ready = story.ready();
    story.answer();
    assert_eq!(story.wanted(), None);
    assert_eq!(ready.reason, LeaseReady::ActivationNotAllowed.as_str());
    assert!(ready.message.contains("--allow-scheduling-gate"), "{}", ready.message);

    let mut story = Story::started_a();
    story.facts.allowed = Allowed::default();
    story.lose(term(1, 7, "a"));
    let a = labelled(story.pod("a"), "standby");
    story.candidates(&[a, story.pod("b")]);
    story.role_answered("a", RoleOutcome::Written(None));
    assert_eq!(story.changes(), []);
}

#[test]
fn refusals_to_start_a_pod_are_reported_once() {
    let mut story = Story::elected_a();
    // Also the write to `b` is refused: this does not keep `a` from its start.
    story.role_answered("b", refusal("a webhook"));
    story.confirm();
    assert!(story.changes().contains(&("a".into(), PodChange::Start)), "{:?}", story.effects);
    story.role_answered("a", refusal("a webhook"));
    let notice = story.reported(NoticeReason::ActivationRefused);
    assert_eq!(notice.note, "a holds the lease and cannot be started: a webhook");
    assert_eq!(story.changes(), [], "it waits");
    story.pass(1000);
    assert!(story.changes().contains(&("a".into(), PodChange::Start)), "it is tried again: {:?}", story.effects);
    story.role_answered("a", refusal("a webhook"));
    assert!(!story.effects.iter().any(|effect| matches!(effect, Effect::Report(_))), "{:?}", story.effects);
    story.pass(2000);
    story.role_answered("a", refusal("the policy"));
    assert!(story.reported(NoticeReason::ActivationRefused).note.ends_with("the policy"));
}

#[test]
fn after_a_takeover_the_lost_pod_gets_standby_before_the_next_one_starts() {
    let mut story = Story::started_a();
    // Another replica has ended the term of `a` and published one of `b`. Then it died.
    story.lose(term(1, 7, "a"));
    story.view(publishing(term(2, 8, "b")));
    story.write();
    let mut next = story.next();
    next.holder(gated("b"));
    next.turn();
    next.view(held(term(2, 8, "b")));
    assert_eq!(next.changes(), [("a".into(), PodChange::None)], "it still has `active`");
    next.accept();
    assert_eq!(next.changes(), [], "`a` may still run");
    // A status is being written: until then it is not certain that the term of `a` has ended.
    next.event(Event::StatusWritten(StatusOutcome::Withdrawn));
    next.write();
    assert_eq!(next.changes(), [("a".into(), PodChange::Delete)]);
}

#[test]
fn a_deletion_that_waits_is_withdrawn_when_pods_start_by_themselves_again() {
    let mut story = Story::started_a();
    story.lose(term(1, 7, "a"));
    story.accept_standby();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    story.edit(&json!({"activation": {"schedulingGate": false}}));
    story.turn();
    assert!(story.wants(&Effect::WithdrawRole { uid: "uid-a".into() }), "{:?}", story.effects);
}

#[test]
fn a_pod_that_cannot_be_started_loses_the_lease_and_another_goes_first() {
    let mut story = Story::elected_a();
    story.loses_the_lease_as_unhealthy();
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
    story.edit(&json!({"activation": {"schedulingGate": true}, "election": {"requireReady": false}}));
    story.turn();
    story.pods();
    let started = story.pod("a");
    story.holder(started);
    story.loses_the_lease_as_unhealthy();
}

#[test]
fn pods_of_a_lease_that_is_deleted_run_on() {
    let mut story = Story::started_a();
    story.lease_is_deleted();
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    story.write();
    let a = PodFacts { labels: [].into(), ..story.pod("a") };
    story.candidates(&[a, story.pod("b")]);
    story.role_answered("a", RoleOutcome::Written(None));
    assert!(story.changes().iter().all(|(_, change)| *change == PodChange::None), "{:?}", story.effects);
}

/// It waits while the API server is slow, and the pod would run for a lease that does not exist.
#[test]
fn a_start_that_waits_is_withdrawn_when_the_lease_is_gone() {
    let mut story = Story::elected_a();
    story.pods();
    story.confirm();
    assert!(story.changes().contains(&("a".into(), PodChange::Start)), "{:?}", story.effects);
    story.facts.lease = None;
    // It has no mark yet.
    (story.facts.candidates, story.facts.strays) = (CandidateFacts::Unknown, Vec::new());
    story.turn();
    assert!(story.wants(&Effect::WithdrawRole { uid: "uid-a".into() }), "{:?}", story.effects);
}

#[test]
fn a_pod_that_is_no_candidate_any_more_keeps_its_label_until_it_is_deleted() {
    // A tool may have removed the token.
    for token in [Some("7"), None] {
        let mut story = Story::started_a();
        let mut a = story.pod("a");
        assert_eq!(a.annotations.get(TOKEN).map(String::as_str), Some("7"));
        a.annotations.set(TOKEN, token);
        story.candidates(&[story.pod("b")]);
        story.facts.strays = vec![Arc::new(a.clone())];
        story.holder(a.clone());
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        let [write] = &story.role_writes()[..] else { panic!("{:?}", story.effects) };
        assert_eq!((write.change, write.role), (PodChange::None, Some(PodRole::Standby)));
        assert_eq!(write.token.as_deref(), Some("7"));
        story.write();
        story.facts.strays = vec![Arc::new(with_token(labelled(a, "standby"), "7"))];
        story.role_answered("a", RoleOutcome::Written(None));
        assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    }
}

/// Refused deletions leave room for other writes.
#[test]
fn at_most_four_pods_of_a_lease_are_deleted_at_a_time() {
    let mut story = Story::started_a();
    let lost = |number| {
        let mut pod = with_token(labelled(pod(&format!("p{number}")), "standby"), "7");
        pod.annotations.set(STARTED, Some(&format!("5.{}", pod.uid)));
        pod
    };
    story.candidates(&story.known_pods().into_iter().chain((0..6).map(lost)).collect::<Vec<_>>());
    story.turn();
    story.write();
    let delete = |number| (format!("p{number}"), PodChange::Delete);
    assert_eq!(story.changes(), (0..4).map(delete).collect::<Vec<_>>());
}
