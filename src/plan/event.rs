//! What a reconciler is told.

use std::sync::Arc;

use redislease_core::lease::View;

use super::facts::Facts;
use crate::api::RedisLease;

/// One thing that happened. Everything but [`Event::Facts`] is only remembered: the turn decides.
#[derive(Clone, Debug)]
pub enum Event {
    /// A turn: the facts as they are now.
    Facts(Box<Facts>),
    /// What the keeper's machine shows.
    View(View),
    /// The keeper's machine has ended: it retired, was closed, or broke.
    KeeperEnded,
    /// What became of the status write.
    StatusWritten(StatusOutcome),
    /// The lease as the API server holds it; `None` when it is gone or another one. `Err` when it could not be read.
    LeaseRead(Result<Option<Arc<RedisLease>>, String>),
    /// The API server has answered what the holder's pod is, and the facts know it; or it has not.
    HolderRead {
        /// Whether there was an answer.
        answered: bool,
    },
    /// The same for the holder's node.
    NodeRead {
        /// Whether there was an answer.
        answered: bool,
    },
    /// What became of one pod's role. A pod that was written, or found changed, is in the facts already.
    RoleWritten {
        /// The pod's UID.
        uid: String,
        /// What is known.
        outcome: RoleOutcome,
    },
}

/// What became of a status write.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusOutcome {
    /// The API server holds it now.
    Written(Arc<RedisLease>),
    /// Somebody else wrote meanwhile.
    Conflict,
    /// There is no such resource, or another one.
    Gone,
    /// It may have been written.
    Unanswered(String),
    /// The API server said no.
    Refused(String),
    /// It was never sent: it was withdrawn, or its time was over.
    Withdrawn,
}

/// What became of a role write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleOutcome {
    /// The pod carries it.
    Written,
    /// The pod has changed since it was read.
    Conflict,
    /// The pod is gone.
    Gone,
    /// It may have been written.
    Unanswered(String),
    /// The API server said no.
    Refused(String),
    /// It was never sent.
    Withdrawn,
}
