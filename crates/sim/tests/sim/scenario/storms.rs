//! I8b: an outage causes few writes, and its effects end soon after its cause.

use super::{Outcome, all_pass, calm};
use crate::api::server::{Mode, Writes};
use crate::chaos::swarm::Swarm;
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
/// Leases of one operator.
const LEASES: u64 = 8;
/// After an outage that ends every term: the end, the publication, and two other writes.
const STATUS_WRITES: u64 = 4;
/// The same with the labels of two pods.
const WRITES: u64 = 8;

fn many() -> Swarm {
    let mut swarm = calm(vec![0]);
    swarm.keys = (0..LEASES).map(|key| 1 << key).collect();
    swarm
}

/// The same leases, each of which a cluster holds for its workload: one is withdrawn when its term ends and when the status says so,
/// and started after the next publication.
fn many_workloads() -> Swarm {
    Swarm { clustered: u8::MAX, ..many() }
}

fn all_held(world: &World) -> bool {
    (0..world.swarm.keys.len()).all(|place| world.holding(place).is_some())
}

fn since(now: Writes, before: Writes) -> (u64, u64, u64) {
    let status = now.status - before.status;
    let failed = now.failed - before.failed;
    (status, status + now.role - before.role + failed, now.reads - before.reads)
}

/// No Redis node is reached for 30 s, with the API server there or away.
fn every_lease_is_lost_and_held_again(seed: u64, api: Mode, swarm: Swarm) -> Outcome {
    let mut world = World::scenario(swarm, seed, &[]);
    world.reach(10 * SECOND, all_held, "not everything is held at first")?;
    world.run_for(10 * SECOND);
    let before = world.apis[0].writes;
    world.isolate(0, true);
    world.set_api(0, api);
    world.run_for(30 * SECOND);
    let lost = (0..world.swarm.keys.len()).all(|place| world.holding(place).is_none());
    world.require(lost, || "the outage was too short".into())?;
    world.isolate(0, false);
    world.set_api(0, Mode::Up);
    // The back-off of the connections, of the API writer and of the watches.
    world.reach(8 * SECOND, all_held, "not everything is held 8 s after the outage")?;
    world.run_for(10 * SECOND);
    let (status, writes, reads) = since(world.apis[0].writes, before);
    let few = status <= STATUS_WRITES * LEASES && writes <= WRITES * LEASES;
    world.require(few, || format!("{status} status writes, {writes} writes and {reads} reads for {LEASES} leases"))
}

#[test]
fn an_outage_longer_than_a_lease_costs_few_writes() {
    for api in [Mode::Up, Mode::Refusing, Mode::Hanging] {
        all_pass(SEEDS, |seed| every_lease_is_lost_and_held_again(seed, api, many()));
        all_pass(SEEDS, |seed| every_lease_is_lost_and_held_again(seed, api, many_workloads()));
    }
}

/// Only the API server is away: no lease moves, and nothing is written for it.
fn nothing_moves_without_the_api_server(seed: u64, api: Mode) -> Outcome {
    let mut world = World::scenario(many(), seed, &[]);
    world.reach(10 * SECOND, all_held, "not everything is held at first")?;
    world.run_for(10 * SECOND);
    let before = world.apis[0].writes;
    let attempts: Vec<_> = (0..LEASES as usize).map(|place| world.holding(place).map(|now| now.attempt)).collect();
    world.set_api(0, api);
    world.run_for(60 * SECOND);
    world.set_api(0, Mode::Up);
    world.run_for(20 * SECOND);
    let now: Vec<_> = (0..LEASES as usize).map(|place| world.holding(place).map(|now| now.attempt)).collect();
    world.require(now == attempts, || format!("{now:?} instead of {attempts:?}"))?;
    let (status, writes, _) = since(world.apis[0].writes, before);
    world.require(writes == 0, || format!("{status} status writes, {writes} writes"))
}

#[test]
fn an_api_outage_moves_no_lease_and_causes_no_write() {
    for api in [Mode::Refusing, Mode::Hanging] {
        all_pass(SEEDS, |seed| nothing_moves_without_the_api_server(seed, api));
    }
}

/// Each holder is deleted, and a second later its lease, as when a namespace is deleted. The watch shows each after 3 s: for a
/// second, the operator ends terms of leases that do not exist.
fn deleted_leases(seed: u64) -> Outcome {
    let swarm = Swarm { watch_lag: 3 * SECOND, ..many() };
    let mut world = World::scenario(swarm, seed, &[]);
    world.reach(20 * SECOND, all_held, "not everything is held at first")?;
    world.run_for(10 * SECOND);
    let before = world.apis[0].writes;
    for place in 0..LEASES as usize {
        let holder = world.holding(place).map(|term| term.pod);
        world.require(holder.is_some(), || format!("lease {place} is not held"))?;
        world.kill_pod(0, holder.unwrap_or_default());
    }
    world.run_for(SECOND);
    for place in 0..LEASES as usize {
        world.delete_lease(0, place);
    }
    world.run_for(10 * SECOND);
    let (_, writes, reads) = since(world.apis[0].writes, before);
    // In this second, a write that is refused again and again is made four times.
    let few = writes <= 2 * WRITES * LEASES && reads <= WRITES * LEASES;
    world.require(few, || format!("{writes} writes and {reads} reads for {LEASES} leases"))
}

#[test]
fn leases_that_do_not_exist_any_more_cost_few_writes() {
    all_pass(SEEDS, deleted_leases);
}
