//! The queue of events, by time. Events at one instant leave it in the order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Event;
use crate::redis::clock::Micros;

/// A queue of events. They are in slots, so that sorting moves few bytes.
#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(Micros, u64, usize)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    /// How many events were added.
    added: u64,
}

impl Queue {
    pub fn push(&mut self, at: Micros, event: Event) {
        self.added += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.heap.push(Reverse((at, self.added, slot)));
    }

    /// When the next event happens.
    pub fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The events, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.slots.iter().flatten()
    }

    pub fn pop(&mut self) -> Option<(Micros, Event)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at, self.slots[slot].take()?))
    }
}
