//! What goes into the machine of a lock and what comes out of it.

use crate::backoff::{Backoff, Entropy};
use crate::lease::View;
use crate::op::{Holder, Stored};
use crate::time::{Millis, Time};

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Who holds the lock in the eyes of other programs.
    pub holder: Holder,
    /// How long it tries. Zero is one attempt.
    pub wait: Millis,
    /// The delay after each failed attempt. A delay is random between half of it and all of it.
    pub retry: Backoff,
    /// The lock ends this long after the program got it.
    pub max_hold: Option<Millis>,
    /// Nobody else gets the lock before this time has passed since the program got it.
    pub hold_at_least: Millis,
}

/// Why a lock is not valid any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// No majority confirmed it in time.
    Expired,
    /// A majority does not hold the keys any more.
    Missing,
    /// [`Request::max_hold`] has passed.
    MaxHold,
    /// The lease was closed.
    Closed,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A node holds this value, which lives until then.
    Held(Stored, Option<Time>),
    /// No majority granted it in time.
    NotGranted,
    /// It was won, and the program has not taken it in the time for which it was granted.
    NotTaken,
    /// This process makes no attempt until then, because its clock stood still.
    ClockStoodStill(Time),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The lease was closed.
    Closed,
    /// The last attempt failed, and no other one follows.
    Attempt {
        /// Why.
        last: Refusal,
        /// Whether there is no other attempt because the time of [`Request::wait`] has passed.
        timed_out: bool,
    },
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// The lease shows another view.
    Shown(&'a View),
    /// A majority has answered the release.
    Released,
    /// The lease has ended.
    Ended,
    /// The program takes the lock that was won.
    Taken,
    /// A lock on the same keys was released in this process.
    Freed,
    /// The program closes all its locks. None is valid any more, and their leases end soon.
    Closed,
    /// The program has not begun its work: [`Request::hold_at_least`] has no effect.
    Unused,
    /// The program cancels its request, or drops its lock. After a loss its work may still go on: the keys are left to their TTL.
    LetGo,
    /// The program releases its lock: its work has stopped. What is left of a lost lock is deleted too.
    Release,
    /// The program drops its lock and leaves the keys to their TTL.
    Abandon,
    /// Time passed, or a report must be considered.
    Wake {
        /// Until when this process makes no attempt, because its clock stood still.
        paused_until: Option<Time>,
        /// For the delay before the next attempt.
        entropy: Entropy,
    },
}
