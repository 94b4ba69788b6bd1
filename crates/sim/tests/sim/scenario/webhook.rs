//! A webhook hangs on each write of one tenant: another tenant is stopped in time all the same.

use std::ops::Range;

use redislease_plan::plan::calls::Limits;

use super::{Outcome, all_pass, calm, failures};
use crate::api::calls::LONGEST_WEBHOOK;
use crate::api::objects::{OF_NAMESPACE, namespace};
use crate::api::workloads::replicas;
use crate::chaos::bug::Bug;
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;
/// The workloads of the other tenant.
const OTHERS: Range<usize> = OF_NAMESPACE..OF_NAMESPACE + 6;

fn running(world: &World, places: Range<usize>) -> usize {
    places.filter(|place| world.apis[0].workload_of(*place).is_some_and(|one| replicas(one) > 0)).count()
}

fn suspend(world: &mut World, places: Range<usize>) {
    places.for_each(|place| world.suspend_lease(0, place, true));
}

fn another_tenant_is_stopped_in_time(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    swarm.keys = (0..OTHERS.end).map(|key| 1 << key).collect();
    (swarm.clustered, swarm.calls, swarm.api_timeout) = (u8::MAX, Limits::STANDARD, 5 * SECOND);
    let mut world = World::scenario(swarm, seed, bugs);
    let all_run = |world: &World| running(world, 0..OTHERS.end) == OTHERS.end;
    world.reach(60 * SECOND, all_run, "not everything runs")?;
    world.run_for(25 * SECOND + seed * SECOND / 7);
    let hangs_until = world.now + 60 * SECOND;
    world.apis[0].hangs_until.insert(namespace(0), hangs_until);
    suspend(&mut world, 0..OF_NAMESPACE);
    // At first, the calls of the tenant wait for 5 s, and then their repetitions for the webhook.
    for (after, others) in [(SECOND / 2, OTHERS.start..OTHERS.start + 3), (8 * SECOND, OTHERS.start + 3..OTHERS.end)] {
        world.run_for(after);
        suspend(&mut world, others.clone());
        let stopped = |world: &World| running(world, others.clone()) == 0;
        world.reach(SECOND, stopped, "another tenant is not stopped soon")?;
    }
    world.run_until(hangs_until + LONGEST_WEBHOOK);
    let misplaced = |world: &World| (0..OF_NAMESPACE).find_map(|place| world.misplaced_workload(0, place));
    let is_right = |world: &World| misplaced(world).is_none();
    world.reach(30 * SECOND, is_right, "a workload of the tenant is not as its status says")
}

#[test]
fn a_webhook_that_hangs_delays_no_stop_of_another_tenant() {
    all_pass(SEEDS, |seed| another_tenant_is_stopped_in_time(seed, &[]));
    for bug in [Bug::NoSparePlaces, Bug::CallsHoldAllPlaces] {
        let found = failures(SEEDS, |seed| another_tenant_is_stopped_in_time(seed, &[bug]));
        assert_eq!(found.len(), SEEDS.count(), "{bug:?}: not every seed shows it");
    }
}
