//! Permits: how many leases acquire and publish at the same time.

use super::*;

fn world() -> World {
    let mut world = World::listed();
    world.engine.permits = Permits::new(1);
    world
}

fn attempt(name: &str, attempt: PermitUse) {
    script(name, |script| script.permits = PermitUses { attempt, ..PermitUses::default() });
}

#[test]
fn a_lease_that_waits_has_a_turn_when_a_permit_is_free() {
    let mut world = world();
    let first = world.lease("n", "a");
    attempt("a", PermitUse::Uses);
    world.work();
    assert_eq!(seen("a"), ["facts 0 unseen"]);
    world.lease("n", "b");
    attempt("b", PermitUse::Waits);
    world.work();
    assert_eq!((seen("b"), world.engine.waiting_attempts()), (vec!["facts 0 unseen no attempt".to_owned()], 1));
    world.work();
    assert_eq!(seen("b"), [""; 0]);
    attempt("a", PermitUse::None);
    attempt("b", PermitUse::Uses);
    world.take(Input::Shown(first));
    assert!(world.turn() && world.engine.is_due(), "the permit is offered at once");
    world.work();
    assert_eq!((seen("b"), world.engine.waiting_attempts()), (vec!["facts 0 unseen".to_owned()], 0));
}

#[test]
fn a_lease_that_is_deleted_or_panics_gives_its_permit_back() {
    let mut world = world();
    let first = world.lease("n", "a");
    attempt("a", PermitUse::Uses);
    world.work();
    script("a", |script| script.panics = true);
    world.take(Input::Shown(first));
    world.work();
    assert!(world.engine.permits.permitted(&LeaseId(u64::MAX), "default", "n").attempt, "it panicked");
    script("a", |script| script.panics = false);
    world.at(1000);
    world.work();
    assert!(!world.engine.permits.permitted(&LeaseId(u64::MAX), "default", "n").attempt);
    script("a", |script| script.finished = true);
    world.take(Input::Lease(Watched::Deleted(Box::new(lease("n", "a")))));
    world.work();
    assert!(world.engine.permits.permitted(&LeaseId(u64::MAX), "default", "n").attempt, "it is deleted");
}
