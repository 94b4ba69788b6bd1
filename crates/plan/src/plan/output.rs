//! What a machine and its parts want: effects, in their order, and the next turn.

use std::collections::VecDeque;

use redislease_core::time::Time;

use super::effect::{Effect, Read};
use crate::status::{Notice, NoticeReason};

/// The effects that are not executed yet, and the latest time of the next turn.
#[derive(Clone, Debug)]
pub(super) struct Output<E> {
    effects: VecDeque<E>,
    deadline: Option<Time>,
    /// Whether a read of the lease is under way. There is one at a time.
    reads_lease: bool,
}

/// The output of a reconciler.
pub(super) type Effects = Output<Effect>;

impl<E> Output<E> {
    pub const fn new() -> Self {
        Self { effects: VecDeque::new(), deadline: None, reads_lease: false }
    }

    pub fn emit(&mut self, effect: impl Into<E>) {
        self.effects.push_back(effect.into());
    }

    pub fn poll(&mut self) -> Option<E> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // Most leases wait most of the time: an empty buffer would take a kilobyte of each.
            self.effects = VecDeque::new();
        }
        effect
    }

    pub fn wake_at(&mut self, at: Time) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    pub const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// A turn begins, which sets the time of the next one anew.
    pub const fn begin_turn(&mut self) {
        self.deadline = None;
    }
}

impl Effects {
    pub fn report(&mut self, reason: NoticeReason, note: String, on_pods: Vec<(String, String)>) {
        self.emit(Notice { reason, note, on_pods });
    }

    pub fn read_lease(&mut self) {
        self.reads_lease = true;
        self.emit(Effect::Read(Read::Lease));
    }

    pub const fn lease_was_read(&mut self) {
        self.reads_lease = false;
    }

    pub const fn is_reading_lease(&self) -> bool {
        self.reads_lease
    }
}
