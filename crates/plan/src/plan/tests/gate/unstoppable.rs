//! What ends the term of a pod that the operator has started and cannot delete: another pod would start beside it.

use super::*;

#[test]
fn a_started_pod_keeps_its_term_while_the_operator_must_not_delete_it() {
    for (mut story, is_kept) in [(Story::started_a(), true), (Story::elected_a(), false)] {
        story.holder(story.pod("a"));
        story.facts.allowed = Allowed::default();
        story.suspend();
        let end = end(term(1, 7, "a"));
        assert_eq!(story.commands(), if is_kept { vec![] } else { vec![end] });
    }
}

#[test]
fn a_term_ends_by_request_only_after_the_deletion_of_its_pod_was_accepted_as_a_dry_run() {
    let mut story = Story::started_a();
    story.suspend();
    let end = [end(term(1, 7, "a"))];
    let is_dry = |story: &Story| story.role_writes().iter().all(|write| write.dry_run);
    assert_eq!((story.commands(), story.changes()), (vec![], vec![("a".into(), PodChange::Delete)]));
    assert!(is_dry(&story), "{:?}", story.effects);
    let mut refused = story.clone();
    story.write();
    story.role_answered("a", RoleOutcome::Written(None));
    assert_eq!((story.commands(), story.changes()), (end.to_vec(), vec![]), "{:?}", story.effects);
    assert!(
        !story
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Report(notice) if notice.reason == NoticeReason::PodDeleted))
    );

    refused.write();
    let why = "pods \"a\" is forbidden: User \"x\" cannot delete resource";
    refused.role_answered("a", refusal(why));
    assert_eq!((refused.commands(), refused.changes()), (vec![], vec![]), "{:?}", refused.effects);
    let message = refused.ready().message;
    assert!(message.starts_with(&format!("The operator cannot stop the pod a: {why}.")), "{message}");
    let note = refused.reported(NoticeReason::ActivationRefused).note;
    assert_eq!(note, format!("a holds the lease and cannot be stopped, so its term goes on: {why}"));
    refused.write();
    refused.pass(1000);
    assert!(is_dry(&refused) && refused.changes().len() == 1, "{:?}", refused.effects);
    refused.role_answered("a", RoleOutcome::Written(None));
    assert_eq!(refused.commands(), end, "{:?}", refused.effects);
}

/// The pod template has no gate: nothing but the label says which pod holds the lease.
#[test]
fn a_pod_that_the_operator_did_not_start_loses_its_term_without_the_flag() {
    let mut story = Story::held_by_a();
    story.facts.allowed = Allowed::default();
    story.edit(&json!({"activation": {"schedulingGate": true}, "suspend": true}));
    story.turn();
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
}

#[test]
fn a_suspended_lease_says_that_its_started_pod_runs_on_without_the_flag() {
    let mut story = Story::started_a();
    story.facts.allowed = Allowed::default();
    story.suspend();
    story.write();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let message = story.ready().message;
    assert!(message.contains("The pod a runs on, because it cannot be stopped"), "{message}");
    assert!(message.contains("rbac.allowSchedulingGate"), "{message}");
}

#[test]
fn a_pod_whose_deletion_is_refused_runs_on_while_it_is_to_be_deleted() {
    let mut story = Story::started_a();
    story.lose(term(1, 7, "a"));
    story.accept_standby();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)]);
    story.role_answered("a", refusal("a policy"));
    let message = story.ready().message;
    assert!(message.ends_with("The pod a runs on, because it cannot be stopped: a policy."), "{message}");
    story.write();
    story.edit(&json!({}));
    story.turn();
    assert!(!story.ready().message.contains("runs on"), "{:?}", story.effects);
}

/// The pod has not been read yet: it may run.
#[test]
fn after_a_restart_the_term_of_a_started_pod_is_adopted_before_its_deletion_is_tested() {
    let mut story = Story::started_a();
    story.suspend();
    story.restart();
    story.facts.holder = PodKnowledge::Unseen;
    story.turn();
    let adopts = Effect::Keeper(Command::Adopt(term(1, 7, "a")));
    assert!(story.wants(&adopts), "{:?}", story.effects);
    story.view(held(term(1, 7, "a")));
    assert_eq!((story.commands(), story.changes()), (vec![], vec![]), "{:?}", story.effects);
    story.holder(story.pod("a"));
    story.turn();
    assert_eq!((story.commands(), story.changes()), (vec![], vec![("a".into(), PodChange::Delete)]));
}

/// Another process has published it meanwhile.
#[test]
fn a_term_that_is_published_during_an_attempt_ends_only_after_the_test() {
    let started = Story::started_a();
    let mut story = Story::gated();
    story.turn();
    story.view(acquiring(term(2, 8, "a")));
    story.store(&json!({"activation": {"schedulingGate": true}}), &started.status_value());
    story.candidates(&started.known_pods());
    story.holder(started.pod("a"));
    story.suspend();
    assert!(story.wants(&Effect::Keeper(Command::Adopt(term(1, 7, "a")))), "{:?}", story.effects);
    assert!(!story.ends_a_term(), "{:?}", story.effects);
    story.view(held(term(1, 7, "a")));
    assert_eq!((story.ends_a_term(), story.changes()), (false, vec![("a".into(), PodChange::Delete)]));
    assert!(story.role_writes()[0].dry_run, "{:?}", story.effects);
}

/// One write of a pod at a time. Otherwise each would withdraw the other one for ever.
#[test]
fn the_label_of_a_pod_goes_before_the_dry_run_of_its_deletion() {
    let mut story = Story::started_a();
    story.suspend();
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)], "{:?}", story.effects);
    let withdraws = Effect::WithdrawRole { uid: "uid-a".into() };
    story.unlabel("a");
    assert!(story.wants(&withdraws), "{:?}", story.effects);
    story.role_answered("a", RoleOutcome::Withdrawn);
    assert_eq!(story.changes(), [("a".into(), PodChange::None)], "{:?}", story.effects);
    assert!(!story.wants(&withdraws), "{:?}", story.effects);
}

/// The keys of a term that a request has ended expire, whatever the API server does: then another cluster starts its pod.
#[test]
fn a_pod_whose_term_a_request_has_ended_is_deleted_although_its_status_or_its_label_is_refused() {
    let refused = || "a policy".to_owned();
    for (is_label_refused, reason) in
        [(false, EndReason::Decided), (true, EndReason::Decided), (false, EndReason::Deadline)]
    {
        let mut story = Story::started_a();
        if reason == EndReason::Decided {
            story.suspend();
            story.write();
            story.role_answered("a", RoleOutcome::Written(None));
            assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
        }
        story.view(ending(term(1, 7, "a"), reason));
        let standby = story.role_writes().remove(0);
        assert_eq!((standby.pod.as_str(), standby.role), ("a", Some(PodRole::Standby)));
        story.event(Event::StatusWritten(StatusOutcome::Refused(refused())));
        assert_eq!(story.changes(), [], "one write of a pod at a time");
        if is_label_refused {
            story.event(Event::RoleWritten { uid: standby.uid, outcome: RoleOutcome::Refused(refused()) });
        } else {
            story.role_stored(standby);
        }
        // Another replica may continue a term that this process has lost, until the status says that it has ended.
        let deletion = (reason == EndReason::Decided).then(|| ("a".to_owned(), PodChange::Delete));
        assert_eq!(story.changes(), Vec::from_iter(deletion), "{is_label_refused} {reason:?}: {:?}", story.effects);
    }
}

/// Otherwise the next pod would wait for it for ever.
#[test]
fn a_pod_whose_term_was_lost_is_deleted_although_its_label_is_refused() {
    let altered = Altered { path: vec!["metadata".into(), "labels".into()], wanted: None, stored: None, manager: None };
    for outcome in [refusal("a policy"), RoleOutcome::Written(Some(Box::new(altered)))] {
        let mut story = Story::started_a();
        story.view(ending(term(1, 7, "a"), EndReason::Deadline));
        let standby = story.role_writes().remove(0);
        assert_eq!((standby.pod.as_str(), standby.role), ("a", Some(PodRole::Standby)));
        story.write();
        story.event(Event::RoleWritten { uid: standby.uid, outcome });
        assert_eq!(story.changes(), [], "the status may be that of an earlier term: {:?}", story.effects);
        story.confirm();
        let deletes = [("a".to_owned(), PodChange::Delete)];
        assert_eq!(story.changes(), deletes, "{:?}", story.effects);
        story.role_answered("a", RoleOutcome::Conflict);
        assert_eq!(story.changes(), deletes, "the kubelet has written to the pod: {:?}", story.effects);
    }
}

#[test]
fn a_refused_label_and_a_refused_deletion_wait_longer_each_time() {
    let mut story = Story::started_a();
    story.suspend();
    story.write();
    story.role_answered("a", RoleOutcome::Written(None));
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    let mut changes = Vec::new();
    for _ in 0..60 {
        while let Some(write) = story.role_writes().pop() {
            changes.push(write.change);
            story.event(Event::RoleWritten { uid: write.uid, outcome: refusal("a policy") });
        }
        story.pass(1000);
    }
    let deletions = changes.iter().filter(|change| **change == PodChange::Delete).count();
    assert!(deletions > 3 && changes.len() - deletions > 3 && changes.len() < 16, "{changes:?}");
}

/// Two replicas decide by accident. The other one knows that the term is published, and has started its pod.
#[test]
fn a_term_that_the_status_names_ends_only_after_the_test_although_this_process_publishes_it() {
    let mut story = Story::started_a();
    story.view(publishing(term(1, 7, "a")));
    story.suspend();
    assert!(!story.ends_a_term(), "{:?}", story.effects);
}

/// After a restart, the spec does not fit the quorum, so that nobody knows the candidates.
#[test]
fn a_started_pod_is_deleted_when_its_term_is_lost_although_the_spec_has_never_fitted() {
    let before = Story::started_a();
    let status = before.status_value();
    let mut story = Story::new();
    story.store(&json!({"activation": {"schedulingGate": true}}), &status);
    story.unfit();
    story.facts.candidates = CandidateFacts::Unknown;
    story.facts.strays = vec![Arc::new(before.pod("a"))];
    story.holder(before.pod("a"));
    story.turn();
    story.answer();
    story.view(adopting(term(1, 7, "a")));
    story.view(held(term(1, 7, "a")));
    assert_eq!((story.changes(), story.commands()), (vec![], vec![]), "{:?}", story.effects);
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let standby = story.role_writes().remove(0);
    assert_eq!((standby.pod.as_str(), standby.role), ("a", Some(PodRole::Standby)));
    story.event(Event::StatusWritten(StatusOutcome::Withdrawn));
    story.write();
    story.facts.strays = vec![Arc::new(labelled(before.pod("a"), "standby"))];
    story.event(Event::RoleWritten { uid: standby.uid, outcome: RoleOutcome::Written(None) });
    assert_eq!(story.changes(), [("a".into(), PodChange::Delete)], "{:?}", story.effects);
}
