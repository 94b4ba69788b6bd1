//! What a caller gives to the queue, and what the queue returns.

use std::sync::Arc;

use redislease_core::time::Time;

/// How urgent a job is while the API server is slow; the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A term has ended, became certain or uncertain, or a read decides about that.
    End,
    /// A term is published, or the status is read before that.
    Publication,
    /// A pod gets the role `active`.
    Active,
    /// A pod gets the role `standby`, or loses its role.
    Standby,
    /// No term begins or ends: the reason why no pod is active, candidate counts or messages change.
    Counts,
    /// Events.
    Events,
}

impl Priority {
    /// All of them, the most urgent one first.
    pub const ALL: [Self; 6] = [Self::End, Self::Publication, Self::Active, Self::Standby, Self::Counts, Self::Events];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The queue in which such jobs take turns with others.
    pub(super) const fn class(self) -> usize {
        match self {
            Self::End | Self::Publication | Self::Active => 0,
            Self::Standby => 1,
            Self::Counts => 2,
            Self::Events => 3,
        }
    }
}

/// A job to be queued.
#[derive(Clone, Debug)]
pub struct Submission<K, P> {
    /// What the job is about. A newer job of the same key replaces an older one that was not sent yet.
    pub key: K,
    /// The tenant for fairness: a namespace.
    pub tenant: Arc<str>,
    /// Jobs of one lane are never in flight together. Without a lane, this applies only to jobs of one key.
    pub lane: Option<Arc<str>>,
    /// How urgent it is.
    pub priority: Priority,
    /// The earliest time to send it.
    pub not_before: Option<Time>,
    /// The job is dropped at this time.
    pub not_after: Option<Time>,
    /// The call itself.
    pub payload: P,
}

/// What the answer to a call means for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The API server carried it out, or the object does not exist.
    Done,
    /// The object had changed. Also if the object does not exist and the caller may repeat the call.
    Conflict,
    /// The object had changed, as a read after the refusal shows: another writer was first.
    Raced,
    /// The API server refused.
    Refused,
    /// There was no answer.
    Unanswered,
    /// The code around the call panicked: whether the API server answers is unknown.
    Panicked,
}

/// The next action of the sender.
#[derive(Debug, PartialEq)]
pub enum Next<K, P> {
    /// Send this job.
    Call(K, P),
    /// Send a probe.
    Probe,
    /// The job's deadline has passed: it is not sent.
    Expired(P),
}
