//! For the [driver](crate::driver), which spreads the work of many leases over time: when rounds and attempts are due, and how to
//! begin them earlier or later.

use super::Lease;
use crate::lease::OnDeadline;
use crate::lease::term::Term;
use crate::op::Holder;
use crate::time::{Millis, Time};

impl Lease {
    /// Whether an attempt for `holder` is under way or waits for its start, or a term of any holder runs.
    pub fn is_taken_for(&self, holder: &Holder) -> bool {
        let wanted = self.acquiring.as_ref().map(|acquiring| &acquiring.want).or(self.wanted.as_deref());
        self.term.is_some() || wanted.is_some_and(|want| want.holder == *holder)
    }

    /// What to do with a term that this process cannot keep, from now on. Call it before an input if the right to end terms
    /// depends on the time: a process that was paused may have lost it.
    pub const fn set_on_deadline(&mut self, deadline: OnDeadline) {
        self.context.config.deadline = deadline;
    }

    /// Whether the machine has ever sent a request, reads of the keys apart.
    pub(crate) const fn has_sent(&self) -> bool {
        self.context.next_round.0 != self.context.reads
    }

    /// When the next round of extension is due. A delay by `hold` is not included. `None` if no term runs, or
    /// if a round is under way.
    pub fn next_round_at(&self) -> Option<Time> {
        self.term.as_ref().and_then(Term::next_round_at)
    }

    /// Makes the next round of extension begin at `at` if it would begin later.
    pub(crate) fn renew_by(&mut self, at: Time) {
        if let Some(term) = &mut self.term {
            term.renew_by(at);
        }
    }

    /// Delays the round of extension that proves a grant, of a node that granted too late for the acquire or in a join: it
    /// begins this long after the grant. Without this call it begins at once.
    pub(crate) const fn delay_joins(&mut self, delay: Millis) {
        self.context.join_delay = delay;
    }

    /// Delays rounds of extension and attempts until `until`, and replaces an earlier delay. Nothing else is delayed: a
    /// term still ends at its deadline, so the driver must leave it enough time for its rounds.
    pub(crate) const fn hold(&mut self, until: Time) {
        self.context.held_until = until;
    }

    /// The end of the delay that [`hold`](Self::hold) set last.
    pub(crate) const fn held_until(&self) -> Time {
        self.context.held_until
    }
}
