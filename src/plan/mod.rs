//! One pure machine per lease: all that remembers and decides about it.
//!
//! The machine takes [`Event`]s and is drained of [`Effect`]s. It has no client, no clock and no socket: the operator and
//! the simulator drive the same one.

mod effect;
mod event;
mod facts;

pub use effect::{Command, Effect, Measure, Priority, Read, RoleWrite, Shown, StatusWrite};
pub use event::{Event, RoleOutcome, StatusOutcome};
pub use facts::{Authority, CandidateFacts, Facts, OpenQuorum, PodKnowledge, QuorumFacts};

use std::collections::VecDeque;

use redislease_core::time::Time;

use crate::election::Cluster;

/// One lease of this cluster, keyed by the resource's UID: a resource that was created again is another lease.
#[derive(Clone, Debug)]
pub struct Reconciler {
    identity: Identity,
    effects: VecDeque<Effect>,
}

/// Which lease, in which cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster of this process.
    pub cluster: Cluster,
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// The resource's UID.
    pub uid: String,
}

impl Reconciler {
    /// A lease about which nothing is known yet.
    pub fn new(identity: Identity) -> Self {
        Self { identity, effects: VecDeque::new() }
    }

    /// Which lease this is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The pod of the running term, else of the ending one: name and UID. The facts must say what is known about it.
    pub fn holder(&self) -> Option<(String, String)> {
        None
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Time, event: Event) {
        let _ = (now, event);
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When the next turn is due, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Whether nothing is left to do for a lease whose resource is gone.
    pub fn is_finished(&self) -> bool {
        false
    }
}
