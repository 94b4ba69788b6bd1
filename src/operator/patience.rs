//! How long what failed is left alone before it is tried again.

use std::time::Duration;

/// The pause after a failure: doubled up to its most, and short again after an answer. The library's own lets half a
/// minute pass, and a failover would wait for it; and it takes the announcement of a new list for an answer.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    const FIRST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(3);

    /// The pause, and whether this is the first failure since an answer.
    pub fn failed(&mut self) -> (Duration, bool) {
        let pause = (Self::FIRST * (1 << self.failures.min(8))).min(Self::MOST);
        self.failures = self.failures.saturating_add(1);
        (pause, self.failures == 1)
    }

    /// Whether there had been failures.
    pub const fn answered(&mut self) -> bool {
        let recovered = self.failures > 0;
        self.failures = 0;
        recovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_there_is_an_answer() {
        let mut patience = Patience::default();
        assert!(!patience.answered());
        let (pauses, first): (Vec<u128>, Vec<bool>) =
            (0..7).map(|_| patience.failed()).map(|(pause, first)| (pause.as_millis(), first)).unzip();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(first, [true, false, false, false, false, false, false]);
        assert!(patience.answered());
        assert_eq!(patience.failed(), (Duration::from_millis(100), true));
    }
}
