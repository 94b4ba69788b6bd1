//! Scenarios: worlds without random faults, in which things happen at set times.

use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;

use crate::api::objects::LeaseSpec;
use crate::chaos::swarm::{Network, Swarm};
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

/// Something that happens at a set time.
#[derive(Clone, Copy)]
pub struct Scene(pub fn(&mut World));

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scene")
    }
}

impl World {
    pub fn scene(&mut self, scene: Scene) {
        (scene.0)(self);
    }
}

/// A world in which nothing goes wrong by itself: three nodes, one lease on one key, two candidates in each cluster.
pub fn calm(processes: Vec<usize>) -> Swarm {
    let spec = LeaseSpec {
        lease: 6,
        renew: 1000,
        grace: 2,
        unhealthy_after: None,
        linear: false,
        min_delay: 100,
        max_delay: 1000,
        limit: None,
        suspend: false,
    };
    Swarm {
        quorum: Quorum::of(3).unwrap(),
        command_timeout: Millis(200),
        longest: Millis(6000),
        clusters: processes.iter().max().map_or(1, |most| most + 1),
        processes,
        keys: vec![0b001],
        pods: 2,
        specs: vec![spec],
        network: Network { delay: (100, 2 * MILLI), slow: 0, slowest: 0, loss: 0, repeat: 0 },
        api_delay: (MILLI, 5 * MILLI),
        api_timeout: SECOND,
        api_loss: 0,
        calls_at_once: 16,
        watch_lag: 5 * MILLI,
        watch_expired: 0,
        stale_lists: 0,
        engine_delay: (20, 200),
        drift: false,
        installed: true,
        clocks_behind: false,
        faults: Vec::new(),
        gap: SECOND,
        strikes: 0,
        chaos: 3600 * SECOND,
        stays_away: None,
    }
}
