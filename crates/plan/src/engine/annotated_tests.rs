#[path = "annotated_tests/deleted.rs"]
mod deleted;
#[path = "annotated_tests/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::samples::annotated as workload;
use crate::status::NoticeReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::backoff::Entropy;
use redislease_core::time::Millis;

use super::*;
use world::{World, key};

#[test]
fn a_lease_follows_its_annotation() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    assert_eq!(world.written(), ["create a"]);
    world.show();
    world.apply(workload("a", &[("lease", "true"), ("lease-duration", "40s")]));
    assert_eq!(world.written(), ["patch a"]);
    assert_eq!(world.leases["a"].spec.lease_duration.as_str(), "40s");
    for (ways, gated) in [("label, gate", true), ("label", false)] {
        world.apply(workload("a", &[("lease", "true"), ("lease-duration", "40s"), ("activation", ways)]));
        assert_eq!(world.written(), ["patch a"]);
        assert_eq!(world.leases["a"].spec.activation.is_some(), gated);
    }
    // A problem changes nothing, and is reported once.
    for _ in 0..3 {
        world.apply(workload("a", &[("lease", "true"), ("lease-duraton", "50s")]));
        world.show();
    }
    assert_eq!((world.written().len(), world.reports.len()), (0, 1), "{:?}", world.reports);
    world.apply(workload("a", &[("lease", "true")]));
    assert_eq!(world.written(), ["patch a"]);
    // Under another name: the new lease first.
    world.apply(workload("a", &[("lease", "b")]));
    assert_eq!(world.written(), ["create b", "delete a"]);
    world.apply(workload("a", &[]));
    assert_eq!(world.written(), ["delete b"]);
    assert!(world.leases.is_empty() && world.state.is_empty(), "{:?}", world.state);
}

#[test]
fn the_report_of_a_mistake_that_does_not_exist_any_more_is_withdrawn() {
    let mut world = World::new();
    let durations =
        |lease, renew| workload("a", &[("lease", "true"), ("lease-duration", lease), ("renew-interval", renew)]);
    world.apply(durations("x", "y"));
    assert_eq!((world.reports.len(), world.withdrawn.len()), (2, 0));
    world.apply(durations("30s", "y"));
    assert_eq!(world.withdrawn, world.reports[..1], "the other one stays");
    world.apply(durations("30s", "z"));
    assert_eq!((&world.withdrawn[..], world.reports.len()), (&world.reports[..2], 3), "another value");
    // All annotations are removed, with the mistake.
    world.apply(workload("a", &[]));
    assert_eq!(world.withdrawn, world.reports);
    assert!(world.state.is_empty(), "{:?}", world.state);
}

#[test]
fn a_change_by_hand_of_an_annotated_field_is_reverted() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    world.leases.get_mut("a").unwrap().spec.lease_duration = crate::api::Duration::new("50s");
    world.leases.get_mut("a").unwrap().version = Some("50".into());
    world.version = 50;
    world.show();
    assert_eq!(world.written(), ["create a", "patch a"]);
    assert_eq!(world.leases["a"].spec.lease_duration.as_str(), "30s");
}

#[test]
fn a_lease_made_by_hand_is_never_changed_and_a_free_name_is_used_later() {
    let mut world = World::new();
    world.hand_made("a");
    let before = world.leases.clone();
    world.apply(workload("a", &[("lease", "true")]));
    assert_eq!(world.written(), ["create a"]);
    assert_eq!(world.reports.len(), 1);
    assert!(world.reports[0].1.contains("RedisLease shop/a was not created from an annotation"), "{:?}", world.reports);
    world.passes(59_000);
    assert!(world.written().is_empty());
    world.passes(1000);
    assert_eq!(world.written(), ["create a"], "tried again after a minute");
    assert_eq!((world.leases.clone(), world.reports.len()), (before, 1), "reported once");
    world.leases.clear();
    world.passes(60_000);
    assert_eq!(world.written(), ["create a"]);
    assert_eq!(world.leases["a"].created_for.as_deref(), Some("Deployment/a"));
    world.passes(600_000);
    assert!(world.written().is_empty());
    // The mark of an unknown kind of workload is no reason to try again and again.
    world.hand_made("c");
    world.leases.get_mut("c").unwrap().created_for = Some("Unknown/c".into());
    world.apply(workload("c", &[("lease", "true")]));
    assert_eq!(world.written(), ["create c"]);
    assert!(world.reports.iter().any(|(_, note)| note.contains("shop/c belongs to Unknown/c")), "{:?}", world.reports);
    // Removing the annotation removes only what was created for it.
    world.hand_made("b");
    world.apply(workload("a", &[]));
    assert_eq!(world.written(), ["delete a"]);
    assert!(world.leases.contains_key("b"));
}

#[test]
fn a_lease_of_another_workload_is_not_changed_until_its_name_is_free() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "shared")]));
    world.apply(workload("b", &[("lease", "shared")]));
    assert_eq!(world.written(), ["create shared"]);
    assert!(world.reports[0].1.contains("RedisLease shop/shared belongs to Deployment/a"), "{:?}", world.reports);
    world.apply(workload("a", &[]));
    assert_eq!(world.written(), ["delete shared", "create shared"]);
    assert_eq!(world.leases["shared"].created_for.as_deref(), Some("Deployment/b"));
}

#[test]
fn a_restart_writes_nothing_and_an_annotation_removed_meanwhile_counts() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    world.apply(workload("b", &[("lease", "true")]));
    let mut world = world.restarted();
    world.list();
    world.work();
    assert!(world.written().is_empty());
    world.workloads.insert("b".into(), workload("b", &[]));
    let mut world = world.restarted();
    // Nothing is known before both lists are complete.
    world.list_leases();
    world.work();
    assert!(world.written().is_empty());
    world.list_workloads();
    world.work();
    assert_eq!(world.written(), ["delete b"]);
}

#[test]
fn nothing_is_deleted_while_a_list_is_in_progress_or_the_watch_lags() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    world.written();
    world.state.workload(WorkloadKind::Deployment, Watched::ListBegins);
    world.work();
    // The list misses the workload, which was created again or is only newer than the list.
    world.state.workload(WorkloadKind::Deployment, Watched::ListEnds);
    world.work();
    assert_eq!(world.written(), ["keep a"], "the fresh read shows the annotation");
    assert!(world.leases.contains_key("a"));
    // The workload is deleted: the garbage collector deletes the lease.
    world.workloads.clear();
    world.passes(60_000);
    assert_eq!(world.written(), ["keep a"]);
    world.leases.clear();
    world.list_leases();
    world.work();
    assert!(world.state.is_empty());
}

#[test]
fn a_workload_created_again_waits_for_the_collector_or_adopts_its_orphan() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    let again = WorkloadFacts { uid: "another".into(), ..workload("a", &[("lease", "true")]) };
    world.apply(again.clone());
    world.passes(600_000);
    assert_eq!(world.written(), ["create a"]);
    let lease = world.leases.remove("a").unwrap();
    world.state.lease(Watched::Deleted(Box::new(lease)));
    world.work();
    assert_eq!(world.written(), ["create a"]);
    assert_eq!(world.leases["a"].controller.as_deref(), Some("another"));

    // `kubectl delete --cascade=orphan` removes the owner.
    let orphan =
        LeaseFacts { version: Some("90".into()), controller: None, has_owner: false, ..world.leases["a"].clone() };
    world.version = 90;
    world.leases.insert("a".into(), orphan);
    world.workloads.clear();
    world.state.workload(WorkloadKind::Deployment, Watched::Deleted(Box::new(again)));
    world.show();
    assert!(world.written().is_empty());
    world.apply(WorkloadFacts { uid: "third".into(), ..workload("a", &[("lease", "true")]) });
    assert_eq!(world.written(), ["patch a"]);
    assert_eq!(world.leases["a"].controller.as_deref(), Some("third"));
}

#[test]
fn only_the_leader_of_the_quorum_acts_and_reports() {
    let mut world = World::new();
    world.leads.borrow_mut().clear();
    world.apply(workload("a", &[("lease", "true"), ("quorum", "west")]));
    world.apply(workload("b", &[("lease", "true"), ("leese", "x")]));
    world.passes(60_000);
    assert!(world.written().is_empty() && world.reports.is_empty());
    world.leads.borrow_mut().insert("west".into());
    world.state.all_due();
    world.work();
    assert_eq!((world.written(), world.reports.len()), (vec!["create a".to_owned()], 0));
    // The quorum of a lease stays, and this is reported.
    world.leads.borrow_mut().insert("default".into());
    world.apply(workload("a", &[("lease", "true")]));
    assert!(world.written().is_empty());
    assert!(
        world.reports.iter().any(|(_, note)| note.contains("quorum is \"default\" and must stay \"west\"")),
        "{:?}",
        world.reports
    );
    world.passes(10_000);
    assert_eq!(world.reports.len(), 2, "the unknown annotation of b, now that this replica leads: {:?}", world.reports);
    // Removing the annotation needs the leader of the lease's quorum.
    world.leads.borrow_mut().remove("west");
    world.apply(workload("a", &[]));
    assert!(world.written().is_empty());
    world.leads.borrow_mut().insert("west".into());
    world.passes(10_000);
    assert_eq!(world.written(), ["delete a"]);
}

#[test]
fn workloads_without_annotations_use_no_memory() {
    let mut world = World::unlisted();
    world.state.workload(WorkloadKind::Deployment, Watched::ListBegins);
    for number in 0..10_000 {
        let facts = workload(&format!("w-{number}"), &[]);
        world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(facts)));
    }
    world.state.workload(WorkloadKind::Deployment, Watched::ListEnds);
    world.list_leases();
    world.work();
    assert!(world.state.is_empty());
}

#[test]
fn a_lease_that_is_changed_back_each_time_is_written_with_growing_pauses() {
    let mut world = World::new();
    world.apply(workload("billing", &[("lease", "true"), ("lease-duration", "40s")]));
    world.written();
    let changes_back = |world: &mut World| {
        let lease = world.leases.get_mut("billing").unwrap();
        lease.spec.lease_duration = crate::api::Duration::new("1m");
        lease.version = Some(format!("changed-{}", world.now.0));
        let lease = lease.clone();
        world.state.lease(Watched::Seen(Box::new(lease)));
        world.work();
    };
    for (patches, why) in [(1, "at once"), (1, "at once"), (0, "after a pause")] {
        changes_back(&mut world);
        assert_eq!(world.written(), vec!["patch billing"; patches], "{why}");
        world.passes(100);
    }
    for _ in 0..1000 {
        changes_back(&mut world);
        world.passes(100);
    }
    let written = world.written().len();
    assert!((1..10).contains(&written), "{written} writes in 100 s");
    assert!(!world.reports.is_empty());
    for (reason, note) in &world.reports {
        assert!(
            *reason == NoticeReason::LeaseNotWritten && note.contains("changes it or deletes it each time"),
            "{note}"
        );
    }
    // Nobody changes it back any more.
    world.passes(120_000);
    world.written();
    world.passes(120_000);
    assert_eq!(world.written(), Vec::<String>::new());
    changes_back(&mut world);
    assert_eq!(world.written().len(), 1, "it is the first change again");
}

#[test]
fn a_refusal_is_reported_and_tried_again_later() {
    let mut world = World::new();
    world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload("a", &[("lease", "true")]))));
    let mut tries = Vec::new();
    for _ in 0..400 {
        for effect in world.decide(|_| true) {
            match effect {
                Effect::Report(_, _, problem) => world.reports.push((problem.reason, problem.note)),
                Effect::Withdraw(..) => panic!("the refusal lasts"),
                Effect::Change(key, _) => {
                    tries.push(world.now);
                    world.state.changed(world.now, &key, Changed::Refused("quota exceeded".into()), Entropy(1 << 63));
                }
            }
        }
        world.now += Millis(500);
    }
    assert_eq!(world.reports.len(), 1, "{:?}", world.reports);
    let (reason, note) = &world.reports[0];
    assert_eq!(*reason, NoticeReason::LeaseNotWritten);
    assert!(note.contains("Deployment/a could not be written") && note.contains("quota exceeded"), "{note}");
    assert!((6..=12).contains(&tries.len()), "with growing pauses: {tries:?}");
}

/// Its status changes with each term.
#[test]
fn a_change_of_the_status_of_a_lease_does_not_shorten_the_pause_after_a_refusal() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    let longer = workload("a", &[("lease", "true"), ("lease-duration", "40s")]);
    world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(longer)));
    assert!(matches!(world.decide(|_| true)[..], [Effect::Change(..)]));
    world.state.changed(world.now, &key("a"), Changed::Refused("quota exceeded".into()), Entropy(1 << 63));
    assert!(matches!(world.decide(|_| true)[..], [Effect::Report(..)]));
    let lease = LeaseFacts { version: Some("50".into()), ..world.leases["a"].clone() };
    world.state.lease(Watched::Seen(Box::new(lease)));
    assert!(world.decide(|_| true).is_empty());
}

#[test]
fn a_panic_is_contained_to_its_workload() {
    let mut world = World::new();
    let on = |name: &str| {
        let quorum = if name == "b" { "broken" } else { "default" };
        workload(name, &[("lease", "true"), ("quorum", quorum)])
    };
    for name in ["a", "b", "c"] {
        world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(on(name))));
    }
    let leads = |quorum: &str| {
        assert_ne!(quorum, "broken", "planned by the test");
        true
    };
    let mut decided = Vec::new();
    for key in world.due() {
        match catch_unwind(AssertUnwindSafe(|| world.state.decide(world.now, &key, leads))) {
            Ok(effects) => decided.extend(effects.into_iter().map(|effect| matches!(effect, Effect::Change(..)))),
            Err(_) => world.state.panicked(world.now, &key),
        }
    }
    assert_eq!(decided, [true, true], "a and c");
    for name in ["a", "c"] {
        world.state.changed(world.now, &key(name), Changed::Unanswered, Entropy(1 << 63));
    }
    // Without an event.
    let mut decided = Vec::new();
    for _ in 0..60 {
        world.now += Millis(1000);
        assert_eq!(decided, []);
        let effects = world.decide(|_| true);
        decided.extend(effects.into_iter().filter(|effect| matches!(effect, Effect::Change(of, _) if *of == key("b"))));
    }
    assert_eq!(decided.len(), 1, "{decided:?}");
}

#[test]
fn the_workloads_of_a_namespace_that_cannot_be_listed_keep_their_leases() {
    let mut world = World::new();
    world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload("a", &[("lease", "true")]))));
    world.work();
    for event in [Watched::ListBegins, Watched::Unlisted("shop".into()), Watched::ListEnds] {
        world.state.workload(WorkloadKind::Deployment, event);
    }
    for event in [Watched::ListBegins, Watched::Unlisted("shop".into()), Watched::ListEnds] {
        world.state.lease(event);
    }
    world.work();
    assert_eq!(world.writes, ["create a"], "neither deleted nor created again");
}

#[test]
fn a_workload_that_cannot_be_read_keeps_its_lease_after_a_new_list() {
    let mut world = World::new();
    world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload("a", &[("lease", "true")]))));
    world.work();
    let unreadable = |uid: &str| {
        let (name, namespace, uid) = (Some("a".into()), Some("shop".into()), Some(uid.into()));
        Watched::Unreadable(Box::new(ObjectMeta { name, namespace, uid, ..ObjectMeta::default() }))
    };
    for event in [Watched::ListBegins, unreadable("uid-a"), Watched::ListEnds] {
        world.state.workload(WorkloadKind::Deployment, event);
    }
    assert_eq!(world.decide(|_| true), []);
    // The facts are those of a deleted workload: nobody requests its lease, which the garbage collector deletes.
    world.state.workload(WorkloadKind::Deployment, unreadable("uid-b"));
    world.work();
    assert_eq!(world.writes, ["create a", "keep a"]);
}

#[test]
fn an_older_state_of_a_lease_counts_only_if_the_lease_was_created_again() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    let old = world.leases["a"].clone();
    world.apply(workload("a", &[("lease", "true"), ("lease-duration", "40s")]));
    assert_eq!(world.written(), ["create a", "patch a"]);
    world.state.lease(Watched::Seen(Box::new(old.clone())));
    world.work();
    assert_eq!(world.written(), [""; 0]);
    world.leases.insert("a".into(), LeaseFacts { uid: "again".into(), ..old });
    world.show();
    assert_eq!(world.written(), ["patch a"]);
}

#[test]
fn a_workload_is_told_when_its_lease_is_given_to_another_one() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    let lease = world.leases.get_mut("a").unwrap();
    (lease.created_for, lease.version) = (Some("Deployment/b".into()), Some("50".into()));
    world.version = 50;
    world.show();
    assert!(world.reports[0].1.contains("RedisLease shop/a belongs to Deployment/b"), "{:?}", world.reports);
}

#[test]
fn a_lease_that_names_a_kind_of_workload_without_annotations_leaves_nothing_behind() {
    let mut world = World::new();
    world.hand_made("a");
    let lease = LeaseFacts { created_for: Some("ReplicaSet/a".into()), ..world.leases["a"].clone() };
    world.state.lease(Watched::Seen(Box::new(lease.clone())));
    world.work();
    world.state.lease(Watched::Deleted(Box::new(lease)));
    world.work();
    assert!(world.state.is_empty(), "{:?}", world.state);
}
