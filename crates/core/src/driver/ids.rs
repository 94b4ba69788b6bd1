//! The numbers of the leases in one shard.

use alloc::vec::Vec;

/// The number of a lease. A slot is reused for another lease, an *incarnation* of the slot, with the next generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// The place of the lease in its shard.
    pub slot: u32,
    /// How many leases had the slot before.
    pub generation: u32,
}

impl LeaseId {
    /// As one number.
    pub const fn pack(self) -> u64 {
        (self.slot as u64) << 32 | self.generation as u64
    }

    /// The opposite of [`pack`](Self::pack).
    #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
    pub const fn unpack(packed: u64) -> Self {
        Self { slot: (packed >> 32) as u32, generation: packed as u32 }
    }
}

/// Allocates the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    returned: Vec<LeaseId>,
    fresh: u32,
}

impl Ids {
    /// What [`take`](Self::take) returns next.
    pub fn next(&self) -> LeaseId {
        self.returned.last().copied().unwrap_or(LeaseId { slot: self.fresh, generation: 0 })
    }

    /// A number that no lease has had.
    pub fn take(&mut self) -> LeaseId {
        let id = self.next();
        if self.returned.pop().is_none() {
            self.fresh += 1;
        }
        id
    }

    /// The lease with this number has ended.
    pub fn give_back(&mut self, id: LeaseId) {
        self.returned.push(LeaseId { generation: id.generation.wrapping_add(1), ..id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_id() {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        assert_eq!((first.slot, second.slot), (0, 1));
        ids.give_back(first);
        let third = ids.take();
        assert_eq!((third.slot, third.generation), (0, 1));
        assert_eq!(LeaseId::unpack(third.pack()), third);
        assert_eq!(ids.take().slot, 2);
    }
}
