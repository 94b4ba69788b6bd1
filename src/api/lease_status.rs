//! `RedisLease`: what the operator answers. Written on transitions only, never per renewal.
#![allow(clippy::doc_markdown, reason = "kubectl explain shows the documentation of a field as it is")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{ConditionStatus, ConditionType};

/// Greatest number of past terms that status keeps.
pub const MAX_HISTORY: usize = 10;

/// Greatest number of pods that status lists with the reason why they may not be elected.
pub const MAX_INELIGIBLE: usize = 20;

/// Who holds the lease, since when, and what led to it. A term exists for others once it is named here.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisLeaseStatus {
    /// The metadata.generation of the spec that this status answers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The pod that holds the lease. Absent when nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,

    /// The random identity of the holder's term on the Redis nodes, 32 hexadecimal digits. Absent when there is no term.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    pub attempt: Option<String>,

    /// The fencing token of the latest term: a number that only ever grows, and stays when the term has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub fencing_token: Option<i64>,

    /// The quorum the latest term was taken on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<QuorumIdentity>,

    /// When the holder's term began. Absent when there is no term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Time>,

    /// How often the holder has changed, from or to nobody included.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub transitions: i64,

    /// The latest change of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition: Option<Transition>,

    /// The latest terms that have ended, the newest first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HISTORY))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub history: Vec<PastTerm>,

    /// The pods among which one is elected. Absent until they have been listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<CandidatesStatus>,

    /// Ready, Active, CandidatesAvailable and QuorumHealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl RedisLeaseStatus {
    /// The condition of this type, once it was written.
    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_.as_str())
    }

    /// Whether the condition of this type is written and has this status.
    pub fn says(&self, type_: ConditionType, status: ConditionStatus) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == status.as_str())
    }
}

/// The pod that holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The name of the cluster the pod runs in, as its operator was told by --cluster-name.
    pub cluster: String,

    /// The namespace of the pod.
    pub namespace: String,

    /// The name of the pod.
    pub pod: String,

    /// The UID of the pod: a pod of the same name that was created again is another holder.
    #[serde(rename = "podUID")]
    pub pod_uid: String,

    /// The Kubernetes node the pod is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Which quorum, in which configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuorumIdentity {
    /// The name of the RedisQuorum.
    pub name: String,

    /// The fingerprint of its configuration: the names of its nodes, its majority and its longest lease.
    pub fingerprint: String,
}

/// A change of the holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transition {
    /// When it happened.
    pub time: Time,

    /// Why it happened, in one word of a fixed set.
    pub reason: String,

    /// Why it happened, in a sentence.
    pub message: String,

    /// The pod that held the lease before. Absent when nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,

    /// The pod that holds the lease since. Absent when nobody does.
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

    /// The cluster of the pod that held the lease.
    pub cluster: String,

    /// The pod that held the lease.
    pub pod: String,

    /// When the term began.
    pub acquire_time: Time,

    /// When the operator ended the term or found it lost.
    pub end_time: Time,

    /// Why it ended, in one word of a fixed set.
    pub reason: String,
}

/// The pods among which one is elected.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidatesStatus {
    /// How many pods were found.
    #[schemars(range(min = 0))]
    pub total: i32,

    /// How many of them may be elected now, the holder included.
    #[schemars(range(min = 0))]
    pub eligible: i32,

    /// Pods that may not be elected, by name, at most 20: the two numbers say how many there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_INELIGIBLE))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ineligible: Vec<IneligiblePod>,
}

/// A pod that may not be elected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IneligiblePod {
    /// The name of the pod.
    pub pod: String,

    /// Why it may not be elected.
    pub reason: String,
}
