//! What a cluster says about a lease that it does not hold agrees with the keys on the quorum.

use redislease_plan::api::conditions::ConditionType;

use super::{Outcome, all_pass, of_fifteen_seconds};
use crate::event::Event;
use crate::redis::clock::{Micros, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=12;
const LEASE: Micros = 15 * SECOND;
const BY_PEER: [&str; 2] = ["HeldByPeerCluster"; 2];

impl World {
    fn set_ready(&mut self, cluster: usize, ready: bool) {
        let pods: Vec<u32> = self.apis[cluster].state.pods.keys().copied().collect();
        for pod in pods {
            self.change_pod(cluster, pod, |pod| pod.ready = ready);
        }
    }

    /// The reasons of the conditions Ready and Active.
    fn reasons(&self, cluster: usize) -> [&str; 2] {
        let status = self.apis[cluster].state.leases[0].as_ref().and_then(|lease| lease.status.as_ref());
        [ConditionType::Ready, ConditionType::Active]
            .map(|type_| status.and_then(|status| status.condition(type_)).map_or("", |condition| &condition.reason))
    }

    /// The status of the cluster has these reasons within this time, and keeps them for two lease durations.
    fn says(&mut self, cluster: usize, reasons: [&str; 2], within: Micros, when: &str) -> Outcome {
        let otherwise = format!("{when}, {within} µs have passed, and cluster {cluster} does not say {reasons:?}");
        self.reach(within, |world| world.reasons(cluster) == reasons, &otherwise)?;
        for _ in 0..60 {
            self.run_for(LEASE / 30);
            let says = self.reasons(cluster).join("/");
            self.require(self.reasons(cluster) == reasons, || format!("{when}, cluster {cluster} says {says}"))?;
        }
        Ok(())
    }
}

/// Cluster 1 has no candidate, and with every other seed it has made attempts before. Cluster 0 holds the lease, then it is gone,
/// then it is back.
fn a_cluster_without_a_candidate_says_who_holds_the_lease(seed: u64) -> Outcome {
    let mut world = World::scenario(of_fifteen_seconds(vec![0, 1]), seed, &[]);
    world.set_ready(1, false);
    let holds = |world: &World| world.holding(0).is_some_and(|holding| holding.cluster == 0);
    world.reach(40 * SECOND, holds, "cluster 0 does not hold the lease")?;
    if seed.is_multiple_of(2) {
        world.set_ready(1, true);
        world.says(1, BY_PEER, LEASE, "while cluster 1 makes attempts")?;
        world.set_ready(1, false);
    }
    world.says(1, BY_PEER, 2 * LEASE, "while cluster 0 holds the lease")?;
    world.restart(1, SECOND);
    world.says(1, BY_PEER, 2 * LEASE, "after a restart")?;
    world.crash(0);
    world.says(1, ["NoCandidate", "Unheld"], 3 * LEASE, "after cluster 0 is gone")?;
    world.after(0, Event::Start(0));
    world.says(1, BY_PEER, 4 * LEASE, "after cluster 0 is back")
}

#[test]
fn without_a_candidate_the_status_follows_the_keys() {
    all_pass(SEEDS, a_cluster_without_a_candidate_says_who_holds_the_lease);
}

/// The holder's operator is paused until the other cluster holds the lease. Its own term blocks it for one lease duration.
fn a_paused_cluster_says_who_took_over(seed: u64) -> Outcome {
    let mut world = World::scenario(of_fifteen_seconds(vec![0, 1]), seed, &[]);
    world.reach(40 * SECOND, |world| world.holding(0).is_some(), "nobody holds at first")?;
    world.run_for(5 * SECOND);
    let cluster = world.holding(0).map_or(0, |holding| holding.cluster);
    world.pause(cluster, 38 * SECOND, false);
    world.run_for(38 * SECOND);
    let moved = world.holding(0).is_some_and(|holding| holding.cluster != cluster);
    world.require(moved, || "the lease did not move".into())?;
    let ready = |world: &World| world.reasons(cluster)[0] == BY_PEER[0];
    world.reach(2 * SECOND, ready, "the cluster that was paused does not say who holds the lease")?;
    world.says(cluster, BY_PEER, 2 * LEASE, "after the pause")
}

#[test]
fn after_a_pause_the_status_follows_the_keys_at_once() {
    all_pass(SEEDS, a_paused_cluster_says_who_took_over);
}
