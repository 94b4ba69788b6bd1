//! `RedisLease`: the spec, which users write.
#![allow(clippy::doc_markdown, reason = "kubectl explain shows these comments as plain text")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, RedisLeaseStatus, rules};

/// The desired state of the lease: the candidate pods, the quorum and the timing.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "redislease.io",
    version = "v1alpha1",
    kind = "RedisLease",
    plural = "redisleases",
    shortname = "rl",
    category = "redis-lease",
    namespaced,
    status = "RedisLeaseStatus",
    derive = "PartialEq",
    doc = "RedisLease elects one active pod among a set of pods. The lease is held on a quorum of independent Redis masters.",
    printcolumn = r#"{"name": "Active", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Active\")].status",
        "description": "Whether a pod of this cluster holds the lease."}"#,
    printcolumn = r#"{"name": "Holder", "type": "string", "jsonPath": ".status.holder.pod",
        "description": "The pod, or with granularity Cluster the workload, that holds the lease."}"#,
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".status.holder.cluster",
        "description": "The name of the cluster that the holder runs in."}"#,
    printcolumn = r#"{"name": "Token", "type": "integer", "format": "int64", "jsonPath": ".status.fencingToken",
        "description": "The fencing token of the latest term."}"#,
    printcolumn = r#"{"name": "Since", "type": "date", "jsonPath": ".status.acquireTime",
        "description": "How long the current holder has held the lease."}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status",
        "description": "Whether a pod of this or of another cluster holds the lease."}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason",
        "description": "The reason of the condition Ready."}"#,
    printcolumn = r#"{"name": "Last end", "type": "string", "priority": 1, "jsonPath": ".status.history[0].reason",
        "description": "Why the last term ended."}"#,
    printcolumn = r#"{"name": "Quorum", "type": "string", "priority": 1, "jsonPath": ".spec.quorumRef.name",
        "description": "The name of the RedisQuorum."}"#,
    printcolumn = r#"{"name": "Candidates", "type": "integer", "format": "int32", "priority": 1, "jsonPath": ".status.candidates.eligible",
        "description": "The number of pods that can be elected now, the holder included."}"#,
    printcolumn = r#"{"name": "Transitions", "type": "integer", "format": "int64", "priority": 1, "jsonPath": ".status.transitions",
        "description": "The number of terms that have begun."}"#,
    printcolumn = r#"{"name": "Node", "type": "string", "priority": 1, "jsonPath": ".status.holder.node",
        "description": "The Kubernetes node that the holder runs on."}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "priority": 1, "jsonPath": ".status.conditions[?(@.type==\"Ready\")].message",
        "description": "The message of the condition Ready."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "The time since the object was created."}"#,
    selectable = ".status.holder.pod",
    validation = rules::lease_name_fits_a_label_key(),
    validation = rules::status_is_kept(),
    validation = rules::fencing_token_never_decreases(),
)]
#[x_kube(
    validation = rules::immutable("quorumRef", rules::NEW_LEASE),
    validation = rules::optional_immutable("keys", rules::NEW_LEASE),
    validation = rules::lease_covers_three_renewals(),
    validation = rules::lease_covers_two_renewals_with_drift(),
    validation = rules::granularity_cluster_has_one_activation(),
    validation = rules::granularity_pod_has_its_activation(),
    validation = rules::scale_has_its_workload(),
    validation = rules::suspend_has_its_workload(),
    validation = rules::granularity_cluster_has_no_pod_fields(),
)]
pub struct RedisLeaseSpec {
    /// The RedisQuorum on which the lease is held. It must exist in the operator's namespace. Default: the RedisQuorum named default.
    /// Immutable: to change it, suspend the lease, wait one leaseDuration, then delete the RedisLease and create it again.
    #[serde(default)]
    pub quorum_ref: QuorumRef,

    /// The names that the lease locks on the quorum, 1 to 8 names of up to 128 characters. The lease holds all of them or none.
    /// Default: the name of this object. In clusters that share a quorum, RedisLeases with the same namespace name and the same keys
    /// are one lease. In one cluster, two RedisLeases of a namespace that share a key exclude each other.
    /// Immutable: to change it, suspend the lease, wait one leaseDuration, then delete the RedisLease and create it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), inner(length(max = 128)))]
    #[x_kube(validation = rules::keys_are_valid(), validation = rules::keys_are_unique(), merge_strategy = ListMerge::Atomic)]
    pub keys: Option<Vec<String>>,

    /// The pods from which the operator elects the holder.
    pub candidates: CandidatesSpec,

    /// What holds the lease. Pod: one of the candidate pods. Cluster: the workload of candidates.workloadRef, which then runs in one
    /// cluster only; activation says how. Default: Pod.
    #[serde(default)]
    pub granularity: Granularity,

    /// How long the lease lasts after its last successful renewal. Default: 30s. Another pod can acquire the lease only after
    /// this time, unless the old holder is proven to have stopped. A shorter lease makes a failover faster and tolerates shorter
    /// outages of Redis. Limits: at least 3 * renewInterval + gracePeriod + 1s, at most the quorum's maxLeaseDuration, and at most 1h.
    /// leaseDuration minus 1 % and 52 ms must be at least 2 * renewInterval + gracePeriod + 1s, because clocks drift.
    #[serde(default = "defaults::lease_duration")]
    #[x_kube(validation = rules::duration("leaseDuration", "1h"))]
    pub lease_duration: Duration,

    /// The time between two renewals of the lease. Default: 5s. Renewals do not call the API server. Limits: at least twice the
    /// quorum's commandTimeout, and at most 1h.
    #[serde(default = "defaults::renew_interval")]
    #[x_kube(validation = rules::duration("renewInterval", "1h"))]
    pub renew_interval: Duration,

    /// How long the holder has to stop when the lease is lost. Default: 10s. If the lease cannot be renewed, the operator changes
    /// the pod label to standby early: another pod can acquire the lease only gracePeriod plus 1s later. Limits: longer than 0s and
    /// at most 1h.
    #[serde(default = "defaults::grace_period")]
    #[x_kube(validation = rules::duration("gracePeriod", "1h"))]
    pub grace_period: Duration,

    /// How the operator repeats a failed attempt to acquire the lease. Renewals do not use these values.
    #[serde(default)]
    pub retry: RetrySpec,

    /// Which candidates can be elected, and when an unhealthy holder loses the lease.
    #[serde(default)]
    pub election: ElectionSpec,

    /// How the elected pod becomes active, in addition to its label. Default: only the label. With granularity Cluster: how the
    /// workload runs in one cluster only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationSpec>,

    /// If true, the operator ends the current term and elects no pod until the value is false again. Default: false.
    #[serde(default)]
    pub suspend: bool,
}

/// A reference to a RedisQuorum in the operator's namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumRef {
    /// The name of the RedisQuorum.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("quorumRef.name"))]
    pub name: String,
}

impl Default for QuorumRef {
    fn default() -> Self {
        Self { name: "default".into() }
    }
}

/// How the elected pod becomes active, in addition to its label; with granularity Cluster, how the workload runs in one cluster only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivationSpec {
    /// If true, only the elected pod starts. The pod template must have the scheduling gate lease.redislease.io/NAME, where NAME is
    /// the name of this RedisLease: Kubernetes does not start such pods. The operator removes the gate from the pod that it elects, and
    /// deletes the pod when it has lost the lease. A workload must then create a new pod, with the gate. Default: false. The operator
    /// must run with --allow-scheduling-gate.
    #[serde(default)]
    pub scheduling_gate: bool,

    /// With granularity Cluster: the operator sets spec.replicas of the Deployment or StatefulSet in candidates.workloadRef. The
    /// operator must run with --allow-scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleSpec>,

    /// With granularity Cluster: if true, the operator sets spec.suspend of the CronJob in candidates.workloadRef to false in the
    /// cluster that holds the lease, and to true in the others. Default: false. The operator must run with --allow-suspend.
    #[serde(default)]
    pub suspend: bool,
}

/// How many replicas a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleSpec {
    /// The number of replicas in the cluster that holds the lease, from 1 to 10000. In the others the number is 0.
    #[schemars(range(min = 1, max = 10_000))]
    pub replicas: i32,
}

/// What holds a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Granularity {
    #[default]
    #[allow(missing_docs)]
    Pod,
    #[allow(missing_docs)]
    Cluster,
}

/// The pods from which the operator elects the holder. They are in the namespace of the RedisLease.
/// Exactly one of selector and workloadRef must be set.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one_candidate_source())]
pub struct CandidatesSpec {
    /// Selects the candidate pods by label. It must have at least one label or expression, because an empty selector selects every
    /// pod of the namespace. It must not use a label key under redislease.io, because the operator writes these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = rules::selector_is_not_empty(),
        validation = rules::expressions_are_valid("candidates.selector"),
        validation = rules::selector_uses_no_key_of_ours(),
    )]
    pub selector: Option<LabelSelector>,

    /// A workload. Its pods are the candidates: those that its spec.selector selects. A CronJob has no selector: its candidates
    /// are the pods with all labels of its pod template, so these labels must distinguish it from other workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
}

/// A workload in the namespace of the RedisLease:
/// a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1, or a Job or CronJob of batch/v1.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::workload_kind_is_supported())]
pub struct WorkloadRef {
    /// The API version of the workload: apps/v1, or batch/v1 for a Job or CronJob.
    #[schemars(length(max = 63))]
    pub api_version: String,

    /// The kind of the workload: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job or CronJob.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// The name of the workload.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("workloadRef.name"))]
    pub name: String,
}

/// How the operator repeats a failed attempt to acquire the lease. Renewals do not use these values.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::min_delay_at_most_max_delay(),
    validation = rules::min_delay_is_long_enough(),
    validation = rules::max_delay_is_long_enough(),
    validation = rules::strategy_none_has_no_limit(),
)]
pub struct RetrySpec {
    /// How the delay grows after each failed attempt: Exponential doubles it, Linear adds minDelay. None makes one
    /// attempt, then pauses for one leaseDuration or until the keys can be free. Default: Exponential.
    #[serde(default)]
    pub strategy: RetryStrategy,

    /// The delay after the first failed attempt. Default: 100ms. Limits: at least 50ms, to protect the shared quorum, and at most
    /// maxDelay.
    #[serde(default = "defaults::min_delay")]
    #[x_kube(validation = rules::duration("retry.minDelay", "1h"))]
    pub min_delay: Duration,

    /// The longest delay between two attempts. Default: 10s. Limits: at least 1s and at most 1h.
    #[serde(default = "defaults::max_delay")]
    #[x_kube(validation = rules::duration("retry.maxDelay", "1h"))]
    pub max_delay: Duration,

    /// After this number of failed attempts in a row, the operator pauses. Minimum: 1. The pause ends when the keys can be free,
    /// the quorum is available again, the preferred candidate changes, or one leaseDuration has passed. Default: no pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<i32>,

    /// The random variation of each delay, up or down, in percent from 0 to 100. Default: 10. It keeps clusters that compete
    /// for one lease from retrying at the same moment.
    #[serde(default = "defaults::jitter")]
    #[schemars(range(min = 0, max = 100))]
    pub jitter: i32,
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self {
            strategy: RetryStrategy::default(),
            min_delay: defaults::min_delay(),
            max_delay: defaults::max_delay(),
            limit: None,
            jitter: defaults::jitter(),
        }
    }
}

/// How the delay grows after each failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RetryStrategy {
    // Documented variants would become a `oneOf`, which a structural schema does not allow.
    #[default]
    #[allow(missing_docs)]
    Exponential,
    #[allow(missing_docs)]
    Linear,
    #[allow(missing_docs)]
    None,
}

/// Which candidates can be elected, and when an unhealthy holder loses the lease.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElectionSpec {
    /// If true, only a Ready pod can be elected, and a holder that is not Ready for unhealthyAfter loses the lease.
    /// If false, the operator ignores readiness, and a holder that does not run for unhealthyAfter loses the lease. Default: true.
    #[serde(default = "defaults::require_ready")]
    pub require_ready: bool,

    /// How long the holder can be not Ready, or with requireReady false in another phase than Running, before it loses the lease. Default: one leaseDuration, but at least 5m with
    /// activation.schedulingGate, because the pod starts after its election. Limits: longer than 0s and at most 24h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration("election.unhealthyAfter", "24h"))]
    pub unhealthy_after: Option<Duration>,
}

impl Default for ElectionSpec {
    fn default() -> Self {
        Self { require_ready: defaults::require_ready(), unhealthy_after: None }
    }
}

mod defaults {
    use crate::api::Duration;

    pub(super) fn lease_duration() -> Duration {
        Duration::new("30s")
    }

    pub(super) fn renew_interval() -> Duration {
        Duration::new("5s")
    }

    pub(super) fn grace_period() -> Duration {
        Duration::new("10s")
    }

    pub(super) fn min_delay() -> Duration {
        Duration::new("100ms")
    }

    pub(super) fn max_delay() -> Duration {
        Duration::new("10s")
    }

    pub(super) const fn jitter() -> i32 {
        10
    }

    pub(super) const fn require_ready() -> bool {
        true
    }
}
