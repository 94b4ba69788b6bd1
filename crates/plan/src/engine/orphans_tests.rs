//! The roles of leases that do not exist.

use crate::api::validated::{Workload, WorkloadKind};
use crate::election::{PodFacts, WorkloadFacts};
use crate::index::{WorkloadFound, WorkloadKey};
use crate::plan::{Allowed, Altered};

use super::*;

/// The pod `p` with a role and a token of this lease.
fn carrier(lease: &str, role: &str) -> PodFacts {
    let mut pod = pod("p");
    pod.labels.insert(format!("lease.redislease.io/{lease}"), role.to_owned());
    pod.annotations.set(&format!("token.redislease.io/{lease}"), Some("7"));
    pod
}

#[test]
fn labels_of_leases_that_do_not_exist_are_removed_once_everything_is_listed() {
    let mut world = World::new();
    world.take(Input::Lease(Watched::ListBegins));
    for name in ["broken", "broken-of-its-template"] {
        world.take(Input::Lease(Watched::Unreadable(Box::new(lease("n", name).metadata))));
    }
    world.take(Input::Pod(Watched::ListBegins));
    let mut pod = carrier("gone", "standby");
    pod.labels.extend(carrier("broken", "active").labels);
    pod.annotations.set("token.redislease.io/broken", Some("8"));
    // Labels of its template.
    for lease in ["of-its-template", "broken-of-its-template"] {
        pod.labels.extend(carrier(lease, "active").labels);
    }
    world.take(Input::Pod(Watched::Seen(Box::new(pod))));
    world.take(Input::Pod(Watched::ListEnds));
    assert_eq!(world.done(), [""; 0], "leases are not listed");
    world.take(Input::Lease(Watched::ListEnds));
    let removed = "gone on p: None None";
    assert_eq!(world.done(), ["floors complete", removed], "a newer version may lead, and read the lease");
    world.lead(Some(Authority::Lead));
    assert_eq!(world.done(), [removed], "another quorum may exist");
    world.take(Input::QuorumsRead);
    assert_eq!(world.done(), ["broken on p: Some(Standby) Some(\"8\")", removed]);
    let key = OrphanKey { namespace: "n".into(), lease: "gone".into(), object: "uid-p".into() };
    let answer = |outcome| Caller::Orphan(key.clone()).input(Outcome::Role("uid-p".into(), role(outcome))).unwrap();
    world.take(answer(RoleOutcome::Conflict));
    assert_eq!(world.done(), [removed], "again");
    world.take(answer(RoleOutcome::Written(None)));
    assert_eq!(world.done(), [""; 0]);
    // A policy adds the mark again, or forbids to remove it.
    let altered = Altered { path: vec!["metadata".into()], wanted: None, stored: Some("x".into()), manager: None };
    let refusals = [RoleOutcome::Written(Some(Box::new(altered))), RoleOutcome::Refused("no".into())];
    for (outcome, pause) in refusals.into_iter().zip([1000, 2000]) {
        world.take(answer(outcome));
        assert_eq!((world.done(), world.engine.next_deadline()), (vec![], Some(world.state.now + Millis(pause))));
        world.state.now += Millis(pause - 1);
        world.take(Input::Wake);
        assert_eq!(world.done(), [""; 0], "it waits");
        world.state.now += Millis(1);
        world.take(Input::Wake);
        assert_eq!((world.done(), world.engine.next_deadline()), (vec![removed.to_owned()], None));
    }
    world.take(answer(RoleOutcome::Gone));
    assert_eq!(world.done(), [""; 0]);
    let metadata = lease("n", "broken").metadata;
    world.take(Input::Lease(Watched::DeletedUnreadable(Box::new(metadata))));
    assert_eq!(world.done(), ["broken on p: None None", removed]);
}

/// A newer version that leads can read these leases, and may hold them.
#[test]
fn the_roles_of_unreadable_leases_are_written_only_by_a_replica_that_leads_on_each_quorum() {
    let mut world = World::listed();
    let unreadable = |name| Box::new(lease("n", name).metadata);
    for name in ["first", "second"] {
        world.take(Input::Lease(Watched::Unreadable(unreadable(name))));
    }
    world.take(Input::Pod(Watched::Seen(Box::new(carrier("second", "active")))));
    let authority = |quorum: &str, authority| Input::Authority(quorum.into(), authority);
    world.take(authority("a", Authority::Follow));
    world.take(Input::Lease(Watched::DeletedUnreadable(unreadable("first"))));
    assert_eq!(world.done(), [""; 0], "the other lease still exists");
    world.take(Input::Quorum { name: "b".into(), facts: None, authority: Authority::Follow });
    world.take(authority("a", Authority::Lead));
    assert_eq!(world.done(), [""; 0], "the quorum of the lease may be the other one");
    world.take(authority("b", Authority::Lead));
    let standby = "second on p: Some(Standby) Some(\"7\")";
    assert_eq!(world.done(), [standby]);
    world.take(authority("a", Authority::Renew));
    let key = OrphanKey { namespace: "n".into(), lease: "second".into(), object: "uid-p".into() };
    let conflict = Outcome::Role("uid-p".into(), role(RoleOutcome::Conflict));
    world.take(Caller::Orphan(key).input(conflict).unwrap());
    assert_eq!(world.done(), [""; 0], "it does not lead any more");
}

#[test]
fn marks_of_leases_that_do_not_exist_are_removed_from_workloads_that_the_operator_may_write_to() {
    let mut world = World::new();
    world.engine.config.allowed.scale = true;
    let found = || {
        let object = serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "name": "d", "namespace": "n", "uid": "uid-d", "labels": {"lease.redislease.io/gone": "active"},
            "annotations": {"owner.redislease.io/gone": "uid-gone.uid-d"}}}));
        let facts = WorkloadFacts::of(WorkloadKind::Deployment, &object.unwrap()).unwrap();
        WorkloadFound { read: WorkloadRead::SelectsNothing, object: Some(Arc::new(facts)) }
    };
    let key: WorkloadKey = ("n".into(), Workload { kind: WorkloadKind::Deployment, name: "d".into() });
    world.take(Input::Lease(Watched::ListBegins));
    world.take(Input::Pod(Watched::ListBegins));
    world.take(Input::Pod(Watched::ListEnds));
    world.take(Input::WorkloadChanged((key.clone(), ["gone".to_owned()].into())));
    world.take(Input::Workload(key.clone(), found()));
    world.done();
    world.take(Input::Lease(Watched::ListEnds));
    assert_eq!(world.done(), ["floors complete", "gone on d: None None"]);
    world.take(Input::Workload(key.clone(), found()));
    assert_eq!(world.done(), ["gone on d: None None"], "again");
    world.engine.config.allowed = Allowed::default();
    world.take(Input::Workload(key, found()));
    assert_eq!(world.done(), [""; 0]);
}

/// Another tool applies a manifest that was exported with the marks, and reconciles it at once.
#[test]
fn a_mark_that_others_write_again_and_again_is_removed_less_and_less_often() {
    let mut world = World::listed();
    let key = OrphanKey { namespace: "n".into(), lease: "gone".into(), object: "uid-p".into() };
    let mut removed = 0;
    for _ in 0..60_000 {
        world.state.now += Millis(10);
        world.take(Input::Pod(Watched::Seen(Box::new(carrier("gone", "active")))));
        world.engine.sweep_again(world.state.now);
        world.take(Input::Wake);
        for _ in world.done().iter().filter(|done| *done == "gone on p: None None") {
            removed += 1;
            let outcome = Outcome::Role("uid-p".into(), role(RoleOutcome::Written(None)));
            world.take(Caller::Orphan(key.clone()).input(outcome).unwrap());
        }
    }
    assert!((5..20).contains(&removed), "{removed} in ten minutes");
}

/// The last leader crashed, or the API server has refused to remove the mark.
#[test]
fn marks_that_stayed_behind_when_a_lease_was_forgotten_are_removed_by_the_leader() {
    let removed = || vec!["gone on p: None None".to_owned()];
    for leads in [true, false] {
        let mut world = World::listed();
        world.lead(Some(if leads { Authority::Lead } else { Authority::Follow }));
        world.take(Input::Pod(Watched::Seen(Box::new(carrier("gone", "active")))));
        world.lease("n", "gone");
        script("gone", |script| script.finished = true);
        world.work();
        world.done();
        world.take(Input::Lease(Watched::Deleted(Box::new(lease("n", "gone")))));
        world.work();
        let writes =
            |world: &mut World| world.done().into_iter().filter(|done| done.contains(" on ")).collect::<Vec<_>>();
        assert_eq!(writes(&mut world), if leads { removed() } else { Vec::new() });
        if !leads {
            world.lead(Some(Authority::Lead));
            assert_eq!(writes(&mut world), removed(), "whoever leads next");
        }
    }
}
