//! The effects of the engine.

use std::sync::Arc;

use redislease_core::op::Token;

use super::Input;
use super::refused::OrphanKey;
use crate::annotations::Problem;
use crate::api::RedisLease;
use crate::index::{ImplausibleToken, LeaseId, WorkloadKey};
use crate::plan;
use crate::plan::calls::{LeaseName, Outcome, Request};

/// One effect. The caller carries it out without waiting for its outcome.
#[derive(Clone, Debug)]
pub enum Effect {
    /// An effect of the machine of a lease, other than a call.
    Lease(Arc<Subject>, plan::Effect),
    /// Make a call. [`Caller::input`] says what its outcome becomes.
    Call(Caller, Request),
    /// Remove the metrics of a lease: its resource is deleted, or another replica leads and exports them.
    Hide(LeaseId),
    /// Do not count on how long no pod holds the lease: another replica may have elected one.
    DoNotCount(LeaseId),
    /// The lease is removed: close its keeper and remove its metrics.
    Forget(LeaseId),
    /// Give [`Input::ApiAnswered`](super::Input::ApiAnswered) after the next answer of the API server.
    AwaitAnswer,
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

/// Who gets the outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The machine of a lease with this incarnation.
    Lease(LeaseId, u32),
    /// The index, about a workload.
    Workload(WorkloadKey),
    /// The engine, about the role of a lease that does not exist.
    Orphan(OrphanKey),
}

impl Caller {
    /// What the outcome of the call becomes. `None`: the caller does not make such calls.
    pub fn input(self, outcome: Outcome) -> Option<Input> {
        match (self, outcome) {
            (Self::Lease(lease, incarnation), answer) => Some(Input::Answer { lease, incarnation, answer }),
            (Self::Workload(key), Outcome::Workload(found)) => Some(Input::Workload(key, found)),
            (Self::Orphan(key), Outcome::Role(_, answer)) => Some(Input::OrphanWritten(key, answer)),
            _ => None,
        }
    }
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

impl Effect {
    /// The lease in whose turn it was decided.
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Lease(subject, _) | Self::ReportOnLease(subject, _) => Some(subject.id),
            Self::Call(Caller::Lease(id, _), _) => Some(*id),
            _ => None,
        }
    }
}

impl Subject {
    /// The lease, as calls name it.
    pub fn lease_name(&self) -> LeaseName {
        let (name, uid) = (self.name.as_str().into(), self.uid.as_str().into());
        LeaseName { namespace: self.namespace.clone(), name, uid }
    }

    /// An effect of the machine of this lease. `None`: a status write of a lease that does not exist.
    pub(super) fn effect(self: &Arc<Self>, planned: plan::Effect) -> Option<Effect> {
        let (lease, quorum) = (self.lease_name(), Some(self.quorum.as_str().into()));
        let request = match planned {
            plan::Effect::WriteStatus(write) => Request::LeaseStatus { object: self.object.clone()?, write, quorum },
            plan::Effect::WriteRole(write) => Request::Role { lease, write: Box::new(write), quorum },
            plan::Effect::Read(read) => Request::Read { lease, read },
            other => return Some(Effect::Lease(self.clone(), other)),
        };
        Some(Effect::Call(Caller::Lease(self.id, self.incarnation), request))
    }
}

/// Namespace, name and UID of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}
