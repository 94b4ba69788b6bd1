//! The slab of a shard's machines.

use redislease_core::driver::LeaseId;

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

    /// Takes out the entry in `slot`, if there is one.
    pub fn take(&mut self, slot: u32) -> Option<Box<(LeaseId, T)>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.count -= 1;
        Some(entry)
    }

    pub fn get(&self, slot: u32) -> Option<&(LeaseId, T)> {
        self.entries.get(slot as usize)?.as_deref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(LeaseId, T)> {
        self.entries.iter().filter_map(Option::as_deref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_in_its_slot_until_it_is_taken() {
        let mut slots = Slots::new();
        slots.put(Box::new((LeaseId { slot: 1, generation: 3 }, "c")));
        assert_eq!((slots.len(), slots.iter().count()), (1, 1));
        assert_eq!(slots.take(1).map(|entry| entry.1), Some("c"));
        assert!(slots.take(0).is_none() && slots.take(7).is_none());
        assert_eq!(slots.len(), 0);
    }
}
