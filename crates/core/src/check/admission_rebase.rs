//! An admission machine in a canonical form, for checkers that compare states.

use crate::admission::{Admission, Standing};
use crate::time::Time;

impl Admission {
    /// Moves the machine so that `now` becomes `origin`. Instants that only matter by whether they have come become one
    /// when they have. What only matters after a step of the node's clock is dropped.
    ///
    /// All effects must have been polled and all observes answered, and no clock may step.
    pub fn rebase(&mut self, now: Time, origin: Time) {
        let due = |instant: &mut Time| *instant = origin + instant.since(now);
        if let Some(wait) = &mut self.wait {
            // It does not matter by how much a wait is longer than the longest.
            let longest = self.config.drift.most(self.config.longest_lease);
            let seen_for = now.since(wait.since).min(longest);
            wait.since = origin - seen_for;
        }
        if let Standing::Quarantined { until } = &mut self.standing {
            due(until);
        }
        due(&mut self.look_again);
        self.last_marker = None;
        self.nonce = 0;
    }
}
