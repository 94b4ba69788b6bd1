//! Which worlds are explored, and which planted mistakes must be found in them.

use redislease_core::check::Mutant;
use stateright::{Checker, Expectation, Model};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::admission::{self, Hall};
use crate::world::{self, Setup};

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
    lossy: true,
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
const KEYS: Setup =
    Setup { name: "keys that meet", keys: [&[0, 1], &[1, 2]], vanish: true, tokens_only: true, lossy: false, ..BARE };

/// Searched at every save; the fast loop stops here (`MODEL=quick`).
const SMALL: [Setup; 4] = [RIVALS, BARE, SEALED, HISTORY];
/// The largest first, so that no thread is left alone with it.
const LARGE: [Setup; 10] = [OTHER_SEALS, VANISH, RESTART, REPLICA, SLOW, OWNER_SEALS, KEYS, BROKEN, PROOF, LATE];

const LEVEL: &[[u64; 3]] = &[[0, 0, 0]];

/// Left out of the fast loop.
const SLOW_TO_FIND: [Mutant; 4] =
    [Mutant::SealVotesExpired, Mutant::ReusedAttempt, Mutant::JoinConfirmedByEarlierRound, Mutant::NoGrantNumber];

/// Each with a world in which it shows. What only clocks that run apart or step show is the simulator's part:
/// NoDriftMargin and ClockStepIgnored. So is AbstentionIsNo, which gives up too early and breaks no rule of exclusion.
const MUTANTS: [(Mutant, Setup); 20] = [
    (Mutant::OneRound, VANISH),
    (Mutant::ConfirmOutsideFirstRound, VANISH),
    (Mutant::DeadlineFromReply, Setup { renew_interval: 3, command_timeout: 3, in_turn: true, ..SLOW }),
    (Mutant::ReleaseOnLocalDeadline, Setup { relay: true, ..REPLICA }),
    (Mutant::NoLocalDeadline, BARE),
    (Mutant::JoinConfirmedAtOnce, Setup { fences: LEVEL, lossy: false, ..VANISH }),
    (Mutant::JoinConfirmedByEarlierRound, Setup { fences: LEVEL, lossy: false, ..VANISH }),
    (Mutant::SealOnTooFew, SEALED),
    (Mutant::SealVotesExpired, Setup { ttl: 3, ..SEALED }),
    (Mutant::AbsentCountedAsSealed, SEALED),
    (Mutant::ReusedAttempt, Setup { in_turn: true, lossy: false, ..BARE }),
    (Mutant::UnknownWriteReleased, Setup { adopt: true, unanswered: true, ..BARE }),
    (Mutant::NoStatusFloor, HISTORY),
    (Mutant::AdoptByAttemptOnly, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::ConfirmFirstKeyOnly, KEYS),
    (Mutant::NoGrantNumber, Setup { fences: LEVEL, lossy: false, ..VANISH }),
    (Mutant::CounterPerLease, KEYS),
    (Mutant::ExtendSets, Setup { fences: LEVEL, ..VANISH }),
    (Mutant::SealShortens, Setup { ttl: 3, in_turn: true, ..OTHER_SEALS }),
    (Mutant::ExtendUnseals, SEALED),
];

/// Servers that forget twice, and two processes that admit them again.
const FLUSHES: Hall = Hall {
    name: "two flushes",
    ttl: 2,
    forgets: 2,
    restart: false,
    new: false,
    tokens: false,
    admitters: 2,
    fences: [0, 0, 0],
    mutant: None,
};
const RESTARTS: Hall = Hall { name: "two restarts", restart: true, ..FLUSHES };
const WIPE: Hall = Hall { name: "everything is flushed", forgets: 3, admitters: 1, ..FLUSHES };
const FIRST_USE: Hall = Hall { name: "a new quorum and a flush", new: true, forgets: 1, ..FLUSHES };
const COUNTERS: Hall =
    Hall { name: "counters after two flushes", tokens: true, admitters: 1, fences: [0, 0, 1], ..FLUSHES };

const SMALL_HALLS: [Hall; 2] = [FLUSHES, COUNTERS];
const LARGE_HALLS: [Hall; 3] = [RESTARTS, WIPE, FIRST_USE];

const HALL_MUTANTS: [(Mutant, Hall); 5] = [
    (Mutant::NoQuarantine, FLUSHES),
    // Initialised at once.
    (Mutant::NoQuarantine, FIRST_USE),
    (Mutant::WaitOneShort, FLUSHES),
    (Mutant::TicketNotCompared, FLUSHES),
    (Mutant::SeedBeforeWait, COUNTERS),
];

/// What can be searched.
trait Explored:
    Model<
        State: Clone + PartialEq + std::fmt::Debug + std::hash::Hash + Send + Sync + 'static,
        Action: Send + Sync + Clone + PartialEq + std::fmt::Debug,
    > + Clone
    + Send
    + Sync
    + 'static
{
    fn label(&self) -> String;
    /// The rule that is broken in this state.
    fn broken(&self, state: &Self::State) -> String;
}

fn label(name: &str, mutant: Option<Mutant>) -> String {
    mutant.map_or(name.into(), |mutant| format!("{mutant:?} in: {name}"))
}

impl Explored for Setup {
    fn label(&self) -> String {
        label(self.name, self.mutant)
    }

    fn broken(&self, state: &world::World) -> String {
        format!("{:?}", self.violation(state))
    }
}

impl Explored for Hall {
    fn label(&self) -> String {
        label(self.name, self.mutant)
    }

    fn broken(&self, state: &admission::State) -> String {
        format!("{:?}", state.violation())
    }
}

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
fn search(model: &impl Explored) -> Found {
    let began = Instant::now();
    let properties = model.properties();
    let checker = model.clone().checker().threads(1).target_state_count(MOST_STATES).spawn_bfs().join();
    let exhausted = checker.state_count() < MOST_STATES;
    let path = |name| checker.discovery(name);
    let mut always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    let violation = always.find_map(|property| path(property.name)).map(|path| {
        let rule = model.broken(path.last_state());
        (rule, path.into_actions().len())
    });
    let sometimes = properties.iter().filter(|property| property.expectation == Expectation::Sometimes);
    let missing = sometimes.map(|property| property.name).filter(|name| path(name).is_none()).collect();
    let verdict = match &violation {
        Some((rule, steps)) => format!("violates {rule} in {steps} steps"),
        None => "no violation".to_owned(),
    };
    println!(
        "{:48} {:>9} states, {:>9} transitions, {:5.1} s: {verdict}{}",
        model.label(),
        checker.unique_state_count(),
        checker.state_count(),
        began.elapsed().as_secs_f64(),
        if exhausted { "" } else { ", cut" }
    );
    Found { violation, missing, exhausted }
}

/// Two searches at a time, of one thread each: one search gains little from a second.
fn each<M: Explored>(models: &[M], check: impl Fn(&M) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(model) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(model);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

fn holds(model: &impl Explored) {
    let (found, name) = (search(model), model.label());
    assert_eq!(found.violation, None, "{name}");
    assert_eq!(found.missing, [""; 0], "{name}: the world is too tame");
    assert!(found.exhausted, "{name}: more than {MOST_STATES} transitions");
}

fn is_quick() -> bool {
    std::env::var("MODEL").is_ok_and(|size| size == "quick")
}

/// The tests below use the whole machine: one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_rule_is_broken_in_small_worlds() {
    let _turn = turn();
    each(&SMALL, holds);
    each(&SMALL_HALLS, holds);
}

#[test]
fn no_rule_is_broken_in_larger_worlds() {
    if is_quick() {
        println!("larger worlds are left out: MODEL=quick");
        return;
    }
    let _turn = turn();
    each(&LARGE, holds);
    each(&LARGE_HALLS, holds);
}

#[test]
fn planted_mistakes_are_found() {
    let _turn = turn();
    let quick = is_quick();
    let wanted = |mutant: &Mutant| !quick || !SLOW_TO_FIND.contains(mutant);
    let worlds = MUTANTS.into_iter().filter(|(mutant, _)| wanted(mutant));
    let worlds: Vec<Setup> = worlds.map(|(mutant, setup)| Setup { mutant: Some(mutant), ..setup }).collect();
    let is_found = |found: &Found, name: &str| assert!(found.violation.is_some(), "{name} was not found");
    each(&worlds, |setup| is_found(&search(setup), &setup.label()));
    let halls = HALL_MUTANTS.map(|(mutant, hall)| Hall { mutant: Some(mutant), ..hall });
    each(&halls, |hall| is_found(&search(hall), &hall.label()));
}
