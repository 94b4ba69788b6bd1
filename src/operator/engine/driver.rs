//! Gives inputs and turns to the engine, and its effects to the process. A panic in a turn or in an effect affects only its lease.

use std::time::{Duration, Instant};

use redislease_core::time::Time;
use redislease_lock::contain::{Panicked, contained};
use redislease_plan::engine::{Effect, Engine, Input, Machine, Surroundings};
use redislease_plan::index::LeaseId;
use redislease_plan::plan::Authority;

use crate::operator::quorums::QuorumUpdate;

/// A message of another task.
#[derive(Debug)]
pub enum Message {
    /// An input, as it is.
    Input(Input),
    /// A quorum has changed: its facts, its connections, or the grant of its election.
    Quorum(QuorumUpdate),
    /// The authority of this process over the leases of this quorum has changed.
    Authority(String),
}

impl From<Input> for Message {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}

/// The engine's interface to clocks, keepers, the writer and metrics. No method blocks.
pub trait Outside {
    /// Now.
    fn now(&self) -> Time;
    /// The authority of this process over the leases of a quorum.
    fn authority(&self, quorum: &str) -> Authority;
    /// Takes the connections of a quorum that was opened or replaced.
    fn quorum(&mut self, update: &QuorumUpdate);
    /// Takes what is new for a turn of a lease on this quorum.
    fn surroundings(&mut self, lease: LeaseId, quorum: &str) -> Surroundings;
    /// Carries out one effect. Returns an answer that is known at once.
    fn carry_out(&mut self, effect: Effect) -> Option<Input>;
    /// Records the duration of a turn, and whether it panicked.
    fn turned(&mut self, took: Duration, panicked: bool);
    /// Counts a panic.
    fn panicked(&mut self);
    /// Records how many leases wait for a permit to acquire a term.
    fn attempts_wait(&mut self, leases: usize);
}

/// Drives an engine.
#[derive(Debug)]
pub struct Driver<M: Machine, O> {
    engine: Engine<M>,
    outside: O,
}

impl<M: Machine, O: Outside> Driver<M, O> {
    pub const fn new(engine: Engine<M>, outside: O) -> Self {
        Self { engine, outside }
    }

    /// Handles one message.
    pub fn take(&mut self, message: impl Into<Message>) {
        let input = match message.into() {
            Message::Input(input) => input,
            Message::Quorum(update) => {
                self.outside.quorum(&update);
                let authority = self.outside.authority(&update.name);
                Input::Quorum { name: update.name, facts: update.change.facts, authority }
            }
            Message::Authority(quorum) => {
                let authority = self.outside.authority(&quorum);
                Input::Authority(quorum, authority)
            }
        };
        self.engine.handle(self.outside.now(), input);
        self.carry_out();
    }

    /// Gives turns until no lease is due or `until` is reached. Returns whether no lease is due.
    pub fn work(&mut self, until: Instant) -> bool {
        self.take(Input::Wake);
        while let Some(id) = self.engine.next_due(self.outside.now()) {
            self.turn(id);
            if Instant::now() >= until {
                break;
            }
        }
        self.outside.attempts_wait(self.engine.waiting_attempts());
        !self.engine.is_due()
    }

    /// The time at which [`Driver::work`] must run again without a new message.
    pub fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    fn turn(&mut self, id: LeaseId) {
        let Some(entry) = self.engine.index().lease(id) else { return };
        let (began, now) = (Instant::now(), self.outside.now());
        let surroundings = self.outside.surroundings(id, &entry.quorum);
        let turned = contained(|| self.engine.turn(now, id, surroundings));
        let mut panicked = turned.is_err();
        if let Err(panic) = turned {
            self.panicked(Some(id), &panic);
        }
        panicked |= self.carry_out();
        self.outside.turned(began.elapsed(), panicked);
    }

    /// Carries out the effects. Returns whether one of them panicked.
    fn carry_out(&mut self) -> bool {
        let mut any_panicked = false;
        while let Some(effect) = self.engine.poll_effect() {
            let lease = effect.lease();
            match contained(|| self.outside.carry_out(effect)) {
                Ok(None) => {}
                Ok(Some(answer)) => self.engine.handle(self.outside.now(), answer),
                Err(panic) => {
                    any_panicked = true;
                    self.panicked(lease, &panic);
                }
            }
        }
        any_panicked
    }

    fn panicked(&mut self, lease: Option<LeaseId>, panic: &Panicked) {
        self.outside.panicked();
        let Some(lease) = lease else {
            return tracing::error!(%panic, "The engine cannot carry out an effect: it panicked.");
        };
        let entry = self.engine.index().lease(lease);
        let name = entry.map(|entry| format!("{}/{}", entry.namespace, entry.name)).unwrap_or_default();
        tracing::error!(lease = name, %panic, "The reconciliation of a lease panicked. A term that this process already renews is renewed further; the operator retries after a pause.");
        self.engine.handle(self.outside.now(), Input::Panicked { lease, message: panic.to_string() });
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
