//! Inputs and effects of a lease machine.

use alloc::boxed::Box;

use crate::backoff::Entropy;
use crate::lease::{Broken, Config, View};
use crate::op::{Attempt, Holder, Op, Token, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// The number of a group of requests. The answer carries the number of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u32);

/// One uninterrupted period in which one holder has the lease, named by attempt and token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermId {
    /// The attempt that took it.
    pub attempt: Attempt,
    /// Its fencing token.
    pub token: Token,
    /// Its holder.
    pub holder: Holder,
}

/// A request for one attempt. After a failure the driver sends another one, with a new attempt ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The holder of the term, if the attempt succeeds.
    pub holder: Holder,
    /// 128 fresh random bits.
    pub attempt: Attempt,
    /// The highest token that any status of this quorum has shown. The new token is greater.
    pub floor: Token,
    /// A random word for the delay after a failure.
    pub entropy: Entropy,
}

/// The outcome of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publication {
    /// The status names this term.
    Written,
    /// The write was not answered, and no read has shown its result. It counts as written; no process may act on the term
    /// yet.
    Unknown,
    /// The status certainly shows a lower token. The term is published again while there is time.
    NotWritten,
    /// The status shows a greater token, belongs to another resource of the same name, or is gone. This term is never
    /// published.
    Superseded,
}

/// One input of a lease machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Make an attempt. It replaces an earlier request. Ignored while a term runs.
    Want(Want),
    /// Make no attempt. An attempt that is not published is given up; a term runs on.
    Forget,
    /// Something relevant changed: do not wait for the back-off, or for the next round after one that failed.
    TryNow,
    /// Continue this term, which the status names and calls active. Ignored while a term runs.
    Adopt(TermId),
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
        /// The term.
        term: TermId,
        /// Whether its holder is proven to have stopped. Then the keys are released at once, otherwise sealed.
        proof: bool,
    },
    /// End a term whose holder has stopped, but let no other term begin before `until`: its keys are sealed, and end then.
    Keep {
        /// The term.
        term: TermId,
        /// When the keys end.
        until: Time,
    },
    /// The answer to one [`Effect::Send`]. Each has exactly one, at its `give_up_at` at the latest.
    Vote {
        /// The round of the request.
        round: Round,
        /// The node that was asked.
        node: Node,
        /// Its answer.
        vote: Vote,
    },
    /// The outcome of [`Effect::Publish`] for this attempt.
    Published {
        /// The attempt.
        attempt: Attempt,
        /// The outcome.
        outcome: Publication,
    },
    /// A node that did not vote votes again, and what it holds is unknown. The next round of extension begins at `ask_by`
    /// at the latest and asks the node; if it does not hold the term, it is joined. A driver of many leases spreads these
    /// rounds over time. Ignored if neither a term nor an attempt is under way, and after a round that failed: its retry
    /// asks every node, and comes soon.
    NodeReturned {
        /// Latest start of the next round.
        ask_by: Time,
    },
    /// The clock of this process may have stood still: see [`judge::Effect::Void`](crate::judge::Effect::Void). What began before
    /// is void: an attempt and a publication end, and a term is held again only after a round that begins now. The driver lets
    /// no attempt begin for one longest lease.
    ClockJumped,
    /// Use this configuration from the next round on. `deadline` counts at once; `quorum` is ignored.
    Configure(Config),
    /// Time passed.
    Wake,
}

/// The outcome of one round of extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// A majority extended.
    Success {
        /// Time from the start of the round to the deciding answer.
        took: Millis,
        /// Validity that was left when the round succeeded.
        left: Millis,
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
pub enum Effect {
    /// Send one request to one node.
    Send {
        /// The round that the answer must carry.
        round: Round,
        /// The node.
        node: Node,
        /// The request.
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
