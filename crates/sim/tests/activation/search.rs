//! Breadth-first search. A state that was seen is kept as a hash of 64 bits, and how it was reached as the number of its parent and
//! the action, so that the shortest way to a state can be shown.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher as _;

use crate::actions::Action;
use crate::hash::Mix;
use crate::planted::Planted;
use crate::world::{Explorer, Seen, Setup};

/// What a search found.
pub struct Found {
    pub states: usize,
    pub transitions: usize,
    /// How many steps of one process were computed.
    pub steps: usize,
    pub seen: Seen,
    /// The rule that is broken, and the shortest way there.
    pub broken: Option<(String, Vec<String>)>,
    pub is_exhausted: bool,
}

/// Searches until every state is seen, a rule is broken, or there are more states than this.
pub fn search(setup: Setup, bug: Option<Planted>, most: usize) -> Found {
    let hasher = Mix::default();
    let mut explorer = Explorer::new(setup, bug);
    let first = explorer.first().unwrap();
    let mut seen: HashSet<u64, Mix> = HashSet::default();
    seen.insert(hasher.hash_one(&first));
    let mut origins: Vec<(u32, Option<Action>)> = vec![(0, None)];
    let mut frontier = VecDeque::from([(0_u32, first)]);
    let (mut transitions, mut broken) = (0, None);
    'search: while let Some((number, world)) = frontier.pop_front() {
        if origins.len() > most {
            frontier.push_back((number, world));
            break;
        }
        for action in explorer.actions(&world) {
            transitions += 1;
            match explorer.apply(&world, action) {
                Err(rule) => {
                    let mut way = way(&origins, number);
                    way.push(action);
                    broken = Some((rule, told(&mut explorer, &way)));
                    break 'search;
                }
                Ok(next) => {
                    if seen.insert(hasher.hash_one(&next)) {
                        let next_number = u32::try_from(origins.len()).unwrap();
                        origins.push((number, Some(action)));
                        frontier.push_back((next_number, next));
                    }
                }
            }
        }
    }
    let is_exhausted = broken.is_none() && frontier.is_empty();
    let steps = explorer.tables.computed();
    Found { states: origins.len(), transitions, steps, seen: explorer.seen, broken, is_exhausted }
}

/// The actions that lead to a state.
fn way(origins: &[(u32, Option<Action>)], mut number: u32) -> Vec<Action> {
    let mut way = Vec::new();
    while let (parent, Some(action)) = origins[number as usize] {
        way.push(action);
        number = parent;
    }
    way.reverse();
    way
}

/// The way in words.
fn told(explorer: &mut Explorer, way: &[Action]) -> Vec<String> {
    let Ok(mut world) = explorer.first() else { return Vec::new() };
    let mut told = Vec::new();
    for action in way {
        told.push(explorer.tell(*action));
        match explorer.apply(&world, *action) {
            Ok(next) => world = next,
            Err(_) => break,
        }
    }
    told
}

impl Explorer {
    /// One action in words.
    fn tell(&self, action: Action) -> String {
        match action {
            Action::Execute(flight) => {
                let late = if flight.is_late { "late " } else { "" };
                format!("{late}call of process {}: {}", flight.owner, self.tables.calls.get(flight.call).brief())
            }
            Action::Unanswered(flight) => {
                format!("no answer to process {}: {}", flight.owner, self.tables.calls.get(flight.call).brief())
            }
            other => format!("{other:?}"),
        }
    }
}
