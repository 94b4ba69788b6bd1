//! When a request that was refused tries again.

use std::time::Duration;

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::time::Millis;

/// When a request that was refused tries again, see [`Request::retry`](crate::Request::retry).
///
/// A delay is random between half of the stated one and the stated one, so that two programs that collided do not collide again. The
/// shortest one is 1 ms.
/// A request tries again before the delay has passed if the keys of the holder expire before, or if a guard of the same
/// [`Locker`](crate::Locker) releases one of its keys at once and the present delay of this request began first.
///
/// The time is limited by [`Request::wait`](crate::Request::wait), the number of attempts by [`Request::attempts`](crate::Request::attempts).
///
/// ```
/// # use std::time::Duration;
/// # use redislease_locker::{Locker, Retry};
/// # let locker = Locker::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"]).build()?;
/// let retry = Retry::Exponential { first: Duration::from_millis(20), max: Duration::from_secs(1) };
/// let request = locker.lock("report").wait(Duration::from_secs(10)).retry(retry);
/// assert!(request.check().is_ok());
/// # Ok::<(), redislease_locker::InvalidConfig>(())
/// ```
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
        // A delay of zero would make as many attempts as the connection carries, and would never grow.
        let [min, max] = [min, max].map(|delay| Millis::from(delay).max(Millis(1)));
        Backoff { strategy, min, max, limit: None, jitter: 0 }
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
        let none = Retry::Exponential { first: ms(0), max };
        assert_eq!(delays(none), [1, 2, 4, 8, 45].map(|delay| Some(ms(delay))), "it grows");
        assert_eq!(delays(Retry::Constant(ms(0))), [Some(ms(1)); 5]);
    }
}
