//! Which lease may start and stop the workload.

use super::*;

/// The running term ends in the last turn: the status that says so.
fn ended(story: &mut Story) -> Arc<RedisLeaseStatus> {
    assert_eq!(story.commands(), [end(held_by_here())]);
    story.view(ending(held_by_here(), EndReason::Decided));
    story.status_to_write()
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
        story.edit(&other);
        story.workload_is(WorkloadFacts { name: name.into(), uid: "uid-2".into(), ..deployment(0) });
        story.facts.holder = PodKnowledge::Gone { stopped: false };
        story.turn();
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
            story.change_workload("30", |workload| {
                workload.annotations.set("redislease.io/activated-by", None);
                workload.annotations.set(key, Some(value));
            });
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

/// The label selects the endpoints of a Service.
#[test]
fn after_a_doubt_a_misspelt_annotation_keeps_only_the_replicas_as_they_are() {
    let mut story = Story::running();
    story.change_workload("30", |workload| {
        workload.annotations.set("redislease.io/activated-by", None);
        workload.annotations.set("redislease.io/leese", Some("billing"));
        workload.run = Run::Replicas(2);
    });
    story.write();
    story.view(uncertain(held_by_here()));
    story.write();
    story.pass(2000);
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(2)));
    story.view(held(held_by_here()));
    story.write();
    story.read_lease();
    story.finish();
    assert_eq!(story.run(), (Some("active".into()), Run::Replicas(2)));
}

#[test]
fn a_workload_without_consent_is_not_touched_and_the_condition_says_what_to_add() {
    let mut story = Story::of_cluster(2);
    story.workload_is(WorkloadFacts { annotations: Annotations::default(), ..deployment(2) });
    story.turn();
    let ready = story.ready();
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

/// Whoever may write RedisLeases can write also the marks of a lease that the operator makes. Its keys on another quorum do not exclude
/// the other clusters.
#[test]
fn a_lease_that_looks_made_for_the_workload_begins_no_first_term_on_another_quorum() {
    let annotate = |workload: &mut WorkloadFacts, quorum| {
        for (key, value) in [("lease", "true"), ("activation", "scale"), ("active-replicas", "3"), ("quorum", quorum)] {
            workload.annotations.set(&format!("redislease.io/{key}"), Some(value));
        }
        workload.annotations.set("redislease.io/activated-by", None);
    };
    for (quorum, begins) in [("other", false), ("default", true)] {
        let mut story = Story::of_cluster(2).made();
        story.change_workload("2", |workload| annotate(workload, quorum));
        if !begins {
            assert_eq!(story.ready().reason, LeaseReady::NotPermitted.as_str(), "{:?}", story.ready().message);
        }
        story.answer();
        assert_eq!(story.wanted().is_some(), begins, "{quorum}");
    }
    // A mistake in the annotation ends no term, and the next one begins.
    let mut story = Story::running().made();
    story.change_workload("30", |workload| annotate(workload, "other"));
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    assert_ne!(story.shown(ConditionType::Ready).reason, LeaseReady::NotPermitted.as_str());
}

/// Kubernetes deletes the volumes of the pods that it stops.
#[test]
fn a_workload_whose_volumes_would_be_deleted_is_not_scaled() {
    let mut story = Story::of_cluster(2);
    story.change_workload("2", |workload| workload.deletes_volumes = true);
    let ready = story.ready();
    assert_eq!(ready.reason, LeaseReady::NotPermitted.as_str());
    assert!(ready.message.contains("persistentVolumeClaimRetentionPolicy.whenScaled is Delete"), "{}", ready.message);
    story.answer();
    story.now += Millis(5);
    story.view(refused_by(ELSEWHERE, story.now));
    assert_eq!((story.wanted(), story.switches()), (None, vec![]));
    story.change_workload("3", |workload| workload.deletes_volumes = false);
    assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(0)));
    // A term that runs goes on. At its end only the label moves.
    let mut story = Story::running();
    story.change_workload("30", |workload| workload.deletes_volumes = true);
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    story.write();
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(3)));
    story.change_workload("60", |workload| workload.deletes_volumes = false);
    assert_eq!(story.switches()[0].1, PodChange::Run(Run::Replicas(0)));
}

#[test]
fn a_consent_that_is_removed_ends_the_term_and_leaves_the_replicas() {
    let mut story = Story::running();
    story.change_workload("30", |workload| workload.annotations.set("redislease.io/activated-by", None));
    let status = ended(&mut story);
    let transition = status.last_transition.as_ref().unwrap();
    assert_eq!(transition.reason, "NoLongerCandidate");
    assert!(transition.message.contains(RUNS_ON), "{transition:?}");
    story.finish();
    assert_eq!(story.run(), (None, Run::Replicas(3)));
    assert_eq!(story.workload().annotations, Annotations::default());
    story.write_status(status);
    assert_eq!(story.switches(), []);
    // The consent comes back while the status names the term that has ended: the workload runs on, as at the first contact.
    let version = story.workload().resource_version;
    story.workload_is(WorkloadFacts { resource_version: version, ..deployment(3) });
    story.turn();
    assert_eq!(story.switches(), []);
}

impl Story {
    /// Somebody chooses the activation, and this number of replicas, in the annotations of the workload.
    fn annotated(&mut self, replicas: &str, version: &str) {
        self.change_workload(version, |workload| {
            workload.annotations.set("redislease.io/activated-by", None);
            workload.annotations.set("redislease.io/lease", Some("true"));
            workload.annotations.set("redislease.io/activation", Some("scale"));
            workload.annotations.set("redislease.io/active-replicas", Some(replicas));
        });
    }
}

#[test]
fn an_edit_of_the_annotations_ends_no_term_before_the_lease_follows() {
    let mut story = Story::running();
    story.annotated("5", "30");
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    assert_eq!(story.ready().reason, "NotPermitted");
    story.write();
    // The operator changes the lease.
    let mut follows = spec();
    follows["activation"]["scale"]["replicas"] = json!(5);
    story.edit(&follows);
    story.turn();
    story.finish();
    assert_eq!((story.commands(), story.run().1), (vec![], Run::Replicas(5)));
    // If the term ends meanwhile, the workload is stopped all the same.
    story.annotated("7", "40");
    assert_eq!((story.commands(), story.switches()), (vec![], vec![]));
    story.view(ending(held_by_here(), EndReason::Deadline));
    assert_eq!(story.switches(), [STOP]);
}
