//! Commands, inputs and effects of a driver.

use alloc::boxed::Box;

use crate::backoff::Entropy;
use crate::lease::{self, Config, Publication, Round, TermId};
use crate::op::{Attempt, Holder, Token, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// A command for one lease. A lease that has ended ignores all commands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Make one attempt for this holder, if it can start at once. Ignored before [`View::retry_at`](lease::View::retry_at),
    /// during an attempt for the same holder, and while a term runs: a request is not queued, because its reason may not hold
    /// any more later. After an outage, when many leases make requests, `retry_at` moves to the lease's reserved time. After a
    /// failure, a loss or an end, the caller commands again at `retry_at`.
    Want(Holder),
    /// Make no attempt. An attempt under way is released.
    Forget,
    /// Continue a term that the status names as active.
    Adopt(TermId),
    /// The status calls the term of this attempt unconfirmed.
    UnconfirmedShown(Attempt),
    /// The status calls the term of this attempt active again, after this process had written there that it cannot confirm the
    /// term: another process holds it.
    KeptElsewhere(Attempt),
    /// End a term.
    End {
        /// The term.
        term: TermId,
        /// Whether its holder is proven to have stopped: then its keys are released at once.
        proof: bool,
    },
    /// The outcome of publishing an attempt.
    Published {
        /// The attempt.
        attempt: Attempt,
        /// The outcome.
        outcome: Publication,
    },
    /// Something relevant changed: the next attempt skips its back-off, which changes `retry_at`, and a failed renewal is
    /// retried at once.
    TryNow,
    /// Begin a round of extension now, which shows whether a majority still holds the term.
    Prove,
    /// Use these durations from the next round on.
    Configure(Box<Config>),
    /// Let the keys of a new term exist for at least this long, also if this process crashes: at most the longest lease of the
    /// quorum.
    KeepKeysFor(Millis),
    /// End when the last key has expired. The caller must end a running term first: otherwise it is renewed indefinitely.
    Retire,
    /// Delete the keys of the running term or attempt, and close. For a process that took the lease for itself, when its work
    /// has stopped. A node that does not answer within the command timeout is not asked again: its keys expire.
    Release {
        /// Let the keys of a running term end at this time, at most one longest lease from now: no other term begins before.
        keep_until: Option<Time>,
    },
    /// Stop now without ending a term: one that is published, or being published, is left for another process. An earlier
    /// attempt is released.
    Close,
}

/// What an attempt needs from outside the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fresh {
    /// 128 fresh random bits.
    pub attempt: Attempt,
    /// A random word for the delay after a failure.
    pub entropy: Entropy,
    /// The highest token that any status of this quorum has shown.
    pub floor: Token,
    /// When the clock of this process jumped last.
    pub jumped_at: Option<Time>,
}

/// One input of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A command. [`Command::Want`] comes with what the attempt needs, unless no random numbers can be had: then the view is
    /// shown again, so that the caller does not wait in vain.
    Command(Command, Option<Fresh>),
    /// The answer to one [`lease::Effect::Send`].
    Vote {
        /// The round of the request.
        round: Round,
        /// The node that was asked.
        node: Node,
        /// Its answer.
        vote: Vote,
    },
    /// A node votes again and may not hold the term: the next round, which asks it, gets a turn that may come before the next
    /// renewal.
    NodeReturned,
    /// A majority of the nodes votes again: see [`Driver::recovers`](super::Driver::recovers).
    MajorityReturned,
    /// See [`lease::Input::ClockJumped`].
    ClockJumped,
    /// Time passed.
    Wake,
}

/// One thing to do. Effects are carried out in the order in which they are polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    clippy::large_enum_variant,
    reason = "almost all effects are large, and a box would be an allocation for each request"
)]
pub enum Effect {
    /// An effect of the lease.
    Lease(lease::Effect),
    /// A majority of the nodes has deleted the keys after [`Command::Release`], or set their end.
    Released,
    /// The lease retired, or was closed and needs no more answers. This is the last effect: the driver can be dropped.
    Ended,
}
