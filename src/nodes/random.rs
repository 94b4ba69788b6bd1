//! Random words from the operating system.
//!
//! Attempt ids and wait tickets must not be predictable from what a status shows, so no generator of our own is
//! between them and the system. Words are read in blocks: a mass start draws thousands of ids.

use std::io;

#[cfg(feature = "operator")]
use redislease_core::backoff::Entropy;
use redislease_core::time::Millis;

/// How many words one system call reads.
const BLOCK: usize = 64;

/// A source of random words.
#[derive(Debug)]
pub(crate) struct Random {
    block: Box<[u8; BLOCK * 8]>,
    /// How many words of the block were given away.
    used: usize,
}

impl Random {
    pub fn new() -> Self {
        Self { block: Box::new([0; BLOCK * 8]), used: BLOCK }
    }

    /// 64 bits.
    ///
    /// # Errors
    /// When the system has no random words, as early in its start.
    pub fn word(&mut self) -> io::Result<u64> {
        if self.used == BLOCK {
            getrandom::fill(&mut *self.block).map_err(|error| io::Error::other(error.to_string()))?;
            self.used = 0;
        }
        let place = self.used * 8;
        self.used += 1;
        let mut word = [0; 8];
        word.copy_from_slice(&self.block[place..place + 8]);
        // A memory dump shows no word that is in use.
        self.block[place..place + 8].fill(0);
        Ok(u64::from_ne_bytes(word))
    }

    /// 128 bits.
    ///
    /// # Errors
    /// As [`word`](Self::word).
    pub fn nonce(&mut self) -> io::Result<u128> {
        Ok((u128::from(self.word()?) << 64) | u128::from(self.word()?))
    }

    /// 64 bits for a back-off; zero when the system has no random words.
    #[cfg(feature = "operator")]
    pub fn entropy(&mut self) -> Entropy {
        Entropy(self.word().unwrap_or_default())
    }

    /// Between half of `span` and all of it; all of it when the system has no random words.
    pub fn jitter(&mut self, span: Millis) -> Millis {
        let word = self.word().unwrap_or_default();
        Millis(span.0 - word % (span.0 / 2 + 1))
    }
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
    fn no_word_is_given_twice_over_many_blocks() {
        let mut random = Random::new();
        let words: BTreeSet<u64> = (0..10 * BLOCK).map(|_| random.word().unwrap()).collect();
        assert_eq!(words.len(), 10 * BLOCK);
        assert!(random.block.iter().all(|byte| *byte == 0), "every word was given away");
    }
}
