//! Breadth-first search of a [`stateright`] model.
//!
//! stateright's own checker copies the path to a state with every transition, which costs as much as the transition
//! itself here. This one keeps, for each state, the number of its parent and of the action: the shortest path to a state
//! is found by replaying it. A test compares the two.

use nohash_hasher::IntSet;
use stateright::{Expectation, Model, Property};
use std::collections::VecDeque;
use std::hash::Hash;

use crate::interned::hash_of;

/// No search may grow past this number of transitions: a world that does is not exhausted, which fails.
pub const MOST_TRANSITIONS: usize = 100_000_000;

/// What a search found.
pub struct Found<M: Model> {
    pub states: usize,
    pub transitions: usize,
    /// The shortest way to a state that must not be, and that state.
    pub violation: Option<(Vec<M::Action>, M::State)>,
    /// What must be possible and was never seen.
    pub missing: Vec<&'static str>,
    pub exhausted: bool,
}

/// How a state was reached: the number of its parent, and the place of the action among the actions of the parent.
/// Initial states are their own parents, with their place among the initial states.
#[derive(Clone, Copy)]
struct Origin {
    parent: u32,
    action: u16,
}

/// Searches until every state is seen or one violates an `always` property. The properties are `always` and `sometimes`.
pub fn search<M: Model<State: Clone + Hash>>(model: &M) -> Found<M> {
    let properties = model.properties();
    let (always, mut missing): (Vec<Property<M>>, Vec<Property<M>>) =
        properties.into_iter().partition(|property| property.expectation == Expectation::Always);
    // Fingerprints are hashes already.
    let mut seen: IntSet<u64> = IntSet::default();
    let mut origins: Vec<Origin> = Vec::new();
    let mut frontier: VecDeque<(u32, M::State)> = VecDeque::new();
    let (mut transitions, mut actions) = (0, Vec::new());
    for (place, state) in model.init_states().into_iter().enumerate() {
        seen.insert(hash_of(&state));
        let number = u32::try_from(origins.len()).unwrap();
        origins.push(Origin { parent: number, action: u16::try_from(place).unwrap() });
        frontier.push_back((number, state));
    }
    let mut violation = None;
    while let Some((number, state)) = frontier.pop_front() {
        missing.retain(|property| !(property.condition)(model, &state));
        if always.iter().any(|property| !(property.condition)(model, &state)) {
            violation = Some((path(model, &origins, number), state));
            break;
        }
        if transitions > MOST_TRANSITIONS {
            break;
        }
        model.actions(&state, &mut actions);
        for (place, action) in actions.drain(..).enumerate() {
            let Some(next) = model.next_state(&state, action) else { continue };
            transitions += 1;
            if seen.insert(hash_of(&next)) {
                let next_number = u32::try_from(origins.len()).unwrap();
                origins.push(Origin { parent: number, action: u16::try_from(place).unwrap() });
                frontier.push_back((next_number, next));
            }
        }
    }
    let missing = missing.iter().map(|property| property.name).collect();
    Found { states: origins.len(), transitions, violation, missing, exhausted: transitions <= MOST_TRANSITIONS }
}

/// The actions that lead from an initial state to the state with this number.
fn path<M: Model>(model: &M, origins: &[Origin], mut number: u32) -> Vec<M::Action> {
    let mut places = Vec::new();
    loop {
        let Origin { parent, action } = origins[number as usize];
        places.push(usize::from(action));
        if parent == number {
            break;
        }
        number = parent;
    }
    let mut state = model.init_states().swap_remove(places.pop().unwrap());
    let mut path = Vec::new();
    for place in places.into_iter().rev() {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        path.push(actions.swap_remove(place));
        actions.clear();
        model.actions(&state, &mut actions);
        state = model.next_state(&state, actions.swap_remove(place)).unwrap();
    }
    path
}
