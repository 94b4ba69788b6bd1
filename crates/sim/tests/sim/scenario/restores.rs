//! etcd is restored from a backup: workloads and statuses are older than what the operator knows.

use super::{Outcome, all_pass, calm};
use crate::api::workloads::replicas;
use crate::chaos::bug::Bug;
use crate::chaos::swarm::Swarm;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

fn of_workloads(processes: Vec<usize>) -> Swarm {
    let elects = processes.len() > 1;
    Swarm { keys: vec![0b001, 0b010], clustered: 0b11, elects, ..calm(processes) }
}

/// Everything is held, the status says so, and the workload runs.
fn is_right(world: &World) -> bool {
    (0..world.swarm.keys.len()).all(|place| {
        let runs = world.apis[0].workload_of(place).is_some_and(|workload| replicas(workload) > 0);
        world.holding(place).is_some() && world.is_active(0, place) && runs
    })
}

fn everything_is_right_after_a_restore(seed: u64, processes: Vec<usize>, bugs: &[Bug]) -> Outcome {
    let mut world = World::scenario(of_workloads(processes), seed, bugs);
    world.reach(30 * SECOND, is_right, "not everything is right at first")?;
    world.run_for(5 * SECOND + seed * 137 * MILLI);
    let backup = world.back_up(0);
    // The first lease gets another term, and the second one has none at the restore, or only just has one again.
    for place in [0, 1] {
        world.suspend_lease(0, place, true);
    }
    world.reach(20 * SECOND, |world| (0..2).all(|place| world.holding(place).is_none()), "the terms do not end")?;
    world.suspend_lease(0, 0, false);
    world.run_for(seed % 10 * SECOND);
    if seed.is_multiple_of(3) {
        world.suspend_lease(0, 1, false);
        world.run_for(3 * SECOND);
    }
    let tokens = [0, 1].map(|place| world.token(0, place));
    world.restore_etcd(0, backup, seed % 7 * SECOND + 100 * MILLI);
    world.run_for(seed % 7 * SECOND + SECOND);
    world.reach(40 * SECOND, is_right, "not everything is right 40 s after the restore")?;
    world.run_for(20 * SECOND);
    let now = [0, 1].map(|place| world.token(0, place));
    let is_lower = now.iter().zip(tokens).any(|(now, before)| *now < before);
    world.require(is_right(&world) && !is_lower, || format!("tokens {now:?} after {tokens:?}"))
}

#[test]
fn after_a_restore_of_etcd_everything_is_right_again() {
    for processes in [vec![0], vec![0, 0]] {
        all_pass(1..=30, |seed| everything_is_right_after_a_restore(seed, processes.clone(), &[]));
    }
}
