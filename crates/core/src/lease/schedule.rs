//! For a driver of many leases that spreads their work over time: when rounds and attempts are due, and how to begin them
//! earlier or later.

use crate::lease::Lease;
use crate::time::{Millis, Time};

/// How long the keeper waits after a grant that came too late for the acquire, and after the grant of a join, before the round
/// of extension that proves it. A term that ends before needs no join: it costs half as much as the acquire. Nodes that grant
/// within this time share the round.
pub const JOIN_DELAY: Millis = Millis(20);

impl Lease {
    /// When the next round of extension is due. A delay by [`hold`](Self::hold) is not included. `None` if no term runs, or
    /// if a round is under way.
    pub fn next_round_at(&self) -> Option<Time> {
        self.term.as_ref().filter(|term| term.open_round().is_none()).map(|term| term.next_round_at)
    }

    /// When the requested attempt may begin, after its back-off and after the previous term. A delay by
    /// [`hold`](Self::hold) is not included. `None` if no attempt is requested, or if an attempt or a term runs.
    pub fn next_attempt_at(&self) -> Option<Time> {
        let waits = self.wanted.is_some() && self.acquiring.is_none() && self.term.is_none();
        waits.then(|| self.attempt_allowed_at())
    }

    /// Makes the next round of extension begin at `at` if it would begin later.
    pub fn renew_by(&mut self, at: Time) {
        if let Some(term) = &mut self.term {
            term.next_round_at = term.next_round_at.min(at);
        }
    }

    /// Delays the round of extension that proves a grant, of a node that granted too late for the acquire or in a join: it
    /// begins this long after the grant. Without this call it begins at once.
    pub const fn delay_joins(&mut self, delay: Millis) {
        self.join_delay = delay;
    }

    /// Delays rounds of extension and attempts until `until`, and replaces an earlier delay. Nothing else is delayed: a
    /// term still ends at its deadline, so the driver must leave it enough time for its rounds.
    pub const fn hold(&mut self, until: Time) {
        self.held_until = until;
    }

    /// The end of the delay that [`hold`](Self::hold) set last.
    pub const fn held_until(&self) -> Time {
        self.held_until
    }
}
