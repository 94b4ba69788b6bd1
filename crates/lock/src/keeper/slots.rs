//! The slab of a shard's machines.

use std::sync::{Mutex, PoisonError};

/// The ID of a lease in one shard. A slot is reused for another lease with the next generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseId {
    pub slot: u32,
    pub generation: u32,
}

impl LeaseId {
    pub const fn pack(self) -> u64 {
        (self.slot as u64) << 32 | self.generation as u64
    }

    #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
    pub const fn unpack(packed: u64) -> Self {
        Self { slot: (packed >> 32) as u32, generation: packed as u32 }
    }
}

/// Allocates lease IDs outside the shard's thread.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    returned: Vec<LeaseId>,
    next: u32,
}

impl Ids {
    pub fn take(&self) -> LeaseId {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.pop().unwrap_or_else(|| {
            let slot = free.next;
            free.next += 1;
            LeaseId { slot, generation: 0 }
        })
    }

    pub fn give_back(&self, id: LeaseId) {
        let next = LeaseId { generation: id.generation.wrapping_add(1), ..id };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).returned.push(next);
    }
}

/// A slab. Each entry is a separate allocation, so that a slab with a million machines is never moved.
#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: Vec<Option<Box<(LeaseId, T)>>>,
    count: usize,
}

impl<T> Slots<T> {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), count: 0 }
    }

    pub const fn len(&self) -> usize {
        self.count
    }

    /// Inserts a new entry, or one that was taken out.
    pub fn put(&mut self, entry: Box<(LeaseId, T)>) {
        let slot = entry.0.slot as usize;
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, || None);
        }
        self.entries[slot] = Some(entry);
        self.count += 1;
    }

    pub fn get(&self, slot: u32) -> Option<&(LeaseId, T)> {
        self.entries.get(slot as usize)?.as_deref()
    }

    /// Takes out the entry in `slot`, if there is one.
    pub fn take(&mut self, slot: u32) -> Option<Box<(LeaseId, T)>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.count -= 1;
        Some(entry)
    }

    /// Whether `id` is in the slab, as opposed to an earlier or later lease in the same slot.
    pub fn holds(&self, id: LeaseId) -> bool {
        self.get(id.slot).is_some_and(|(other, _)| *other == id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &(LeaseId, T)> {
        self.entries.iter().filter_map(Option::as_deref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_id() {
        let ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        assert_eq!((first.slot, second.slot), (0, 1));
        ids.give_back(first);
        let third = ids.take();
        assert_eq!((third.slot, third.generation), (0, 1));
        assert_eq!(LeaseId::unpack(third.pack()), third);
        assert_eq!(ids.take().slot, 2);

        let mut slots = Slots::new();
        slots.put(Box::new((third, "c")));
        assert!(slots.holds(third) && !slots.holds(first) && !slots.holds(second));
        assert_eq!((slots.len(), slots.iter().count()), (1, 1));
        assert_eq!(slots.take(0).map(|entry| entry.1), Some("c"));
        assert!(slots.take(0).is_none() && slots.take(7).is_none());
        assert_eq!(slots.len(), 0);
    }
}
