//! Commands, inputs and effects of a lease machine.

use alloc::boxed::Box;

use crate::backoff::Entropy;
use crate::invariants::Violation;
use crate::lease::config::Config;
use crate::lease::view::{TermId, View};
use crate::op::{Attempt, Holder, Op, Token, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// The number of a group of requests. The answer carries the number of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u32);

/// The outcome of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publication {
    /// The status names this term.
    Written,
    /// The write was not answered, and no read has shown its result. It counts as written; no process may act on the term
    /// yet. If a read shows a lower token, the caller writes again while the term stands.
    Unknown,
    /// The status shows a greater token, belongs to another resource of the same name, or is gone. This term is never
    /// published.
    Superseded,
}

/// A command for one lease. The [driver](crate::driver) decides when attempts and rounds begin because of it, and the lease does
/// the rest. A lease that has ended ignores all commands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Command {
    /// Make one attempt for this holder, if it can start at once. Ignored before [`View::retry_at`],
    /// during an attempt for the same holder, and while a term runs: a request is not queued, because its reason may not hold
    /// any more later. After an outage, when many leases make requests, `retry_at` moves to the lease's reserved time. After a
    /// failure, a loss or an end, the caller commands again at `retry_at`.
    Want(Holder),
    /// Make no attempt. An attempt that is not published is released; a term runs on.
    Forget,
    /// Read who holds the keys, which changes nothing on the nodes: [`View::refused_by`] shows the answer of a majority. Ignored
    /// while a term runs or an attempt is under way: these know more.
    ReadKeys,
    /// Continue a term that the status names as active. Ignored while a term runs.
    Adopt(TermId),
    /// The same for a term that this process has dropped because it could not confirm it for a whole lease. If no majority answers
    /// the first round in which this process may end the term, it ends at once.
    AdoptOverrun(TermId),
    /// The status says that the term of this attempt is not confirmed, so that a process that can confirm it may
    /// contradict. An unconfirmed term is not given up before that. Ignored unless it is [`Standing::Uncertain`].
    ///
    /// [`Standing::Uncertain`]: super::Standing::Uncertain
    UnconfirmedShown(Attempt),
    /// The status calls the term of this attempt active again, although this process had said there that it cannot
    /// confirm it: another process has confirmed it. Ignored unless the term is being adopted.
    KeptElsewhere(Attempt),
    /// End a term by decision; also one that only the status knows.
    End {
        term: TermId,
        /// Whether its holder is proven to have stopped. Then the keys are released at once, otherwise sealed.
        proof: bool,
    },
    /// The outcome of [`Effect::Publish`] for this attempt.
    Published { attempt: Attempt, outcome: Publication },
    /// Something relevant changed: the next attempt skips its back-off, which changes `retry_at`, and a failed renewal is
    /// retried at once.
    TryNow,
    /// Begin a round of extension now, which shows whether a majority still holds the term.
    Prove,
    /// Use this configuration from the next round on. `deadline` counts at once; `quorum` is ignored.
    Configure(Box<Config>),
    /// Let the keys of a new term exist for at least this long, also if this process crashes: at most the longest lease of the
    /// quorum.
    KeepKeysFor(Millis),
    /// End when the last key has expired. The caller must end a running term first: otherwise it is renewed indefinitely.
    Retire,
    /// Delete the keys of the running term or attempt, or of the term that was lost, and close. For a process that took the
    /// lease for itself, when its work has stopped. A node that does not answer within the command timeout is not asked again: its keys expire.
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
    /// The token to propose: see [`Proposals`](crate::driver::Proposals).
    pub proposal: Option<Token>,
}

/// One input of a lease machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Input {
    /// A command. [`Command::Want`] makes an attempt if what it needs is there, and replaces an earlier request.
    Command(Command, Option<Fresh>),
    /// The answer to one [`Effect::Send`]. Each has exactly one, at its `give_up_at` at the latest.
    Vote { round: Round, node: Node, vote: Vote },
    /// A node that did not vote votes again, and what it holds is unknown. The next round of extension begins at `ask_by`
    /// at the latest and asks the node; if it does not hold the term, it is joined. A driver of many leases spreads these
    /// rounds over time. Ignored if neither a term nor an attempt is under way, and after a round that failed: its retry
    /// asks every node, and comes soon.
    NodeReturned { ask_by: Time },
    /// The clock of this process may have stood still: see [`judge::Effect::Void`](crate::judge::Effect::Void). What began before
    /// is void: an attempt and a publication end, and a term is held again only after a round that begins now. The driver lets
    /// no attempt begin for one longest lease.
    ClockJumped,
    /// Time passed.
    Wake,
}

impl From<Command> for Input {
    fn from(command: Command) -> Self {
        Self::Command(command, None)
    }
}

/// The outcome of one round of extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// A majority extended.
    Success {
        /// Time from the start of the round to the deciding answer.
        took: Millis,
        /// What was left of the validity before this round when it succeeded. `None` for a term that was not known to be
        /// valid: after a restart, or after its validity had passed.
        left: Option<Millis>,
    },
    /// Every node answered or failed, and no majority extended.
    NoQuorum,
    /// The time for the round ended without a majority.
    Timeout,
    /// N-q+1 nodes do not hold the term: it is lost.
    Lost,
}

/// One thing to do. Effects are carried out in the order in which they are polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Effect {
    /// Send one request to one node.
    Send {
        /// The round that the answer must carry.
        round: Round,
        node: Node,
        op: Op,
        /// After this instant the node must not execute the request any more, and the answer is [`Vote::Unknown`].
        give_up_at: Time,
    },
    /// Write the term into the status, if its token is greater than the status's. From here on it counts as written.
    Publish(TermId),
    /// A round of extension ended.
    Renewed(Renewal),
    /// The view changed. A change that ends validity comes before any new [`Effect::Send`].
    Changed(View),
    /// The machine broke an invariant, which is a defect to report. It has started over; the changed view follows.
    Broken(Box<Broken>),
}

/// A broken invariant, and the view that broke it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Broken {
    pub violation: Violation,
    pub view: View,
}
