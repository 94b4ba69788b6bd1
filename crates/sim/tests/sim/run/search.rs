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

/// The result of a run.
pub struct Outcome {
    pub hash: u64,
    pub broken: Option<Broken>,
    /// The last events before it broke.
    pub last_events: String,
    pub coverage: Coverage,
    pub simulated: Micros,
    /// The highest counts in percent of their bounds: commands, status writes, Kubernetes events, role writes.
    pub busiest: [u64; 4],
    /// What programs did.
    pub programs: BTreeMap<&'static str, u64>,
}

/// One run of one seed, from its first to its last event.
pub fn run(seed: u64, bugs: &[Bug]) -> Outcome {
    finish(world(seed, bugs))
}

fn world(seed: u64, bugs: &[Bug]) -> World {
    let mut rng = Rng::new(seed);
    let swarm = Swarm::draw(&mut rng, bugs);
    World::new(swarm, rng, bugs)
}

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
pub fn report(seed: u64, bugs: &[Bug]) -> String {
    let kept = std::env::var("SIM_EVENTS").ok().and_then(|kept| kept.parse().ok()).unwrap_or(KEPT);
    let mut world = world(seed, bugs);
    world.trace = Trace::new(kept);
    let outcome = finish(world);
    let broken = outcome.broken.as_ref().map_or("nothing", |broken| &broken.0);
    format!(
        "seed {seed} {bugs:?} at {:.3} s: {broken}\nthe last events, in seconds of true time:\n{}\
         replay with SIM_SEED={seed} SIM_EVENTS=1000 cargo test -p redislease-sim batch",
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
    pub busiest: [u64; 4],
    /// The first failure in full.
    pub failure: Option<String>,
    /// Each seed that failed, with what broke.
    pub failed: Vec<(u64, String)>,
}

/// Every fourth seed runs twice and must give the same hash; most causes of a difference affect most seeds.
const TWICE: u64 = 4;

/// Runs seeds from `first` on until `enough` returns true or too many fail.
pub fn batch(first: u64, enough: impl Fn(u64, Duration) -> bool + Sync) -> Batch {
    let (next, total, began) = (AtomicU64::new(first), Mutex::new(Batch::default()), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let failed = total.lock().unwrap().failed.len();
            if failed >= FAILURES || enough(seed - first, began.elapsed()) {
                return;
            }
            let outcome = run(seed, &[]);
            let again = seed.is_multiple_of(TWICE).then(|| run(seed, &[]));
            let mut total = total.lock().unwrap();
            total.seeds += 1;
            total.simulated += outcome.simulated + again.as_ref().map_or(0, |again| again.simulated);
            for (most, busiest) in total.busiest.iter_mut().zip(outcome.busiest) {
                *most = (*most).max(busiest);
            }
            total.coverage.add(&outcome.coverage);
            if let Some(broken) = &outcome.broken {
                total.failed.push((seed, broken.0.clone()));
                total.failure.get_or_insert_with(|| report(seed, &[]));
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

/// From each of these first seeds on, how many seeds it took to find the bug; `None` if `budget` seeds did not show it. The worlds are
/// drawn as for a run without a bug.
pub fn unbiased(bug: Bug, firsts: &[u64], budget: u64) -> Vec<Option<u64>> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(vec![None; firsts.len()]));
    let shows = |seed: u64| {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng, &[]);
        finish(World::new(swarm, rng, &[bug])).broken.is_some()
    };
    let work = || {
        while let Some(&first) = firsts.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let tried = (0..budget).find(|at| shows(first + at)).map(|at| at + 1);
            let place = firsts.iter().position(|other| *other == first).unwrap_or(0);
            found.lock().unwrap()[place] = tried;
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}

/// A planted bug that was found.
pub struct Found {
    pub tried: u64,
    pub took: Duration,
    pub broken: Broken,
}

/// Runs at most `budget` seeds from `first` on, until one shows the bug. The budget is a number of seeds and not a time, so
/// that a busy machine finds the same bugs as an idle one.
pub fn search(first: u64, bug: Bug, budget: u64) -> Option<Found> {
    let (next, found, began) = (AtomicU64::new(first), Mutex::new(None), Instant::now());
    let work = || {
        while found.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - first >= budget {
                return;
            }
            // Another check may find it too. What counts is the check that it is planted for.
            let counts = |broken: &Broken| bug.must_say().is_none_or(|words| broken.0.contains(words));
            if let Some(broken) = run(seed, &[bug]).broken.filter(counts) {
                let tried = seed - first + 1;
                found.lock().unwrap().get_or_insert(Found { tried, took: began.elapsed(), broken });
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}
