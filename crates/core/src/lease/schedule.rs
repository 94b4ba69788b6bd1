//! For the [driver](crate::driver), which spreads the work of many leases over time: when rounds and attempts are due, and how to
//! begin them earlier or later.

use crate::lease::{Input, Lease, Round, TermId};
use crate::op::Holder;
use crate::time::{Millis, Time};

/// How long the keeper waits after a grant that came too late for the acquire, and after the grant of a join, before the round
/// of extension that proves it. A term that ends before needs no join: it costs half as much as the acquire. Nodes that grant
/// within this time share the round.
pub(crate) const JOIN_DELAY: Millis = Millis(20);

/// How long after the end of a term an attempt needs no turn.
const RELEASED: Millis = Millis(1000);

/// When the requested attempts for one lease start. An attempt needs a *turn*: a start time that the driver reserves. A
/// request that cannot start at once is dropped, and the view shows when the next one can start: the caller must then decide
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempts {
    /// The reserved turn of the next attempt.
    turn: Option<Time>,
    /// Until this time the next attempt needs no turn: the caller ended the last term with proof. Turns limit automatic
    /// repetitions only. The time is limited, because after maintenance thousands of leases that ended long ago may
    /// attempt at once.
    released_until: Time,
}

/// What becomes of a request for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// Nothing: a term runs, an attempt for the same holder is under way, or the view shows a later start.
    Dropped,
    /// The next attempt has a turn, which the view does not show yet: the driver gives [`Input::Wake`](super::Input::Wake).
    Waits,
    /// The driver gives [`Input::Want`](super::Input::Want). If [`Lease::next_attempt_at`] is not `None` after it, the
    /// attempt under way has just failed: then the driver gives [`Input::Forget`](super::Input::Forget).
    Starts,
    /// The same, and no turn was reserved for it.
    StartsWithoutTurn,
}

impl Attempts {
    /// Decides on a request. Reserves a turn if it needs one: `turn` is not before `now`.
    pub(crate) fn request(
        &mut self,
        now: Time,
        lease: &mut Lease,
        holder: &Holder,
        turn: impl FnOnce() -> Time,
    ) -> Requested {
        if lease.is_taken_for(holder) || lease.view().retry_at.is_some_and(|retry_at| retry_at > now) {
            return Requested::Dropped;
        }
        let has_turn = self.turn.take().is_some_and(|turn| turn <= now);
        // The first attempt of a new lease repeats nothing.
        let needs_turn = !has_turn && now >= self.released_until && lease.has_sent();
        if needs_turn {
            let turn = turn();
            if turn > now {
                self.turn = Some(turn);
                lease.hold(turn);
                return Requested::Waits;
            }
        }
        self.released_until = Time(0);
        lease.hold(Time(0));
        if has_turn || needs_turn { Requested::Starts } else { Requested::StartsWithoutTurn }
    }

    /// The driver calls this before each [`Input::End`](super::Input::End).
    pub(crate) fn term_ends(&mut self, now: Time, lease: &mut Lease, term: &TermId, proof: bool) {
        let runs = lease.view().standing.term().is_some_and(|running| running.id.attempt == term.attempt);
        if runs {
            // A round of this term may wait for its turn. The next attempt does not.
            lease.hold(Time(0));
        }
        self.released_until = if proof && runs { now + RELEASED } else { Time(0) };
    }
}

impl Lease {
    /// The input by which a process that took the lease for itself lets it go: its keys are deleted, or end at `keep_until`.
    /// Without a term, an attempt that is under way is released.
    pub(crate) fn letting_go(&self, keep_until: Option<Time>) -> Input {
        let running = self.view().standing.term().map(|term| term.id.clone());
        running.map_or(Input::Forget, |term| match keep_until {
            Some(until) => Input::Keep { term, until },
            None => Input::End { term, proof: true },
        })
    }

    /// Whether the machine has ever sent a request.
    fn has_sent(&self) -> bool {
        self.next_round != Round::default()
    }

    /// When the next round of extension is due. A delay by [`hold`](Self::hold) is not included. `None` if no term runs, or
    /// if a round is under way.
    pub fn next_round_at(&self) -> Option<Time> {
        self.term.as_ref().filter(|term| term.open_round().is_none()).map(|term| term.next_round_at)
    }

    /// When the requested attempt may begin, after its back-off and after the previous term. A delay by
    /// [`hold`](Self::hold) is not included. `None` if no attempt is requested, or if an attempt or a term runs.
    pub(crate) fn next_attempt_at(&self) -> Option<Time> {
        let waits = self.wanted.is_some() && self.acquiring.is_none() && self.term.is_none();
        waits.then(|| self.attempt_allowed_at())
    }

    /// Makes the next round of extension begin at `at` if it would begin later.
    pub(crate) fn renew_by(&mut self, at: Time) {
        if let Some(term) = &mut self.term {
            term.next_round_at = term.next_round_at.min(at);
        }
    }

    /// Delays the round of extension that proves a grant, of a node that granted too late for the acquire or in a join: it
    /// begins this long after the grant. Without this call it begins at once.
    pub(crate) const fn delay_joins(&mut self, delay: Millis) {
        self.join_delay = delay;
    }

    /// Lets the keys of a new term exist for at least `life`, also if its process crashes. The validity does not depend on it.
    pub(crate) const fn keep_keys_for(&mut self, life: Millis) {
        self.least_life = life;
    }

    /// Delays rounds of extension and attempts until `until`, and replaces an earlier delay. Nothing else is delayed: a
    /// term still ends at its deadline, so the driver must leave it enough time for its rounds.
    pub(crate) const fn hold(&mut self, until: Time) {
        self.held_until = until;
    }

    /// The end of the delay that [`hold`](Self::hold) set last.
    pub(crate) const fn held_until(&self) -> Time {
        self.held_until
    }
}
