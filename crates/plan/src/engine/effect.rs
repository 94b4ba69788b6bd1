//! The effects of the engine.

use std::sync::Arc;

use redislease_core::op::Token;

use crate::annotations::Problem;
use crate::api::RedisLease;
use crate::index::{ImplausibleToken, LeaseId, WorkloadKey};
use crate::plan::calls::LeaseName;
use crate::plan::{self, RoleWrite};

/// One effect. The caller carries it out without waiting for its outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// An effect of the machine of a lease.
    Lease(Arc<Subject>, plan::Effect),
    /// Remove the metrics of a lease: its resource is deleted, or another replica leads and exports them.
    Hide(LeaseId),
    /// The lease is removed: close its keeper and remove its metrics.
    Forget(LeaseId),
    /// Give [`Input::ApiAnswered`](super::Input::ApiAnswered) after the next answer of the API server.
    AwaitAnswer,
    /// Read a workload: answered by [`Input::Workload`](super::Input::Workload).
    ReadWorkload(WorkloadKey),
    /// Write the role of a lease that does not exist: answered by [`Input::OrphanWritten`](super::Input::OrphanWritten).
    WriteOrphan(LeaseName, Box<RoleWrite>),
    /// Report a mistake on a lease.
    ReportOnLease(Arc<Subject>, Problem),
    /// Report a mistake on a pod. [`Input::ReportRefused`](super::Input::ReportRefused) says that it was not reported.
    ReportOnPod(PodName, Problem),
    /// Raise the least token of this quorum to a token that a status on it shows.
    RaiseFloor(String, Token),
    /// All leases are listed, so the greatest token of each quorum is complete.
    FloorsComplete,
    /// Log that a status shows a token that no Redis node can have given.
    Implausible(ImplausibleToken),
}

/// The lease that an effect applies to.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Subject {
    pub id: LeaseId,
    /// The number of its machine: an answer names it.
    pub incarnation: u32,
    pub namespace: Arc<str>,
    pub name: String,
    pub uid: String,
    /// The quorum that its spec names.
    pub quorum: String,
    /// The resource, if it exists.
    pub object: Option<Arc<RedisLease>>,
}

/// Namespace, name and UID of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}
