//! `RedisQuorum`: the independent Redis masters on which leases are held.
#![allow(clippy::doc_markdown, reason = "kubectl explain shows these comments as plain text")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, lenient, rules};

/// The desired state of the quorum: its Redis nodes and how the operator connects to them. The operator uses RedisQuorums in its own
/// namespace only.
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
    doc = "RedisQuorum names the independent Redis masters on which leases are held. It must be in the operator's namespace.",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status",
        "description": "Whether leases can be acquired on the quorum."}"#,
    printcolumn = r#"{"name": "Health", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"QuorumHealthy\")].reason",
        "description": "The reason of the condition QuorumHealthy."}"#,
    printcolumn = r#"{"name": "Votes", "type": "string", "jsonPath": ".status.votes",
        "description": "The number of nodes that vote, and the number of all nodes."}"#,
    printcolumn = r#"{"name": "Longest", "type": "string", "jsonPath": ".spec.maxLeaseDuration",
        "description": "The longest leaseDuration that a lease on this quorum can have."}"#,
    printcolumn = r#"{"name": "Leader", "type": "string", "jsonPath": ".status.leader.instance",
        "description": "The replica of the operator that decides about the leases on this quorum."}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason",
        "description": "The reason of the condition Ready."}"#,
    printcolumn = r#"{"name": "Fingerprint", "type": "string", "priority": 1, "jsonPath": ".status.fingerprint",
        "description": "A hash of the quorum's configuration."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "The time since the object was created."}"#
)]
#[x_kube(
    validation = rules::single_node_is_allowed_explicitly(),
    validation = rules::node_names_are_immutable(),
    validation = rules::addresses_change_one_at_a_time(),
    validation = rules::immutable("keyPrefix", rules::NEW_QUORUM),
    validation = rules::max_lease_is_immutable(),
)]
pub struct RedisQuorumSpec {
    /// The Redis nodes, 1 to 9. Each must be an independent Redis master: no replica, no member of a Redis Cluster, and no second
    /// address of another node. A majority of them must vote. Use an odd number: 4 nodes tolerate no more failures than 3.
    /// The set of node names is immutable; one address can change per update.
    #[schemars(length(min = 1, max = 9))]
    #[x_kube(validation = rules::addresses_are_unique(), merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<QuorumNode>,

    /// The prefix of all Redis keys of this quorum. Default: redislease. Up to 63 letters, digits, '.', '_' and '-'. Clusters that
    /// share leases must use the same prefix. Other users of the same Redis servers must use another one. Immutable.
    #[serde(default = "defaults::key_prefix")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::key_prefix_is_valid())]
    pub key_prefix: String,

    /// The longest leaseDuration that a lease on this quorum can have. Default: 60s. Limits: at least 1s and at most 1h. A new or
    /// restarted node does not vote for this time plus 1 %, because it may have lost the key of a lease. All clusters that share
    /// the quorum must use the same value. Immutable.
    #[serde(default = "defaults::max_lease_duration")]
    #[x_kube(validation = rules::duration_from("1s", "maxLeaseDuration", "1h"))]
    pub max_lease_duration: Duration,

    /// How the operator authenticates to the nodes. Default: no authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<QuorumAuth>,

    /// TLS for the connections to all nodes. Default: connections without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<QuorumTls>,

    /// Selects the namespaces whose leases may use this quorum, by the labels of the namespace. Default: all namespaces. Select one
    /// by name with the label kubernetes.io/metadata.name. A lease in another namespace has the reason InvalidReference, as if
    /// this quorum did not exist; its running term ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::expressions_are_valid("allowedNamespaces"))]
    pub allowed_namespaces: Option<LabelSelector>,

    /// How long the operator waits for the answer of a node. Default: 500ms. After this time the vote counts as unknown and the
    /// operator reconnects. Limits: at least 10ms, at most half of the renewInterval of each lease on this quorum, and at most 5s.
    #[serde(default = "defaults::command_timeout")]
    #[x_kube(validation = rules::duration_from("10ms", "commandTimeout", "5s"))]
    pub command_timeout: Duration,

    /// If true, the quorum can have a single node. Default: false. Use it for tests only: a single node tolerates no failure, and
    /// its restart ends every lease.
    #[serde(default)]
    pub allow_single_node: bool,
}

/// A Redis node of the quorum.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumNode {
    /// The name of the node: up to 63 lower-case letters, digits and dashes. Immutable.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::node_name_is_a_dns_label())]
    pub name: String,

    /// The address of the node as host:port, for example redis-0.redis:6379. An IPv6 address must be in brackets. Change it only if
    /// the same server has moved, or after the old server has been stopped for good. Otherwise two servers could vote under one
    /// name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::address_is_host_and_port())]
    pub address: String,

    /// The zone that the node fails with, for example a data center. Default: none. redislease doctor warns if a quorum would be
    /// lost with one zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub zone: Option<String>,
}

/// How the operator authenticates to every node of the quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumAuth {
    /// The Secret with the password.
    pub secret_ref: SecretRef,
}

/// A Secret in the namespace of the RedisQuorum. It has the key password and, for a Redis ACL user, the key username. The type
/// kubernetes.io/basic-auth works.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// The name of the Secret. Its data has the key password and, for a Redis ACL user other than default, the key username.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("auth.secretRef.name"))]
    pub name: String,
}

/// TLS for the connections to every node of the quorum.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuorumTls {
    /// The Secret with the certificates.
    pub secret_ref: TlsSecretRef,

    /// The name that the certificate of every node must contain: a DNS name or an IP address. Default: the host of the node's
    /// address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::server_name_is_valid())]
    pub server_name: Option<String>,
}

/// A Secret in the namespace of the RedisQuorum. It has the key ca.crt with the certificates, in PEM, of the authorities that signed
/// the certificates of the nodes. For mutual TLS it also has the keys tls.crt and tls.key with the operator's certificate and
/// private key. The type kubernetes.io/tls works. The operator reads it every 15 s and uses new certificates for new connections.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSecretRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("tls.secretRef.name"))]
    pub name: String,
}

/// The observed state of the quorum and of each node. The operator writes this.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedisQuorumStatus {
    /// The metadata.generation of the spec that the operator processed last.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// A hash of the node names, the majority, maxLeaseDuration and keyPrefix. The operator stores it on each node in a marker key. A
    /// node whose marker names another fingerprint does not vote.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,

    /// The number of nodes that vote, and the number of all nodes, for example 2/3.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub votes: Option<String>,

    /// The replica of this cluster's operator that decides about the leases on this quorum. It changes only when another replica
    /// takes over. Absent until the first replica is elected.
    #[serde(default, deserialize_with = "lenient::value", skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,

    /// The nodes, sorted by name.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<NodeStatus>,

    /// The conditions Ready and QuorumHealthy.
    #[serde(default, deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The replica of the operator that decides about the leases on a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The name of the replica: its pod, or the host it runs on.
    pub instance: String,

    /// When it took over.
    pub since: Time,

    /// How often another replica has taken over.
    #[schemars(range(min = 0))]
    pub transitions: i64,

    /// Whether the replica wrote its name without the lock, because the quorum is lost: a leader that still runs writes its name back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
}

/// The observed state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The name of the node.
    pub name: String,

    /// Only a node in state Up votes. Down: the node does not answer. Quarantined: the node is new or has restarted, and votes after
    /// maxLeaseDuration. Misconfigured: the node cannot be used as it is configured, see message.
    pub state: NodeState,

    /// The version that the Redis server reports. Absent until the server has answered once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The node's clock minus the operator's clock in milliseconds, rounded to 100 ms. It is updated when it has changed by 500 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset_millis: Option<i64>,

    /// Why the node does not vote, and what to do. In the state Up: that the node did not accept the current password or certificate, and
    /// an earlier one is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The last error with which the Redis server refused a command, such as out of memory or a missing permission. It stays after the
    /// refusal has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<String>,
}

impl NodeStatus {
    /// Precedes the end of the quarantine, as a timestamp, at the end of the message of a quarantined node.
    pub const VOTES_AGAIN: &str = "; it votes again from ";

    /// When a quarantined node votes again, unless it loses its data again.
    pub fn votes_again_at(&self) -> Option<jiff::Timestamp> {
        let (_, at) = self.message.as_deref()?.split_once(Self::VOTES_AGAIN)?;
        at.parse().ok().filter(|_| self.state == NodeState::Quarantined)
    }
}

/// The state of a Redis node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    // Documented variants would become a `oneOf`, which a structural schema does not allow.
    #[allow(missing_docs)]
    Up,
    #[allow(missing_docs)]
    Down,
    #[allow(missing_docs)]
    Quarantined,
    #[allow(missing_docs)]
    Misconfigured,
}

words!(NodeState: Up, Down, Quarantined, Misconfigured);

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
