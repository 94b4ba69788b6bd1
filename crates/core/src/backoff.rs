//! Delays that grow with each failure, for attempts to take a lease and other repetitions. Renewals do not use them.

use crate::time::Millis;

/// How the delay grows with the number of failed attempts in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// A burst is one attempt.
    None,
    /// `min`, twice `min`, three times `min`, …
    Linear,
    /// `min`, twice that, twice that, …
    Exponential,
}

/// The policy for the delay between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// How the delay grows.
    pub strategy: Strategy,
    /// The first delay.
    pub min: Millis,
    /// The longest delay.
    pub max: Millis,
    /// Attempts in one burst. `None` is no limit.
    pub limit: Option<u32>,
    /// Largest deviation of a delay in either direction, in percent of the delay.
    pub jitter: u32,
}

/// A random word from the caller. The same word gives the same delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entropy(pub u64);

impl Entropy {
    /// A span between zero and `longest`, both included.
    pub const fn up_to(self, longest: Millis) -> Millis {
        // The high half of the product is uniform over the range without a division's bias.
        Millis(((self.0 as u128 * (longest.0 as u128 + 1)) >> 64) as u64)
    }
}

impl Backoff {
    /// The delay doubles from `min` to `max` milliseconds, without a limit of attempts. `jitter` is in percent.
    pub const fn exponential(min: u64, max: u64, jitter: u32) -> Self {
        Self { strategy: Strategy::Exponential, min: Millis(min), max: Millis(max), limit: None, jitter }
    }

    /// A burst is one attempt, and this delay in milliseconds follows it.
    pub const fn one_attempt(delay: u64) -> Self {
        Self { strategy: Strategy::None, min: Millis(delay), max: Millis(delay), limit: None, jitter: 0 }
    }

    /// Whether a burst is over after `tries` attempts.
    pub const fn exhausted(&self, tries: u32) -> bool {
        match (self.strategy, self.limit) {
            (Strategy::None, _) => tries >= 1,
            (_, Some(limit)) => tries >= limit,
            (_, None) => false,
        }
    }

    /// The delay after `tries` failed attempts, before jitter.
    pub fn delay(&self, tries: u32) -> Millis {
        let steps = u64::from(tries.max(1));
        let delay = match self.strategy {
            Strategy::None => self.min.0,
            Strategy::Linear => self.min.0.saturating_mul(steps),
            Strategy::Exponential => {
                self.min.0.saturating_mul(1_u64.checked_shl(u32::try_from(steps - 1).unwrap_or(64)).unwrap_or(u64::MAX))
            }
        };
        Millis(delay.min(self.max.0))
    }

    /// The delay after `tries` failed attempts, with jitter.
    pub fn jittered(&self, tries: u32, entropy: Entropy) -> Millis {
        let delay = self.delay(tries);
        let reach = delay.percent(self.jitter.min(100));
        (delay + entropy.up_to(reach + reach)).saturating_sub(reach)
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy;
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn backoff(strategy: Strategy) -> Backoff {
        Backoff { strategy, min: Millis(100), max: Millis(10_000), limit: None, jitter: 10 }
    }

    #[test]
    fn delays() {
        let delays = |strategy| [1, 2, 3, 4, 50, 200].map(|tries| backoff(strategy).delay(tries).0);
        assert_eq!(delays(Strategy::None), [100; 6]);
        assert_eq!(delays(Strategy::Linear), [100, 200, 300, 400, 5000, 10_000]);
        assert_eq!(delays(Strategy::Exponential), [100, 200, 400, 800, 10_000, 10_000]);
    }

    #[test]
    fn a_burst_ends_at_its_limit() {
        let limited = Backoff { limit: Some(3), ..backoff(Strategy::Linear) };
        assert_eq!([1, 2, 3, 4].map(|tries| limited.exhausted(tries)), [false, false, true, true]);
        assert!(backoff(Strategy::None).exhausted(1), "no strategy is one try");
        assert!(!backoff(Strategy::Exponential).exhausted(u32::MAX));
    }

    #[test]
    fn the_random_word_spans_the_whole_range() {
        assert_eq!(Entropy(0).up_to(Millis(100)), Millis(0));
        assert_eq!(Entropy(u64::MAX).up_to(Millis(100)), Millis(100));
        assert_eq!(Entropy(u64::MAX / 2).up_to(Millis(100)), Millis(50));
    }

    proptest! {
        #[test]
        fn jitter_stays_within_its_percent(tries in 1..100_u32, word: u64, jitter in 0..100_u32) {
            let policy = Backoff { jitter, ..backoff(Strategy::Exponential) };
            let (plain, moved) = (policy.delay(tries), policy.jittered(tries, Entropy(word)));
            let reach = plain.percent(jitter);
            prop_assert!(moved.0 + reach.0 >= plain.0 && moved.0 <= plain.0 + reach.0);
        }
    }
}
