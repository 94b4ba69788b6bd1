//! How long the API server is left alone after it did not take something.

use redislease_core::time::{Millis, Time};

use crate::operator::kube_api::CallError;

/// The first pause, doubled with every failure.
const PAUSE: Millis = Millis(200);
/// The longest.
const PAUSE_MOST: Millis = Millis(2000);

/// The failures of one kind of write since the last that was taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Quiet {
    failures: u32,
    conflicted: bool,
    again_at: Option<Time>,
}

impl Quiet {
    /// Whether the last write was taken, or none was tried yet.
    pub const fn is_calm(&self) -> bool {
        self.again_at.is_none()
    }

    /// Whether a write may be tried.
    pub fn is_over(&self, now: Time) -> bool {
        self.again_at.is_none_or(|at| at <= now)
    }

    /// When a write is to be tried again.
    pub const fn again_at(&self) -> Option<Time> {
        self.again_at
    }

    /// Takes note of what became of a write. The pause, when there is to be one.
    ///
    /// A conflict is no failure: somebody else wrote meanwhile, and everything is decided anew at once. One after the
    /// other is no race: an admission webhook may refuse with the same code.
    pub fn note(&mut self, outcome: &Result<(), CallError>, now: Time) -> Option<Millis> {
        match outcome {
            Ok(()) => {
                *self = Self::default();
                None
            }
            Err(CallError::Conflict) if !self.conflicted => {
                self.conflicted = true;
                self.again_at = Some(now);
                None
            }
            Err(_) => {
                let pause = Millis((PAUSE.0 << self.failures.min(10)).min(PAUSE_MOST.0));
                self.failures = self.failures.saturating_add(1);
                self.again_at = Some(now + pause);
                Some(pause)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    #[test]
    fn the_pause_doubles_and_ends_with_what_is_taken() {
        let mut quiet = Quiet::default();
        let refused = || Err(CallError::Refused("no".into()));
        let pauses: Vec<_> = (0..6).map(|_| quiet.note(&refused(), NOW).unwrap().0).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 2000, 2000]);
        assert!(!quiet.is_over(NOW + Millis(1999)) && quiet.is_over(NOW + Millis(2000)));
        assert!(!quiet.is_calm());
        assert_eq!(quiet.note(&Ok(()), NOW), None);
        assert!(quiet.is_calm() && quiet.is_over(NOW));
        assert_eq!(quiet.note(&refused(), NOW), Some(Millis(200)));
    }

    #[test]
    fn a_second_conflict_in_a_row_is_a_failure() {
        let mut quiet = Quiet::default();
        assert_eq!(quiet.note(&Err(CallError::Conflict), NOW), None);
        assert!(quiet.is_over(NOW) && !quiet.is_calm(), "decided anew at once");
        assert_eq!(quiet.note(&Err(CallError::Conflict), NOW), Some(Millis(200)));
        assert_eq!(quiet.note(&Err(CallError::Conflict), NOW), Some(Millis(400)));
        assert_eq!(quiet.note(&Ok(()), NOW), None);
        assert_eq!(quiet.note(&Err(CallError::Conflict), NOW), None);
    }
}
