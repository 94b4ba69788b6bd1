//! Fast hashes of states, and of the debug texts of values.

use std::fmt::{self, Debug, Write as _};
use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`Mixer`]s.
pub type Mix = BuildHasherDefault<Mixer>;

/// Odd numbers without a pattern.
const FACTORS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

#[allow(clippy::cast_possible_truncation, reason = "the halves of a product")]
const fn mixed(state: u64, word: u64, factor: u64) -> u64 {
    let product = (state ^ word) as u128 * factor as u128;
    (product as u64) ^ ((product >> 64) as u64) ^ state.rotate_left(29)
}

/// A hasher for words.
#[derive(Clone, Copy)]
pub struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(FACTORS[1])
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        mixed(self.0, FACTORS[1], FACTORS[0])
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mixed(self.0, word, FACTORS[0]);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// The text of a value, as a hash of 128 bits.
struct Digest {
    hashes: [u64; 2],
    buffer: [u8; 8],
    filled: usize,
    /// Whether the next number is left out.
    skips: bool,
}

/// The field of a back-off that counts the writes which may follow each other without a pause. Far fewer are made here than it allows
/// (R2), so nothing depends on it.
const COUNTED: &str = "saved";

impl Digest {
    fn take(&mut self) {
        let word = u64::from_le_bytes(self.buffer);
        for (hash, factor) in self.hashes.iter_mut().zip(FACTORS) {
            *hash = mixed(*hash, word, factor);
        }
        (self.buffer, self.filled) = ([0; 8], 0);
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.skips |= text == COUNTED;
        if self.skips && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            self.skips = false;
            return Ok(());
        }
        for byte in text.bytes() {
            self.buffer[self.filled] = byte;
            self.filled += 1;
            if self.filled == self.buffer.len() {
                self.take();
            }
        }
        Ok(())
    }
}

/// A hash of the debug text.
pub fn digest(value: &impl Debug) -> u128 {
    let mut digest = Digest { hashes: [1, 2], buffer: [0; 8], filled: 0, skips: false };
    write!(digest, "{value:?}").unwrap();
    digest.take();
    let [first, second] = digest.hashes;
    u128::from(first) << 64 | u128::from(second)
}
