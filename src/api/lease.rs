//! `RedisLease`: what a user asks for.
#![allow(clippy::duplicated_attributes, reason = "each printer column repeats the names of its attributes")]
#![allow(clippy::doc_markdown, reason = "kubectl explain shows the documentation of a field as it is")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, RedisLeaseStatus, rules};

/// What to elect among, on which quorum, and how fast.
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
    doc = "A lease held on a quorum of independent Redis masters, so that exactly one pod of a workload is active.",
    selectable = ".status.holder.pod",
    validation = rules::lease_name_fits_a_label(),
    validation = rules::status_never_vanishes(),
    validation = rules::fencing_token_never_falls(),
)]
#[kube(printcolumn(
    name = "Active",
    type_ = "string",
    json_path = r#".status.conditions[?(@.type=="Active")].status"#,
    description = "Whether a pod of this cluster holds the lease."
))]
#[kube(printcolumn(
    name = "Holder",
    type_ = "string",
    json_path = ".status.holder.pod",
    description = "The pod that holds the lease."
))]
#[kube(printcolumn(
    name = "Cluster",
    type_ = "string",
    json_path = ".status.holder.cluster",
    description = "The cluster the holder runs in."
))]
#[kube(printcolumn(
    name = "Token",
    type_ = "integer",
    format = "int64",
    json_path = ".status.fencingToken",
    description = "The greatest fencing token this lease has had."
))]
#[kube(printcolumn(
    name = "Since",
    type_ = "date",
    json_path = ".status.acquireTime",
    description = "How long the holder has held the lease."
))]
#[kube(printcolumn(
    name = "Ready",
    type_ = "string",
    json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
    description = "Whether the lease is held, here or in another cluster."
))]
#[kube(printcolumn(
    name = "Reason",
    type_ = "string",
    priority = 1,
    json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
    description = "Why the lease is ready or not."
))]
#[kube(printcolumn(
    name = "Quorum",
    type_ = "string",
    priority = 1,
    json_path = ".spec.quorumRef.name",
    description = "The RedisQuorum the lease is held on."
))]
#[kube(printcolumn(
    name = "Candidates",
    type_ = "integer",
    format = "int32",
    priority = 1,
    json_path = ".status.candidates.eligible",
    description = "How many pods may be elected now."
))]
#[kube(printcolumn(
    name = "Transitions",
    type_ = "integer",
    format = "int64",
    priority = 1,
    json_path = ".status.transitions",
    description = "How often the holder has changed."
))]
#[kube(printcolumn(
    name = "Node",
    type_ = "string",
    priority = 1,
    json_path = ".status.holder.node",
    description = "The Kubernetes node the holder runs on."
))]
#[kube(printcolumn(
    name = "Age",
    type_ = "date",
    json_path = ".metadata.creationTimestamp",
    description = "How long the object has existed."
))]
#[x_kube(
    validation = rules::never_changes("quorumRef", rules::NEW_LEASE),
    validation = rules::optional_never_changes("keys", rules::NEW_LEASE),
    validation = rules::lease_outlasts_three_renewals_and_the_stop(),
    validation = rules::lease_outlasts_two_renewals_by_any_clock(),
)]
pub struct RedisLeaseSpec {
    /// The RedisQuorum that holds the lease, in the operator's own namespace. Cannot be changed: delete the lease and create it again.
    #[serde(default)]
    pub quorum_ref: QuorumRef,

    /// The names taken on the quorum, all or none, under this object's namespace. Default: the name of this object.
    /// Leases with the same namespace and keys in several clusters are one lease. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), inner(length(max = 128)))]
    #[x_kube(validation = rules::keys_are_names(), validation = rules::keys_are_unique(), merge_strategy = ListMerge::Atomic)]
    pub keys: Option<Vec<String>>,

    /// The pods among which one is elected.
    pub candidates: CandidatesSpec,

    /// How long the lease outlives its last renewal: what a failover takes when nobody can prove that the holder stopped.
    /// At most 1h, at most the quorum's maxLeaseDuration, and at least 3 * renewInterval + gracePeriod + 1s; less 1 %, by which clocks may
    /// differ, at least 2 * renewInterval + gracePeriod + 1s.
    #[serde(default = "defaults::lease_duration")]
    #[x_kube(validation = rules::duration("leaseDuration", "1h"))]
    pub lease_duration: Duration,

    /// How often the lease is renewed. At least twice the quorum's commandTimeout.
    #[serde(default = "defaults::renew_interval")]
    #[x_kube(validation = rules::duration("renewInterval", "1h"))]
    pub renew_interval: Duration,

    /// How long the holder gets to stop before the lease can end: it is told to stop this long, and 1s, before anybody else may start.
    #[serde(default = "defaults::grace_period")]
    #[x_kube(validation = rules::duration("gracePeriod", "1h"))]
    pub grace_period: Duration,

    /// How an attempt to take the lease is repeated when it failed.
    #[serde(default)]
    pub retry: RetrySpec,

    /// Who may be elected, and when a holder loses the lease.
    #[serde(default)]
    pub election: ElectionSpec,

    /// Ends the current term and elects nobody until it is false again.
    #[serde(default)]
    pub suspend: bool,
}

/// The RedisQuorum a lease is held on.
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

/// The pods among which one is elected, all of them in the lease's namespace: exactly one of the fields is set.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::one_way_to_name_candidates())]
pub struct CandidatesSpec {
    /// Pods with these labels. At least one label or expression: an empty selector would elect among every pod of the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::selector_selects(), validation = rules::expressions_are_complete())]
    pub selector: Option<LabelSelector>,

    /// The pods that the selector of this workload selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
}

/// A workload in the lease's namespace whose own selector selects the candidates:
/// a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1, or a Job of batch/v1.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::workload_has_a_pod_selector())]
pub struct WorkloadRef {
    /// apps/v1, or batch/v1 for a Job.
    #[schemars(length(max = 63))]
    pub api_version: String,

    /// Deployment, StatefulSet, DaemonSet, ReplicaSet or Job.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// The name of the workload.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("workloadRef.name"))]
    pub name: String,
}

/// How an attempt to take the lease is repeated when it failed. Renewals do not depend on it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::delays_are_ordered(),
    validation = rules::first_delay_is_a_pause(),
    validation = rules::delays_may_grow(),
    validation = rules::no_retry_has_no_limit(),
)]
pub struct RetrySpec {
    /// How the delay grows from try to try: Exponential doubles it, Linear adds minDelay, None tries once.
    #[serde(default)]
    pub strategy: RetryStrategy,

    /// The delay after the first failed try, at least 50ms: the quorum is shared.
    #[serde(default = "defaults::min_delay")]
    #[x_kube(validation = rules::duration("retry.minDelay", "1h"))]
    pub min_delay: Duration,

    /// The longest delay between two tries, at least 1s.
    #[serde(default = "defaults::max_delay")]
    #[x_kube(validation = rules::duration("retry.maxDelay", "1h"))]
    pub max_delay: Duration,

    /// After how many tries in a row to pause until the keys can be free, the quorum is back, another pod comes first or one leaseDuration has passed.
    /// Default: no pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<i32>,

    /// By how many percent a delay is varied at random, up or down, so that contenders do not meet again and again.
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

/// How the delay between two tries grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RetryStrategy {
    // The variants' documentation would turn the enum into a `oneOf`, which is no structural schema.
    #[default]
    #[allow(missing_docs)]
    Exponential,
    #[allow(missing_docs)]
    Linear,
    #[allow(missing_docs)]
    None,
}

/// Who may be elected, and when a holder loses the lease.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::unhealthy_needs_readiness())]
pub struct ElectionSpec {
    /// Whether only a Ready pod may be elected and stay the holder. If false, readiness is ignored for both.
    #[serde(default = "defaults::require_ready")]
    pub require_ready: bool,

    /// How long the holder may be not Ready before it loses the lease; a shorter lapse moves nothing. Default: one leaseDuration.
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
