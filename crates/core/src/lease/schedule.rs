//! What a driver of many leases needs in order to spread their work over time: when rounds and attempts are due, and a
//! way to begin them earlier or later.

use crate::lease::Lease;
use crate::time::Time;

impl Lease {
    /// When the next round of extension is due, without regard to [`hold`](Self::hold). `None` while a round is under
    /// way and while no term runs.
    pub fn next_round_at(&self) -> Option<Time> {
        self.term.as_ref().filter(|term| term.open_round().is_none()).map(|term| term.next_round_at)
    }

    /// When the wanted attempt may begin by its back-off and by the term before it, without regard to
    /// [`hold`](Self::hold). `None` while an attempt is under way, while a term runs, and without a want.
    pub fn next_attempt_at(&self) -> Option<Time> {
        let waits = self.wanted.is_some() && self.acquiring.is_none() && self.term.is_none();
        waits.then(|| self.attempt_allowed_at())
    }

    /// Moves the next round of extension to `at` if it would begin later. Never delays one.
    pub fn renew_by(&mut self, at: Time) {
        if let Some(term) = &mut self.term {
            term.next_round_at = term.next_round_at.min(at);
        }
    }

    /// Delays rounds of extension and attempts until `until`. Everything else goes on, deadlines included. The last call
    /// counts. The driver must leave a term enough time for its rounds.
    pub const fn hold(&mut self, until: Time) {
        self.held_until = until;
    }

    /// The instant of the last [`hold`](Self::hold).
    pub const fn held_until(&self) -> Time {
        self.held_until
    }
}
