//! Which worlds are explored, and which planted mistakes must be found in them.

use redislease_core::mutant::Mutant::{self, *};
use stateright::{Checker, Expectation, Model};
use std::time::{Duration, Instant};

use crate::world::Setup;

const RIVALS: Setup = Setup {
    name: "rivals",
    ttl: 2,
    renew_interval: 1,
    command_timeout: 1,
    stop_budget: 0,
    keys: [&[0], &[0]],
    joins: 1,
    adopt: false,
    crashes: 0,
    end: None,
    death: false,
    relay: true,
    unanswered: true,
    broken: false,
    late_guard: false,
    history: 0,
    mutant: None,
};

const SLOW: Setup = Setup { name: "slow", ttl: 3, renew_interval: 2, command_timeout: 2, joins: 0, unanswered: false, ..RIVALS };
const REPLICA: Setup = Setup { name: "replica", adopt: true, joins: 0, relay: false, unanswered: false, late_guard: true, ..RIVALS };
const OWNER_SEALS: Setup = Setup { name: "owner seals", end: Some(0), joins: 0, unanswered: false, late_guard: true, ..RIVALS };
const OTHER_SEALS: Setup = Setup { name: "other seals", end: Some(1), joins: 0, unanswered: false, late_guard: true, relay: false, ..RIVALS };
const PROOF: Setup = Setup { name: "proof", death: true, ..RIVALS };
const RESTART: Setup = Setup { name: "restart", crashes: 1, ..RIVALS };
const KEYS: Setup = Setup { name: "meeting keys", keys: [&[0, 1], &[1, 2]], ..RIVALS };
const HISTORY: Setup = Setup { name: "history", history: 5, ..RIVALS };

fn check(setup: Setup, limit: usize) -> bool {
    let started = Instant::now();
    let properties = setup.properties();
    let label = setup.mutant.map_or(setup.name.into(), |m| format!("{m:?} in {}", setup.name));
    let checker = setup.checker().threads(2).target_state_count(limit).spawn_bfs().join();
    let seconds = started.elapsed().as_secs_f64();
    let mut verdict = Vec::new();
    let mut bad = false;
    for property in &properties {
        let found = checker.discovery(property.name).map(|path| path.into_actions().len());
        match (&property.expectation, found) {
            (Expectation::Always, Some(steps)) => {
                bad = true;
                let path = checker.discovery(property.name).unwrap();
                verdict.push(format!("VIOLATED {:?} in {steps} steps", crate::lease::violation(path.last_state())))
            }
            (Expectation::Sometimes, None) => verdict.push(format!("never: {}", property.name)),
            _ => {}
        }
    }
    if std::env::var("TRACE").is_ok() {
        for property in &properties {
            if property.expectation == Expectation::Always && let Some(path) = checker.discovery(property.name) {
                for action in path.into_actions() { println!("      {action:?}"); }
            }
        }
    }
    let cut = if checker.state_count() >= limit { "CUT" } else { "" };
    println!("{label:45} {:>9} states {:>10} generated {seconds:6.1} s  {cut} {}", checker.unique_state_count(), checker.state_count(), verdict.join("; "));
    let _ = Duration::ZERO;
    bad
}

#[test]
fn good() {
    for setup in [RIVALS, SLOW, REPLICA, OWNER_SEALS, OTHER_SEALS, PROOF, RESTART, KEYS, HISTORY] {
        check(setup, 60_000_000);
    }
}

#[test]
fn mutants() {
    let only = std::env::var("ONLY").ok();
    for (mutant, setups) in [
        (OneRound, vec![RIVALS]),
        (ConfirmOutsideFirstRound, vec![RIVALS, Setup { broken: true, ..RIVALS }]),
        (DeadlineFromReply, vec![Setup { ttl: 3, command_timeout: 3, renew_interval: 3, ..SLOW }]),
        (NoLocalDeadline, vec![RIVALS]),
        (ReleaseOnLocalDeadline, vec![Setup { relay: true, ..REPLICA }]),
        (JoinConfirmedAtOnce, vec![Setup { joins: 2, ..RIVALS }]),
        (JoinConfirmedByEarlierRound, vec![Setup { joins: 2, ..RIVALS }]),
        (SealOnTooFew, vec![OTHER_SEALS, Setup { adopt: true, ..OWNER_SEALS }]),
        (SealVotesExpired, vec![Setup { joins: 2, ..OTHER_SEALS }]),
        (AbsentCountedAsSealed, vec![Setup { joins: 2, ..OTHER_SEALS }]),
        (ReusedAttempt, vec![RIVALS]),
        (UnknownWriteReleased, vec![Setup { adopt: true, ..RIVALS }]),
        (NoStatusFloor, vec![HISTORY]),
        (AdoptByAttemptOnly, vec![RIVALS, REPLICA]),
        (ConfirmFirstKeyOnly, vec![KEYS]),
        (CounterPerLease, vec![KEYS]),
        (NoGrantNumber, vec![RIVALS, Setup { joins: 2, ..RIVALS }]),
        (ExtendSets, vec![RIVALS]),
        (SealShortens, vec![OTHER_SEALS]),
        (ExtendUnseals, vec![OTHER_SEALS]),
        (ReleaseIgnoresAttempt, vec![RIVALS]),
    ] as [(Mutant, Vec<Setup>); _] {
        if only.as_ref().is_some_and(|only| *only != format!("{mutant:?}")) { continue }
        for setup in setups {
            check(Setup { mutant: Some(mutant), ..setup }, 20_000_000);
        }
    }
}
