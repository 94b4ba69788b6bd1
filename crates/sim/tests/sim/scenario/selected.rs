//! The selector and the template of a controller name the role label: it releases each pod whose label changes, and makes another one.

use redislease_plan::api::names::PodRole;

use super::{Outcome, all_pass, failures, of_fifteen_seconds};
use crate::chaos::bug::Bug;
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;
/// How often the lease is deleted.
const ROUNDS: usize = 3;
/// How many pods may exist after each round: those that the controller wants, and for each of them one that it has released.
const MOST: usize = 6;

impl World {
    fn restart_leader(&mut self) {
        if let Some(leader) = self.leading(0) {
            self.restart(leader, SECOND);
        }
        self.run_for(20 * SECOND);
    }
}

/// Nobody deletes a pod: all that were made exist.
fn few_pods_are_made(seed: u64, template: PodRole, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    (swarm.elects, swarm.selected) = (true, Some(template));
    let mut world = World::scenario(swarm, seed, bugs);
    let pods = |world: &World| world.apis[0].state.pods.len();
    for round in 1..=ROUNDS {
        world.run_for(30 * SECOND + seed * 137 * MILLI);
        for _ in 0..2 {
            world.restart_leader();
        }
        let before = pods(&world);
        world.run_for(30 * SECOND);
        world.restart_leader();
        world.require(pods(&world) == before && before <= round * MOST, || {
            format!("{before} pods in round {round}, and {} later", pods(&world))
        })?;
        world.delete_lease(0, 0);
        world.run_for(10 * SECOND);
        world.restart_leader();
        world.create_lease(0, 0);
    }
    Ok(())
}

#[test]
fn the_operator_does_not_drive_a_controller_that_selects_by_the_label() {
    for template in [PodRole::Active, PodRole::Standby] {
        all_pass(SEEDS, |seed| few_pods_are_made(seed, template, &[]));
    }
    // With the label `standby`, each term replaces one pod at most.
    let found = failures(SEEDS, |seed| few_pods_are_made(seed, PodRole::Active, &[Bug::ReleaseUnseen]));
    assert_eq!(found.len(), SEEDS.count(), "not every seed shows the bug");
}
