//! The tests: each world without a bug, and then with each of its planted bugs.

use redislease_core::check::{Layer, Mutant};
use stateright::{Checker, Expectation, Model};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::admission::{self, AdmissionSetup};
use crate::jobs::{Size, is_selected, search_all};
use crate::search::{Found, MOST_TRANSITIONS, search};
use crate::world::{self, Setup};
use crate::worlds::{ADMISSIONS, Case, WORLDS};

/// A model that is searched here.
trait Explored: Model<State: Clone + std::hash::Hash, Action: std::fmt::Debug> + Clone + Sync {
    fn name(&self) -> &'static str;
    fn with(&self, mutant: Mutant) -> Self;
    /// Without the rules for a single machine.
    fn overlaps_only(&self) -> Self;
    /// The rule that is broken in this state.
    fn broken(&self, state: &Self::State) -> String;
}

impl Explored for Setup {
    fn name(&self) -> &'static str {
        self.name
    }

    fn with(&self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self.clone() }
    }

    fn overlaps_only(&self) -> Self {
        Self { overlaps_only: true, ..self.clone() }
    }

    fn broken(&self, state: &world::World) -> String {
        self.violation(state).map_or_else(String::new, |flaw| flaw.to_string())
    }
}

impl Explored for AdmissionSetup {
    fn name(&self) -> &'static str {
        self.name
    }

    fn with(&self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self.clone() }
    }

    fn overlaps_only(&self) -> Self {
        self.clone()
    }

    fn broken(&self, state: &admission::State) -> String {
        state.violation().map_or_else(String::new, |violation| violation.to_string())
    }
}

/// Searches one world and prints what it took.
fn report<M: Explored>(model: &M, label: &str) -> Found<M> {
    let began = Instant::now();
    let found = search(model);
    let verdict = match &found.violation {
        Some((path, state)) => format!("{} steps: {}", path.len(), model.broken(state)),
        None => "no violation".to_owned(),
    };
    let (states, transitions, seconds) = (found.states, found.transitions, began.elapsed().as_secs_f64());
    println!("{label:56} {states:>9} states, {transitions:>9} transitions, {seconds:5.1} s: {verdict}");
    found
}

/// Searches a world, with a bug or with none, and says what is wrong.
fn check<M: Explored>(world: &M, mutant: Option<Mutant>) -> Result<(), String> {
    let name = world.name();
    if let Some(mutant) = mutant {
        let found = report(&world.with(mutant), &format!("{mutant:?} in: {name}"));
        return found.violation.map(drop).ok_or(format!("{mutant:?} was not found in: {name}"));
    }
    let found = report(world, name);
    if let Some((path, state)) = &found.violation {
        return Err(format!("{name}: {}\n{path:#?}", world.broken(state)));
    }
    if !found.missing.is_empty() {
        return Err(format!("{name}: the world is too tame, never seen: {}", found.missing.join(", ")));
    }
    if !found.exhausted {
        return Err(format!("{name}: more than {MOST_TRANSITIONS} transitions"));
    }
    Ok(())
}

/// Whether a bug is searched in this run in a world of this size. A bug that neither another layer nor a smaller world finds is
/// searched in `make test` also in a large world, which `make model` searches without the bug.
fn searches(world: Size, mutant: Mutant) -> bool {
    let is_found = |case: &Case<Setup>| case.size <= Size::Middle && case.bugs.contains(&mutant);
    let is_only_here = mutant.found_by() == [Layer::Model] && !WORLDS.iter().any(is_found);
    world <= Size::of_run() || (Size::of_run() == Size::Middle && is_only_here)
}

/// Searches every world of the run, without a bug and with each of its bugs, two at a time.
fn check_all<M: Explored + 'static>(cases: impl Iterator<Item = &'static Case<M>>) {
    let mut jobs: Vec<(M, Option<Mutant>)> = Vec::new();
    for Case { size: of, setup, bugs, overlaps } in cases.filter(|case| is_selected(case.setup.name())) {
        jobs.extend((*of <= Size::of_run()).then(|| (setup.clone(), None)));
        let bugs = bugs.iter().filter(|bug| searches(*of, **bug));
        jobs.extend(bugs.map(|bug| (setup.clone(), Some(*bug))));
        let overlaps = overlaps.iter().filter(|bug| searches(*of, **bug));
        jobs.extend(overlaps.map(|bug| (setup.overlaps_only(), Some(*bug))));
    }
    search_all(&jobs, |(world, mutant)| check(world, *mutant));
}

/// The tests use the whole machine: one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn leases_break_no_rule_and_planted_bugs_are_found() {
    let _turn = turn();
    check_all(WORLDS.iter());
}

#[test]
fn admissions_break_no_rule_and_planted_bugs_are_found() {
    let _turn = turn();
    check_all(ADMISSIONS.iter());
}

#[test]
fn the_model_finds_the_bugs_that_the_table_gives_it() {
    let leases = WORLDS.iter().flat_map(|case| case.bugs);
    let found: Vec<&Mutant> = leases.chain(ADMISSIONS.iter().flat_map(|case| case.bugs)).collect();
    for mutant in Mutant::ALL {
        let named = mutant.found_by().contains(&Layer::Model);
        assert_eq!(found.contains(&mutant), named, "{mutant:?}: the table names the model: {named}");
    }
}

#[test]
fn the_search_sees_what_the_checker_of_stateright_sees() {
    let _turn = turn();
    let case = WORLDS.iter().find(|case| case.setup.name == "basic").unwrap();
    for model in [case.setup.clone(), case.setup.with(Mutant::NoLocalDeadline)] {
        let ours = search(&model);
        let theirs = model.clone().checker().spawn_bfs().join();
        let always = model.properties().into_iter().find(|one| one.expectation == Expectation::Always).unwrap();
        let path = theirs.discovery(always.name).map(|path| path.into_actions().len());
        assert_eq!(ours.violation.as_ref().map(|(path, _)| path.len()), path);
        if ours.violation.is_none() {
            assert_eq!((ours.states, ours.transitions + 1), (theirs.unique_state_count(), theirs.state_count()));
        }
    }
}
