//! The EndpointSlices of leases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::plan::Family;

fn slice(lease: &str, service: &str, uid: &str) -> SliceFacts {
    let uid = uid.to_owned();
    SliceFacts { uid, version: Some("3".into()), ..SliceFacts::new("a", lease, "l", service, Family::V4) }
}

#[test]
fn the_endpoint_of_a_lease_that_does_not_exist_is_removed_after_both_lists() {
    let mut world = World::new();
    let slice = |lease: &str| slice(lease, lease, &format!("uid-{lease}"));
    let mut take = |input| {
        world.engine.take(input);
        world.fake.done()
    };
    take(Input::Lease(Watched::ListBegins));
    take(Input::Lease(Watched::Seen(Box::new(lease("a", "billing")))));
    take(Input::Slice(Watched::ListBegins));
    take(Input::Slice(Watched::Seen(Box::new(slice("billing")))));
    take(Input::Slice(Watched::Seen(Box::new(slice("orphan")))));
    assert_eq!(take(Input::Slice(Watched::ListEnds)), [""; 0], "leases are not listed");
    let done = take(Input::Lease(Watched::ListEnds));
    let removal = "orphan on orphan-redislease-ipv4: Remove { with_service: false }";
    assert!(
        done.iter().any(|line| line == removal) && !done.iter().any(|line| line.contains("billing on")),
        "{done:?}"
    );
    let answer = |outcome| Input::OrphanSliceWritten {
        namespace: "a".into(),
        name: "orphan-redislease-ipv4".into(),
        answer: SliceAnswer { outcome, found: None },
    };
    take(Input::Slice(Watched::Seen(Box::new(slice("second")))));
    assert_eq!(take(answer(RoleOutcome::Unanswered("timeout".into()))), [removal], "only this one is repeated");
    assert_eq!(take(answer(RoleOutcome::Written)), [""; 0]);
    // A later list may be newer than the watch of leases.
    take(Input::Slice(Watched::ListBegins));
    assert_eq!(take(Input::Slice(Watched::ListEnds)), [""; 0]);
    take(Input::Lease(Watched::ListBegins));
    assert!(take(Input::Lease(Watched::ListEnds)).iter().all(|line| !line.contains("Remove")));
}

#[test]
fn an_old_answer_removes_only_the_slice_that_it_is_about() {
    let mut world = World::listed();
    let id = world.lease("a", "billing");
    world.engine.take(Input::Slice(Watched::Seen(Box::new(slice("billing", "active", "new")))));
    let mut gone = |uid: &str| {
        let found = Some(crate::operator::writer::SliceFound::Gone(uid.into()));
        let answer = Answer::Slice("active-redislease-ipv4".into(), SliceAnswer { outcome: RoleOutcome::Gone, found });
        world.engine.take(Input::Answer { lease: id, incarnation: 0, answer });
        world.engine.index.snapshot(id, Time(0)).unwrap().slices.len()
    };
    assert_eq!((gone("old"), gone("new")), (1, 0));
}

#[test]
fn a_slice_that_a_new_list_could_not_read_is_kept_unless_it_was_created_again() {
    let mut world = World::listed();
    let id = world.lease("a", "billing");
    let slice = slice("billing", "active", "uid-1");
    let (namespace, name) = (Some(slice.namespace.clone()), Some(slice.name.clone()));
    world.engine.take(Input::Slice(Watched::Seen(Box::new(slice))));
    let mut list_with = |uid: &str| {
        let metadata = ObjectMeta {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        };
        for event in [Watched::ListBegins, Watched::Unreadable(Box::new(metadata)), Watched::ListEnds] {
            world.engine.take(Input::Slice(event));
        }
        world.engine.index.snapshot(id, Time(0)).unwrap().slices.len()
    };
    assert_eq!((list_with("uid-1"), list_with("uid-2")), (1, 0));
}
