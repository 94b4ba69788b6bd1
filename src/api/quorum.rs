//! `RedisQuorum`: the independent Redis masters that leases are held on.
#![allow(clippy::duplicated_attributes, reason = "each printer column repeats the names of its attributes")]
#![allow(clippy::doc_markdown, reason = "kubectl explain shows the documentation of a field as it is")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, rules};

/// Which Redis nodes form the quorum and how they are spoken to. Honoured in the operator's own namespace only.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "redislease.io",
    version = "v1alpha1",
    kind = "RedisQuorum",
    plural = "redisquorums",
    shortname = "rq",
    category = "redis-lease",
    namespaced,
    status = "RedisQuorumStatus",
    derive = "PartialEq",
    doc = "A quorum of independent Redis masters that leases are held on."
)]
#[kube(printcolumn(
    name = "Ready",
    type_ = "string",
    json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
    description = "Whether leases can be taken on the quorum."
))]
#[kube(printcolumn(
    name = "Health",
    type_ = "string",
    json_path = r#".status.conditions[?(@.type=="QuorumHealthy")].reason"#,
    description = "How far the quorum is from losing its majority."
))]
#[kube(printcolumn(
    name = "Votes",
    type_ = "string",
    json_path = ".status.votes",
    description = "How many of the nodes give votes."
))]
#[kube(printcolumn(
    name = "Longest",
    type_ = "string",
    json_path = ".spec.maxLeaseDuration",
    description = "The longest lease the quorum takes."
))]
#[kube(printcolumn(
    name = "Reason",
    type_ = "string",
    priority = 1,
    json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
    description = "Why leases can be taken or not."
))]
#[kube(printcolumn(
    name = "Fingerprint",
    type_ = "string",
    priority = 1,
    json_path = ".status.fingerprint",
    description = "The fingerprint of the configuration."
))]
#[kube(printcolumn(
    name = "Age",
    type_ = "date",
    json_path = ".metadata.creationTimestamp",
    description = "How long the object has existed."
))]
#[x_kube(
    validation = rules::one_node_is_meant(),
    validation = rules::node_names_never_change(),
    validation = rules::addresses_change_one_at_a_time(),
    validation = rules::never_changes("keyPrefix", rules::NEW_QUORUM),
    validation = rules::max_lease_never_changes(),
)]
pub struct RedisQuorumSpec {
    /// The Redis masters, each independent of the others: no replica, no cluster slot, no two addresses of one server.
    /// An odd number is best: an even one tolerates no more failures than one less. The set of names cannot be changed.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(validation = rules::addresses_are_unique(), merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<QuorumNode>,

    /// What every Redis key of this quorum begins with. Operators that share leases share it; everybody else uses another. Cannot be changed.
    #[serde(default = "defaults::key_prefix")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::key_prefix_is_plain())]
    pub key_prefix: String,

    /// The longest leaseDuration a lease on this quorum may have, at most 1h. A node that restarted gives no votes for this long,
    /// since it may have forgotten a lease. The same in every cluster on this quorum. Cannot be changed.
    #[serde(default = "defaults::max_lease_duration")]
    #[x_kube(validation = rules::duration("maxLeaseDuration", "1h"))]
    pub max_lease_duration: Duration,

    /// How to authenticate. Absent: without a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<QuorumAuth>,

    /// How long a node may take to answer before its vote counts as unknown and its connection is given up.
    #[serde(default = "defaults::command_timeout")]
    #[x_kube(validation = rules::duration("commandTimeout", "1h"))]
    pub command_timeout: Duration,

    /// Allows a quorum of one node: no failure is tolerated, and a restart of that node ends every lease. For trials.
    #[serde(default)]
    pub allow_single_node: bool,
}

/// One Redis master.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumNode {
    /// What the node is called, for good: lower-case letters, digits and dashes.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::node_name_is_a_dns_label())]
    pub name: String,

    /// Where the node listens, as host:port, an IPv6 host in brackets. Change it only after the old server is stopped for good,
    /// or when the same server has moved.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::address_is_host_and_port())]
    pub address: String,
}

/// How to authenticate to every node of the quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumAuth {
    /// The secret that holds the password.
    pub secret_ref: SecretRef,
}

/// A secret in the quorum's own namespace: `password` and, for an ACL user, `username`. The type kubernetes.io/basic-auth fits.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// The name of the secret. Its data has the key password and, for an ACL user other than default, the key username.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("auth.secretRef.name"))]
    pub name: String,
}

/// How the quorum and each of its nodes are doing.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisQuorumStatus {
    /// The metadata.generation of the spec that this status answers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// What the markers on the nodes name: a hash of the names of the nodes, the majority and the longest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,

    /// How many of the nodes give votes, such as 2/3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<String>,

    /// The nodes, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<NodeStatus>,

    /// Ready and QuorumHealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// How one node is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The name of the node.
    pub name: String,

    /// Up gives votes, Down does not answer, Quarantined answers but may have forgotten a lease, Misconfigured must not be asked.
    pub state: NodeState,

    /// The version the server gives itself. Absent until it has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// By how many milliseconds the node's clock was ahead of the operator's when this status was written; negative is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset_millis: Option<i64>,

    /// What is wrong and what to do about it, or until when the node is quarantined. Absent when it is Up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a node is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    // The variants' documentation would turn the enum into a `oneOf`, which is no structural schema.
    #[allow(missing_docs)]
    Up,
    #[allow(missing_docs)]
    Down,
    #[allow(missing_docs)]
    Quarantined,
    #[allow(missing_docs)]
    Misconfigured,
}

impl NodeState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Quarantined, Self::Misconfigured];

    /// The state as it stands in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "Up",
            Self::Down => "Down",
            Self::Quarantined => "Quarantined",
            Self::Misconfigured => "Misconfigured",
        }
    }
}

mod defaults {
    use crate::api::Duration;

    pub(super) fn key_prefix() -> String {
        "redislease".into()
    }

    pub(super) fn max_lease_duration() -> Duration {
        Duration::new("60s")
    }

    pub(super) fn command_timeout() -> Duration {
        Duration::new("500ms")
    }
}
