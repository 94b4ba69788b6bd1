//! A Redis node votes again: it holds every term long before the next renewal.

use redislease_core::admission::Standing;
use redislease_core::op::{Attempt, Stage};
use redislease_core::time::Millis;

use super::{Outcome, all_pass, calm};
use crate::chaos::swarm::Swarm;
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
/// The leases have different holders, and so different times of their renewals.
const LEASES: usize = 4;

fn slow() -> Swarm {
    let mut swarm = calm(vec![0]);
    swarm.keys = (0..LEASES).map(|key| 1 << key).collect();
    (swarm.specs[0].lease, swarm.specs[0].renew) = (60, 15_000);
    swarm.longest = Millis(60_000);
    swarm
}

fn attempts(world: &World) -> Option<Vec<Attempt>> {
    (0..LEASES).map(|place| world.holding(place).map(|holding| holding.attempt)).collect()
}

/// Whether the node has the terms of all these attempts.
fn holds(world: &World, node: usize, attempts: &[Attempt]) -> bool {
    let keys = &world.servers[node].node.keys;
    let held = |attempt: &Attempt| {
        keys.values().any(|entry| entry.value.stage == Stage::Term && entry.value.attempt == *attempt)
    };
    attempts.iter().all(held)
}

/// One node loses its memory and waits. One second after it votes again, another node goes, and every lease is kept.
fn a_returned_node_holds_every_term(seed: u64) -> Outcome {
    let mut world = World::scenario(slow(), seed, &[]);
    world.reach(20 * SECOND, |world| attempts(world).is_some(), "not everything is held at first")?;
    world.run_for(3 * SECOND);
    let terms = attempts(&world).unwrap_or_default();
    let on_all = (0..3).all(|node| holds(&world, node, &terms));
    world.require(on_all, || "a node does not hold the terms at first".into())?;

    world.servers[2].flush();
    let votes = |world: &World| *world.processes[0].peers[2].wire.admission().standing() == Standing::Admitted;
    world.reach(5 * SECOND, |world| !votes(world), "the node votes although it lost its memory")?;
    world.reach(70 * SECOND, votes, "the node does not return")?;
    world.require(!holds(&world, 2, &terms), || "the node does not return empty".into())?;
    world.run_for(SECOND);
    let joined = holds(&world, 2, &terms);
    world.require(joined, || "the node votes for one second and does not hold the terms".into())?;

    world.links[0][0].isolated = 1;
    world.run_for(120 * SECOND);
    let kept = attempts(&world).as_ref() == Some(&terms);
    world.require(kept, || "a lease moved although two of three nodes held its term".into())
}

#[test]
fn a_node_that_returns_holds_every_term_before_the_next_renewal() {
    all_pass(SEEDS, a_returned_node_holds_every_term);
}
