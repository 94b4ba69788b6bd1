//! A process that was paused ends no term that another process renews, and continues the terms that only it renewed. Replicas that elect a leader
//! are paused in `replicas`.

use super::{Outcome, all_pass, of_fifteen_seconds};
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// One of two replicas without election is paused for `seconds`. The other renews the lease: it does not move.
fn the_other_replica_keeps_the_lease(seed: u64, seconds: u64) -> Outcome {
    let mut world = World::scenario(of_fifteen_seconds(vec![0, 0]), seed, &[]);
    world.reach(40 * SECOND, |world| world.holding(0).is_some(), "nobody holds at first")?;
    world.run_for(5 * SECOND);
    let before = world.holding(0);
    let victim = usize::from(seed.is_multiple_of(3));
    world.pause(victim, seconds * SECOND, false);
    let end = world.now + (seconds + 40) * SECOND;
    while world.now < end {
        world.run_for(SECOND / 2);
        let now = world.holding(0).map(|holding| holding.attempt);
        let same = now == before.map(|before| before.attempt);
        world.require(same, || format!("process {victim} was paused for {seconds} s and the lease moved"))?;
    }
    world.require(world.is_active(0, 0), || "the status does not call the term active".into())
}

#[test]
fn a_paused_replica_does_not_end_what_the_other_keeps() {
    // After eight seconds the deadline has passed by less than a second, and the renewal was due long before.
    for seconds in [3, 8, 12, 20, 45] {
        all_pass(SEEDS, |seed| the_other_replica_keeps_the_lease(seed, seconds));
    }
}

/// The only replica is paused for less than the TTL of the keys: it continues the same term.
fn the_only_replica_goes_on(seed: u64, seconds: u64) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0]);
    swarm.elects = seed.is_multiple_of(2);
    let mut world = World::scenario(swarm, seed, &[]);
    world.reach(40 * SECOND, |world| world.holding(0).is_some(), "nobody holds at first")?;
    world.run_for(5 * SECOND);
    let (before, token) = (world.holding(0), world.token(0, 0));
    world.pause(0, seconds * SECOND, false);
    world.run_for((seconds + 20) * SECOND);
    let same = world.holding(0).map(|now| now.attempt) == before.map(|before| before.attempt);
    world.require(same && world.token(0, 0) == token, || format!("paused for {seconds} s, it did not go on"))
}

/// Paused for longer than the TTL of the keys, it acquires a new term with a greater token.
fn the_only_replica_begins_anew(seed: u64) -> Outcome {
    let mut world = World::scenario(of_fifteen_seconds(vec![0]), seed, &[]);
    world.run_until(10 * SECOND);
    let token = world.token(0, 0);
    world.pause(0, 40 * SECOND, false);
    world.run_for(40 * SECOND);
    let bound = world.swarm.key_life() + world.swarm.longest_delay() + 3 * SECOND;
    let again = |world: &World| world.holding(0).is_some() && world.token(0, 0) > token;
    world.reach(bound, again, &format!("nobody holds {bound} µs after the pause"))
}

#[test]
fn a_single_replica_goes_on_with_its_term_while_its_keys_live() {
    for seconds in [2, 6, 9, 12] {
        all_pass(SEEDS, |seed| the_only_replica_goes_on(seed, seconds));
    }
    all_pass(SEEDS, the_only_replica_begins_anew);
}
