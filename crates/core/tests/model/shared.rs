//! Parts of a state that many states have in common: cheap to copy, hashed once.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value behind a count of references, with its hash.
#[derive(Debug)]
pub struct Shared<T>(Arc<(u64, T)>);

impl<T: Hash> Shared<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new((hash_of(&value), value)))
    }

    pub fn hash_value(&self) -> u64 {
        self.0.0
    }

    /// Changes a copy of the value.
    pub fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Clone,
    {
        let mut value = self.0.1.clone();
        let result = change(&mut value);
        *self = Self::new(value);
        result
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.0);
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.0 == other.0.0 && self.0.1 == other.0.1
    }
}

pub fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = Mixer::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Both halves of the full product: every bit of the word reaches every bit of the result.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Hashes word by word: states are hashed far more often than anything else is done with them.
pub struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        folded(self.0, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = folded(self.0.rotate_left(23) ^ word, 0x5851_f42d_4c95_7f2d);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }
}
