//! The state of a lease machine as other modules read it.

use alloc::boxed::Box;

use crate::op::{Attempt, Holder, Stored, Token};
use crate::time::Time;

/// Why a term ended or is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// By decision: [`Command::End`](super::Command::End).
    Decided,
    /// N-q+1 nodes do not hold the term.
    Misses,
    /// No majority extended it in time.
    Deadline,
    /// No majority confirmed a term that was adopted, or that became unconfirmed.
    NeverConfirmed,
    /// The status names a later term, or the resource was deleted or created again.
    Superseded,
    /// The machine broke one of its invariants while it ran the term.
    Defect,
}

/// One uninterrupted period in which one holder has the lease, named by attempt and token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermId {
    /// The attempt that took it.
    pub attempt: Attempt,
    /// Its fencing token.
    pub token: Token,
    /// Who holds the lease, as text.
    pub holder: Holder,
}

/// A running term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermView {
    /// Attempt, token and holder, also while no majority has confirmed them.
    pub id: TermId,
    /// The end of validity: from then on another process may acquire the lease. `None` while the term is unconfirmed.
    pub valid_until: Option<Time>,
    /// The deadline of this process, one stop budget before `valid_until`. Then it ends the term or calls it unconfirmed,
    /// as [`OnDeadline`](super::OnDeadline) says.
    pub stop_at: Option<Time>,
    /// Rounds that failed since the last success.
    pub failed_rounds: u32,
}

/// A term that this process has ended and whose keys may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndingView {
    /// Attempt, token and holder of the ended term.
    pub id: TermId,
    /// Why it ends.
    pub reason: EndReason,
    /// Whether the seal is effective: no process can extend the term.
    pub sealed: bool,
    /// When the last of its keys has ended at the latest.
    pub keys_until: Time,
}

/// The state of a lease in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// No term runs and no attempt is under way.
    #[default]
    Idle,
    /// An attempt is under way.
    Acquiring(Attempt, Holder),
    /// A majority confirmed the term. It is not yet certain whether the status names it.
    Publishing(TermView),
    /// A majority confirmed the term, and the status names it.
    Held(TermView),
    /// The status names the term. No majority has confirmed it to this process, or none has since the last deadline.
    Adopting(TermView),
    /// The same as `Adopting`, and it has lasted longer than one renewal interval: the term is shown as unconfirmed.
    Uncertain(TermView),
}

impl Standing {
    /// The running term, if there is one.
    pub const fn term(&self) -> Option<&TermView> {
        match self {
            Self::Publishing(term) | Self::Held(term) | Self::Adopting(term) | Self::Uncertain(term) => Some(term),
            Self::Idle | Self::Acquiring(..) => None,
        }
    }
}

/// The answer to an attempt that others hold the lease: `N-q+1` nodes, without which there is no majority, show one confirmed
/// term. Its value is [`View::refused_by`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// When the attempt was sent.
    pub asked_at: Time,
    /// When a majority of the nodes can be free of that term, unless it is extended.
    pub until: Time,
}

/// The whole state of a lease machine that other modules read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// The running term or attempt.
    pub standing: Standing,
    /// The previous term, while its keys may still exist.
    pub ending: Option<Box<EndingView>>,
    /// The earliest start of the next attempt. `None` while a term or an attempt runs.
    pub retry_at: Option<Time>,
    /// The value that refused the last attempt. If several terms refused it, the one whose keys last longest. After a later
    /// [`Command::ReadKeys`](super::Command::ReadKeys), the term that most nodes have shown.
    pub refused_by: Option<Box<Stored>>,
    /// Whether [`View::refused_by`] is known: an attempt was answered, or a [`Command::ReadKeys`](super::Command::ReadKeys).
    pub keys_read: bool,
    /// Set if enough nodes to prevent a majority show the confirmed term of [`View::refused_by`].
    pub refusal: Option<Refusal>,
}
