//! The same admission seen from another origin of time, for checkers that compare states.

use crate::admission::{Admission, Standing};
use crate::time::Time;

impl Admission {
    /// Moves the machine so that `now` becomes `origin`. Of what is only asked whether it has come, all that has is one;
    /// what only the next step of the node's clock would ask for is forgotten.
    ///
    /// It is meant for a machine whose effects are all polled and observes all answered, in a world without such steps.
    pub fn rebase(&mut self, now: Time, origin: Time) {
        let due = |instant: &mut Time| *instant = origin + instant.since(now);
        if let Some(wait) = &mut self.wait {
            // A ticket seen for longer than any wait is seen for as long as the longest.
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
