//! The facts about a lease that `redislease status` shows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::DeserializeGuard;
use serde::Serialize;

use crate::api::lease_status::{CandidatesStatus, Holder, Transition};
use crate::api::{ConditionType, RedisLease, RedisLeaseStatus};

/// The facts about one lease. With `--watch`, a lease is shown again only if this value has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseSummary {
    pub namespace: String,
    pub name: String,
    /// The status of the condition Active: True, False or Unknown. Absent until the operator has written a status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// The status of the condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The reason of the condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message of the condition Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,
    pub transitions: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition: Option<Transition>,
    /// Why the last term ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<CandidatesStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<String>,
    /// Why the object cannot be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the lease was deleted.
    #[serde(rename = "deleted", skip_serializing_if = "std::ops::Not::not")]
    pub is_deleted: bool,
}

impl LeaseSummary {
    /// For an object that cannot be parsed, `error` is set.
    pub fn of(lease: &DeserializeGuard<RedisLease>) -> Self {
        match &lease.0 {
            Ok(lease) => Self::of_status(
                Self { quorum: Some(lease.spec.quorum_ref.name.clone()), ..Self::named(&lease.metadata) },
                lease.status.clone().unwrap_or_default(),
            ),
            Err(invalid) => Self { error: Some(invalid.error.clone()), ..Self::named(&invalid.metadata) },
        }
    }

    fn named(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            ..Self::default()
        }
    }

    fn of_status(self, status: RedisLeaseStatus) -> Self {
        let ready = status.condition(ConditionType::Ready);
        Self {
            active: status.condition(ConditionType::Active).map(|active| active.status.clone()),
            ready: ready.map(|ready| ready.status.clone()),
            reason: ready.map(|ready| ready.reason.clone()),
            message: ready.map(|ready| ready.message.clone()),
            holder: status.holder,
            fencing_token: status.fencing_token,
            acquire_time: status.acquire_time,
            transitions: status.transitions,
            last_transition: status.last_transition,
            last_end: status.history.first().map(|past| past.reason.clone()),
            candidates: status.candidates,
            ..self
        }
    }

    pub fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }

    /// The summary of this lease after its deletion.
    pub fn deleted(&self) -> Self {
        Self { namespace: self.namespace.clone(), name: self.name.clone(), is_deleted: true, ..Self::default() }
    }
}
