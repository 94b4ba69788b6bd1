//! Leases that are deleted.

use super::*;

/// The watch is a connection of its own.
#[test]
fn a_lease_that_is_deleted_before_the_answer_to_its_creation_comes_is_created_again() {
    for is_listed in [false, true] {
        let mut world = World::new();
        world.apply(workload("a", &[]));
        world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload("a", &[("lease", "true")]))));
        let [Effect::Change(key, Change::Create(lease))] = &world.decide(|_| true)[..] else { panic!("a lease") };
        let created = LeaseFacts { uid: "first".into(), version: Some("2".into()), ..LeaseFacts::from(&**lease) };
        if is_listed {
            world.list_leases();
        } else {
            world.state.lease(Watched::Seen(Box::new(created.clone())));
            world.state.lease(Watched::Deleted(Box::new(created.clone())));
        }
        world.state.changed(world.now, key, Changed::Written(Box::new(created)), Entropy(0));
        world.work();
        assert_eq!(world.written(), ["create a"], "{is_listed}");
    }
}

/// It wanted the same name as the lease of another workload.
#[test]
fn a_lease_that_is_found_under_a_wanted_name_and_deleted_before_the_answer_is_not_known_afterwards() {
    let mut world = World::new();
    let shared = |name: &str| workload(name, &[("lease", "shared")]);
    world.apply(shared("a"));
    let found = world.leases["shared"].clone();
    world.show();
    world.state.lease(Watched::Deleted(Box::new(found.clone())));
    world.leases.clear();
    world.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(shared("b"))));
    world.workloads.insert("b".into(), shared("b"));
    let effects = world.decide(|_| true);
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Change(..))).count(), 2, "{effects:?}");
    // The lease of `a` exists again, `b` finds it, and it is deleted before the answer comes.
    let again = LeaseFacts { uid: "again".into(), version: Some("90".into()), ..found };
    world.state.changed(world.now, &key("a"), Changed::Written(Box::new(again.clone())), Entropy(0));
    world.state.lease(Watched::Deleted(Box::new(again.clone())));
    world.state.changed(world.now, &key("b"), Changed::Exists(Box::new(again)), Entropy(0));
    world.work();
    assert!(world.leases.contains_key("shared"), "{:?}", world.written());
}

#[test]
fn a_deleted_lease_makes_only_those_workloads_due_that_wait_for_its_name() {
    let mut world = World::new();
    world.apply(workload("a", &[("lease", "true")]));
    world.show();
    world.apply(workload("mistaken", &[("lease", "true"), ("lease-duratoin", "9s")]));
    world.hand_made("taken");
    world.apply(workload("taken", &[("lease", "true")]));
    let reasons: BTreeSet<_> = world.reports.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    world.state.lease(Watched::Deleted(Box::new(world.leases["a"].clone())));
    assert_eq!(world.due(), [key("a"), key("taken")]);
}
