//! Inputs and effects of a driver.

use crate::lease::{self, Command, Fresh, Round};
use crate::op::Vote;
use crate::quorum::Node;

/// One input of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Input {
    /// A command. [`Command::Want`] comes with what the attempt needs, unless no random numbers can be had: then the view is
    /// shown again, so that the caller does not wait in vain.
    Command(Command, Option<Fresh>),
    /// The answer to one [`lease::Effect::Send`].
    Vote { round: Round, node: Node, vote: Vote },
    /// A node votes again and may not hold the term: the next round, which asks it, gets a turn that may come before the next
    /// renewal.
    NodeReturned,
    /// A majority of the nodes votes again: see `Driver::recovers`.
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
