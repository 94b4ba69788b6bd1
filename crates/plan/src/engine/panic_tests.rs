//! A panic is contained to its lease.

use super::*;

#[test]
fn a_panic_while_effects_are_carried_out_is_contained_to_its_lease() {
    let mut world = World::listed();
    world.lease("n", "a");
    world.lease("n", "b");
    script("a", |script| script.effects = vec![Planned::Probe, Planned::Warn(PANICS.into())]);
    script("b", |script| script.effects = vec![Planned::Probe]);
    world.work();
    let done = world.done();
    assert_eq!(done[..3], ["a/0 Probe", "panic", "a/0 WithdrawStatus"]);
    assert_eq!(done[4..], ["b/0 Probe"]);
    world.at(1000);
    world.work();
    assert_eq!(script("a", |script| script.machines), 2, "a new machine");
}

#[test]
fn a_panic_is_contained_to_its_lease() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.lease("n", "b");
    script("a", |script| script.panics = true);
    world.work();
    assert_eq!(seen("b"), ["facts 0 unseen"], "the other lease has its turn");
    let [panic, withdrawn, reported] = &world.done()[..] else { panic!("three effects") };
    assert_eq!([panic.as_str(), withdrawn.as_str()], ["panic", "a/0 WithdrawStatus"]);
    assert!(reported.contains("InternalError") && reported.contains("planned by the test"), "{reported}");
    assert_eq!(world.engine.next_deadline(), Some(Time(1000)));
    seen("a");
    world.pod("p");
    world.work();
    assert_eq!((seen("a").len(), seen("b").len()), (0, 1), "no turn during the pause");
    let stale =
        |incarnation| Input::Answer { lease: id, incarnation, answer: Outcome::LeaseStatus(StatusOutcome::Withdrawn) };
    world.take(stale(0));
    world.at(1000);
    world.work();
    assert_eq!(script("a", |script| script.machines), 2, "a new machine");
    assert_eq!(world.engine.next_deadline(), Some(Time(3000)), "a longer pause after the second panic");
    assert_eq!(seen("a"), ["facts 1 unseen"], "the second machine does not get the answers of the first");
    assert_eq!(world.done(), ["panic", "a/1 WithdrawStatus"], "one event for panics in a row");
    script("a", |script| script.panics = false);
    world.at(3000);
    world.work();
    seen("a");
    world.take(stale(0));
    world.take(stale(2));
    world.work();
    assert_eq!(seen("a"), ["StatusWritten(Withdrawn)", "facts 1 unseen"]);
}

#[test]
fn a_panic_while_a_panic_is_reported_is_contained_too() {
    let mut world = World::listed();
    world.lease("n", "a");
    world.lease("n", "b");
    script("a", |script| script.panics = true);
    world.state.withdraw_panics = true;
    world.work();
    assert_eq!(world.done(), ["panic", "panic"]);
    assert_eq!(seen("b"), ["facts 0 unseen"], "the other lease has its turn");
    script("a", |script| script.panics = false);
    world.at(1000);
    world.work();
    assert_eq!(script("a", |script| script.machines), 2, "a new machine");
}

#[test]
fn a_panic_in_the_last_turn_of_a_lease_leaves_nothing_behind() {
    let mut world = World::listed();
    world.engine.permits = Permits::new(1);
    let id = world.lease("n", "a");
    script("a", |script| script.permits = PermitUses { attempt: PermitUse::Uses, ..PermitUses::default() });
    world.work();
    script("a", |script| (script.finished, script.effects) = (true, vec![Planned::Warn(PANICS.into())]));
    world.take(Input::Lease(Watched::Deleted(Box::new(lease("n", "a")))));
    world.work();
    assert_eq!(world.done(), ["hide", "panic", "forget"]);
    assert!(world.engine.permits.permitted(&LeaseId(u64::MAX), "default", "n").attempt, "its permit is free");
    assert!(world.engine.leases.is_empty() && world.engine.index.lease(id).is_none());
    assert_eq!(world.engine.next_deadline(), None);
}
