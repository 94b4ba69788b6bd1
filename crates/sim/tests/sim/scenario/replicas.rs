//! Two replicas elect a leader. Whatever befalls one of them, no lease of 15 s moves.

use super::{Outcome, all_pass, of_fifteen_seconds};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::{Event, World};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

/// What befalls one replica.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Rollout,
    Crash,
    Pause(Micros),
    Suspend(Micros),
    NoRedis(Micros),
    NoApi(Micros),
    Neither(Micros),
}

const BLOWS: [Blow; 11] = [
    Blow::Rollout,
    Blow::Crash,
    Blow::Pause(3 * SECOND),
    // The deadline has passed by less than a second, and the renewal was due long before.
    Blow::Pause(8 * SECOND),
    Blow::Pause(12 * SECOND),
    Blow::Pause(40 * SECOND),
    Blow::Suspend(12 * SECOND),
    Blow::NoRedis(12 * SECOND),
    Blow::NoRedis(40 * SECOND),
    Blow::NoApi(40 * SECOND),
    Blow::Neither(40 * SECOND),
];

impl World {
    fn strike_replica(&mut self, process: usize, blow: Blow) {
        match blow {
            Blow::Rollout => {
                self.stop_gracefully(process);
                self.after(2 * SECOND, Event::Start(process));
            }
            Blow::Crash => self.restart(process, 2 * SECOND),
            Blow::Pause(span) => self.pause(process, span, false),
            Blow::Suspend(span) => self.pause(process, span, true),
            Blow::NoRedis(_) | Blow::NoApi(_) | Blow::Neither(_) => self.cut_replica(process, blow, true),
        }
    }

    fn cut_replica(&mut self, process: usize, blow: Blow, cut: bool) {
        if matches!(blow, Blow::NoRedis(_) | Blow::Neither(_)) {
            self.isolate(process, cut);
        }
        if matches!(blow, Blow::NoApi(_) | Blow::Neither(_)) {
            self.processes[process].api_cut = u32::from(cut);
        }
    }
}

fn no_lease_moves(seed: u64, blow: Blow, of_the_leader: bool) -> Outcome {
    let mut swarm = of_fifteen_seconds(vec![0, 0]);
    swarm.elects = true;
    swarm.keys = vec![0b001, 0b010, 0b100];
    let places = swarm.keys.len();
    let mut world = World::scenario(swarm, seed, &[]);
    let all_held = |world: &World| (0..places).all(|place| world.holding(place).is_some());
    let held = world.run_until_holds(60 * SECOND, all_held);
    world.require(held, || "not everything is held at first".into())?;
    world.run_for(5 * SECOND + seed * 137 * MILLI);
    let attempts = |world: &World| -> Vec<_> {
        (0..places).map(|place| world.holding(place).map(|holding| holding.attempt)).collect()
    };
    let before = attempts(&world);
    let leader = world.leading(0);
    world.require(leader.is_some(), || "nobody leads".into())?;
    let leader = leader.unwrap_or(0);
    let (victim, changes) = (if of_the_leader { leader } else { 1 - leader }, world.apis[0].writes.leader);
    world.strike_replica(victim, blow);
    let span = match blow {
        Blow::Rollout | Blow::Crash => 2 * SECOND,
        Blow::Pause(span) | Blow::Suspend(span) | Blow::NoRedis(span) | Blow::NoApi(span) | Blow::Neither(span) => span,
    };
    let (healed, end) = (world.now + span, world.now + span + 30 * SECOND);
    while world.now < end {
        world.run_for(SECOND / 2);
        if world.now >= healed && world.processes[victim].boot == 0 {
            world.cut_replica(victim, blow, false);
        }
        let now = attempts(&world);
        world.require(now == before, || format!("{blow:?} of process {victim}: {now:?} instead of {before:?}"))?;
    }
    let leader = world.leading(0);
    world.require(leader.is_some(), || "nobody leads in the end".into())?;
    let active = (0..places).all(|place| world.is_active(0, place));
    world.require(active, || "a status does not call its term active".into())?;
    let changes = world.apis[0].writes.leader - changes;
    world.require(changes <= 2, || format!("{changes} changes of the leader were written"))
}

#[test]
fn no_lease_moves_whatever_befalls_the_leader() {
    for blow in BLOWS {
        all_pass(SEEDS, |seed| no_lease_moves(seed, blow, true));
    }
}

#[test]
fn no_lease_moves_whatever_befalls_a_follower() {
    for blow in BLOWS {
        all_pass(SEEDS, |seed| no_lease_moves(seed, blow, false));
    }
}
