//! The workload of a lease that the operator has made for it is deleted, its pods run on, and a workload of its name is created again.

use super::{Outcome, all_pass, calm, failures};
use crate::api::objects;
use crate::api::workloads::replicas;
use crate::chaos::bug::Bug;
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

/// The term of this token goes on in this cluster for a minute, ten leases, and nothing runs in the other one.
fn goes_on(world: &mut World, cluster: usize, token: u64, when: &str) -> Outcome {
    for _ in 0..60 {
        world.run_for(SECOND);
        let is_same = world.is_active(cluster, 0) && world.token(cluster, 0) == token;
        let elsewhere = world.apis[1 - cluster].workload_of(0).map_or(0, |workload| replicas(workload));
        world.require(is_same && elsewhere == 0, || format!("{when}, the term ends, or the other cluster starts"))?;
    }
    Ok(())
}

/// Then a suspension must stop the new workload, and the other cluster starts its own.
fn a_term_outlasts_its_workload(seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0, 1]);
    (swarm.clustered, swarm.made) = (0b1, 0b1);
    let mut world = World::scenario(swarm, seed, bugs);
    let runs = |world: &World, cluster: usize| {
        let workload = world.apis[cluster].workload_of(0).filter(|_| world.is_active(cluster, 0));
        workload.is_some_and(|workload| replicas(workload) == objects::RUNNING && workload.labels.len() == 1)
    };
    world.reach(60 * SECOND, |world| runs(world, 0) || runs(world, 1), "nothing runs")?;
    world.run_for(5 * SECOND + seed * SECOND / 7);
    let cluster = usize::from(runs(&world, 1));
    let token = world.token(cluster, 0);
    world.orphan_pods((cluster, 0));
    goes_on(&mut world, cluster, token, "without the workload")?;
    world.recreate_workload((cluster, 0));
    goes_on(&mut world, cluster, token, "with a workload of the same name")?;
    world.require(runs(&world, cluster), || "the new workload does not run as the holder".to_owned())?;
    if seed.is_multiple_of(2) {
        world.restart(cluster, SECOND);
        goes_on(&mut world, cluster, token, "after a restart")?;
    }
    world.suspend_lease(cluster, 0, true);
    let stopped = |world: &World| world.apis[cluster].workload_of(0).is_some_and(|workload| replicas(workload) == 0);
    world.reach(5 * SECOND, stopped, "the new workload is not stopped")?;
    world.reach(30 * SECOND, |world| runs(world, 1 - cluster), "the other cluster does not take over")
}

#[test]
fn a_lease_that_was_made_for_a_workload_outlasts_it() {
    all_pass(SEEDS, |seed| a_term_outlasts_its_workload(seed, &[]));
    let found = failures(SEEDS, |seed| a_term_outlasts_its_workload(seed, &[Bug::EndsWithItsWorkload]));
    assert_eq!(found.len(), SEEDS.count(), "not every seed shows the planted bug");
}
