//! Runs seeds, two at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bug::Bug;
use crate::check::Broken;
use crate::clock::Micros;
use crate::coverage::Coverage;
use crate::rng::Rng;
use crate::swarm::Swarm;
use crate::world::World;

/// What a run came to.
pub struct Outcome {
    pub hash: u64,
    pub broken: Option<Broken>,
    pub tail: String,
    pub coverage: Coverage,
    pub simulated: Micros,
    pub busiest: u64,
}

/// One run of one seed, from its first to its last event.
pub fn run(seed: u64, bug: Option<Bug>) -> Outcome {
    let mut rng = Rng::new(seed);
    let swarm = Swarm::draw(&mut rng);
    finish(World::new(swarm, rng, bug))
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
        tail: if broken.is_some() { world.trace.tail() } else { String::new() },
        broken,
        coverage: world.coverage,
        simulated: world.now,
        busiest: world.check.busiest,
    }
}

/// How a failure is told: what broke, what came before, how to see it again.
pub fn story(seed: u64, bug: Option<Bug>, outcome: &Outcome) -> String {
    let broken = outcome.broken.as_ref().map_or("nothing", |broken| &broken.0);
    format!(
        "seed {seed} ({bug:?}) at {:.3} s: {broken}\nthe last events, in seconds of true time:\n{}\
         replay with SIM_SEED={seed} cargo test -p redislease-core --test sim batch",
        outcome.simulated as f64 / 1e6,
        outcome.tail
    )
}

/// What a batch of honest runs came to.
#[derive(Default)]
pub struct Batch {
    pub seeds: u64,
    pub simulated: Micros,
    pub coverage: Coverage,
    pub busiest: u64,
    pub failure: Option<String>,
}

/// Runs seeds from `first` on, each twice, until `enough` says so or one fails.
pub fn batch(first: u64, enough: impl Fn(u64, Duration) -> bool + Sync) -> Batch {
    let (next, total, began) = (AtomicU64::new(first), Mutex::new(Batch::default()), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let failed = total.lock().unwrap().failure.is_some();
            if failed || enough(seed - first, began.elapsed()) {
                return;
            }
            let (outcome, again) = (run(seed, None), run(seed, None));
            let mut total = total.lock().unwrap();
            total.seeds += 1;
            total.simulated += outcome.simulated + again.simulated;
            total.busiest = total.busiest.max(outcome.busiest);
            total.coverage.add(&outcome.coverage);
            if outcome.broken.is_some() {
                total.failure.get_or_insert(story(seed, None, &outcome));
            } else if outcome.hash != again.hash {
                total.failure.get_or_insert(format!("seed {seed} ran differently the second time"));
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

/// Runs at most `budget` seeds from `first` on, until one shows the bug. It is counted in seeds, not in seconds: a
/// busy machine finds what an idle one finds.
pub fn hunt(first: u64, bug: Bug, budget: u64) -> Option<Found> {
    let (next, found, began) = (AtomicU64::new(first), Mutex::new(None), Instant::now());
    let work = || {
        while found.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - first >= budget {
                return;
            }
            if let Some(broken) = run(seed, Some(bug)).broken {
                let tried = seed - first + 1;
                found.lock().unwrap().get_or_insert(Found { tried, took: began.elapsed(), broken });
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap()
}
