//! `RedisLease`: the status, which the operator writes. It changes on transitions, never on a renewal.
#![allow(clippy::doc_markdown, reason = "kubectl explain shows these comments as plain text")]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use redislease_core::op::{Attempt, Token};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::conditions::{ConditionReason as _, ConditionStatus, ConditionType, LeaseReady};
use crate::api::lenient;

/// Maximum number of past terms in `status.history`.
pub const MAX_HISTORY: usize = 10;

/// Maximum number of characters of `status.handover.id`.
pub const MAX_HANDOVER_ID: usize = 128;

/// Maximum number of characters of `status.handover.to`: `pod/` and the longest name of a pod.
pub const MAX_HANDOVER_TARGET: usize = 257;

/// Maximum number of pods in `status.candidates.ineligible`.
pub const MAX_INELIGIBLE: usize = 20;

/// The observed state of the lease: the current term, past terms, candidates and conditions. A pod holds the lease only when it is
/// named here. The operator writes this; other writers must not change it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisLeaseStatus {
    /// The metadata.generation of the spec that the operator processed last.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The pod that holds the lease. If the condition Active is False, this pod has lost the lease and must stop; the field is then
    /// removed when the keys on the Redis nodes have expired or are released. Absent if this cluster has no current term.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,

    /// The random 128-bit ID of the current term on the Redis nodes, as 32 hexadecimal digits. Absent if there is no holder.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    pub attempt: Option<String>,

    /// The fencing token of the latest term. Each term has a greater token than all terms before it. The value stays when the term
    /// has ended, and never decreases.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub fencing_token: Option<i64>,

    /// The quorum on which the latest term was acquired.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub quorum: Option<QuorumIdentity>,

    /// When the current term began. Absent if there is no holder.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,

    /// The number of terms that have begun: 1 for the first election, and one more for each later one.
    #[serde(default, deserialize_with = "lenient::value")]
    #[schemars(range(min = 0))]
    pub transitions: i64,

    /// The latest transition: the beginning or the end of a term.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub last_transition: Option<Transition>,

    /// The terms that ended last, newest first, at most 10.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HISTORY))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<PastTerm>,

    /// The last handover that was requested with the annotation redislease.io/handover-requested, and its result. Absent if none was
    /// requested.
    #[serde(default, deserialize_with = "handover", skip_serializing_if = "Option::is_none")]
    pub handover: Option<Box<HandoverStatus>>,

    /// The candidate pods. Absent until the operator has listed the pods.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub candidates: Option<CandidatesStatus>,

    /// The conditions Ready, Active, CandidatesAvailable and QuorumHealthy. To wait for a holder in this cluster, wait for Active.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl RedisLeaseStatus {
    /// The condition of this type, if status has it.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_.as_str())
    }

    /// Whether status has a condition of this type with this status.
    pub fn says(&self, type_: ConditionType, status: ConditionStatus) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == status.as_str())
    }

    /// Whether the term that status names may continue. If status does not say so, its operator may have ended it.
    pub fn may_continue(&self) -> bool {
        [ConditionStatus::True, ConditionStatus::Unknown].iter().any(|status| self.says(ConditionType::Active, *status))
    }

    /// The attempt of the term that status names. A term without its holder or token is none: no process can continue it.
    pub fn named_attempt(&self) -> Option<Attempt> {
        let is_whole = self.holder.is_some() && self.fencing_token.is_some();
        self.attempt.as_deref().filter(|_| is_whole)?.parse().ok()
    }

    /// The token of the latest term, as status shows it; 0 before the first one.
    pub fn token(&self) -> Token {
        Token(self.fencing_token.and_then(|token| token.try_into().ok()).unwrap_or(0))
    }

    /// The same; 0 also if no Redis node can have given the token that status shows: somebody
    /// wrote it by hand, and a store that saw it would refuse every later holder.
    pub fn given_token(&self) -> i64 {
        self.fencing_token.filter(|_| self.token().is_plausible()).unwrap_or_default().max(0)
    }

    /// Whether a condition says that a pod of another cluster holds the lease. While a term of this cluster ends, Active still shows
    /// that end.
    pub fn says_held_by_peer(&self) -> bool {
        let peer = LeaseReady::HeldByPeerCluster.as_str();
        let says = |type_| self.condition(type_).is_some_and(|condition| condition.reason == peer);
        says(ConditionType::Active) || says(ConditionType::Ready)
    }
}

/// A pod that holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The name of the cluster that the pod runs in: the operator's --cluster-name. May be empty.
    pub cluster: String,

    /// The namespace of the pod.
    pub namespace: String,

    /// The name of the pod. With granularity Cluster: the name of the workload.
    pub pod: String,

    /// The UID of the pod or workload. A new one with the same name is another holder, except an annotated workload that is created
    /// again while its lease stays. The term then keeps the earlier UID.
    #[serde(rename = "podUID")]
    pub pod_uid: String,

    /// The Kubernetes node that the pod runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A quorum and its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuorumIdentity {
    /// The name of the RedisQuorum.
    pub name: String,

    /// A hash of the quorum's configuration: the names of its nodes, the majority, maxLeaseDuration and keyPrefix.
    pub fingerprint: String,
}

/// The beginning or the end of a term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transition {
    /// When the transition happened.
    pub time: Time,

    /// Acquired if a term began. If a term ended, the reason of the end, for example HolderStopped, HolderVanished or RenewDeadline.
    pub reason: String,

    /// The transition in one sentence.
    pub message: String,

    /// The previous holder. Absent if the lease never had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,

    /// The new holder. Absent if a term ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A term that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastTerm {
    /// The fencing token of the term.
    #[schemars(range(min = 0))]
    pub fencing_token: i64,

    /// The name of the cluster that the holder ran in.
    pub cluster: String,

    /// The name of the pod that held the lease.
    pub pod: String,

    /// When the term began.
    pub acquire_time: Time,

    /// When the operator ended the term, or found that it was lost.
    pub end_time: Time,

    /// The reason of the end, for example HolderStopped, HolderVanished or RenewDeadline.
    pub reason: String,
}

/// A requested handover and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandoverStatus {
    /// The first 128 characters of the annotation redislease.io/handover-requested. Another value there is a new request.
    #[schemars(length(max = MAX_HANDOVER_ID))]
    pub id: String,

    /// The first 257 characters of the annotation redislease.io/handover-to. Absent if the next eligible pod was to acquire the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_HANDOVER_TARGET))]
    pub to: Option<String>,

    /// The pod whose term the operator ended. Absent if it ended no term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,

    /// Running until a pod holds the lease again; then Completed, or Failed if it is not the requested one. Refused if the operator
    /// ended no term. Unknown if the operator ended the term for another cluster, and cannot tell whether that cluster
    /// acquired it.
    pub state: HandoverState,

    /// When the state last changed.
    pub time: Time,

    /// What happened.
    pub message: String,
}

/// Reads a handover. Of one that cannot be read, the ID stays: otherwise the same request would end another term.
fn handover<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<HandoverStatus>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Handover {
        Whole(Box<HandoverStatus>),
        Part { id: String },
        None(IgnoredAny),
    }
    Ok(match Handover::deserialize(deserializer)? {
        Handover::Whole(handover) => Some(handover),
        Handover::Part { id } => Some(Box::new(HandoverStatus {
            id,
            to: None,
            from: None,
            state: HandoverState::Unknown,
            time: Time(Timestamp::UNIX_EPOCH),
            message: "The result of this handover cannot be read.".to_owned(),
        })),
        Handover::None(_) => None,
    })
}

/// The state of a requested handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HandoverState {
    /// The term of the earlier holder has ended. No pod of this cluster holds the lease yet.
    Running,
    /// The requested pod or cluster holds the lease, perhaps since before the request.
    Completed,
    /// The operator ended no term. The message says why.
    Refused,
    /// The lease did not move as requested. The message says why.
    Failed,
    /// The operator ended the term for another cluster. No pod of this cluster can be elected, so it cannot tell who holds the lease.
    Unknown,
}

/// The candidate pods: how many there are, and which of them cannot be elected.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidatesStatus {
    /// The number of candidate pods.
    #[schemars(range(min = 0))]
    pub total: i32,

    /// The number of candidate pods that can be elected now, the holder included.
    #[schemars(range(min = 0))]
    pub eligible: i32,

    /// The candidate pods that cannot be elected, sorted by name. The list has at most 20 entries; total minus eligible is their
    /// number.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_INELIGIBLE))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ineligible: Vec<IneligiblePod>,
}

/// A candidate pod that cannot be elected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IneligiblePod {
    /// The name of the pod.
    pub pod: String,

    /// Why the pod cannot be elected: Excluded, InvalidPriority, Finished, Terminating, NotScheduled, NotReady, or
    /// with activation.schedulingGate NotGated, OtherGate or Started.
    pub reason: String,
}
