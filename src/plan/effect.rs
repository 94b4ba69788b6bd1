//! What a reconciler wants done, in this order.

use std::sync::Arc;
use std::time::Duration;

use redislease_core::lease::{Config, Publication, TermId};
use redislease_core::op::{Attempt, Token};
use redislease_core::time::Time;

use super::facts::OpenQuorum;
use crate::api::RedisLeaseStatus;
use crate::api::names::PodRole;
use crate::election::HolderName;
use crate::status::{Notice, TermEnd};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// To the keeper of this lease.
    Keeper(Command),
    /// Write the status. Answered by exactly one [`super::Event::StatusWritten`].
    WriteStatus(Box<StatusWrite>),
    /// The status write that is under way is out of date: do not send it, if it was not sent yet. It is answered all
    /// the same.
    WithdrawStatus,
    /// Write label and token of one pod. Answered by exactly one [`super::Event::RoleWritten`]. At most one is under
    /// way for each pod.
    WriteRole(RoleWrite),
    /// The role write of this pod that is under way is out of date: do not send it, if it was not sent yet. It is
    /// answered all the same.
    WithdrawRole {
        /// The pod's UID.
        uid: String,
    },
    /// Read something. Answered by exactly one event.
    Read(Read),
    /// Ask the API server anything: one answer serves every lease that asks. `Facts::api_answered_at` shows it.
    Probe,
    /// Tell people what happened.
    Report(Notice),
    /// Count what happened.
    Measure(Measure),
    /// Log a warning about this lease.
    Warn(String),
}

/// What the keeper of a lease is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start a machine for this lease. `keys` are the spec's keys, without prefix and namespace. Without a quorum
    /// nothing can be confirmed, and what is adopted is lost in time.
    Open {
        /// The quorum it stands on.
        quorum: Option<Arc<OpenQuorum>>,
        /// The keys.
        keys: Vec<String>,
        /// The durations.
        config: Config,
    },
    /// Make one attempt for this holder.
    Want(HolderName),
    /// Make no attempt; an attempt that was not published is given back.
    Forget,
    /// Continue a term that the status names.
    Adopt(TermId),
    /// The status says that the term is not confirmed.
    DoubtShown(Attempt),
    /// The status calls the term active again: another process keeps it.
    KeptElsewhere(Attempt),
    /// End a term; with proof its keys are released at once.
    End {
        /// Which.
        term: TermId,
        /// Whether its holder is proven to have stopped.
        proof: bool,
    },
    /// What became of a publication.
    Published {
        /// Of which attempt.
        attempt: Attempt,
        /// What is known.
        outcome: Publication,
    },
    /// A failed attempt need not wait for its back-off: something relevant changed.
    TryNow,
    /// New durations.
    Configure(Config),
    /// Raise the least token of the quorum: a status has shown it.
    RaiseFloor(Token),
    /// The lease is gone: stop when the last key has ended. Nothing is wanted, and what runs was ended before.
    Retire,
    /// Stop now without ending anything: published terms are left for another process.
    Close,
}

/// The order in which writes reach the API server when it is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A term has ended.
    End,
    /// A term is published.
    Publication,
    /// A pod is told `active`.
    Active,
    /// A pod is told `standby`, or loses its label.
    Standby,
    /// Nothing but numbers of candidates, or messages.
    Counts,
}

/// One write of a lease's status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// How urgent it is.
    pub priority: Priority,
    /// The resource version that the write must find.
    pub version: Option<String>,
    /// The whole status.
    pub status: RedisLeaseStatus,
    /// Not to be sent at or after this instant: answered with [`super::StatusOutcome::Withdrawn`] then.
    pub not_after: Option<Time>,
}

/// One write of a pod's label and token annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleWrite {
    /// How urgent it is.
    pub priority: Priority,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID, which the write must find.
    pub uid: String,
    /// The resource version that the write must find.
    pub version: Option<String>,
    /// The label; `None` removes it.
    pub role: Option<PodRole>,
    /// The annotation; `None` removes it.
    pub token: Option<String>,
    /// Not to be sent at or after this instant: answered as withdrawn then.
    pub not_after: Option<Time>,
}

/// What is to be read from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The lease itself: answered by [`super::Event::LeaseRead`].
    Lease,
    /// The holder's pod: what is found goes into the facts, then [`super::Event::HolderRead`].
    Holder {
        /// The pod's name.
        pod: String,
        /// Its UID.
        uid: String,
    },
    /// Whether the Kubernetes node of a vanished holder is off: answered by [`super::Event::NodeRead`]. That it is off
    /// goes into the facts as proof for the pod.
    Node {
        /// The node's name.
        node: String,
        /// The UID of the pod that ran there.
        uid: String,
    },
}

/// What is counted.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// A term ended.
    Ended(TermEnd),
    /// A new holder follows another.
    Handover {
        /// The old holder was proven to have stopped.
        graceful: bool,
        /// For how long nobody held the lease.
        leaderless: Duration,
    },
    /// What the lease shows now.
    Shown(Box<Shown>),
}

/// What a lease shows in metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shown {
    /// A pod of this cluster is active.
    pub active: bool,
    /// Somebody holds the lease, here or in another cluster.
    pub held: bool,
    /// Nobody holds it, and somebody should.
    pub waiting: bool,
    /// Cluster, pod and Kubernetes node of the holder that the status names.
    pub holder: Option<[String; 3]>,
    /// The token of the latest term; 0 when there was none.
    pub token: i64,
    /// Candidates that may be elected, and the others.
    pub candidates: [i64; 2],
    /// Type and status of each condition.
    pub conditions: Vec<(String, String)>,
}
