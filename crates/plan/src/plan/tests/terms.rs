//! Terms after their publication: adopted, ended.

use super::*;
use crate::api::conditions::LeaseReady;
use crate::election::EndCause;
use crate::status::{NoticeReason, TermEnd};

#[test]
fn a_restart_adopts_the_published_term_and_writes_nothing() {
    let mut story = Story::held_by_a();
    story.restart_cold();
    let adopt = Command::Adopt(term(1, 7, "a"));
    assert!(story.commands().contains(&adopt), "{:?}", story.effects);
    story.turn();
    assert!(!story.commands().contains(&adopt), "once");
    story.view(adopting(term(1, 7, "a")));
    story.holder(pod("a"));
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.status_write(), None);
}

/// The process has just started, and asked its machine to adopt the first term; then the watch shows the second one. The machine ignores
/// what it is asked about the second term while it runs the first one.
#[test]
fn a_term_that_is_named_during_an_adoption_is_adopted_or_ended_after_it() {
    let mut second = Story::wanting_a();
    second.elect(term(2, 8, "b"));
    let active = second.status_value();
    second.lose(term(2, 8, "b"));
    for (status, then) in [(active, Command::Adopt(term(2, 8, "b"))), (second.status_value(), end(term(2, 8, "b")))] {
        let mut story = Story::held_by_a();
        story.restart_cold();
        story.store(&json!({}), &status);
        story.turn();
        story.view(adopting(term(1, 7, "a")));
        assert_eq!(story.commands(), [end(term(1, 7, "a"))], "{then:?}");
        story.view(ending(term(1, 7, "a"), EndReason::Decided));
        assert_eq!(story.commands().first(), Some(&then));
        story.turn();
        assert!(!story.commands().contains(&then), "once");
    }
}

#[test]
fn a_term_that_status_calls_ended_is_sealed_and_not_continued() {
    let mut story = Story::held_by_a();
    let active = story.condition_mut(ConditionType::Active);
    (active.status, active.reason) = ("False".into(), "LeaseLost".into());
    story.restart_cold();
    assert!(story.commands().contains(&end(term(1, 7, "a"))), "{:?}", story.effects);
}

/// The status of a lease that `a` holds, without a field.
fn held_without(path: &str) -> Story {
    let mut status = Story::held_by_a().status_value();
    let (parent, field) = path.rsplit_once('/').unwrap();
    status.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
    let mut story = Story::new();
    story.store(&json!({}), &status);
    story.turn();
    story
}

#[test]
fn a_term_without_a_part_of_its_status_is_none() {
    for path in ["/attempt", "/fencingToken", "/holder", "/holder/podUID", "/holder/cluster"] {
        let mut story = held_without(path);
        assert!(story.commands().iter().all(|command| !matches!(command, Command::Adopt(_))), "{path}");
        story.write();
        let status = story.status();
        assert_eq!((&status.attempt, &status.holder, &status.acquire_time), (&None, &None, &None), "{path}");
        assert!(status.says(ConditionType::Active, ConditionStatus::False), "{path}: {status:?}");
    }
}

#[test]
fn a_term_whose_condition_is_unreadable_is_sealed_and_not_continued() {
    for path in ["/conditions", "/conditions/1/status", "/conditions/1/lastTransitionTime", "/conditions/1/type"] {
        let story = held_without(path);
        let seals = end(term(1, 7, "a"));
        assert!(story.commands().contains(&seals), "{path}: {:?}", story.effects);
    }
}

#[test]
fn proof_releases_the_term_once_and_nothing_is_written_from_the_old_view() {
    let mut story = Story::held_by_a();
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.candidates(&[pod("b")]);
    story.turn();
    assert_eq!(story.commands(), [Command::End { term: term(1, 7, "a"), proof: true }]);
    assert!(story.status_write().is_none() && story.role_writes().is_empty(), "the view still shows the running term");
    story.turn();
    assert_eq!(story.commands(), []);
    story.facts.holder = PodKnowledge::Unseen;
    story.view(idle(0));
    assert_eq!(story.status_write(), None, "the next publication may include it");
    assert_eq!(story.wanted().as_deref(), Some("b"));
    story.pass(250);
    assert_eq!(story.status_write().map(|write| write.priority), Some(Priority::End), "the attempt takes too long");
}

#[test]
fn a_handover_after_a_proof_is_counted_as_graceful() {
    let mut story = Story::held_by_a();
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.candidates(&[pod("b")]);
    story.turn();
    story.facts.holder = PodKnowledge::Unseen;
    story.view(idle(0));
    assert!(story.wants(&Effect::Measure(Measure::Ended(TermEnd::Decided(EndCause::HolderStopped)))));
    story.answer();
    story.now += Millis(100);
    story.view(publishing(term(2, 8, "b")));
    story.write();
    let graceful = |effect: &Effect| matches!(effect, Effect::Measure(Measure::Handover { graceful: true, .. }));
    assert!(story.effects.iter().any(graceful), "{:?}", story.effects);
}

#[test]
fn a_loss_is_written_at_once_and_counted_once() {
    let mut story = Story::held_by_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let write = story.status_write().unwrap();
    assert_eq!(write.priority, Priority::End);
    assert!(write.status.says(ConditionType::Active, ConditionStatus::False));
    let lost = Effect::Measure(Measure::Ended(TermEnd::RenewDeadline));
    assert!(story.wants(&lost));
    story.event(Event::StatusWritten(StatusOutcome::Unanswered("timeout".into())));
    assert!(!story.wants(&lost), "once");
}

#[test]
fn time_alone_ends_a_term_only_on_a_fresh_answer() {
    let mut story = Story::held_by_a();
    let unready = PodFacts { ready: false, ..pod("a") };
    story.holder(unready.clone());
    story.turn();
    story.pass(30_000);
    let read = Effect::Read(Read::Holder { pod: "a".into(), uid: "uid-a".into(), workload: None });
    assert_eq!((story.commands(), story.wants(&read)), (vec![], true));
    story.event(Event::HolderRead { uid: "uid-a".into(), answered: false });
    assert_eq!(story.commands(), [], "the API server is away: the holder may have recovered");
    story.pass(1000);
    assert!(story.wants(&read), "the pod is read again");
    story.event(Event::HolderRead { uid: "uid-b".into(), answered: true });
    assert_eq!(story.commands(), [], "the answer about an earlier holder came late");
    story.event(Event::HolderRead { uid: "uid-a".into(), answered: true });
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
}

#[test]
fn a_deleted_lease_ends_its_term_and_loses_its_labels() {
    let mut story = Story::held_by_a();
    story.facts.lease = None;
    story.facts.strays = story.known_pods().into_iter().map(Arc::new).collect();
    story.facts.candidates = CandidateFacts::Unknown;
    story.turn();
    assert_eq!(story.commands(), [end(term(1, 7, "a")), Command::Retire]);
    assert_eq!(story.role_writes().len(), 2);
    assert!(story.role_writes().iter().all(|write| write.role.is_none() && write.token.is_none()));
    assert!(!story.reconciler.is_finished());
    for write in story.role_writes() {
        story.reconciler.handle(story.now, Event::RoleWritten { uid: write.uid, outcome: RoleOutcome::Gone });
    }
    story.facts.strays.clear();
    story.event(Event::KeeperEnded);
    assert!(story.reconciler.is_finished());
}

#[test]
fn the_event_about_a_keeper_that_panicked_names_the_defect() {
    let mut story = Story::held_by_a();
    story.effects.clear();
    story.event(Event::KeeperEnded);
    assert!(story.reported(NoticeReason::InternalError).note.contains("is started again"));
    assert!(story.opens(), "{:?}", story.effects);
}

#[test]
fn a_keeper_that_panics_again_and_again_is_started_ever_later_and_nothing_is_decided_meanwhile() {
    let mut story = Story::held_by_a();
    story.event(Event::KeeperEnded);
    story.effects.clear();
    story.event(Event::KeeperEnded);
    assert_eq!(story.commands(), []);
    assert!(story.status_write().is_none() && story.role_writes().is_empty(), "{:?}", story.effects);
    assert_eq!(story.reconciler.next_deadline(), Some(story.now + Millis(1000)));
    story.pass(1000);
    let adopts = |command: &Command| matches!(command, Command::Adopt(term) if term.token.0 == 7);
    assert!(story.commands().iter().any(adopts), "{:?}", story.effects);
}

/// A finalizer of another program keeps it.
#[test]
fn a_lease_that_is_being_deleted_says_that_no_pod_is_elected() {
    let mut story = Story::held_by_a();
    story.facts.holder = PodKnowledge::Unseen;
    story.lease_is_deleted();
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    let roles = story.roles();
    assert!(!roles.is_empty() && roles.iter().all(|(_, role)| role.is_none()), "{roles:?}");
    story.write();
    story.view(idle(0));
    story.write();
    let ready = story.status().condition(ConditionType::Ready).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", LeaseReady::Unheld.as_str()));
    let says = "No pod of this cluster holds the lease, and none is elected: the RedisLease is being deleted. It stays until its \
                metadata.finalizers are removed.";
    assert_eq!(ready.message, says);
    assert_eq!(story.reconciler.gap.since(), None, "no pod is wanted");
}

#[test]
fn a_held_lease_continues_while_its_workload_cannot_be_read() {
    let unreadable = || CandidateFacts::Unusable(LeaseReady::Starting, "It could not be read.".to_owned());
    let mut story = Story::held_by_a();
    story.facts.candidates = unreadable();
    story.turn();
    assert_eq!(story.commands(), []);
    let write = story.status_write().unwrap();
    assert!(write.status.says(ConditionType::Ready, ConditionStatus::True), "{:?}", write.status);

    // The next process adopts the term, and writes nothing: the status is right already.
    story.write();
    story.restart();
    story.turn();
    assert!(story.commands().iter().any(|command| matches!(command, Command::Adopt(_))), "{:?}", story.commands());
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.status_write(), None);

    let mut new = Story::new();
    new.facts.candidates = unreadable();
    new.turn();
    let write = new.status_write().unwrap();
    assert!(write.status.says(ConditionType::Ready, ConditionStatus::Unknown), "{:?}", write.status);
    new.answer();
    assert_eq!(new.wanted(), None, "no pod is elected");
}

#[test]
fn a_workload_that_does_not_exist_leaves_no_candidate() {
    let mut story = Story::held_by_a();
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "It does not exist.".to_owned());
    story.turn();
    let status = story.status_to_write();
    let available = status.condition(ConditionType::CandidatesAvailable).unwrap();
    assert_eq!((available.reason.as_str(), available.message.as_str()), ("NoCandidate", "It does not exist."));
    let (before, now) = (story.status().candidates.as_ref().unwrap(), status.candidates.as_ref().unwrap());
    assert_eq!(((before.total, before.eligible), (now.total, now.eligible)), ((2, 2), (0, 0)));
}

#[test]
fn a_lease_of_a_cron_job_waits_for_a_holder_only_while_a_pod_runs() {
    let mut story = Story::new();
    story.store(
        &json!({"candidates": {"workloadRef": {"apiVersion": "batch/v1", "kind": "CronJob", "name": "billing"}}}),
        &json!(null),
    );
    let finished = PodFacts { finished: true, ..pod("before") };
    for (pods, waits) in [(vec![], false), (vec![finished.clone()], false), (vec![finished, pod("now")], true)] {
        story.candidates(&pods);
        story.turn();
        assert_eq!(story.reconciler.gap.since().is_some(), waits, "{pods:?}");
    }
    story.candidates(&[]);
    let obstacle = (LeaseReady::InvalidReference, "there is no RedisQuorum default".to_owned());
    story.facts.quorum = Arc::new(QuorumFacts { open: None, obstacle: Some(obstacle), ..quorum(1, "f00d") });
    story.turn();
    assert!(story.reconciler.gap.since().is_some(), "without a quorum no run could have a holder");

    let story = Story::without_candidates();
    assert!(story.reconciler.gap.since().is_some(), "a Deployment should always have a pod");
}

/// In kuberhealthy a process that has lost its lock never contends again (kuberhealthy#1533).
#[test]
fn a_reconciler_wants_again_after_a_loss() {
    let mut story = Story::held_by_a();
    story.lose(term(1, 7, "a"));
    story.pods();
    story.answer();
    assert_eq!(story.wanted(), None, "the keys of the lost term still exist");

    story.view(idle(0));
    let mut wanted = story.wanted();
    for _ in 0..10 {
        if story.status_write().is_some() {
            story.write();
        }
        story.pods();
        story.answer();
        wanted = wanted.or_else(|| story.wanted());
    }
    assert!(matches!(wanted.as_deref(), Some("a" | "b")), "{wanted:?}");
}

/// The API server lets nobody lower the number again.
#[test]
fn a_token_that_no_redis_node_gave_is_reported_and_reaches_no_pod() {
    let mut story = Story::held_by_a();
    story.status_mut().fencing_token = Some((1 << 53) - 1);
    story.turn();
    assert_eq!(story.ready().reason, "InvalidSpec");
    let message = story.ready().message;
    assert!(message.contains("Set spec.suspend to true") && message.contains("delete the RedisLease"), "{message}");
    let active = story.status_to_write().condition(ConditionType::Active).unwrap().clone();
    assert_eq!(active.message, "a holds the lease with fencing token 7.");
    story.write();
    assert!(story.reported(NoticeReason::InvalidSpec).note.contains("9007199254740991"));

    let tokens = |story: &Story| story.role_writes().into_iter().map(|write| write.token.unwrap()).collect::<Vec<_>>();
    story.candidates(&[pod("a"), pod("c")]);
    story.turn();
    assert!(!tokens(&story).is_empty() && tokens(&story).iter().all(|token| token == "7"), "{:?}", story.effects);
    story.pods();
    story.read_lease();
    story.pods();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let mut status = Arc::unwrap_or_clone(story.status_to_write());
    status.fencing_token = None;
    status.conditions.retain(|condition| condition.type_ != "Ready");
    assert!(!format!("{status:?}").contains("9007199254740991"), "{status:?}");
    story.write();
    assert_eq!(story.reported(NoticeReason::LeaseLost).note.split(':').next(), Some("term 0"));
    // The pods have a later token than the operator takes from the status.
    story.read_lease();
    assert_eq!(tokens(&story), ["7"]);
    story.pods();
    story.view(idle(0));
    story.answer();
    assert_eq!(story.wanted(), None, "its term could not be published");
}

#[test]
fn the_holder_is_the_pod_of_the_running_term() {
    let a = Some(("a".to_owned(), "uid-a".to_owned()));
    for (story, holder) in [(Story::new(), None), (Story::publishing_by_a(), a.clone()), (Story::held_by_a(), a)] {
        assert_eq!(story.reconciler.holder(), holder);
    }
}
