//! When a request that was refused tries again.

use std::time::Duration;

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::time::Millis;

/// When a request that was refused tries again, see [`Request::retry`](crate::Request::retry).
///
/// A delay is random between half of the stated one and the stated one, so that two programs that collided do not collide again.
/// A request tries again before the delay has passed if the keys of the holder expire before, or if a guard of the same
/// [`Locker`](crate::Locker) releases them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// One attempt.
    None,
    /// The same delay after each attempt.
    Constant(Duration),
    /// One `step` after the first attempt, two after the second, and so on, and at most `max`.
    Linear {
        /// The delay after the first attempt.
        step: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// `first` after the first attempt, then twice as long each time, and at most `max`.
    Exponential {
        /// The delay after the first attempt.
        first: Duration,
        /// The longest delay.
        max: Duration,
    },
}

impl Default for Retry {
    /// Exponential, from 10 ms to 250 ms.
    fn default() -> Self {
        Self::Exponential { first: Duration::from_millis(10), max: Duration::from_millis(250) }
    }
}

impl Retry {
    /// The same for the machine of the lock.
    pub(crate) fn backoff(self) -> Backoff {
        let (strategy, min, max) = match self {
            Self::None => (Strategy::None, Duration::ZERO, Duration::ZERO),
            Self::Constant(delay) => (Strategy::Linear, delay, delay),
            Self::Linear { step, max } => (Strategy::Linear, step, max),
            Self::Exponential { first, max } => (Strategy::Exponential, first, max),
        };
        Backoff { strategy, min: Millis::from(min), max: Millis::from(max), limit: None, jitter: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays() {
        let (ms, max) = (Duration::from_millis, Duration::from_millis(45));
        let delays = |retry: Retry| {
            let backoff = retry.backoff();
            [1, 2, 3, 4, 200].map(|attempts| (!backoff.exhausted(attempts)).then(|| backoff.delay(attempts).into()))
        };
        assert_eq!(delays(Retry::None), [None; 5]);
        assert_eq!(delays(Retry::Constant(max)), [Some(max); 5]);
        let linear = Retry::Linear { step: ms(20), max };
        assert_eq!(delays(linear), [20, 40, 45, 45, 45].map(|delay| Some(ms(delay))));
        let exponential = Retry::Exponential { first: ms(10), max };
        assert_eq!(delays(exponential), [10, 20, 40, 45, 45].map(|delay| Some(ms(delay))));
    }
}
