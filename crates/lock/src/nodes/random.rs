//! Random numbers from the operating system.
//!
//! Attempt IDs and wait tickets must not be predictable, so each is read from the operating system when it is needed: one
//! system call, without a generator or a buffer in between. The numbers for pauses are read in blocks.

use std::io;

use redislease_core::backoff::Entropy;
use redislease_core::time::Millis;

/// How many 64-bit words one system call reads.
const BLOCK: usize = 64;

/// Random numbers for pauses, read in blocks.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Random {
    block: Box<[u8; BLOCK * 8]>,
    /// How many words of the block were used.
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { block: Box::new([0; BLOCK * 8]), used: BLOCK }
    }
}

impl Random {
    /// Reads nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// 64 bits.
    ///
    /// # Errors
    /// The operating system provides no random numbers, as early in its start.
    pub fn word(&mut self) -> io::Result<u64> {
        if self.used == BLOCK {
            fill(&mut *self.block)?;
            self.used = 0;
        }
        let place = self.used * 8;
        self.used += 1;
        let mut word = [0; 8];
        word.copy_from_slice(&self.block[place..place + 8]);
        Ok(u64::from_ne_bytes(word))
    }

    /// 64 bits for a backoff; zero if the operating system provides no random numbers.
    pub fn entropy(&mut self) -> Entropy {
        Entropy(self.word().unwrap_or_default())
    }

    /// A random duration between half of `span` and `span`; `span` if the operating system provides no random numbers.
    pub fn jitter(&mut self, span: Millis) -> Millis {
        let word = self.word().unwrap_or_default();
        Millis(span.0 - word % (span.0 / 2 + 1))
    }
}

/// 128 bits for an attempt ID or a wait ticket.
///
/// # Errors
/// As [`Random::word`].
pub fn nonce() -> io::Result<u128> {
    let mut nonce = [0; 16];
    fill(&mut nonce)?;
    Ok(u128::from_ne_bytes(nonce))
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn jitter_stays_in_the_second_half() {
        let mut random = Random::new();
        for _ in 0..1000 {
            let span = random.jitter(Millis(100)).0;
            assert!((50..=100).contains(&span), "{span}");
        }
        assert_eq!(random.jitter(Millis(0)), Millis(0));
    }

    #[test]
    fn no_word_is_used_twice_over_many_blocks() {
        let mut random = Random::new();
        let words: BTreeSet<u64> = (0..10 * BLOCK).map(|_| random.word().unwrap()).collect();
        assert_eq!(words.len(), 10 * BLOCK);
    }
}
