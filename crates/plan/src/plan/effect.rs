//! The effects of a reconciler, which the caller executes in order.

use std::sync::Arc;
use std::time::Duration;

pub use redislease_core::driver::Command;
use redislease_core::lease::Config;
use redislease_core::op::Token;
use redislease_core::time::Time;

use super::calls::Priority;
use super::facts::OpenQuorum;
use crate::api::RedisLeaseStatus;
use crate::api::names::PodRole;
use crate::api::validated::WorkloadKind;
use crate::election::Run;
use crate::status::{Notice, TermEnd};

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a machine for this lease, instead of an earlier one. `keys` are the spec's keys, without prefix and namespace.
    /// Without a quorum no term can be confirmed, and an adopted term is lost at its deadline.
    Open {
        /// Where the keys are; `None` if the spec names no quorum that is open, or that may be used now.
        quorum: Option<Arc<OpenQuorum>>,
        /// As the spec names them; empty without a quorum.
        keys: Vec<String>,
        /// TTL, renew interval, stop budget, timeouts and retries.
        config: Config,
    },
    /// Send a command to the machine of this lease.
    Keeper(Command),
    /// Raise the least token of the quorum, because a status shows it.
    RaiseFloor(Token),
    /// Write the status. Answered by exactly one [`super::Event::StatusWritten`].
    WriteStatus(Box<StatusWrite>),
    /// The pending status write is outdated: do not send it, if it was not sent yet. It is answered in any case.
    WithdrawStatus,
    /// Write label and token of one pod. Answered by exactly one [`super::Event::RoleWritten`]. At most one is pending
    /// for each pod.
    WriteRole(RoleWrite),
    /// The pending role write of this pod is outdated: do not send it, if it was not sent yet. It is answered in any
    /// case.
    WithdrawRole {
        /// The pod's UID.
        uid: String,
    },
    /// Read an object. Answered by exactly one event.
    Read(Read),
    /// Make sure that the API server is asked: one answer serves all leases. `Facts::api_answered_at` shows it.
    Probe,
    /// Send a Kubernetes event.
    Report(Notice),
    /// Update metrics.
    Measure(Measure),
    /// Log a warning about this lease.
    Warn(String),
}

impl From<Command> for Effect {
    fn from(command: Command) -> Self {
        Self::Keeper(command)
    }
}

impl From<Notice> for Effect {
    fn from(notice: Notice) -> Self {
        Self::Report(notice)
    }
}

/// One write of a lease's status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// How urgent it is.
    pub priority: Priority,
    /// The resource version that the write must find.
    pub version: Option<String>,
    /// The whole status, shared with the reconciler: after an outage the writes of thousands of leases wait at once.
    pub status: Arc<RedisLeaseStatus>,
    /// The write is dropped at this time and answered with [`super::StatusOutcome::Withdrawn`].
    pub not_after: Option<Time>,
}

/// What a role write does to a pod or a workload in addition to its label and token annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodChange {
    /// Nothing.
    #[default]
    None,
    /// Remove the scheduling gate of the lease, which is the pod's only one, and annotate the pod with the token of its term.
    Start,
    /// Raise the number in the annotation about withdrawals to this one, so that the API server stores a new version: a start that
    /// names an earlier version conflicts.
    Fence(u64),
    /// Delete the pod. Label and annotation stay as they are.
    Delete,
    /// Switch the workload.
    Run(Run),
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
    /// What else the write does.
    pub change: PodChange,
    /// Further annotations of a workload; `None` removes one.
    pub marks: Vec<(String, Option<String>)>,
    /// The kind of the workload, if the candidate is not a pod but a workload.
    pub workload: Option<WorkloadKind>,
    /// The write takes a right away, and was not answered before: perhaps an admission webhook hangs, after whose timeout the API
    /// server stores it, if the operator still waits.
    pub waits: bool,
    /// The API server only answers whether it would carry the write out, and stores nothing.
    pub dry_run: bool,
    /// The write is dropped at this time and answered as withdrawn.
    pub not_after: Option<Time>,
}

/// An object to read from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Read {
    /// The lease itself: answered by [`super::Event::LeaseRead`].
    Lease,
    /// The holder's pod: the result goes into the facts, followed by [`super::Event::HolderRead`].
    Holder {
        pod: String,
        uid: String,
        /// The kind of the workload, if the candidates are not pods but a workload.
        workload: Option<WorkloadKind>,
    },
    /// Whether the Kubernetes node of a vanished holder is off: answered by [`super::Event::NodeRead`]. If it is off, the
    /// facts contain this as proof for the pod.
    Node { node: String, uid: String },
    /// The pods that a process may have started for the lease, or may start: those that wait for a node, then those that carry the
    /// label of the lease. The result goes into the facts, followed by [`super::Event::StartableRead`].
    Startable,
}

/// A change of metrics.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Measure {
    Ended(TermEnd),
    /// A new holder follows another.
    Handover {
        /// The old holder was proven to have stopped.
        graceful: bool,
        /// How long no pod held the lease.
        leaderless: Duration,
    },
    /// The current state of the lease.
    Shown(Box<Shown>),
    /// The API server refused a write to a pod or a workload.
    WriteRefused {
        kind: Option<WorkloadKind>,
        /// Whether it accepted the write and stored other values.
        altered: bool,
    },
    /// Others changed what was written to a pod or a workload, and it is written again.
    Corrected {
        kind: Option<WorkloadKind>,
    },
}

/// The state of a lease in metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shown {
    /// Whether a pod of this cluster is active.
    pub active: bool,
    /// Whether a pod of this cluster holds the lease, or one of another cluster and the lease is Ready here.
    pub held: bool,
    /// Whether no pod holds the lease although one should.
    pub waiting: bool,
    /// Cluster, pod and Kubernetes node of the holder that the status names.
    pub holder: Option<[String; 3]>,
    /// The token of the latest term; 0 if there was none.
    pub token: i64,
    /// The numbers of eligible and of ineligible candidates.
    pub candidates: [i64; 2],
    /// Type and status of each condition.
    pub conditions: Vec<(String, String)>,
}
