//! The canonical form of an admission machine, for checkers that compare states.

use crate::admission::{Admission, Standing};
use crate::time::Time;

impl Admission {
    /// Moves the machine so that `now` becomes `origin`. All past instants of which the machine only asks whether they have
    /// passed become `origin`.
    ///
    /// All effects must have been polled, and all observes answered.
    pub fn rebase(&mut self, now: Time, origin: Time) {
        let due = |instant: &mut Time| *instant = origin + instant.since(now);
        if let Some(wait) = &mut self.wait {
            // The machine only asks whether the wait has lasted for the longest lease.
            let longest = self.config.drift.most(self.config.longest_lease);
            let seen_for = now.since(wait.since).min(longest);
            wait.since = origin - seen_for;
        }
        if let Standing::Quarantined { until } = &mut self.standing {
            due(until);
        }
        due(&mut self.look_again);
    }
}
