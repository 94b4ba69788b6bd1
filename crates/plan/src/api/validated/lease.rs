use core::time::Duration;
use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::core::Selector;
use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::time::{Drift, Millis};

use super::error::{MAX_LEASE, Reader};
use super::{InvalidSpec, ValidQuorum, selector};
use crate::api::lease::{
    ActivationSpec, CandidatesSpec, ElectionSpec, Granularity, RetrySpec, RetryStrategy, ScaleSpec, WorkloadRef,
};
use crate::api::{RedisLease, RedisLeaseSpec, duration, names};

/// The part of the stop budget beyond the grace period: 1 s to reap the holder's processes after SIGKILL.
pub const REAP_MARGIN: Duration = Duration::from_secs(1);
/// The maximum of `election.unhealthyAfter`: 24 h. To ignore readiness, users set `election.requireReady: false`.
const MAX_UNHEALTHY: Duration = Duration::from_hours(24);
const MAX_KEYS: usize = 8;
const MAX_KEY_LENGTH: usize = 128;

/// A `RedisLease` with a valid spec.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidLease {
    /// The namespace of the lease, of its candidates and of its keys.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The keys that the lease locks: at least one, unique, and sorted, so that their order in the spec has no effect.
    pub keys: Vec<String>,
    /// Which pods are candidates.
    pub candidates: Candidates,
    /// How long the lease lasts after its last renewal.
    pub lease_duration: Duration,
    /// The time between two renewals.
    pub renew_interval: Duration,
    /// How long the holder has to stop.
    pub grace_period: Duration,
    /// How failed attempts to acquire the lease are repeated.
    pub retry: Backoff,
    /// Whether readiness matters for elections.
    pub readiness: Readiness,
    /// Whether only the elected pod starts.
    pub gated: bool,
    /// How the workload is switched, if the lease is held by a cluster.
    pub cluster: Option<ClusterActivation>,
    /// Whether `spec.suspend` is true: the term ends and no pod is elected.
    pub suspended: bool,
}

/// Which pods of the lease's namespace are candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidates {
    /// The pods that this selector selects.
    Selector(Selector),
    /// The pods that the workload's `spec.selector` selects. For a CronJob: the pods with the labels of its pod template.
    Workload(Workload),
}

/// A workload in the lease's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// The kind, which fixes the API group and version.
    pub kind: WorkloadKind,
    /// `metadata.name`, in the namespace of the lease.
    pub name: String,
}

/// The supported kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` `StatefulSet`.
    StatefulSet,
    /// `apps/v1` `DaemonSet`.
    DaemonSet,
    /// `apps/v1` `ReplicaSet`.
    ReplicaSet,
    /// `batch/v1` Job.
    Job,
    /// `batch/v1` `CronJob`.
    CronJob,
}

words!(WorkloadKind: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob);

impl WorkloadKind {
    /// The `apiVersion` in a manifest.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Job | Self::CronJob => "batch/v1",
            Self::Deployment | Self::StatefulSet | Self::DaemonSet | Self::ReplicaSet => "apps/v1",
        }
    }

    /// Whether the operator reads annotations of such a workload, and creates a lease for it.
    pub const fn gets_leases(self) -> bool {
        !matches!(self, Self::ReplicaSet)
    }

    /// Whether its pods end by themselves, so that most of the time none may run.
    pub const fn runs_to_completion(self) -> bool {
        matches!(self, Self::Job | Self::CronJob)
    }
}

/// How the workload of a lease with granularity Cluster runs in one cluster only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterActivation {
    /// A Deployment or StatefulSet has this number of replicas in the cluster that holds the lease, and 0 in the others.
    Scale(i32),
    /// A `CronJob` is suspended in the clusters that do not hold the lease.
    Suspend,
}

/// Whether readiness matters for elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether only a Ready pod can be elected. Otherwise readiness has no effect.
    pub required: bool,
    /// How long a holder can be not Ready, or in another phase than Running if readiness has no effect, before it loses the lease.
    pub unhealthy_after: Duration,
}

impl Readiness {
    /// While the spec is not known, no holder is unhealthy.
    pub const UNKNOWN: Self = Self { required: false, unhealthy_after: Duration::MAX };
}

impl TryFrom<&RedisLease> for ValidLease {
    type Error = InvalidSpec;

    fn try_from(lease: &RedisLease) -> Result<Self, InvalidSpec> {
        let namespace = lease.namespace().unwrap_or_default();
        let name = lease.name_any();
        let read = Reader::new("RedisLease", &namespace, &name);
        let fits = (1..=names::MAX_LEASE_NAME).contains(&name.len());
        let must = "have 1 to 63 characters, because it becomes part of a pod label key";
        read.require(fits, "metadata.name", &name, must)?;
        let spec = &lease.spec;
        let quorum = &spec.quorum_ref.name;
        read.require(names::is_object_name(quorum), "spec.quorumRef.name", quorum, "be the name of a RedisQuorum")?;
        let lease_duration = read.duration("spec.leaseDuration", &spec.lease_duration)?;
        let gated = spec.activation.is_some_and(|activation| activation.scheduling_gate);
        let cluster = cluster_activation(&read, spec)?;
        let start = if gated { lease_duration.max(LONGEST_START) } else { lease_duration };
        let valid = Self {
            keys: keys(&read, spec, &name)?,
            candidates: candidates(&read, &spec.candidates)?,
            lease_duration,
            renew_interval: read.duration("spec.renewInterval", &spec.renew_interval)?,
            grace_period: read.duration("spec.gracePeriod", &spec.grace_period)?,
            retry: retry(&read, &spec.retry)?,
            readiness: if cluster.is_some() { Readiness::UNKNOWN } else { readiness(&read, &spec.election, start)? },
            gated,
            cluster,
            suspended: spec.suspend,
            namespace,
            name,
        };
        let [for_three, for_two] = shortest_durations(valid.renew_interval, valid.stop_budget());
        let (renew, grace) = (&spec.renew_interval, &spec.grace_period);
        let must = format!(
            "be at least 3 * renewInterval ({renew}) + gracePeriod ({grace}) + 1s: the old holder must stop before another pod starts"
        );
        read.require(valid.lease_duration >= for_three, "spec.leaseDuration", &spec.lease_duration, must)?;
        let must = format!(
            "be, minus 1 % and 52 ms for clocks, at least 2 * renewInterval ({renew}) + gracePeriod ({grace}) + 1s: otherwise the lease is lost between two renewals"
        );
        read.require(valid.lease_duration >= for_two, "spec.leaseDuration", &spec.lease_duration, must)?;
        Ok(valid)
    }
}

/// The shortest lease durations for this renew interval and stop budget by two rules: there is time for three renewals, and with the
/// maximal clock drift the deadline to stop still comes after the second one.
fn shortest_durations(renew_interval: Duration, stop_budget: Duration) -> [Duration; 2] {
    let second_renewal = 2 * renew_interval + stop_budget;
    [3 * renew_interval + stop_budget, Drift::STANDARD.covering(second_renewal.into()).into()]
}

/// The shortest valid lease duration for this renew interval and grace period, in whole seconds. `None`: no lease may last that long.
pub fn shortest_lease(renew_interval: Duration, grace_period: Duration) -> Option<Duration> {
    let shortest = shortest_durations(renew_interval, grace_period + REAP_MARGIN).into_iter().max()?;
    let seconds = u64::try_from(shortest.as_millis().div_ceil(1000)).ok()?;
    Some(Duration::from_secs(seconds)).filter(|seconds| *seconds <= MAX_LEASE)
}

impl ValidLease {
    /// The kind of the workload that is the only candidate; `None` if the candidates are pods.
    pub const fn candidate_kind(&self) -> Option<WorkloadKind> {
        match (&self.candidates, self.cluster) {
            (Candidates::Workload(workload), Some(_)) => Some(workload.kind),
            _ => None,
        }
    }

    /// The time between the deadline to stop (`stop_at`) and the end of the lease: the grace period plus 1 s. The holder must
    /// stop within it.
    pub fn stop_budget(&self) -> Duration {
        self.grace_period + REAP_MARGIN
    }

    /// Checks the two rules that compare fields of the lease with fields of the quorum.
    ///
    /// # Errors
    /// The first rule that is violated, as a sentence.
    pub fn check_against(&self, quorum: &ValidQuorum) -> Result<(), String> {
        let Self { namespace, name, lease_duration, renew_interval, .. } = self;
        let ValidQuorum { namespace: quorum_namespace, name: quorum_name, max_lease, command_timeout, .. } = quorum;
        let shown = |duration: &Duration| duration::Duration::from(*duration);
        // A restarted node could lose a key of the lease and vote again while the lease is still valid.
        if lease_duration > max_lease {
            return Err(format!(
                "RedisLease {namespace}/{name}: spec.leaseDuration ({}) must be at most spec.maxLeaseDuration ({}) of RedisQuorum \
                 {quorum_namespace}/{quorum_name}: use a shorter leaseDuration or another quorum",
                shown(lease_duration),
                shown(max_lease)
            ));
        }
        // A failed renewal must fit into an interval together with its retry.
        if *renew_interval < 2 * *command_timeout {
            return Err(format!(
                "RedisLease {namespace}/{name}: spec.renewInterval ({}) must be at least 2 * spec.commandTimeout ({}) of RedisQuorum \
                 {quorum_namespace}/{quorum_name}: use a longer renewInterval or a shorter commandTimeout",
                shown(renew_interval),
                shown(command_timeout)
            ));
        }
        Ok(())
    }
}

/// Checks the rules about `granularity` and returns how the workload is switched.
fn cluster_activation(read: &Reader, spec: &RedisLeaseSpec) -> Result<Option<ClusterActivation>, InvalidSpec> {
    let ActivationSpec { scheduling_gate, scale, suspend } = spec.activation.unwrap_or_default();
    if spec.granularity == Granularity::Pod {
        let must =
            "be absent, or granularity be Cluster: scale and suspend start and stop the whole workload of a cluster";
        let field = if suspend { "suspend" } else { "scale" };
        read.require(scale.is_none() && !suspend, "spec.activation", field, must)?;
        return Ok(None);
    }
    let kind = spec.candidates.workload_ref.as_ref().map_or("", |workload| workload.kind.as_str());
    for (field, is_set) in [
        ("spec.election.unhealthyAfter", spec.election.unhealthy_after.is_some()),
        ("spec.activation.schedulingGate", scheduling_gate),
    ] {
        read.require(!is_set, field, "set", "be absent with granularity Cluster, which elects no pod")?;
    }
    let of_kind = |kinds: &[&str], activation| {
        let must = format!("have the kind {}", kinds.join(" or "));
        let named = if kind.is_empty() { "none" } else { kind };
        read.require(kinds.contains(&kind), "spec.candidates.workloadRef", named, must)?;
        Ok(Some(activation))
    };
    match (scale, suspend) {
        (Some(ScaleSpec { replicas }), false) => {
            read.require(replicas >= 1, "spec.activation.scale.replicas", replicas, "be at least 1")?;
            of_kind(&["Deployment", "StatefulSet"], ClusterActivation::Scale(replicas))
        }
        (None, true) => of_kind(&["CronJob"], ClusterActivation::Suspend),
        (Some(_), true) | (None, false) => Err(read.invalid(
            "spec.activation",
            if suspend { "scale and suspend" } else { "neither" },
            "have exactly one of scale and suspend: true with granularity Cluster",
        )),
    }
}

fn keys(read: &Reader, spec: &RedisLeaseSpec, name: &str) -> Result<Vec<String>, InvalidSpec> {
    let Some(keys) = &spec.keys else {
        return Ok(vec![name.to_owned()]);
    };
    let all = keys.join(", ");
    read.require((1..=MAX_KEYS).contains(&keys.len()), "spec.keys", &all, "have 1 to 8 entries, or be absent")?;
    for key in keys {
        let must = "consist of 1 to 128 letters, digits, '.', '_', ':' and '-'; '/' is not allowed";
        read.require(is_key(key), "spec.keys", key, must)?;
    }
    let unique: BTreeSet<&String> = keys.iter().collect();
    read.require(unique.len() == keys.len(), "spec.keys", all, "be unique")?;
    Ok(unique.into_iter().cloned().collect())
}

fn is_key(key: &str) -> bool {
    (1..=MAX_KEY_LENGTH).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}

fn candidates(read: &Reader, spec: &CandidatesSpec) -> Result<Candidates, InvalidSpec> {
    let field = "spec.candidates.selector";
    match (&spec.selector, &spec.workload_ref) {
        (Some(labels), None) => {
            let selector = selector::parse(read, field, labels)?;
            let must = "have matchLabels or matchExpressions: an empty selector selects every pod of the namespace";
            read.require(!selector.selects_all(), field, &selector, must)?;
            for key in selector::keys(labels) {
                let must = "not use a label key under redislease.io: the operator writes these labels, so its own writes would change \
                            which pods are candidates";
                read.require(!names::is_reserved_label(key), field, key, must)?;
            }
            Ok(Candidates::Selector(selector))
        }
        (None, Some(workload)) => workload_ref(read, workload).map(Candidates::Workload),
        (selector, _) => {
            let named = if selector.is_some() { "selector and workloadRef" } else { "" };
            Err(read.invalid("spec.candidates", named, "have exactly one of selector and workloadRef"))
        }
    }
}

fn workload_ref(read: &Reader, workload: &WorkloadRef) -> Result<Workload, InvalidSpec> {
    let kind = WorkloadKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == workload.kind && kind.api_version() == workload.api_version)
        .ok_or_else(|| {
            read.invalid(
                "spec.candidates.workloadRef",
                format!("{} {}", workload.api_version, workload.kind),
                "be a Deployment, StatefulSet, DaemonSet or ReplicaSet of apps/v1 or a Job or CronJob of batch/v1",
            )
        })?;
    let field = "spec.candidates.workloadRef.name";
    read.require(names::is_object_name(&workload.name), field, &workload.name, "be the name of a workload")?;
    Ok(Workload { kind, name: workload.name.clone() })
}

/// The minimum of `retry.minDelay`. A quorum is shared: attempts without a pause would slow down the renewals of other leases.
const LEAST_MIN_DELAY: Duration = Duration::from_millis(50);
/// The minimum of `retry.maxDelay`.
const LEAST_MAX_DELAY: Duration = Duration::from_secs(1);

fn retry(read: &Reader, spec: &RetrySpec) -> Result<Backoff, InvalidSpec> {
    let min_delay = read.duration("spec.retry.minDelay", &spec.min_delay)?;
    let max_delay = read.duration("spec.retry.maxDelay", &spec.max_delay)?;
    read.require(min_delay >= LEAST_MIN_DELAY, "spec.retry.minDelay", &spec.min_delay, "be at least 50ms")?;
    read.require(max_delay >= LEAST_MAX_DELAY, "spec.retry.maxDelay", &spec.max_delay, "be at least 1s")?;
    let must = format!("be at most retry.maxDelay ({})", spec.max_delay);
    read.require(min_delay <= max_delay, "spec.retry.minDelay", &spec.min_delay, must)?;
    let mut limit = None;
    if let Some(number) = spec.limit {
        limit = u32::try_from(number).ok().filter(|limit| *limit >= 1);
        read.require(limit.is_some(), "spec.retry.limit", number, "be at least 1, or absent")?;
    }
    if spec.strategy == RetryStrategy::None {
        let once = limit.unwrap_or(1);
        let must = "be absent or 1 if retry.strategy is None, because None pauses after each attempt";
        read.require(once == 1, "spec.retry.limit", once, must)?;
        limit = Some(1);
    }
    let jitter = u32::try_from(spec.jitter)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| read.invalid("spec.retry.jitter", spec.jitter, "be a percentage from 0 to 100"))?;
    let strategy = match spec.strategy {
        RetryStrategy::Exponential => Strategy::Exponential,
        RetryStrategy::Linear => Strategy::Linear,
        RetryStrategy::None => Strategy::None,
    };
    Ok(Backoff { strategy, min: Millis::from(min_delay), max: Millis::from(max_delay), limit, jitter })
}

/// How long a pod that is started only after its election can take to become Ready, if the spec does not say it: its node may
/// have to be created, and its images to be pulled.
const LONGEST_START: Duration = Duration::from_mins(5);

fn readiness(read: &Reader, spec: &ElectionSpec, unhealthy_after: Duration) -> Result<Readiness, InvalidSpec> {
    let unhealthy_after = match &spec.unhealthy_after {
        None => unhealthy_after,
        Some(text) => read.duration_up_to(MAX_UNHEALTHY, "spec.election.unhealthyAfter", text)?,
    };
    Ok(Readiness { required: spec.require_ready, unhealthy_after })
}
