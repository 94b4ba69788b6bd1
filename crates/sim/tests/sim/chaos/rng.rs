//! The random numbers of one run: all of them come from its seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A stream of random numbers. Its algorithm is fixed, so a seed always replays the same run.
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// Below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Between `low` and `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in this number of 1000 calls, on average.
    pub fn permille(&mut self, chance: u64) -> bool {
        chance > 0 && self.below(1000) < chance
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// One of the entries, with probabilities in proportion to the weights. The weights must not all be zero.
    pub fn weighted<T: Copy>(&mut self, from: &[(T, u64)]) -> T {
        let mut at = self.below(from.iter().map(|(_, weight)| weight).sum());
        for &(entry, weight) in from {
            if at < weight {
                return entry;
            }
            at -= weight;
        }
        from[0].0
    }
}
