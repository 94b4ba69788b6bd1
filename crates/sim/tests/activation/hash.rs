//! Hashes of the debug texts of values.

use std::fmt::{self, Debug, Write as _};
use std::hash::Hasher as _;

pub use redislease_core::check::Mix;
use redislease_core::check::Mixer;
#[cfg(test)]
use redislease_core::time::Time;
#[cfg(test)]
use redislease_plan::plan::Bucket;

/// The text of a value, as a hash of 128 bits.
struct Digest {
    hashes: [Mixer; 2],
    buffer: [u8; 8],
    filled: usize,
    /// Whether the next number is left out.
    skips: bool,
}

/// The field of a token bucket. Far fewer writes are made here than one allows (R2), so nothing depends on it.
const COUNTED: &str = "used_until";

impl Digest {
    fn take(&mut self) {
        let word = u64::from_le_bytes(self.buffer);
        self.hashes.iter_mut().for_each(|hash| hash.write_u64(word));
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
    let mut digest = Digest { hashes: [Mixer::default(); 2], buffer: [0; 8], filled: 0, skips: false };
    // Two hashes of one text that begin differently.
    digest.hashes[1].write_u64(1);
    write!(digest, "{value:?}").unwrap();
    digest.take();
    let [first, second] = digest.hashes.map(|hash| hash.finish());
    u128::from(first) << 64 | u128::from(second)
}

#[test]
fn the_count_of_a_bucket_is_left_out() {
    let (full, mut used) = [Bucket::<1, 1000>::default(); 2].into();
    used.take(Time(5));
    assert!(full.has(Time(5), 1) && !used.has(Time(5), 1));
    assert_eq!(digest(&full), digest(&used));
    assert_ne!(digest(&(full, 5)), digest(&(full, 6)));
}
