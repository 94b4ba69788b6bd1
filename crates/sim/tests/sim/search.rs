//! Runs seeds, two at a time: a batch that must pass, or a search for a planted bug.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::chaos::bug::Bug;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::check::checker::Broken;
use crate::check::coverage::Coverage;
use crate::check::trace::{KEPT, Trace};
use crate::redis::clock::Micros;
use crate::world::World;

/// The number in a variable of the environment.
pub fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The result of a run.
pub struct Outcome {
    pub hash: u64,
    pub broken: Option<Broken>,
    /// The last events before it broke.
    pub last_events: String,
    pub coverage: Coverage,
    pub simulated: Micros,
    /// The highest counts in percent of their bounds: commands, calls, Kubernetes events, role writes, turns.
    pub busiest: [u64; 5],
    /// What programs did.
    pub programs: BTreeMap<&'static str, u64>,
}

/// Draws the world of a seed with these bugs.
pub type Draw = fn(u64, &[Bug]) -> World;

/// Every twelfth seed has policies that keep what is to be stopped. The seeds that failed before there were any are not among them.
const WITH_POLICIES: u64 = 12;

/// Every eleventh seed, from the eighth on, has workloads that are deleted while their pods run on. The seeds that failed before there
/// were any are not among them.
const WITH_ORPHANS: u64 = 11;
const FIRST_WITH_ORPHANS: u64 = 8;

/// Every thirteenth seed, from the fifth on, edits the quorum. The seeds that failed before one did are not among them.
const WITH_QUORUM_EDITS: u64 = 13;
const FIRST_WITH_QUORUM_EDITS: u64 = 5;

/// A world of operators. Its swarm shows the bugs.
pub fn operators(seed: u64, bugs: &[Bug]) -> World {
    let mut rng = Rng::new(seed);
    let mut swarm = Swarm::draw(&mut rng, bugs);
    if bugs.is_empty() && seed.is_multiple_of(WITH_POLICIES) {
        swarm = swarm.with_policies(&mut rng);
    }
    let has_orphans = bugs.is_empty() && seed % WITH_ORPHANS == FIRST_WITH_ORPHANS;
    if has_orphans || bugs.contains(&Bug::EndsWithItsWorkload) {
        swarm = swarm.with_orphans(&mut rng);
    }
    let edits_quorum = bugs.is_empty() && seed % WITH_QUORUM_EDITS == FIRST_WITH_QUORUM_EDITS;
    if edits_quorum || bugs.contains(&Bug::UnfitTermRunsOn) {
        swarm = swarm.with_quorum_edits(&mut rng);
    }
    World::new(swarm, rng, bugs)
}

/// The same, drawn as for a run without a bug.
pub fn unbiased(seed: u64, bugs: &[Bug]) -> World {
    let mut rng = Rng::new(seed);
    let swarm = Swarm::draw(&mut rng, &[]);
    World::new(swarm, rng, bugs)
}

/// One run, from its first to its last event.
pub fn finish(mut world: World) -> Outcome {
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let text = panicked.map(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    });
    let broken = text.map(|text| Broken(format!("panicked: {text}"))).or(world.check.broken.take());
    Outcome {
        hash: world.trace.hash(),
        last_events: if broken.is_some() { world.trace.last_events() } else { String::new() },
        broken,
        coverage: world.coverage,
        simulated: world.now,
        busiest: world.check.busiest,
        programs: world.programs.seen,
    }
}

/// A text about a failure: what broke, the events before it, how to replay it. Runs the seed again to record the events.
pub fn report(draw: Draw, seed: u64, bugs: &[Bug]) -> String {
    let mut world = draw(seed, bugs);
    world.trace = Trace::new(from_environment("SIM_EVENTS").map_or(KEPT, |kept| kept as usize));
    let outcome = finish(world);
    let broken = outcome.broken.as_ref().map_or("nothing", |broken| &broken.0);
    format!(
        "seed {seed} {bugs:?} at {:.3} s: {broken}\nthe last events, in seconds of true time:\n{}\
         replay the test with SIM_SEED={seed}, or SIM_FIRST={seed} SIM_PROGRAMS=1 for programs, and SIM_EVENTS=1000",
        outcome.simulated as f64 / 1e6,
        outcome.last_events
    )
}

/// A batch ends after this number of failed seeds.
const FAILURES: usize = 25;

/// The result of a batch of runs without planted bugs.
#[derive(Default)]
pub struct Batch {
    pub seeds: u64,
    pub simulated: Micros,
    pub coverage: Coverage,
    pub busiest: [u64; 5],
    /// What programs did.
    pub programs: BTreeMap<&'static str, u64>,
    /// The first failure in full.
    pub failure: Option<String>,
    /// Each seed that failed, with what broke.
    pub failed: Vec<(u64, String)>,
}

/// Every sixteenth seed runs twice and must give the same hash; most causes of a difference affect most seeds.
const TWICE: u64 = 16;

/// Runs seeds from `first` on until `enough` returns true or too many fail.
pub fn batch(draw: Draw, first: u64, enough: impl Fn(u64, Duration) -> bool + Sync) -> Batch {
    let (next, total, began) = (AtomicU64::new(first), Mutex::new(Batch::default()), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let failed = total.lock().unwrap().failed.len();
            if failed >= FAILURES || enough(seed - first, began.elapsed()) {
                return;
            }
            let outcome = finish(draw(seed, &[]));
            let again = seed.is_multiple_of(TWICE).then(|| finish(draw(seed, &[])));
            let mut total = total.lock().unwrap();
            total.seeds += 1;
            total.simulated += outcome.simulated + again.as_ref().map_or(0, |again| again.simulated);
            for (most, busiest) in total.busiest.iter_mut().zip(outcome.busiest) {
                *most = (*most).max(busiest);
            }
            total.coverage.add(&outcome.coverage);
            for (what, count) in outcome.programs {
                *total.programs.entry(what).or_default() += count;
            }
            if let Some(broken) = &outcome.broken {
                total.failed.push((seed, broken.0.clone()));
                total.failure.get_or_insert_with(|| report(draw, seed, &[]));
            } else if again.is_some_and(|again| again.hash != outcome.hash) {
                let text = format!("seed {seed} ran differently the second time");
                total.failed.push((seed, text.clone()));
                total.failure.get_or_insert(text);
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    total.into_inner().unwrap()
}

/// A planted bug that was found.
pub struct Found {
    pub tried: u64,
    pub took: Duration,
    pub broken: Broken,
}

/// The first seed of a batch, and what ends it: the number of seeds in this variable, or `seeds`, or the time in `SIM_SECONDS`.
pub fn limits(variable: &str, seeds: u64) -> (u64, impl Fn(u64, Duration) -> bool) {
    let seconds = from_environment("SIM_SECONDS");
    let seeds = from_environment(variable).unwrap_or(if seconds.is_some() { u64::MAX } else { seeds });
    let limit = Duration::from_secs(seconds.unwrap_or(u64::MAX));
    (from_environment("SIM_FIRST").unwrap_or(1), move |run, elapsed| run >= seeds || elapsed >= limit)
}

/// Searches for each bug from the seed `first` on, with at most `SIM_BUDGET` or `budget` seeds.
///
/// # Panics
/// Names the bugs that were not found.
pub fn all_are_found(draw: Draw, bugs: impl Iterator<Item = Bug>, first: impl Fn(Bug) -> u64, budget: u64) {
    let budget = from_environment("SIM_BUDGET").unwrap_or(budget);
    let mut missed = Vec::new();
    for bug in bugs {
        let name = format!("{bug:?}");
        if let Some(found) = search(draw, first(bug), bug, budget) {
            let (tried, took) = (found.tried, found.took.as_secs_f64());
            println!("{name:<30} {tried:>6} seeds, {took:>6.2} s: {:.110}", found.broken.0);
        } else {
            println!("{name:<30} was not found within {budget} seeds");
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}

/// Runs at most `budget` seeds from `first` on, until one shows the bug. The budget is a number of seeds and not a time, so
/// that a busy machine finds the same bugs as an idle one.
pub fn search(draw: Draw, first: u64, bug: Bug, budget: u64) -> Option<Found> {
    let (next, found, began) = (AtomicU64::new(first), Mutex::new(None), Instant::now());
    let work = || {
        while found.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - first >= budget {
                return;
            }
            // Another check may find it too. What counts is the check that it is planted for.
            let counts = |broken: &Broken| bug.must_say().is_none_or(|words| broken.0.contains(words));
            if let Some(broken) = finish(draw(seed, &[bug])).broken.filter(counts) {
                let tried = seed - first + 1;
                found.lock().unwrap().get_or_insert(Found { tried, took: began.elapsed(), broken });
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}

/// How fast random search finds each planted bug: from `SIM_STARTS` first seeds on (20), with at most `SIM_BUDGET` seeds each.
pub fn figures(draw: Draw, bugs: impl Iterator<Item = Bug>, budget: u64) {
    let (starts, budget) =
        (from_environment("SIM_STARTS").unwrap_or(20), from_environment("SIM_BUDGET").unwrap_or(budget));
    println!("| planted bug | found | seeds, median |\n|---|---|---|");
    for bug in bugs {
        let find = |start: u64| search(draw, 10_000_000 + start * 10_000, bug, budget).map(|found| found.tried);
        let mut tried: Vec<u64> = (0..starts).filter_map(find).collect();
        tried.sort_unstable();
        let median = tried.get(tried.len() / 2).map_or("-".to_owned(), u64::to_string);
        println!("| `{bug:?}` | {} of {starts} | {median} |", tried.len());
    }
}
