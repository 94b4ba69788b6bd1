//! The model checker on the core's own machines.
mod lease;
mod shared;
mod step;
mod world;

use stateright::{Checker, Model};
use std::time::Instant;
use world::Setup;

const PLAIN: Setup = Setup {
    name: "plain",
    ttl: 2,
    renew_interval: 1,
    command_timeout: 1,
    stop_budget: 0,
    keys: [&[0], &[0]],
    joins: 0,
    adopt: false,
    crashes: 0,
    end: false,
    death: false,
    relay: false,
    unanswered: false,
    broken: false,
    late_guard: true,
    history: 0,
    mutant: None,
};

#[test]
fn probe() {
    let mut setup = PLAIN;
    let on = |name: &str| std::env::var(name).ok().and_then(|x| x.parse::<u64>().ok());
    if let Some(v) = on("TTL") { setup.ttl = v }
    if let Some(v) = on("RENEW") { setup.renew_interval = v }
    if let Some(v) = on("TIMEOUT") { setup.command_timeout = v }
    if let Some(v) = on("JOINS") { setup.joins = v as u8 }
    if let Some(v) = on("CRASHES") { setup.crashes = v as u8 }
    setup.adopt = on("ADOPT").is_some();
    setup.end = on("END").is_some();
    setup.death = on("DEATH").is_some();
    setup.relay = on("RELAY").is_some();
    setup.unanswered = on("UNANSWERED").is_some();
    setup.broken = on("BROKEN").is_some();
    setup.late_guard = on("LATE").is_none();
    let started = Instant::now();
    let mut builder = setup.clone().checker().threads(2);
    builder = builder.target_state_count(on("LIMIT").unwrap_or(30_000_000) as usize);
    let checker = builder.spawn_bfs().join();
    println!("{:?} unique {} generated {} depth {} done {} in {:.1}s", setup.name, checker.unique_state_count(), checker.state_count(), checker.max_depth(), checker.is_done(), started.elapsed().as_secs_f64());
    for property in setup.properties() {
        let found = checker.discovery(property.name);
        println!("  {:?} {}: {}", property.expectation, property.name, found.as_ref().map_or("-".into(), |path| path.clone().into_actions().len().to_string()));
        if let Some(path) = found && property.expectation == stateright::Expectation::Always {
            for (_, action) in path.into_vec() { println!("      {action:?}"); }
        }
    }
}
