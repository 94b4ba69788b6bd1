//! What the engine needs of the machine of one lease: tests put another one in its place.

use std::fmt;

use redislease_core::time::Time;

use super::{Effect, Event, Identity, PermitUses};

/// The state machine that decides about one lease.
pub trait Machine {
    /// The same for all machines of an engine.
    type Config: Clone + fmt::Debug;
    /// Creates a machine without facts.
    fn new(config: &Self::Config, identity: Identity) -> Self;
    /// Takes one event.
    fn handle(&mut self, now: Time, event: Event);
    /// The next effect to execute.
    fn poll_effect(&mut self) -> Option<Effect>;
    /// The time of the next turn if no event arrives before.
    fn next_deadline(&self) -> Option<Time>;
    /// The pod of the running term, or else of the ending one: name and UID. The facts must contain its state.
    fn holder(&self) -> Option<(String, String)>;
    /// Whether the lease needs a turn after the next answer of the API server.
    fn awaits_api_answer(&self) -> bool;
    /// The permits that the lease uses or waits for.
    fn permit_uses(&self) -> PermitUses;
    /// Whether nothing is left to do for a lease whose resource is deleted.
    fn is_finished(&self) -> bool;
}
