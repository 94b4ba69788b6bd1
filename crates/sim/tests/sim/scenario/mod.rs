//! Scenarios: worlds without random faults, in which things happen at set times.

mod api_outage;
mod crash_points;
mod cut_off;
mod late_writes;
mod orphans;
mod pauses;
mod peers;
mod replicas;
mod returns;
mod selected;
mod stops;
mod storms;
mod webhook;

use redislease_core::op::Attempt;
use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use redislease_core::wire::Limits;
use redislease_plan::plan::calls::Limits as CallLimits;
use redislease_plan::plan::{Authority, PERMITS};

use crate::api::objects::{self, LeaseSpec};
use crate::chaos::bug::Bug;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::{Network, Swarm};
use crate::check::trace::{KEPT, Trace};
use crate::event::Event;
use crate::operator::state::Life;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// A world without random faults: three nodes, one lease of six seconds on one key, two candidates in each
/// cluster. `processes` names the cluster of each operator process.
fn calm(processes: Vec<usize>) -> Swarm {
    let spec = LeaseSpec { lease: 6, renew: 1000, grace: 2, min_delay: 100, max_delay: 1000, ..LeaseSpec::default() };
    Swarm {
        quorum: Quorum::of(3).unwrap(),
        command_timeout: Millis(200),
        longest: Millis(6000),
        clusters: processes.iter().max().map_or(1, |most| most + 1),
        processes,
        elects: false,
        programs: 0,
        keys: vec![0b001],
        excludes: false,
        gated: 0,
        clustered: 0,
        made: 0,
        selected: None,
        pods: 2,
        specs: vec![spec],
        network: Network { delay: (100, 2 * MILLI), slow: 0, slowest: 0, loss: 0, repeat: 0 },
        node_delay: (1, 50),
        limits: Limits::STANDARD,
        api_delay: (MILLI, 5 * MILLI),
        api_timeout: SECOND,
        api_loss: 0,
        calls: CallLimits { calls: 16, spare: 0, ..CallLimits::STANDARD },
        watch_lag: 5 * MILLI,
        watch_expired: 0,
        stale_lists: 0,
        attempts_wait: 0,
        permits: PERMITS,
        engine_delay: (20, 200),
        drift: false,
        installed: true,
        clocks_behind: false,
        faults: Vec::new(),
        gap: SECOND,
        effect_faults: 0,
        chaos: 3600 * SECOND,
        stays_away: None,
    }
}

/// The same with the shortest lease that survives a change of the leader: 15 s, renewed every 2 s.
fn of_fifteen_seconds(processes: Vec<usize>) -> Swarm {
    let mut swarm = calm(processes);
    (swarm.specs[0].lease, swarm.specs[0].renew, swarm.specs[0].grace) = (15, 2000, 5);
    swarm.longest = Millis(15_000);
    swarm.command_timeout = Millis(500);
    swarm
}

/// A lease that a process treats as held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    process: usize,
    cluster: usize,
    pod: u32,
    attempt: Attempt,
}

/// The result of a scenario: `Err` says what failed.
type Outcome = Result<(), String>;

impl World {
    fn scenario(swarm: Swarm, seed: u64, bugs: &[Bug]) -> Self {
        let mut world = Self::new(swarm, Rng::new(seed), bugs);
        world.trace = Trace::new(KEPT);
        world.check.storms_pass = false;
        world
    }

    fn run_for(&mut self, span: Micros) {
        self.run_until(self.now + span);
    }

    /// Runs until the condition holds. If it does not within `span`, the scenario fails with this text.
    fn reach(&mut self, span: Micros, holds: impl Fn(&Self) -> bool, otherwise: &str) -> Outcome {
        let end = self.now + span;
        while self.now < end && self.check.broken.is_none() && !holds(self) {
            self.run_for(MILLI);
        }
        self.require(holds(self), || otherwise.to_owned())
    }

    /// The holder of the lease of this place: the one whose validity ends last.
    fn holding(&self, place: usize) -> Option<Holding> {
        let keys = self.swarm.keys[place];
        let live = self.check.live.iter().filter(|live| live.keys == keys && self.now < live.until);
        live.max_by_key(|live| live.until).map(|live| Holding {
            process: live.process,
            cluster: self.processes[live.process].cluster,
            pod: live.pod,
            attempt: live.attempt,
        })
    }

    /// The process that leads in this cluster, or a process of it where none is elected.
    fn leading(&self, cluster: usize) -> Option<usize> {
        let leads = |&process: &usize| {
            let of = &self.processes[process];
            of.cluster == cluster && of.life == Life::Running && self.authority(process) == Authority::Lead
        };
        (0..self.processes.len()).find(leads)
    }

    fn isolate(&mut self, process: usize, isolated: bool) {
        let by = u32::from(isolated);
        self.links[process].iter_mut().for_each(|link| link.isolated = by);
    }

    fn restart(&mut self, process: usize, after: Micros) {
        self.crash(process);
        self.after(after, Event::Start(process));
    }

    /// Whether the status of a lease calls its term active.
    fn is_active(&self, cluster: usize, place: usize) -> bool {
        self.apis[cluster].active(place).is_some()
    }

    /// The token that the status of a lease shows.
    fn token(&self, cluster: usize, place: usize) -> u64 {
        self.apis[cluster].state.leases[place].as_deref().map_or(0, |lease| objects::token(lease).0)
    }

    /// The scenario goes on if no check has failed and the condition holds.
    fn require(&self, condition: bool, what: impl FnOnce() -> String) -> Outcome {
        match &self.check.broken {
            Some(broken) => Err(format!("{broken}\n{}", self.trace.last_events())),
            None if condition => Ok(()),
            None => Err(format!("at {:.3} s: {}\n{}", self.now as f64 / 1e6, what(), self.trace.last_events())),
        }
    }
}

/// Runs a scenario for many seeds. Returns the failures.
fn failures(seeds: std::ops::RangeInclusive<u64>, scenario: impl Fn(u64) -> Outcome) -> Vec<String> {
    seeds.filter_map(|seed| scenario(seed).err().map(|why| format!("seed {seed}: {why}"))).collect()
}

/// Every seed must pass.
fn all_pass(seeds: std::ops::RangeInclusive<u64>, scenario: impl Fn(u64) -> Outcome) {
    let failed = failures(seeds, scenario);
    assert!(failed.is_empty(), "{} seeds failed; {}", failed.len(), failed[0]);
}
