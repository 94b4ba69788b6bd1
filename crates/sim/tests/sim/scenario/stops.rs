//! A policy keeps what a request is to stop: the term goes on until the policy is removed. Or it refuses the status that says so: what
//! the request is to stop is stopped all the same.

use super::{Outcome, all_pass, calm, failures};
use crate::api::server::Policy;
use crate::chaos::bug::Bug;
use crate::redis::clock::SECOND;
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// Whether the holder that the status calls active runs.
fn holder_runs(world: &World) -> bool {
    world.apis[0].active(0).is_some_and(|named| world.runs(0, 0, named.pod))
}

fn a_suspended_lease_keeps_what_cannot_be_stopped(policy: Policy, seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    (swarm.gated, swarm.clustered) = if policy == Policy::RefusesDeletions { (0b1, 0) } else { (0, 0b1) };
    let mut world = World::scenario(swarm, seed, bugs);
    world.reach(60 * SECOND, holder_runs, "nothing runs")?;
    world.run_for(seed * SECOND / 7);
    world.apis[0].policy = Some((policy, world.now));
    world.suspend_lease(0, 0, true);
    world.run_for(60 * SECOND);
    world.require(holder_runs(&world), || "the term has ended, and its holder could not be stopped".to_owned())?;
    world.apis[0].policy = None;
    world.reach(120 * SECOND, |world| !world.is_active(0, 0), "the term does not end without the policy")
}

#[test]
fn a_term_goes_on_while_a_policy_keeps_its_holder() {
    for policy in [Policy::RefusesDeletions, Policy::RefusesReplicas, Policy::RestoresReplicas] {
        all_pass(SEEDS, |seed| a_suspended_lease_keeps_what_cannot_be_stopped(policy, seed, &[]));
        let skips = |seed| a_suspended_lease_keeps_what_cannot_be_stopped(policy, seed, &[Bug::StopNotTested]);
        let found = failures(SEEDS, skips);
        assert!(found.iter().all(|why| why.contains("R6: ")), "{policy:?}: {found:?}");
        assert_eq!(found.len(), SEEDS.count(), "{policy:?}: not every seed shows the planted bug");
    }
}

fn a_suspended_lease_stops_its_holder_without_its_status(gated: bool, seed: u64, bugs: &[Bug]) -> Outcome {
    let mut swarm = calm(vec![0]);
    (swarm.gated, swarm.clustered) = if gated { (0b1, 0) } else { (0, 0b1) };
    let mut world = World::scenario(swarm, seed, bugs);
    world.reach(60 * SECOND, holder_runs, "nothing runs")?;
    world.run_for(25 * SECOND + seed * SECOND / 7);
    world.apis[0].policy = Some((Policy::RefusesStatuses, world.now));
    world.suspend_lease(0, 0, true);
    world.reach(SECOND, |world| world.is_active(0, 0) && !holder_runs(world), "what the status names runs on")?;
    world.run_for(20 * SECOND);
    world.apis[0].policy = None;
    world.reach(120 * SECOND, |world| !world.is_active(0, 0), "the status does not say that the term has ended")
}

#[test]
fn a_request_stops_the_holder_while_a_policy_refuses_the_status() {
    for gated in [true, false] {
        all_pass(SEEDS, |seed| a_suspended_lease_stops_its_holder_without_its_status(gated, seed, &[]));
    }
    let keeps = |seed| a_suspended_lease_stops_its_holder_without_its_status(true, seed, &[Bug::EndMustBeShown]);
    assert_eq!(failures(SEEDS, keeps).len(), SEEDS.count(), "not every seed shows the planted bug");
}
