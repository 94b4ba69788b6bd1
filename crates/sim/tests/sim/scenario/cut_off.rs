//! A cluster that no Redis node answers stops its workloads in time, with one replica and with two.

use redislease_core::time::Millis;
use redislease_plan::api::names;

use super::{Outcome, all_pass, calm};
use crate::api::objects::{self, RUNNING};
use crate::api::workloads::replicas;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// The duration of a lease and the time that its workload needs to stop, in seconds.
#[derive(Clone, Copy)]
struct Durations {
    lease: u64,
    renew: u64,
    grace: u64,
}

/// The defaults. The others end while the second replica claims the name of the leader: 10 s and 30 s after the cut.
const DEFAULT: Durations = Durations { lease: 30, renew: 5, grace: 10 };
const DURING_A_CLAIM: [Durations; 2] =
    [Durations { lease: 20, renew: 2, grace: 5 }, Durations { lease: 42, renew: 5, grace: 5 }];

/// Two clusters with this number of replicas each, and a workload that runs in one of them.
fn of_two_clusters(each: usize, Durations { lease, renew, grace }: Durations) -> Swarm {
    let mut swarm = calm((0..2 * each).map(|process| process % 2).collect());
    (swarm.specs[0].lease, swarm.specs[0].renew, swarm.specs[0].grace) = (lease, renew * 1000, grace);
    swarm.longest = Millis(lease * 1000);
    swarm.command_timeout = Millis(500);
    (swarm.elects, swarm.clustered) = (true, 0b001);
    swarm
}

fn runs(world: &World, cluster: usize) -> bool {
    world.apis[cluster].workload_of(0).is_some_and(|one| replicas(one) > 0)
}

/// Waits until the workload runs in one cluster, and then for some seconds. Returns the cluster and its processes.
fn runs_in(world: &mut World, seed: u64) -> Result<(usize, Vec<usize>), String> {
    let settled = |world: &World| {
        world.holding(0).is_some_and(|holding| runs(world, holding.cluster) && !runs(world, 1 - holding.cluster))
    };
    world.reach(120 * SECOND, settled, "the workload does not run in one cluster")?;
    world.run_for(5 * SECOND + seed * 137 * MILLI);
    let cluster = world.holding(0).map_or(0, |holding| holding.cluster);
    let of_cluster: Vec<usize> =
        (0..world.processes.len()).filter(|&process| world.processes[process].cluster == cluster).collect();
    Ok((cluster, of_cluster))
}

/// No process of the cluster that runs the workload reaches a Redis node from now on.
fn cut_off(world: &mut World, seed: u64) -> Result<(usize, Vec<usize>), String> {
    let (cluster, of_cluster) = runs_in(world, seed)?;
    for &process in &of_cluster {
        world.isolate(process, true);
    }
    Ok((cluster, of_cluster))
}

/// `refuses`: the API server refuses what the leader writes when another replica has just claimed its name.
fn the_workload_stops_in_time(seed: u64, each: usize, durations: Durations, refuses: bool) -> Outcome {
    let mut world = World::scenario(of_two_clusters(each, durations), seed, &[]);
    let (cluster, of_cluster) = cut_off(&mut world, seed)?;
    // The last renewal was before, and the stop is due one stop budget before the end of the lease.
    let within = (durations.lease - durations.grace) * SECOND;
    let until = world.now + within;
    if refuses {
        let leader = |world: &World| world.apis[cluster].state.quorum.1.leader.clone();
        let before = leader(&world);
        world.reach(15 * SECOND, |world| leader(world) != before, "no replica has claimed the name of the leader")?;
        world.apis[cluster].refuses_writes = true;
        world.run_for(1500 * MILLI);
        world.apis[cluster].refuses_writes = false;
    }
    let otherwise = format!("cluster {cluster} still runs its workload {within} µs after the cut");
    world.reach(until - world.now, |world| !runs(world, cluster), &otherwise)?;
    world.reach(60 * SECOND, |world| runs(world, 1 - cluster), "the other cluster does not run the workload")?;
    for &process in &of_cluster {
        world.isolate(process, false);
    }
    world.run_for(60 * SECOND);
    world.require(runs(&world, 1 - cluster) && !runs(&world, cluster), || "the workload has moved again".into())
}

/// What disturbs the cluster for a moment after it was cut off.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    RefusedWrites,
    ClosedWatches,
    NoApi(usize),
    Pause(usize),
    /// The process and its clock stand still.
    LostTime(usize),
    Restart(usize),
}

impl World {
    fn disturb(&mut self, cluster: usize, disturbance: Disturbance, span: Micros) {
        match disturbance {
            Disturbance::RefusedWrites => self.apis[cluster].refuses_writes = true,
            Disturbance::ClosedWatches => self.close_watches(cluster),
            Disturbance::NoApi(process) => self.processes[process].api_cut = 1,
            Disturbance::Pause(process) => self.pause(process, span, false),
            Disturbance::LostTime(process) => self.stop_clock_for(process, span),
            Disturbance::Restart(process) => self.restart(process, span),
        }
        self.run_for(span);
        match disturbance {
            Disturbance::RefusedWrites => self.apis[cluster].refuses_writes = false,
            Disturbance::NoApi(process) => self.processes[process].api_cut = 0,
            Disturbance::ClosedWatches | Disturbance::Pause(_) | Disturbance::LostTime(_) | Disturbance::Restart(_) => {
            }
        }
    }
}

/// The replicas are cut off one after another, from all nodes or from all but one, and up to four disturbances follow. The last one
/// ends 15 s before the workload must stop.
/// The leader itself does not restart: then nobody knows since when its terms are unconfirmed.
fn a_disturbed_cluster_stops_its_workload_in_time(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let (lease, each) = (rng.pick(&[35, 45, 60, 90]), rng.between(2, 3) as usize);
    let durations = Durations { lease, renew: 2, grace: 5 };
    let mut world = World::scenario(of_two_clusters(each, durations), seed, &[]);
    let (cluster, of_cluster) = runs_in(&mut world, seed)?;
    let leader = world.leading(cluster).unwrap_or(of_cluster[0]);
    let others: Vec<usize> = of_cluster.iter().copied().filter(|process| *process != leader).collect();
    let reached = rng.percent(50).then(|| rng.index(world.servers.len()));
    // The leader renews the terms, and is the last one.
    for &process in others.iter().chain([&leader]) {
        world.run_for(rng.between(0, 3 * SECOND));
        world.isolate(process, true);
        if let Some(node) = reached {
            world.links[process][node].isolated = 0;
        }
    }
    let mut due = world.now + (lease - durations.grace) * SECOND;
    let quiet = due - 15 * SECOND;
    let mut had = Vec::new();
    for _ in 0..rng.between(0, 4) {
        world.run_for(rng.between(0, 8 * SECOND));
        let span = rng.between(100 * MILLI, 3 * SECOND);
        if world.now + span > quiet {
            break;
        }
        let (any, other) = (rng.pick(&of_cluster), rng.pick(&others));
        let disturbance = rng.pick(&[
            Disturbance::RefusedWrites,
            Disturbance::ClosedWatches,
            Disturbance::NoApi(any),
            Disturbance::Pause(any),
            Disturbance::LostTime(any),
            Disturbance::Restart(other),
        ]);
        had.push((world.now, disturbance, span));
        if let Disturbance::LostTime(_) = disturbance {
            due += span;
        }
        world.disturb(cluster, disturbance, span);
    }
    let otherwise = format!("{had:?}: cluster {cluster}, led by {leader}, still runs its workload at {due}");
    world.reach(due - world.now, |world| !runs(world, cluster), &otherwise)
}

#[test]
fn a_cluster_without_redis_stops_its_workload_in_time_after_short_disturbances() {
    all_pass(1..=200, a_disturbed_cluster_stops_its_workload_in_time);
    // These have failed once.
    for seed in [370, 509, 751, 808, 2755] {
        all_pass(seed..=seed, a_disturbed_cluster_stops_its_workload_in_time);
    }
}

/// Two clusters with two replicas each, one of which runs its workload: the cluster, the replica that leads it, and the other one.
fn led(seed: u64) -> Result<(World, usize, usize, usize), String> {
    let mut world = World::scenario(of_two_clusters(2, DEFAULT), seed, &[]);
    let (cluster, of_cluster) = runs_in(&mut world, seed)?;
    let leader = world.leading(cluster).ok_or("no replica leads")?;
    let other = of_cluster.iter().copied().find(|process| *process != leader).ok_or("there is one replica")?;
    Ok((world, cluster, leader, other))
}

/// The leader loses its API server with Redis. When it is back, the other replica has claimed the name, and the status still shows the
/// nodes as they were.
fn a_leader_whose_api_server_comes_back_stops_its_workload(seed: u64) -> Outcome {
    let (mut world, cluster, leader, other) = led(seed)?;
    for process in [leader, other] {
        world.isolate(process, true);
    }
    world.processes[leader].api_cut = 1;
    let due = world.now + (DEFAULT.lease - DEFAULT.grace) * SECOND;
    // The calls begin again up to 3 s after that, and the claim of the other replica, 10.6 s after the cut, counts 5 s later.
    world.run_for(Rng::new(seed).between(10 * SECOND, 12 * SECOND));
    world.processes[leader].api_cut = 0;
    // It writes its name, reads it 5 s later, and asks the nodes once more.
    let due = due.max(world.now + 8 * SECOND);
    let otherwise = format!("cluster {cluster} still runs its workload");
    world.reach(due - world.now, |world| !runs(world, cluster), &otherwise)
}

/// The other replica has been without Redis for long, and has claimed the name in vain again and again, when the leader dies.
fn a_replica_that_was_contradicted_for_long_ends_the_terms_of_a_dead_leader(seed: u64) -> Outcome {
    let (mut world, cluster, leader, other) = led(seed)?;
    world.isolate(other, true);
    world.run_for(Rng::new(seed).between(300 * SECOND, 900 * SECOND));
    world.require(runs(&world, cluster), || "the workload has moved".into())?;
    world.restart(leader, 600 * SECOND);
    // The next claim, and one lease after it.
    let within = 40 + 5 + DEFAULT.lease + 5;
    let otherwise = format!("cluster {cluster} still runs its workload");
    world.reach(within * SECOND, |world| !runs(world, cluster), &otherwise)
}

/// The leader has only lost its API server, and the other replica only Redis: that one ends the terms. When its Redis is back, nobody may
/// renew them any more.
fn a_lease_that_the_other_replica_has_ended_is_acquired_again(seed: u64) -> Outcome {
    let (mut world, cluster, leader, other) = led(seed)?;
    world.processes[leader].api_cut = 1;
    world.isolate(other, true);
    world.reach(90 * SECOND, |world| !runs(world, cluster), "the other replica does not end the term")?;
    // It has given up the seals by then: the keys should have expired.
    world.run_for(2 * DEFAULT.lease * SECOND);
    world.isolate(other, false);
    world.reach(90 * SECOND, |world| runs(world, 0) || runs(world, 1), "no cluster can acquire the lease")
}

#[test]
fn two_replicas_that_lose_different_servers_stop_and_start_the_workload_in_time() {
    all_pass(1..=60, a_leader_whose_api_server_comes_back_stops_its_workload);
    all_pass(1..=20, a_replica_that_was_contradicted_for_long_ends_the_terms_of_a_dead_leader);
    all_pass(1..=20, a_lease_that_the_other_replica_has_ended_is_acquired_again);
}

/// A workload ran before its term. The process crashes after the publication and before its first write to the workload. The next
/// process reaches no Redis node, or somebody has suspended the lease.
fn a_workload_without_a_mark_stops(seed: u64, is_suspended: bool) -> Outcome {
    let mut world = World::scenario(of_two_clusters(1, DEFAULT), seed, &[]);
    for cluster in [0, 1] {
        world.set_replicas(cluster, 0, RUNNING);
    }
    let named = |world: &World| (0..2).find(|&cluster| world.is_active(cluster, 0));
    world.reach(120 * SECOND, |world| named(world).is_some(), "no term was published")?;
    let cluster = named(&world).unwrap_or(0);
    let owner = names::owner_annotation(&objects::lease_name(0));
    let is_marked = world.apis[cluster].workload_of(0).is_some_and(|one| one.annotations.get(&owner).is_some());
    world.require(!is_marked && runs(&world, cluster), || "the workload was written before the crash".into())?;
    if is_suspended {
        world.suspend_lease(cluster, 0, true);
    }
    world.isolate(cluster, !is_suspended);
    world.restart(cluster, SECOND);
    // One lease after its start, the process gives up a term that no quorum confirms. The lock of the leader lasts 5 s.
    let within = if is_suspended { 10 } else { DEFAULT.lease + 5 };
    let otherwise = format!("cluster {cluster} still runs its workload");
    world.reach(within * SECOND, |world| !runs(world, cluster), &otherwise)
}

/// The cluster reaches neither Redis nor its API server for two and a half leases, and then only the API server. Nobody could stop the
/// workload in time; then it must not run for another lease.
fn an_overrun_workload_stops_at_once(seed: u64, each: usize) -> Outcome {
    let mut world = World::scenario(of_two_clusters(each, DEFAULT), seed, &[]);
    let (cluster, of_cluster) = cut_off(&mut world, seed)?;
    let cut_from_api = |world: &mut World, cut| {
        for &process in &of_cluster {
            world.processes[process].api_cut = u32::from(cut);
        }
    };
    cut_from_api(&mut world, true);
    world.run_for(DEFAULT.lease * 5 / 2 * SECOND);
    world.require(runs(&world, cluster), || "the workload was stopped without the API server".into())?;
    cut_from_api(&mut world, false);
    let now = world.now;
    world.running.disturbed(cluster, now);
    let otherwise = format!("cluster {cluster} still runs its workload");
    world.reach(10 * SECOND, |world| !runs(world, cluster), &otherwise)
}

#[test]
fn a_workload_that_nobody_could_stop_is_stopped_when_the_api_server_answers() {
    for each in [1, 2] {
        all_pass(1..=20, |seed| an_overrun_workload_stops_at_once(seed, each));
    }
}

#[test]
fn a_workload_that_only_the_status_names_stops_when_its_term_ends() {
    for is_suspended in [false, true] {
        all_pass(1..=20, |seed| a_workload_without_a_mark_stops(seed, is_suspended));
    }
}

#[test]
fn a_cluster_without_redis_stops_its_workload_before_another_starts_it() {
    for each in [1, 2, 3] {
        all_pass(1..=40, |seed| the_workload_stops_in_time(seed, each, DEFAULT, false));
    }
    for durations in DURING_A_CLAIM {
        all_pass(1..=40, |seed| the_workload_stops_in_time(seed, 2, durations, false));
    }
    all_pass(1..=40, |seed| the_workload_stops_in_time(seed, 2, DEFAULT, true));
}
