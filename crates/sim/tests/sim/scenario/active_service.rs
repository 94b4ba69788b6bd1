//! The Service that follows the holder: its endpoint never outlives the lease.

use super::{Outcome, all_pass, calm, failures};
use crate::api::objects::{self, ServiceOf};
use crate::api::server::Mode;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

impl World {
    /// Whether every endpoint is a pod that a process treats as the holder.
    fn endpoints_are_held(&self) -> bool {
        let held = |pod: &u32| self.check.live.iter().any(|live| live.pod == *pod && self.now < live.until);
        self.apis[0].endpoints(0).iter().all(held)
    }
}

/// A calm world in which the holder of one lease is the endpoint of its Service.
///
/// # Errors
/// The holder did not become the endpoint.
pub(super) fn routed(seed: u64, bugs: &[Bug]) -> Result<World, String> {
    let mut world = World::scenario(calm(vec![0]), seed, bugs);
    let routed = world.run_until_holds(40 * SECOND, |world| world.apis[0].endpoints(0).len() == 1);
    world.require(routed, || "the holder did not become the endpoint".into())?;
    Ok(world)
}

/// The quorum is lost: the endpoint is removed before the lease ends.
fn a_lost_quorum_removes_the_endpoint(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut world = routed(seed, bugs)?;
    world.run_for(5 * SECOND);
    world.isolate(0, true);
    let end = world.now + 10 * SECOND;
    while world.now < end && world.check.broken.is_none() {
        world.run_for(MILLI);
        world.require(world.endpoints_are_held(), || "a pod is an endpoint after its lease has ended".into())?;
    }
    world.require(world.apis[0].endpoints(0).is_empty(), || "the endpoint is still there".into())
}

#[test]
fn the_endpoint_is_removed_before_a_lost_lease_ends() {
    all_pass(SEEDS, |seed| a_lost_quorum_removes_the_endpoint(seed, &[]));
    let bugs = [Bug::EndpointKept];
    let (found, first) = failures(SEEDS, |seed| a_lost_quorum_removes_the_endpoint(seed, &bugs));
    // The pod of an ending term is still its endpoint; after the end there is no endpoint.
    assert_eq!(found, SEEDS.count(), "{bugs:?} was not found with every seed");
    let first = first.unwrap_or_default();
    assert!(first.contains("after its lease has ended"), "{first}");
}

/// The API server is away and the holder stays the same: renewals go on, and no slice is written.
#[test]
fn a_held_lease_writes_no_slice() {
    all_pass(SEEDS, |seed| {
        let mut world = World::scenario(calm(vec![0]), seed, &[]);
        let both = |world: &World| world.apis[0].state.slices.values().all(|slice| slice.endpoints.len() == 1);
        let routed = world.run_until_holds(40 * SECOND, |world| world.apis[0].endpoints(0).len() == 1 && both(world));
        world.require(routed, || "the holder did not become the endpoint".into())?;
        let before = world.apis[0].writes.slice;
        world.run_for(30 * SECOND);
        world.set_api(0, Mode::Refusing);
        world.run_for(20 * SECOND);
        world.set_api(0, Mode::Up);
        world.run_for(10 * SECOND);
        let writes = world.apis[0].writes.slice - before;
        world.require(writes == 0, || format!("{writes} writes of slices while nothing changed"))
    });
}

/// A handover writes each of two slices twice: without the old endpoint and with the new one; and one of them once more
/// with the new token.
#[test]
fn a_handover_costs_five_writes_for_two_families() {
    all_pass(SEEDS, |seed| {
        let mut world = routed(seed, &[])?;
        world.run_for(SECOND);
        let (before, first) = (world.apis[0].writes.slice, world.apis[0].endpoints(0));
        if let Some(&pod) = first.first() {
            world.harm_pod(0, pod, Fault::Relabel);
        }
        let moved = world.run_until_holds(60 * SECOND, |world| {
            let now = world.apis[0].endpoints(0);
            now.len() == 1 && now != first
        });
        world.require(moved, || "no other pod became the endpoint".into())?;
        world.run_for(SECOND);
        let writes = world.apis[0].writes.slice - before;
        world.require(writes == 5, || format!("{writes} writes of slices for one handover"))
    });
}

/// The Service cannot be read for six minutes: the holder stays its endpoint. Then the pod has another address.
#[test]
fn a_refused_read_of_the_service_changes_no_endpoint() {
    all_pass(SEEDS, |seed| {
        let mut world = routed(seed, &[])?;
        world.run_for(SECOND);
        let (before, first) = (world.apis[0].writes.slice, world.apis[0].endpoints(0));
        world.apis[0].refuses_services = true;
        world.run_for(360 * SECOND);
        let writes = world.apis[0].writes.slice - before;
        world.require(writes == 0 && world.apis[0].endpoints(0) == first, || format!("{writes} writes of slices"))?;
        let Some(&pod) = first.first() else { return Ok(()) };
        world.change_pod(0, pod, |pod| pod.ready = false);
        world.run_for(SECOND);
        world.change_pod(0, pod, objects::restart);
        world.run_for(SECOND);
        let known: Vec<String> =
            world.apis[0].state.pods.get(&pod).iter().flat_map(|pod| &pod.addresses).map(ToString::to_string).collect();
        let served: Vec<String> =
            world.apis[0].slices_of(0).flat_map(|slice| &slice.endpoints).flat_map(|of| of.addresses.clone()).collect();
        world.require(served == known, || format!("the addresses are {served:?} instead of {known:?}"))
    });
}

/// Two leases name one Service with two families: one of them gets all its slices, and when it leaves, the other one.
#[test]
fn of_two_leases_on_one_service_one_is_served() {
    all_pass(SEEDS, |seed| {
        let mut swarm = calm(vec![0]);
        swarm.keys = vec![0b001, 0b010];
        swarm.specs[0].service = Some(ServiceOf::First);
        let mut world = World::scenario(swarm, seed, &[]);
        let all = |world: &World| world.apis[0].slices_of(0).filter(|slice| !slice.endpoints.is_empty()).count() == 2;
        let routed = world.run_until_holds(60 * SECOND, all);
        world.require(routed, || "no holder became the endpoint".into())?;
        let owner = |world: &World| world.apis[0].slices_of(0).next().map(|slice| slice.lease.clone());
        let first = owner(&world);
        let place = first.as_deref().map_or(0, |lease| objects::number(lease) as usize);
        world.specs[0][place].service = None;
        world.write_spec(0, place);
        let moved = world.run_until_holds(40 * SECOND, |world| all(world) && owner(world) != first);
        world.require(moved, || format!("{first:?} still has the Service"))
    });
}
