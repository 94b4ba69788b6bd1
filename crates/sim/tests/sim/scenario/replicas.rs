//! Two replicas elect a leader. No fault of one of them moves a lease of 15 s.

use super::{Outcome, all_pass, failures, of_fifteen_seconds};
use crate::api::objects::{instance, leader_of};
use crate::chaos::bug::Bug;
use crate::chaos::rng::Rng;
use crate::event::Event;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

/// A fault of one replica.
#[derive(Clone, Copy, Debug)]
enum ReplicaFault {
    Rollout,
    Crash,
    Pause(Micros),
    Suspend(Micros),
    NoRedis(Micros),
    NoApi(Micros),
    Neither(Micros),
}

const FAULTS: [ReplicaFault; 11] = [
    ReplicaFault::Rollout,
    ReplicaFault::Crash,
    ReplicaFault::Pause(3 * SECOND),
    // The deadline has passed by less than a second, and the renewal was due long before.
    ReplicaFault::Pause(8 * SECOND),
    ReplicaFault::Pause(12 * SECOND),
    ReplicaFault::Pause(40 * SECOND),
    ReplicaFault::Suspend(12 * SECOND),
    ReplicaFault::NoRedis(12 * SECOND),
    ReplicaFault::NoRedis(40 * SECOND),
    ReplicaFault::NoApi(40 * SECOND),
    ReplicaFault::Neither(40 * SECOND),
];

impl ReplicaFault {
    /// How many writes of the leader's name it may cost. A replica without Redis cannot know whether the other one leads: it claims
    /// the name, twice in 40 s, and each time the leader restores it. If the API server answers first after both were cut off, it
    /// claims the name once.
    const fn most_writes(self) -> u64 {
        match self {
            Self::NoRedis(_) => 5,
            Self::Neither(_) => 3,
            _ => 2,
        }
    }

    /// How long it lasts.
    const fn span(self) -> Micros {
        match self {
            Self::Rollout | Self::Crash => 2 * SECOND,
            Self::Pause(span) | Self::Suspend(span) | Self::NoRedis(span) | Self::NoApi(span) | Self::Neither(span) => {
                span
            }
        }
    }

    /// Whether another replica must lead after it. A replica that starts again soon can get the lock again, and the lock lasts
    /// longer than a pause of 3 s.
    fn moves_leadership(self) -> bool {
        !matches!(self, Self::Crash) && !matches!(self, Self::Pause(span) if span < 7 * SECOND)
    }
}

impl World {
    fn inject_into_replica(&mut self, process: usize, fault: ReplicaFault) {
        match fault {
            ReplicaFault::Rollout => {
                self.stop_gracefully(process);
                self.after(2 * SECOND, Event::Start(process));
            }
            ReplicaFault::Crash => self.restart(process, 2 * SECOND),
            ReplicaFault::Pause(span) => self.pause(process, span, false),
            ReplicaFault::Suspend(span) => self.pause(process, span, true),
            ReplicaFault::NoRedis(_) | ReplicaFault::NoApi(_) | ReplicaFault::Neither(_) => {
                self.cut_replica(process, fault, true);
            }
        }
    }

    fn cut_replica(&mut self, process: usize, fault: ReplicaFault, cut: bool) {
        if matches!(fault, ReplicaFault::NoRedis(_) | ReplicaFault::Neither(_)) {
            self.isolate(process, cut);
        }
        if matches!(fault, ReplicaFault::NoApi(_) | ReplicaFault::Neither(_)) {
            self.processes[process].api_cut = u32::from(cut);
        }
    }
}

fn no_lease_moves(seed: u64, fault: ReplicaFault, of_the_leader: bool, bugs: &[Bug]) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    swarm.keys = vec![0b001, 0b010, 0b100];
    let places = swarm.keys.len();
    let mut world = World::scenario(swarm, seed, bugs);
    let all_held = |world: &World| (0..places).all(|place| world.holding(place).is_some());
    world.reach(60 * SECOND, all_held, "some lease was never held")?;
    world.run_for(5 * SECOND + seed * 137 * MILLI);
    let attempts = |world: &World| -> Vec<_> {
        (0..places).map(|place| world.holding(place).map(|holding| holding.attempt)).collect()
    };
    let before = attempts(&world);
    let leader = world.leading(0);
    world.require(leader.is_some(), || "no replica leads".into())?;
    let leader = leader.unwrap_or(0);
    let (victim, changes) = (if of_the_leader { leader } else { 1 - leader }, world.apis[0].writes.leader);
    world.inject_into_replica(victim, fault);
    let span = fault.span();
    let (healed, end) = (world.now + span, world.now + span + 30 * SECOND);
    while world.now < end {
        world.run_for(SECOND / 2);
        if world.now >= healed && world.processes[victim].boot == 0 {
            world.cut_replica(victim, fault, false);
        }
        let now = attempts(&world);
        world.require(now == before, || format!("{fault:?} of process {victim}: {now:?} instead of {before:?}"))?;
    }
    let leader = world.leading(0);
    world.require(leader.is_some(), || "no replica leads at the end".into())?;
    let named = leader_of(&world.apis[0].state.quorum.1).map(str::to_owned);
    world.require(named == leader.map(instance), || format!("{named:?} is named, and process {leader:?} leads"))?;
    let active = (0..places).all(|place| world.is_active(0, place));
    world.require(active, || "a status does not call its term active".into())?;
    let changes = world.apis[0].writes.leader - changes;
    let least = u64::from(of_the_leader && fault.moves_leadership());
    let expected = least..=fault.most_writes();
    world.require(expected.contains(&changes), || {
        format!("{fault:?} of process {victim}: {changes} changes of the leader were written")
    })
}

/// The fault begins after the API server has stored the publication of a term, and before the leader has its answer.
fn no_term_moves_whose_publication_is_unanswered(seed: u64, fault: ReplicaFault) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    let mut world = World::scenario(swarm, seed, &[]);
    let is_unanswered = |world: &World| world.is_active(0, 0) && world.holding(0).is_none();
    world.reach(60 * SECOND, is_unanswered, "no publication was stored without its answer")?;
    let (victim, token) = (world.leading(0).unwrap_or(0), world.token(0, 0));
    world.inject_into_replica(victim, fault);
    world.run_for(fault.span());
    world.cut_replica(victim, fault, false);
    world.run_for(40 * SECOND);
    let continues = world.is_active(0, 0) && world.token(0, 0) == token && world.holding(0).is_some();
    world.require(continues, || format!("{fault:?} of process {victim}: the term with token {token} has ended"))
}

#[test]
fn no_term_moves_after_a_fault_during_its_publication() {
    for fault in FAULTS {
        all_pass(SEEDS, |seed| no_term_moves_whose_publication_is_unanswered(seed, fault));
    }
}

#[test]
fn no_lease_moves_after_any_fault_of_the_leader() {
    for fault in FAULTS {
        all_pass(SEEDS, |seed| no_lease_moves(seed, fault, true, &[]));
    }
}

#[test]
fn no_lease_moves_after_any_fault_of_a_follower() {
    for fault in FAULTS {
        all_pass(SEEDS, |seed| no_lease_moves(seed, fault, false, &[]));
    }
}

/// A pause of the leader from 0.2 s to two leases.
fn pause(seed: u64) -> ReplicaFault {
    ReplicaFault::Pause(Rng::new(seed).between(200 * MILLI, 30 * SECOND))
}

#[test]
fn no_lease_moves_after_a_pause_of_any_length() {
    all_pass(1..=60, |seed| no_lease_moves(seed, pause(seed), true, &[]));
    let bugs = [Bug::AuthorityDoesNotEnd];
    let found = failures(1..=60, |seed| no_lease_moves(seed, pause(seed), true, &bugs));
    assert!(!found.is_empty(), "{bugs:?} was not found");
    println!("{bugs:?}: {} of 60 seeds, {:.200}", found.len(), found[0]);
}
