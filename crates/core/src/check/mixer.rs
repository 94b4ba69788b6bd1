//! A fast hasher for states, of which a checker hashes many.

use core::hash::{BuildHasherDefault, Hasher};

/// Builds [`Mixer`]s.
pub type Mix = BuildHasherDefault<Mixer>;

/// A hasher for values that consist of words.
#[derive(Clone, Copy, Debug)]
pub struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

/// Both halves of the full product: every bit of the word reaches every bit of the result.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let [low, high] = [product & u128::from(u64::MAX), product >> 64];
    u64::try_from(low ^ high).unwrap_or_default()
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        folded(self.0, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
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
