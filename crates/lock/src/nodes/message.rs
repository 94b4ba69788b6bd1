//! What the task of a node receives from other tasks, and what it sends to its server.

use redislease_core::judge;
use redislease_core::op::Stored;
use redislease_core::seed::FenceReport;
use redislease_core::time::Millis;
use tokio::sync::oneshot;

use super::request::{Reply, Request};
use super::script::Script;

/// A message to a node's task.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request for a vote.
    Vote(Request, Reply),
    /// The node has another address.
    Moved,
    /// The task of another node has found this about the clock of this one.
    Clock(judge::Effect),
    /// Read the fence, for the task of a node that is being admitted. Dropped if it cannot be read.
    Fence(oneshot::Sender<FenceReport>),
    /// Read a key.
    Read(Reading),
}

/// A call to the server that is not for votes or for the admission.
#[derive(Debug)]
pub(super) enum Call {
    Fence(oneshot::Sender<FenceReport>),
    Read(Reading),
    Info,
    Check,
    Load(Script),
}

/// What a node shows about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It has no such key.
    Nothing,
    /// The value and its life.
    Value(Stored, Millis),
    /// A value or a TTL that RedisLease did not write.
    Foreign,
}

/// A request for the value and TTL of a key.
#[derive(Debug)]
pub(crate) struct Reading {
    pub key: String,
    /// Dropped if the node has no vote or does not answer.
    pub answer: oneshot::Sender<Shown>,
}
