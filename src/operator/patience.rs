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

    /// So many failures are said once.
    const SAID_EVERY: u32 = 16;

    /// The pause, and whether the failure is worth saying: the first since an answer, and then about one in a minute.
    pub fn failed(&mut self) -> (Duration, bool) {
        let pause = (Self::FIRST * (1 << self.failures.min(8))).min(Self::MOST);
        let said = self.failures.is_multiple_of(Self::SAID_EVERY);
        self.failures = self.failures.wrapping_add(1);
        (pause, said)
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
        let failed: Vec<(u128, bool)> =
            (0..20).map(|_| patience.failed()).map(|(pause, said)| (pause.as_millis(), said)).collect();
        let pauses: Vec<u128> = failed.iter().take(7).map(|(pause, _)| *pause).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3000, 3000]);
        let said: Vec<usize> = failed.iter().enumerate().filter(|(_, (_, said))| *said).map(|(at, _)| at).collect();
        assert_eq!(said, [0, 16]);
        assert!(patience.answered());
        assert_eq!(patience.failed(), (Duration::from_millis(100), true));
    }
}
