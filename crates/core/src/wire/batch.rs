//! Requests to a node, and the calls that carry them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::admission;
use crate::marker::Marker;
use crate::op::{Attempt, Op};
use crate::time::Time;

/// A request to one node about the keys of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request<K> {
    /// The lease's keys, at least one, as the node names them.
    pub keys: Arc<[K]>,
    /// What the node is asked to do to these keys.
    pub op: Op,
    /// When the sender stops waiting. After this time, by its own clock, the node does not execute the request.
    pub give_up_at: Time,
}

/// A request, and the receiver of its vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<K, R> {
    /// Keys, operation and deadline.
    pub request: Request<K>,
    /// `None` when the sender has given up: it has its vote.
    pub reply: Option<R>,
}

impl<K, R> Asked<K, R> {
    pub(super) const fn attempt(&self) -> Attempt {
        self.request.op.attempt()
    }

    /// Whether the request was never sent, or may be sent again, and its sender gives up now.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.request.give_up_at <= now
    }
}

/// The requests of one call: only extensions, only ends, or only other votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<K, R> {
    pub(super) asked: Vec<Asked<K, R>>,
    pub(super) terms: Option<Terms>,
}

impl<K, R> Batch<K, R> {
    /// What the node checks. Releases need nothing.
    pub const fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// Whether it has extensions. Then it has nothing else.
    pub fn extends(&self) -> bool {
        self.asked.first().is_some_and(|asked| asked.request.op.is_extend())
    }
}

/// What a node checks before it executes a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The marker that the node must have.
    pub marker: Marker,
    /// The last millisecond of the node's clock at which it may execute acquires and extensions.
    pub deadline: u64,
}

/// A call to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<K, R, C> {
    /// Requests for votes, at least one.
    Batch(Batch<K, R>),
    /// A call of the admission.
    Admission(admission::Call),
    /// Another call of the process.
    Own(C),
}

/// A call that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent<K, R, C> {
    /// The number of the call on its connection, in the order of sending.
    pub id: u64,
    /// When it was sent: before its first byte.
    pub at: Time,
    /// Requests for votes in one script, a call of the admission, or another call of the process.
    pub call: Call<K, R, C>,
    /// When the first of its senders gives up.
    pub(super) give_up_at: Option<Time>,
}
