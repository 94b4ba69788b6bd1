//! Random words for tickets and for jitter.

use std::io;

use redislease_core::time::Millis;

/// A stream of words that no other process has (splitmix64 from 128 bits of the system).
#[derive(Debug)]
pub(crate) struct Random {
    state: [u64; 2],
}

impl Random {
    /// Seeded by the operating system.
    pub fn from_system() -> io::Result<Self> {
        let word = || getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
        Ok(Self { state: [word()?, word()?] })
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        let [word, _] = self.words();
        word
    }

    fn words(&mut self) -> [u64; 2] {
        self.state.each_mut().map(splitmix64)
    }

    /// 128 bits that were not given before.
    pub fn nonce(&mut self) -> u128 {
        let [high, low] = self.words();
        (u128::from(high) << 64) | u128::from(low)
    }

    /// Somewhere in the second half of `span`.
    pub fn jitter(&mut self, span: Millis) -> Millis {
        let [word, _] = self.words();
        Millis(span.0 - word % (span.0 / 2 + 1))
    }
}

const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_the_second_half() {
        let mut random = Random::from_system().unwrap();
        for _ in 0..1000 {
            let span = random.jitter(Millis(100)).0;
            assert!((50..=100).contains(&span), "{span}");
        }
        assert_eq!(random.jitter(Millis(0)), Millis(0));
    }

    #[test]
    fn nonces_differ() {
        let mut random = Random::from_system().unwrap();
        assert_ne!(random.nonce(), random.nonce());
    }
}
