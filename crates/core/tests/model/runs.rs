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

/// Searched at every save; the fast loop stops here (`MODEL=quick`).
const SMALL: [Setup; 5] = [RIVALS, BARE, SEALED, HISTORY, KEYS];
const LARGE: [Setup; 9] = [VANISH, BROKEN, LATE, SLOW, REPLICA, RESTART, OWNER_SEALS, OTHER_SEALS, PROOF];

const LEVEL: &[[u64; 3]] = &[[0, 0, 0]];

/// Left out of the fast loop.
const SLOW_TO_FIND: [Mutant; 4] =
    [Mutant::SealVotesExpired, Mutant::JoinConfirmedAtOnce, Mutant::JoinConfirmedByEarlierRound, Mutant::SealShortens];

/// Each with a world in which it shows. NoDriftMargin, AbstentionIsNo and what concerns clocks and admission need clocks
/// that run apart: the simulator's part.
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

/// No search may grow past this: a world that does is not exhausted, which fails.
const MOST_STATES: usize = 40_000_000;

/// What a search found.
struct Found {
    /// The shortest way to a state that must not be: the rule, and the steps.
    violation: Option<(String, usize)>,
    /// What must be possible and was never seen.
    missing: Vec<&'static str>,
    exhausted: bool,
}

/// Searches the whole world and prints what it took.
fn search(setup: &Setup) -> Found {
    let began = Instant::now();
    let properties = setup.properties();
    let checker = setup.clone().checker().threads(2).target_state_count(MOST_STATES).spawn_bfs().join();
    let exhausted = checker.state_count() < MOST_STATES;
    let path = |name| checker.discovery(name);
    let mut always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    let violation = always.find_map(|property| path(property.name)).map(|path| {
        let rule = format!("{:?}", checker.model().violation(path.last_state()));
        (rule, path.into_actions().len())
    });
    let sometimes = properties.iter().filter(|property| property.expectation == Expectation::Sometimes);
    let missing = sometimes.map(|property| property.name).filter(|name| path(name).is_none()).collect();
    let verdict = match &violation {
        Some((rule, steps)) => format!("violates {rule} in {steps} steps"),
        None => "no violation".to_owned(),
    };
    let label = setup.mutant.map_or(setup.name.into(), |mutant| format!("{mutant:?} in: {}", setup.name));
    println!(
        "{label:48} {:>9} states, {:>9} transitions, {:5.1} s: {verdict}{}",
        checker.unique_state_count(),
        checker.state_count(),
        began.elapsed().as_secs_f64(),
        if exhausted { "" } else { ", cut" }
    );
    Found { violation, missing, exhausted }
}

fn hold(worlds: &[Setup]) {
    for setup in worlds {
        let found = search(setup);
        assert_eq!(found.violation, None, "{}", setup.name);
        assert_eq!(found.missing, [""; 0], "{}: the world is too tame", setup.name);
        assert!(found.exhausted, "{}: more than {MOST_STATES} transitions", setup.name);
    }
}

#[test]
fn no_rule_is_broken_in_small_worlds() {
    hold(&SMALL);
}

#[test]
fn no_rule_is_broken_in_larger_worlds() {
    if std::env::var("MODEL").is_ok_and(|size| size == "quick") {
        println!("larger worlds are left out: MODEL=quick");
        return;
    }
    hold(&LARGE);
}

#[test]
fn planted_mistakes_are_found() {
    let quick = std::env::var("MODEL").is_ok_and(|size| size == "quick");
    for (mutant, setup) in MUTANTS.into_iter().filter(|(mutant, _)| !quick || !SLOW_TO_FIND.contains(mutant)) {
        let name = setup.name;
        let found = search(&Setup { mutant: Some(mutant), ..setup });
        assert!(found.violation.is_some(), "{mutant:?} was not found in: {name}");
    }
}
