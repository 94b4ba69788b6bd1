//! What is known about the last failures of a job.

use redislease_core::time::{Millis, Time};

use super::submission::Priority;

/// How long a refusal counts after its pause.
pub(super) const REFUSAL_KEPT: Millis = Millis(10_000);
/// The same for a call without an answer: longer than the pause between two reads of a secret.
const UNANSWERED_KEPT: Millis = Millis(60_000);

/// The last failures of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub failures: u32,
    pub races: u32,
    pub priority: Priority,
    pub until: Time,
    /// If there was no answer: how many calls had been answered before, and whether the object is the reason.
    pub unanswered: Option<(u64, bool)>,
}

impl Refusal {
    /// A failure without a pause.
    pub const fn of(priority: Priority, now: Time) -> Self {
        Self { failures: 0, races: 0, priority, until: now, unanswered: None }
    }

    pub fn counts(&self, now: Time) -> bool {
        now < self.until + if self.unanswered.is_some() { UNANSWERED_KEPT } else { REFUSAL_KEPT }
    }
}
