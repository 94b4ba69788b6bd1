//! The inputs of a reconciler.

use std::sync::Arc;

use redislease_core::lease::View;

use super::{Altered, Facts};
use crate::api::RedisLease;

/// One input. All events except [`Event::Facts`] are only recorded; the turn decides.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Event {
    /// A turn with the current facts.
    Facts(Box<Facts>),
    /// The keeper machine has a new view.
    View(View),
    /// The keeper machine has ended: it retired, was closed, or panicked.
    KeeperEnded,
    /// The outcome of the status write.
    StatusWritten(StatusOutcome),
    /// The lease on the API server; `None` if it is deleted or was created again, `Err` if the read failed.
    LeaseRead(Result<Option<Arc<RedisLease>>, String>),
    /// The holder's pod was read, and the facts contain the result; or the read was not answered.
    HolderRead {
        /// The UID of the pod.
        uid: String,
        /// Whether there was an answer.
        answered: bool,
    },
    /// The pods of [`super::Read::Startable`] were read, and the facts contain them; or the read was refused.
    StartableRead {
        /// Whether there was an answer.
        answered: bool,
    },
    /// The holder's Kubernetes node was read, or could not be read. The facts say whether the holder has stopped with it.
    NodeRead,
    /// The outcome of a role write. If the pod was written, or read in a new version, the facts contain it already.
    RoleWritten { uid: String, outcome: RoleOutcome },
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome<Stored> {
    /// The API server has accepted it.
    Written(Stored),
    /// The object has changed since it was read.
    Conflict,
    /// The object is gone, or was created again.
    Gone,
    /// Unknown: it may have been written.
    Unanswered(String),
    /// As `Unanswered`, again and again, while other calls are answered.
    AtFault(String),
    /// The API server refused it.
    Refused(String),
    /// It was never sent: it was withdrawn, or its deadline passed.
    Withdrawn,
}

impl<Stored> WriteOutcome<Stored> {
    /// Other calls are answered: the call itself is at fault.
    pub(super) fn blame_call(&mut self) {
        if let Self::Unanswered(why) = self {
            *self = Self::AtFault(std::mem::take(why));
        }
    }
}

/// The outcome of a status write: the lease as it is stored.
pub type StatusOutcome = WriteOutcome<Arc<RedisLease>>;

/// The outcome of a write of a role. The API server may store other values than were asked for.
pub type RoleOutcome = WriteOutcome<Option<Box<Altered>>>;

/// Whether this refusal of the API server says that the operator has no right to the call. These are the words of its authorizer:
/// an admission webhook may refuse with the same code.
pub fn lacks_right(refusal: &str) -> bool {
    refusal.contains(" is forbidden: User ")
}
