//! The engine: it decides which lease has a turn, and owns the index and the machines of all leases.
//!
//! It takes inputs, marks the leases that they concern, and offers each marked lease one turn, which handles in this order:
//! answers, the views of the keeper, the facts. What the turn decides comes as effects, one at a time. The caller carries each of
//! them out before it gives the next input; a process can end between any two of them.

pub mod annotated;
mod effect;
mod input;
mod mistakes;
mod orphans;
mod refused;
mod reports;
mod take;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use redislease_core::time::Time;

use crate::annotations::Problem;
use crate::election::Cluster;
pub use crate::index::Watched;
use crate::index::{Index, LeaseId};
pub use crate::plan::Machine;
use crate::plan::{Allowed, Authority, Event, Identity, Permits, Timers};
pub use effect::{Caller, Effect, PodName, Subject};
pub use input::{Input, Surroundings};
use mistakes::Mistakes;
pub use refused::OrphanKey;
use refused::Refused;

/// One lease.
#[derive(Debug)]
struct Lease<M> {
    /// Boxed: a map of large values leaves much of its memory unused.
    machine: Box<M>,
    /// Answers for the next turn.
    answers: Vec<Event>,
    /// The number of machines that this lease has had.
    incarnation: u32,
    /// Panics in a row.
    panics: u32,
    /// The mistakes in its annotations that this replica has reported.
    mistakes: Vec<Problem>,
    /// The end of the pause after a panic. Then the lease gets a new machine.
    broken_until: Option<Time>,
}

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct Config<M: Machine> {
    /// The cluster of this process.
    pub cluster: Arc<Cluster>,
    /// Which ways of activation the operator may use.
    pub allowed: Allowed,
    /// How many permits of each kind there are: [`PERMITS`](crate::plan::PERMITS).
    pub permits: usize,
    /// The configuration of every machine.
    pub machines: M::Config,
}

/// The index and the machines.
#[derive(Debug)]
pub struct Engine<M: Machine> {
    config: Config<M>,
    index: Index,
    leases: BTreeMap<LeaseId, Lease<M>>,
    timers: Timers<LeaseId>,
    /// Leases that need a turn after the next answer of the API server.
    awaiting: BTreeSet<LeaseId>,
    permits: Permits<LeaseId>,
    /// What this process may decide about the leases of each quorum.
    authorities: BTreeMap<String, Authority>,
    /// Whether the labels of leases that do not exist were looked for.
    swept: bool,
    /// Marks of leases that do not exist, whose removal the API server refused.
    refused: Refused,
    mistakes: Mistakes,
    effects: VecDeque<Effect>,
}

impl<M: Machine> Engine<M> {
    /// Creates an engine without any facts.
    pub fn new(config: Config<M>, index: Index) -> Self {
        Self {
            permits: Permits::new(config.permits),
            config,
            index,
            leases: BTreeMap::new(),
            timers: Timers::default(),
            awaiting: BTreeSet::new(),
            authorities: BTreeMap::new(),
            swept: false,
            refused: Refused::default(),
            mistakes: Mistakes::default(),
            effects: VecDeque::new(),
        }
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The next lease that is due for a turn: the caller must give it one.
    pub fn next_due(&mut self, now: Time) -> Option<LeaseId> {
        while let Some(id) = self.index.next_due() {
            let Some(lease) = self.leases.get(&id) else { continue };
            match lease.broken_until.filter(|until| now < *until) {
                Some(until) => self.timers.set(id, Some(until)),
                None => return Some(id),
            }
        }
        None
    }

    /// Whether a lease is due for a turn.
    pub fn is_due(&self) -> bool {
        self.index.due() > 0
    }

    /// When [`Input::Wake`] must be given if no other input is.
    pub fn next_deadline(&self) -> Option<Time> {
        [self.timers.first(), self.index.next_deadline(), self.refused.next_deadline()].into_iter().flatten().min()
    }

    /// What watches and answers have shown of every object.
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The machine of a lease.
    pub fn machine(&self, id: LeaseId) -> Option<&M> {
        self.leases.get(&id).map(|lease| &*lease.machine)
    }

    /// How many leases wait for a permit to acquire a term.
    pub fn waiting_attempts(&self) -> usize {
        self.permits.waiting_attempts()
    }

    fn add(&mut self, id: LeaseId) {
        if let Some(machine) = self.new_machine(id) {
            let lease = Lease {
                machine,
                answers: Vec::new(),
                incarnation: 0,
                panics: 0,
                mistakes: Vec::new(),
                broken_until: None,
            };
            self.leases.insert(id, lease);
        }
    }

    fn new_machine(&self, id: LeaseId) -> Option<Box<M>> {
        let entry = self.index.lease(id)?;
        let identity = Identity {
            cluster: self.config.cluster.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: entry.uid.clone(),
        };
        Some(Box::new(M::new(&self.config.machines, identity)))
    }
}
