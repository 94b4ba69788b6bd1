//! Many seeds of programs: a batch that must pass, and searches for planted bugs.

use redislease_core::check::{Layer, Mutant};

use crate::TURN;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::redis::clock::SECOND;
use crate::search;
use crate::world::World;

/// The faults of programs: the others need an API server.
const FAULTS: [Fault; 18] = [
    Fault::Crash,
    Fault::Freeze,
    Fault::Suspend,
    Fault::LoseTime,
    Fault::RestartFull,
    Fault::RestartOlder,
    Fault::RestartEmpty,
    Fault::Flush,
    Fault::FlushScripts,
    Fault::Reset,
    Fault::Promote,
    Fault::LoseAll,
    Fault::Stall,
    Fault::CutTo,
    Fault::CutFrom,
    Fault::Isolate,
    Fault::Step,
    Fault::SmallStep,
];

/// What a batch must have seen.
const SIGHTS: [&str; 14] = [
    "effects of a lock",
    "failed requests",
    "locks",
    "locks that were held for their longest time",
    "releases",
    "cancelled",
    "cancelled after it was won",
    "woken by a release in the same program",
    "writes",
    "losses",
    "released early and kept",
    "shutdowns",
    "given up, because nobody took it",
    "deleted by a shutdown",
];

fn world(seed: u64, bugs: &[Bug]) -> World {
    let mut rng = Rng::new(seed);
    let drawn = Swarm::draw(&mut rng, &[]);
    let mut faults: Vec<(Fault, u64)> =
        drawn.faults.iter().copied().filter(|(fault, _)| FAULTS.contains(fault)).collect();
    // Some of the faults that every program meets.
    faults.push((rng.pick(&[Fault::Freeze, Fault::Isolate, Fault::RestartEmpty]), 2));
    let programs = rng.between(2, 4) as usize;
    let swarm = Swarm {
        processes: vec![0; programs],
        clusters: 1,
        elects: false,
        programs: rng.between(1, 3) as usize,
        keys: Vec::new(),
        gated: 0,
        clustered: 0,
        pods: 0,
        clocks_behind: false,
        faults,
        stays_away: None,
        chaos: rng.between(30, 90) * SECOND,
        ..drawn
    };
    World::new(swarm, rng, bugs)
}

#[test]
fn programs_keep_their_promises() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (first, enough) = search::limits("SIM_PROGRAMS", 600);
    let batch = search::batch(world, first, enough);
    assert!(batch.failure.is_none(), "{}", batch.failure.unwrap_or_default());
    println!("{} seeds of programs from {first}: {:?}", batch.seeds, batch.programs);
    let missing: Vec<_> = SIGHTS.iter().filter(|sight| !batch.programs.contains_key(*sight)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

fn bugs() -> impl Iterator<Item = Bug> {
    Mutant::all_found_by(Layer::Programs).map(Bug::Core)
}

#[test]
fn bugs_in_the_lock_of_a_program_are_found() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Few seeds find these bugs. The search begins shortly before one that found it.
    let first = |bug| match bug {
        Bug::Core(Mutant::ExpiryUnchecked) => 6470,
        Bug::Core(Mutant::LostLockContinues) => 1130,
        _ => 1,
    };
    search::all_are_found(world, bugs(), first, 1000);
}

/// `cargo test -p redislease-sim figures_of_programs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, which takes minutes"]
fn figures_of_programs() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    search::figures(world, bugs(), 1000);
}
