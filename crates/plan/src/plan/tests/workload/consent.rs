//! Which lease may start and stop the workload.

use super::*;
use crate::api::RedisLeaseStatus;

/// The running term ends in the next turn: the status that says so.
fn ended(story: &mut Story) -> Arc<RedisLeaseStatus> {
    story.turn();
    assert_eq!(story.commands(), [Command::End { term: held_by_here(), proof: false }]);
    story.view(ending(held_by_here(), EndReason::Decided));
    story.status_write().unwrap().status
}

const RUNS_ON: &str =
    "the workload is no longer the candidate of the lease; the operator does not stop it, so stop it yourself";

#[test]
fn a_lease_that_names_another_workload_says_that_the_first_one_runs_on() {
    for (name, reason, says) in [
        ("orders", "NoLongerCandidate", RUNS_ON),
        // It was deleted, and created again.
        ("billing", "HolderVanished", "is gone"),
    ] {
        let mut story = Story::running();
        let mut other = spec();
        other["candidates"]["workloadRef"]["name"] = json!(name);
        let status = serde_json::to_value(&story.facts.lease.as_ref().unwrap().status).unwrap();
        story.store(&other, &status);
        story.workload_is(WorkloadFacts { name: name.into(), uid: "uid-2".into(), ..deployment(0) });
        story.facts.holder = PodKnowledge::Gone { stopped: false };
        let status = ended(&mut story);
        let transition = status.last_transition.as_ref().unwrap();
        assert_eq!(transition.reason, reason);
        assert!(transition.message.contains(says), "{transition:?}");
        assert!(status.condition(ConditionType::Active).unwrap().message.contains(says), "{status:?}");
    }
}

#[test]
fn a_spelling_mistake_in_the_annotation_ends_no_term_and_begins_none() {
    for (key, value) in include!("mistakes.rs") {
        let misspell = |story: &mut Story| {
            let mut workload = story.workload();
            workload.annotations.set("redislease.io/activated-by", None);
            workload.annotations.set(key, Some(value));
            workload.resource_version = Some("30".into());
            story.workload_is(workload);
            story.turn();
        };
        let mut story = Story::running();
        misspell(&mut story);
        assert_eq!((story.commands(), story.switches()), (vec![], vec![]), "{key}={value}");
        story.write();
        // It is stopped when the lease is lost: another cluster starts its own.
        story.view(ending(held_by_here(), EndReason::Deadline));
        assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(0)), "{key}={value}");
        let mut story = Story::of_cluster(2);
        misspell(&mut story);
        story.answer();
        story.now += Millis(5);
        story.view(refused_by(ELSEWHERE, story.now));
        assert_eq!((story.wanted(), story.switches()), (None, vec![]), "{key}={value}");
    }
}

#[test]
fn a_workload_without_consent_is_not_touched_and_the_condition_says_what_to_add() {
    let mut story = Story::of_cluster(2);
    story.workload_is(WorkloadFacts { annotations: Annotations::default(), ..deployment(2) });
    story.turn();
    let status = story.status_write().unwrap().status;
    let ready = status.condition(ConditionType::Ready).unwrap();
    assert_eq!(ready.reason, LeaseReady::NotPermitted.as_str());
    assert!(ready.message.contains("redislease.io/activated-by=billing on the Deployment"), "{}", ready.message);
    story.answer();
    story.now += Millis(5);
    story.view(refused_by(ELSEWHERE, story.now));
    assert_eq!((story.wanted(), story.switches()), (None, Vec::new()));
    // An answer counts from when the consent was first read.
    story.now += Millis(5);
    story.workload_is(deployment(2));
    story.turn();
    assert_eq!((story.commands(), story.switches()), (vec![Command::TryNow], Vec::new()));
}

/// Kubernetes deletes the volumes of the pods that it stops.
#[test]
fn a_workload_whose_volumes_would_be_deleted_is_not_scaled() {
    let deletes = |workload, version: &str| WorkloadFacts {
        deletes_volumes: true,
        resource_version: Some(version.into()),
        ..workload
    };
    let mut story = Story::of_cluster(2);
    story.workload_is(deletes(deployment(2), "2"));
    story.turn();
    let status = story.status_write().unwrap().status;
    let ready = status.condition(ConditionType::Ready).unwrap();
    assert_eq!(ready.reason, LeaseReady::NotPermitted.as_str());
    assert!(ready.message.contains("persistentVolumeClaimRetentionPolicy.whenScaled is Delete"), "{}", ready.message);
    story.answer();
    story.now += Millis(5);
    story.view(refused_by(ELSEWHERE, story.now));
    assert_eq!((story.wanted(), story.switches()), (None, vec![]));
    story.workload_is(WorkloadFacts { resource_version: Some("3".into()), ..deployment(2) });
    story.turn();
    assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(0)));
    // A term that runs goes on. At its end only the label moves.
    let mut story = Story::running();
    story.workload_is(deletes(story.workload(), "30"));
    story.turn();
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    story.write();
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(3)));
    story.workload_is(WorkloadFacts {
        deletes_volumes: false,
        resource_version: Some("60".into()),
        ..story.workload()
    });
    story.turn();
    assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(0)));
}

#[test]
fn a_consent_that_is_removed_ends_the_term_and_leaves_the_replicas() {
    let mut story = Story::running();
    let mut workload = story.workload();
    workload.annotations.set("redislease.io/activated-by", None);
    workload.resource_version = Some("30".into());
    story.workload_is(workload);
    let status = ended(&mut story);
    let transition = status.last_transition.as_ref().unwrap();
    assert_eq!(transition.reason, "NoLongerCandidate");
    assert!(transition.message.contains(RUNS_ON), "{transition:?}");
    story.finish();
    assert_eq!(story.run(), (None, Run::Replicas(3)));
    assert_eq!(story.workload().annotations, Annotations::default());
    let mut lease = story.facts.lease.as_deref().unwrap().clone();
    lease.status = Some(Arc::unwrap_or_clone(status));
    story.facts.lease = Some(Arc::new(lease.clone()));
    story.event(Event::StatusWritten(StatusOutcome::Written(Arc::new(lease))));
    assert_eq!(story.switches(), []);
    // The consent comes back while the status names the term that has ended: the workload runs on, as at the first contact.
    let version = story.workload().resource_version;
    story.workload_is(WorkloadFacts { resource_version: version, ..deployment(3) });
    story.turn();
    assert_eq!(story.switches(), []);
}

#[test]
fn an_invalid_activation_ends_no_term_and_begins_none() {
    for ways in ["scale,suspend", "scale,gate"] {
        let mistake = |story: &mut Story| {
            let mut workload = story.workload();
            workload.annotations.set("redislease.io/activated-by", None);
            workload.annotations.set("redislease.io/lease", Some("true"));
            workload.annotations.set("redislease.io/activation", Some(ways));
            workload.annotations.set("redislease.io/active-replicas", Some("3"));
            workload.resource_version = Some("30".into());
            story.workload_is(workload);
            story.turn();
        };
        let mut story = Story::running();
        mistake(&mut story);
        assert_eq!((story.commands(), story.switches()), (vec![], vec![]), "{ways}");
        let status = story.status_write().unwrap().status;
        assert_eq!(status.condition(ConditionType::Ready).unwrap().reason, "NotPermitted", "{ways}");
        let mut story = Story::of_cluster(0);
        mistake(&mut story);
        story.answer();
        assert_eq!((story.wanted(), story.switches()), (None, vec![]), "{ways}");
    }
}

#[test]
fn an_edit_of_the_annotations_ends_no_term_before_the_lease_follows() {
    let mut story = Story::running();
    let edited = |replicas: &str, version: &str, story: &Story| {
        let mut workload = story.workload();
        workload.annotations.set("redislease.io/activated-by", None);
        workload.annotations.set("redislease.io/lease", Some("true"));
        workload.annotations.set("redislease.io/activation", Some("scale"));
        workload.annotations.set("redislease.io/active-replicas", Some(replicas));
        workload.resource_version = Some(version.into());
        workload
    };
    story.workload_is(edited("5", "30", &story));
    story.turn();
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    assert_eq!(story.status_write().unwrap().status.condition(ConditionType::Ready).unwrap().reason, "NotPermitted");
    story.write();
    // The operator changes the lease.
    let mut follows = spec();
    follows["activation"]["scale"]["replicas"] = json!(5);
    let status = serde_json::to_value(&story.facts.lease.as_ref().unwrap().status).unwrap();
    story.store(&follows, &status);
    story.turn();
    story.finish();
    assert_eq!((story.commands(), story.run().1), (vec![], Run::Replicas(5)));
    // If the term ends meanwhile, the workload is stopped all the same.
    story.workload_is(edited("7", "40", &story));
    story.turn();
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    story.view(ending(held_by_here(), EndReason::Deadline));
    let stops = PodChange::Run(Run::Replicas(0));
    assert_eq!(story.switches(), [(Some(PodRole::Standby), stops, Some(WorkloadKind::Deployment))]);
}
