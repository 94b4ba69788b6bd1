//! The answers to calls, and their outcomes for the callers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry};
use kube::core::Selector;
use redislease_core::op::Token;

use crate::api::validated::{Workload, WorkloadKind, selector_keys};
use crate::api::{RedisLease, RedisQuorum, names};
use crate::election::{Candidate, WorkloadFacts};
use crate::plan::{RoleOutcome, StatusOutcome};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum CallError {
    #[error("the object changed meanwhile")]
    Conflict,
    #[error("the object does not exist")]
    NotFound,
    /// No answer: the API server may have carried out the call, or may do so later.
    #[error("no answer from the API server: {0}")]
    Unanswered(String),
    #[error("the API server refused: {0}")]
    Refused(String),
    #[error("the answer of the API server cannot be read: {0}")]
    Unreadable(String),
    /// The code around the call panicked. The API server may have carried it out.
    #[error("a defect of RedisLease: {0}")]
    Panicked(String),
}

impl CallError {
    /// Why it is not known whether the API server carried out the call; `None` if it is known.
    pub fn unknown(&self) -> Option<String> {
        match self {
            Self::Unanswered(why) | Self::Unreadable(why) => Some(why.clone()),
            Self::Panicked(_) => Some(self.to_string()),
            Self::Conflict | Self::NotFound | Self::Refused(_) => None,
        }
    }
}

/// The answer to a call.
pub type Answer = Result<Body, CallError>;

/// The content of an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// The lease that was read, or as it is after the write of its status.
    Lease(Arc<RedisLease>),
    /// The pod or workload that was read, or as it is after the write.
    Object(Stored),
    /// The pods of a list, and the progress of the pod lists when it was requested.
    Pods((Asked, Vec<Candidate>)),
    /// Whether the Kubernetes node is off.
    Node(bool),
    /// What the read of a workload found.
    Workload(WorkloadFound),
    /// The quorum that was read, or as it is after the write of its status.
    Quorum(Box<RedisQuorum>),
    /// The highest token in any status of the quorum's leases.
    Tokens(Token),
    /// The Secret that a quorum names.
    Secret(Box<Secret>),
    /// The UID of the cluster.
    ClusterUid(String),
    /// How the lease of an annotated workload was changed.
    LeaseChange(Changed<Arc<RedisLease>>),
    /// An event was created, or a probe was answered.
    Done,
}

/// A pod or workload in an answer.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The progress of the pod lists when it was requested.
    pub asked: Asked,
    /// The object; `None` if it was deleted, or cannot be a candidate.
    pub object: Option<Candidate>,
    /// Who manages its fields.
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

/// The progress of the pod lists at the time of a request to the API server. Read before the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub(crate) u64);

/// The result of reading a pod or a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// As it is now.
    Here(Asked, Candidate),
    /// There is no pod, or no workload of this kind, with this UID.
    Gone(Option<WorkloadKind>),
}

/// A workload in its namespace.
pub type WorkloadKey = (Arc<str>, Workload);

/// The result of reading a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadRead {
    /// It selects pods with this selector.
    Selects(Selector),
    /// It exists and has no selector, or an empty one.
    SelectsNothing,
    /// It selects by this label key, which the operator writes.
    SelectsByRole(String),
    /// It does not exist.
    Missing,
    /// The API server refused the read, or its answer could not be understood. Whether the workload exists is unknown. The
    /// text is the error.
    Refused(String),
}

impl WorkloadRead {
    /// A workload that exists, with its selector.
    pub fn of(selector: Option<LabelSelector>) -> Self {
        let own =
            selector.as_ref().and_then(|selector| selector_keys(selector).find(|key| names::is_reserved_label(key)));
        if let Some(own) = own {
            return Self::SelectsByRole(own.to_owned());
        }
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        selector.filter(|selector| !selector.selects_all()).map_or(Self::SelectsNothing, Self::Selects)
    }
}

/// What a read of a workload found.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFound {
    /// Which pods it selects.
    pub read: WorkloadRead,
    /// The facts about the workload itself, if it can be a candidate.
    pub object: Option<Arc<WorkloadFacts>>,
}

impl From<WorkloadRead> for WorkloadFound {
    fn from(read: WorkloadRead) -> Self {
        Self { read, object: None }
    }
}

/// The outcome of a role write.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleAnswer {
    /// The outcome for the reconciler.
    pub outcome: RoleOutcome,
    /// The current pod, if the answer contains it.
    pub found: Option<Found>,
}

/// The outcome of a change of the lease of an annotated workload, as an object or as facts about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed<L> {
    /// The lease as it is now.
    Written(L),
    /// The lease with this UID is deleted.
    Deleted(String),
    /// A lease of this name exists already.
    Exists(L),
    /// The lease or its workload has changed meanwhile.
    Outdated,
    /// The API server refused.
    Refused(String),
    /// No answer: the change may have been made.
    Unanswered,
}

impl<L> Changed<L> {
    /// The same outcome with facts about the lease.
    pub fn map<F>(self, facts: impl Fn(L) -> F) -> Changed<F> {
        match self {
            Self::Written(lease) => Changed::Written(facts(lease)),
            Self::Deleted(uid) => Changed::Deleted(uid),
            Self::Exists(lease) => Changed::Exists(facts(lease)),
            Self::Outdated => Changed::Outdated,
            Self::Refused(why) => Changed::Refused(why),
            Self::Unanswered => Changed::Unanswered,
        }
    }
}

/// The outcome of a call for its caller. Every write has exactly one. A read that a newer one of the same object replaced has
/// none, except a read of a lease.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Of a status write of a lease.
    LeaseStatus(StatusOutcome),
    /// Of a role write on the object with this UID.
    Role(String, RoleAnswer),
    /// The lease; `None` if it is deleted or was created again.
    Lease(Result<Option<Arc<RedisLease>>, String>),
    /// Of a read of the pod or workload with this UID.
    Holder(String, Result<Found, String>),
    /// The pods that may have been started, and the progress of the pod lists when they were requested.
    Startable(Result<(Asked, Vec<Candidate>), String>),
    /// Whether the Kubernetes node on which the pod with this UID ran is off.
    Node(String, Result<bool, String>),
    /// Of a read of a workload.
    Workload(WorkloadFound),
    /// The quorum; `None` if it does not exist.
    Quorum(Result<Option<Box<RedisQuorum>>, String>),
    /// The quorum as it is after the write of its status.
    QuorumStatus(Result<Box<RedisQuorum>, CallError>),
    /// The highest token in any status of the quorum's leases.
    Tokens(Result<Token, String>),
    /// The Secret that a quorum names.
    Secret(Result<Box<Secret>, CallError>),
    /// The UID of the cluster.
    ClusterUid(Result<String, String>),
    /// Of a change of the lease of an annotated workload.
    LeaseChange(Changed<Arc<RedisLease>>),
    /// An event was sent, or the API server refused it.
    Event,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_of_the_operators_labels_or_of_all_pods_is_not_used() {
        let read = |selector: serde_json::Value| WorkloadRead::of(serde_json::from_value(selector).unwrap());
        assert_eq!(WorkloadRead::of(None), WorkloadRead::SelectsNothing);
        assert_eq!(read(json!({})), WorkloadRead::SelectsNothing);
        let own = "lease.redislease.io/billing";
        let expression = json!({"key": own, "operator": "Exists"});
        for selector in [json!({"matchLabels": {"app": "a", own: "active"}}), json!({"matchExpressions": [expression]})]
        {
            assert_eq!(read(selector), WorkloadRead::SelectsByRole(own.to_owned()));
        }
        let WorkloadRead::Selects(selector) = read(json!({"matchLabels": {"app": "a"}})) else {
            panic!("it is usable")
        };
        assert_eq!(selector.to_string(), "app=a");
    }
}
