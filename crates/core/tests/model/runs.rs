//! Which worlds are explored, and which planted mistakes must be found in them.

use redislease_core::mutant::Mutant;
use stateright::{Checker, Expectation, Model};
use std::time::Instant;

use crate::world::Setup;

/// Two attempts at one lease, and nothing else goes wrong than messages that are late or lost.
const RIVALS: Setup = Setup {
    name: "rivals",
    ttl: 2,
    renew_interval: 1,
    command_timeout: 1,
    stop_budget: 0,
    keys: [&[0], &[0]],
    rival: true,
    in_turn: false,
    joins: 1,
    adopt: false,
    crashes: 0,
    end: None,
    death: false,
    relay: true,
    unanswered: true,
    broken: false,
    late_guard: true,
    vanish: false,
    tokens_only: false,
    fences: &[[0, 0, 0]],
    history: 0,
    mutant: None,
};
const BARE: Setup = Setup { name: "bare", joins: 0, relay: false, unanswered: false, ..RIVALS };
const BROKEN: Setup = Setup { name: "broken connections", broken: true, relay: true, unanswered: true, ..BARE };
const LATE: Setup = Setup { name: "no deadline in the scripts", late_guard: false, ..BARE };
const SLOW: Setup = Setup { name: "rounds of two ticks", ttl: 3, renew_interval: 2, command_timeout: 2, ..BARE };
const REPLICA: Setup = Setup { name: "a replica adopts", adopt: true, ..BARE };
const RESTART: Setup = Setup { name: "restart", crashes: 1, unanswered: true, ..BARE };
const OWNER_SEALS: Setup = Setup { name: "the owner seals", end: Some(0), relay: true, ..BARE };
const OTHER_SEALS: Setup = Setup { name: "another process seals", end: Some(1), ..BARE };
const SEALED: Setup = Setup { name: "seal against extension", rival: false, end: Some(1), joins: 1, ..BARE };
const PROOF: Setup = Setup { name: "proof of death", death: true, ..BARE };
const HISTORY: Setup = Setup { name: "forgotten counters", history: 5, ..BARE };
const VANISH: Setup = Setup { name: "vanishing keys", vanish: true, joins: 1, fences: &[[0, 0, 1]], ..BARE };
const KEYS: Setup = Setup { name: "keys that meet", keys: [&[0, 1], &[1, 2]], vanish: true, tokens_only: true, ..BARE };

const GOOD: [Setup; 14] = [
    RIVALS,
    BARE,
    BROKEN,
    LATE,
    SLOW,
    REPLICA,
    RESTART,
    OWNER_SEALS,
    OTHER_SEALS,
    SEALED,
    PROOF,
    HISTORY,
    VANISH,
    KEYS,
];

const LEVEL: &[[u64; 3]] = &[[0, 0, 0]];

const MUTANTS: [(Mutant, Setup); 20] = [
    (Mutant::OneRound, VANISH),
    (Mutant::ConfirmOutsideFirstRound, VANISH),
    (Mutant::DeadlineFromReply, Setup { renew_interval: 3, command_timeout: 3, in_turn: true, ..SLOW }),
    (Mutant::ReleaseOnLocalDeadline, Setup { relay: true, ..REPLICA }),
    (Mutant::NoLocalDeadline, BARE),
    (Mutant::JoinConfirmedAtOnce, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::JoinConfirmedByEarlierRound, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::SealOnTooFew, SEALED),
    (Mutant::SealVotesExpired, Setup { ttl: 3, ..SEALED }),
    (Mutant::AbsentCountedAsSealed, SEALED),
    (Mutant::ReusedAttempt, Setup { in_turn: true, ..BARE }),
    (Mutant::UnknownWriteReleased, Setup { adopt: true, unanswered: true, ..BARE }),
    (Mutant::NoStatusFloor, HISTORY),
    (Mutant::AdoptByAttemptOnly, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::ConfirmFirstKeyOnly, KEYS),
    (Mutant::NoGrantNumber, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::CounterPerLease, KEYS),
    (Mutant::ExtendSets, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::SealShortens, Setup { ttl: 3, in_turn: true, ..OTHER_SEALS }),
    (Mutant::ExtendUnseals, SEALED),
];

fn check(setup: Setup, limit: usize) -> bool {
    let started = Instant::now();
    let cpu = || {
        let s = std::fs::read_to_string("/proc/self/stat").unwrap();
        let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
        (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
    };
    let c0 = cpu();
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
                verdict.push(format!("VIOLATED {:?} in {steps} steps", checker.model().violation(path.last_state())))
            }
            (Expectation::Sometimes, None) => verdict.push(format!("never: {}", property.name)),
            _ => {}
        }
    }
    if std::env::var("TRACE").is_ok() {
        for property in &properties {
            if property.expectation == Expectation::Always
                && let Some(path) = checker.discovery(property.name)
            {
                for action in path.into_actions() {
                    println!("      {action:?}");
                }
            }
        }
    }
    let cut = if checker.state_count() >= limit { "CUT" } else { "" };
    println!(
        "{label:45} {:>9} states {:>10} generated {seconds:6.1} s {:6.1} cpu {cut} {}",
        checker.unique_state_count(),
        checker.state_count(),
        cpu() - c0,
        verdict.join("; ")
    );
    bad
}

#[test]
fn good() {
    for setup in GOOD {
        if std::env::var("ONLY").is_ok_and(|only| only != setup.name) {
            continue;
        }
        check(setup, 30_000_000);
    }
}

#[test]
fn mutants() {
    let only = std::env::var("ONLY").ok();
    for (mutant, setup) in MUTANTS {
        if only.as_ref().is_some_and(|only| *only != format!("{mutant:?}")) {
            continue;
        }
        check(Setup { mutant: Some(mutant), ..setup }, 25_000_000);
    }
}
