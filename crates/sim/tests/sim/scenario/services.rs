//! Services and slices without a lease, and those of others: only what is the operator's own and is not wanted any more is
//! removed.

use std::sync::Arc;

use redislease::plan::{Family, SliceChange, SliceWrite};

use super::active_service::routed;
use super::{Outcome, all_pass, calm, failures};
use crate::api::calls::Ask;
use crate::api::server::Mode;
use crate::api::services::Maker;
use crate::api::watch::{Kind, Step};
use crate::chaos::bug::Bug;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::{Event, World};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// Every seed passes without the bug and fails with it, with this text.
fn finds(bug: Bug, text: &str, scenario: impl Fn(u64, &[Bug]) -> Outcome) {
    all_pass(SEEDS, |seed| scenario(seed, &[]));
    let (found, first) = failures(SEEDS, |seed| scenario(seed, &[bug]));
    let first = first.unwrap_or_default();
    assert_eq!(found, SEEDS.count(), "{bug:?} was not found with every seed: {first}");
    assert!(first.contains(text), "{first}");
}

/// The lease is deleted while no operator runs. The next one removes its slices before the garbage collector does.
fn an_orphan_is_removed(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut world = routed(seed, bugs)?;
    world.restart(0, 2 * SECOND);
    world.delete_lease(0, 0);
    let swept = world.run_until_holds(8 * SECOND, |world| world.apis[0].slices_of(0).next().is_none());
    world.require(swept, || "the slices of the deleted lease are still there".into())
}

#[test]
fn slices_without_a_lease_are_removed_after_a_start() {
    finds(Bug::NoSweep, "are still there", an_orphan_is_removed);
}

/// The list of leases is older than that of slices: the lease counts as missing until the watch shows it.
fn a_new_lease_keeps_its_endpoint(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut world = routed(seed, bugs)?;
    let current = world.apis[0].list(0);
    let older = crate::api::server::State { leases: vec![None], version: 0, ..(*current).clone() };
    world.restart(0, MILLI);
    world.run_for(MILLI);
    world.watched(0, Kind::Slices, Step::Listed { state: current, is_stale: false });
    world.watched(0, Kind::Leases, Step::Listed { state: Arc::new(older), is_stale: true });
    let end = world.now + 20 * SECOND;
    while world.now < end && world.check.broken.is_none() {
        world.run_for(10 * MILLI);
        world.require(world.apis[0].endpoints(0).len() == 1, || "the endpoint was removed".into())?;
    }
    world.require(true, String::new)
}

#[test]
fn a_lease_is_read_before_its_slices_are_removed() {
    finds(Bug::RemovesUnread, "although lease 0 exists", a_new_lease_keeps_its_endpoint);
}

/// The field is removed, and the removal of the Service hangs. Meanwhile the field is set again.
fn a_late_removal_deletes_no_wanted_service(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    swarm.services = None;
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    let routed = world.run_until_holds(40 * SECOND, |world| world.apis[0].endpoints(0).len() == 1);
    world.require(routed, || "the holder did not become the endpoint".into())?;
    let service = std::mem::take(&mut world.specs[0][0].service);
    world.write_spec(0, 0);
    let removes = |write: &SliceWrite| matches!(write.change, SliceChange::Remove { .. });
    let sent = world.run_until_holds(10 * SECOND, |world| world.processes[0].writer.is_writing_slice(removes));
    world.require(sent, || "no removal was sent".into())?;
    world.set_api(0, Mode::Hanging);
    world.run_for(50 * MILLI);
    let mut late = std::mem::take(&mut world.apis[0].hanging);
    late.retain(|call| matches!(&call.ask, Ask::Slice { .. }));
    world.require(!late.is_empty(), || "no removal is late".into())?;
    world.specs[0][0].service = service;
    world.write_spec(0, 0);
    world.set_api(0, Mode::Up);
    for call in late {
        world.after(MILLI, Event::ApiArrive(Box::new(call)));
    }
    world.run_for(SECOND);
    let made = world.apis[0].services[0].made;
    world.require(made.is_some() && world.apis[0].writes.services_deleted == 0, || "the Service was deleted".into())
}

#[test]
fn a_late_removal_does_not_delete_a_service_that_is_wanted_again() {
    finds(Bug::RemovesUnread, "which lease 0 names", a_late_removal_deletes_no_wanted_service);
}

/// While the first slice is being created, a user makes one with its name. It stays as it is, and when it is deleted, the
/// lease's own one takes its place.
fn a_foreign_slice_is_left_alone(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    swarm.api_delay = (20 * MILLI, 30 * MILLI);
    let mut world = World::scenario(swarm, seed, bugs);
    let creates = |write: &SliceWrite| write.uid.is_none();
    let sent = world.run_until_holds(40 * SECOND, |world| world.processes[0].writer.is_writing_slice(creates));
    world.require(sent, || "no slice is created".into())?;
    world.apis[0].foreign.insert((0, Some(Family::V4)));
    world.run_for(20 * SECOND);
    world.require(world.apis[0].endpoints(0).is_empty(), || "there is a second endpoint".into())?;
    world.apis[0].foreign.clear();
    let routed = world.run_until_holds(40 * SECOND, |world| world.apis[0].endpoints(0).len() == 1);
    world.require(routed, || "the holder did not become the endpoint".into())
}

#[test]
fn a_slice_that_a_user_made_is_left_alone() {
    finds(Bug::ForeignSliceTaken, "which a user made", a_foreign_slice_is_left_alone);
}

/// A user's slice appears beside the lease's own ones: the endpoint is removed when the Service is read again.
#[test]
fn beside_the_slice_of_a_user_the_lease_has_no_endpoint() {
    all_pass(SEEDS, |seed| {
        let mut world = routed(seed, &[])?;
        world.apis[0].foreign.insert((0, None));
        world.run_for(301 * SECOND);
        world.require(world.apis[0].endpoints(0).is_empty(), || "there are two endpoints".into())?;
        world.apis[0].foreign.clear();
        world.run_for(31 * SECOND);
        world.require(world.apis[0].endpoints(0).len() == 1, || "the endpoint is still missing".into())
    });
}

/// The Service is created, and no slice can be: then the field is removed.
fn a_service_without_slices_is_removed(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    swarm.services = None;
    let mut world = World::scenario(swarm, seed, bugs);
    for family in [Family::V4, Family::V6] {
        world.apis[0].foreign.insert((0, Some(family)));
    }
    let made = world.run_until_holds(40 * SECOND, |world| world.apis[0].services[0].made.is_some());
    world.require(made, || "no Service was created".into())?;
    world.run_for(SECOND);
    world.specs[0][0].service = None;
    world.write_spec(0, 0);
    world.run_for(5 * SECOND);
    world.require(world.apis[0].services[0].made.is_none(), || "the Service is still there".into())
}

#[test]
fn a_service_that_the_operator_created_is_removed_with_the_field() {
    finds(Bug::ServiceLeft, "is still there", a_service_without_slices_is_removed);
}

/// The Service of a user stays when the field is removed and when the lease is deleted. One that the user deletes is created
/// again.
#[test]
fn the_service_of_a_user_is_never_deleted() {
    all_pass(SEEDS, |seed| {
        let mut world = routed(seed, &[])?;
        let spec = world.specs[0][0].service.take();
        world.write_spec(0, 0);
        let removed = world.run_until_holds(5 * SECOND, |world| world.apis[0].slices_of(0).next().is_none());
        world.require(removed, || "the slices are still there".into())?;
        world.specs[0][0].service = spec;
        world.write_spec(0, 0);
        let routed = world.run_until_holds(5 * SECOND, |world| world.apis[0].endpoints(0).len() == 1);
        world.require(routed, || "the holder did not become the endpoint again".into())?;
        let user = world.apis[0].services[0].made == Some(Maker::User);
        world.require(user && world.apis[0].writes.services_deleted == 0, || "the Service was deleted".into())?;
        world.apis[0].services[0].made = None;
        let again = |world: &World| matches!(world.apis[0].services[0].made, Some(Maker::Lease(_)));
        let made = world.run_until_holds(301 * SECOND, again);
        world.require(made, || "the Service was not created again".into())
    });
}
