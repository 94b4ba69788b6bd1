//! When the attempts for one lease start.

use crate::lease::{Lease, TermId};
use crate::op::Holder;
use crate::time::{Millis, Time};

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
    /// The next attempt has a turn, which the view does not show yet: the driver gives [`Input::Wake`](crate::lease::Input::Wake).
    Waits,
    /// The driver gives [`Command::Want`]. If [`Lease::next_attempt_at`] is not `None` after it, the
    /// attempt under way has just failed: then the driver gives [`Command::Forget`].
    Starts,
    /// The same, and no turn was reserved for it.
    StartsWithoutTurn,
}

impl Attempts {
    /// Decides on a request. Reserves a turn if it needs one: `turn` is not before `now`.
    pub fn request(&mut self, now: Time, lease: &mut Lease, holder: &Holder, turn: impl FnOnce() -> Time) -> Requested {
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

    /// The driver calls this before each [`Command::End`].
    pub fn term_ends(&mut self, now: Time, lease: &mut Lease, term: &TermId, proof: bool) {
        let runs = lease.view().standing.term().is_some_and(|running| running.id.attempt == term.attempt);
        if runs {
            // A round of this term may wait for its turn. The next attempt does not.
            lease.hold(Time(0));
        }
        self.released_until = if proof && runs { now + RELEASED } else { Time(0) };
    }
}
