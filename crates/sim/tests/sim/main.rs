//! The simulator: a deterministic world round the real core.
//!
//! Servers with clocks of their own that restart, forget, stall and step; a network that delays, loses, repeats and
//! cuts; operators that crash between any two effects, stand still and start again with nothing but the API's status;
//! API servers that refuse, hang and lose answers. Every random choice comes from one seed; each seed runs twice and
//! must run alike; after the chaos everything is healed and must be as good as new, in time.
//!
//! `SIM_SEED=<n>` replays one seed; `SIM_SEEDS=<count>` or `SIM_SECONDS=<n>` make the hunt longer; `SIM_FIRST=<n>`
//! begins it elsewhere. `SIM_BUG=<name>` hunts only the planted bugs of that name, `SIM_BUDGET=<seeds>` for so long.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "a test: what does not fit its bounds has to fail loudly or is only printed"
)]

mod api;
mod bug;
mod check;
mod clock;
mod coverage;
mod crash_points;
mod fault;
mod hunt;
mod keeper;
mod nemesis;
mod net;
mod policy;
mod process;
mod publish;
mod quiet;
mod rng;
mod server;
mod swarm;
mod trace;
mod world;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bug::Bug;

/// The tests below measure: one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn batch() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(seed) = from_environment("SIM_SEED") {
        let (outcome, again) = (hunt::run(seed, None), hunt::run(seed, None));
        assert!(outcome.broken.is_none(), "{}", hunt::story(seed, None, &outcome));
        assert_eq!(outcome.hash, again.hash, "seed {seed} ran differently the second time");
        return;
    }
    let seconds = from_environment("SIM_SECONDS");
    let seeds = from_environment("SIM_SEEDS").unwrap_or(if seconds.is_some() { u64::MAX } else { 800 });
    let limit = Duration::from_secs(seconds.unwrap_or(u64::MAX));
    let first = from_environment("SIM_FIRST").unwrap_or(1);
    let began = Instant::now();
    let batch = hunt::batch(first, |run, elapsed| run >= seeds || elapsed >= limit);
    let wall = began.elapsed().as_secs_f64();
    let simulated = batch.simulated as f64 / 1e6;
    println!("{}", batch.coverage.table());
    println!("busiest node: {} % of the bound on commands", batch.busiest);
    println!(
        "{} seeds from {first}, each twice: {simulated:.0} s simulated in {wall:.1} s, {:.0} simulated seconds a second",
        batch.seeds,
        simulated / wall
    );
    assert!(batch.failure.is_none(), "{}", batch.failure.unwrap_or_default());
    let missing = batch.coverage.missing();
    assert!(missing.is_empty(), "too tame, never seen: {}", missing.join(", "));
}

#[test]
fn a_crash_at_any_effect_ends_as_no_crash() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let calm = crash_points::tell(None);
    assert_eq!(calm.broken, None);
    println!("{} crash points, {} status writes without a crash, end: {:?}", calm.effects, calm.writes, calm.ending);
    let mut most = 0;
    for effect in 1..=calm.effects {
        let crashed = crash_points::tell(Some(effect));
        assert_eq!(crashed.broken, None, "crash before effect {effect}");
        assert_eq!(crashed.ending, calm.ending, "crash before effect {effect}");
        most = most.max(crashed.writes);
    }
    println!("at most {most} status writes with a crash");
    assert!(most <= calm.writes + 3, "a crash costs {most} status writes instead of {}", calm.writes);
}

#[test]
fn planted_bugs_are_found() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let budget = from_environment("SIM_BUDGET").unwrap_or(6000);
    let mut missed = Vec::new();
    let only = std::env::var("SIM_BUG").unwrap_or_default();
    for bug in Bug::ALL.into_iter().filter(|bug| format!("{bug:?}").contains(&only)) {
        let name = format!("{bug:?}");
        if let Some(found) = hunt::hunt(1, bug, budget) {
            let (tried, took) = (found.tried, found.took.as_secs_f64());
            println!("{name:<30} {tried:>6} seeds, {took:>6.2} s: {:.110}", found.broken.0);
        } else {
            println!("{name:<30} was not found within {budget} seeds");
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}
