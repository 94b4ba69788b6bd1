//! Metrics of the operator's own work.

use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use redislease_plan::api::validated::WorkloadKind;
use redislease_plan::plan::calls::{Request, Verdict};

use super::families::Families;
use super::panics::Panics;

/// The results of a reconciliation.
const RESULTS: [&str; 2] = ["success", "error"];

/// Buckets from a turn without work to a quorum whose Secret is read from a slow API server, in seconds.
const SECONDS: [f64; 9] = [0.00005, 0.0002, 0.001, 0.005, 0.02, 0.1, 0.5, 2.5, 10.0];

/// The priorities of calls to the API server, the most urgent first.
const LEVELS: [&str; 6] = ["end", "publication", "active", "standby", "counts", "event"];

/// The value of the same label for leases whose next attempt waits until fewer leases acquire and publish.
const ATTEMPT: &str = "attempt";

/// The kinds of writes to the API server.
const WRITES: [&str; 5] = ["lease_status", "quorum_status", "pod_role", "lease", "event"];

/// The kind of a write as a label value; `None` for a read.
const fn write_label(request: &Request) -> Option<&'static str> {
    match request {
        Request::LeaseStatus { .. } => Some("lease_status"),
        Request::QuorumStatus { .. } => Some("quorum_status"),
        Request::Role { .. } => Some("pod_role"),
        Request::LeaseChange(_) => Some("lease"),
        Request::Event { .. } => Some("event"),
        _ => None,
    }
}

/// The outcomes of a write.
const OUTCOMES: [&str; 4] = ["ok", "conflict", "error", "timeout"];

/// The outcome of a write as a label value.
const fn outcome_label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Done => "ok",
        Verdict::Conflict | Verdict::Raced => "conflict",
        // It was refused, or could not be sent.
        Verdict::Refused | Verdict::Panicked => "error",
        Verdict::Unanswered => "timeout",
    }
}

/// The kinds of objects of others that the operator writes to.
const KINDS: [Option<WorkloadKind>; 4] =
    [None, Some(WorkloadKind::Deployment), Some(WorkloadKind::StatefulSet), Some(WorkloadKind::CronJob)];

/// Why a write to such an object did not take effect: the API server refused it, or it stored other values than were asked for.
const REASONS: [&str; 2] = ["denied", "altered"];

/// A kind of object as a label value; `None` is a pod.
const fn kind_label(kind: Option<WorkloadKind>) -> &'static str {
    match kind {
        None => "pod",
        Some(WorkloadKind::Deployment) => "deployment",
        Some(WorkloadKind::StatefulSet) => "statefulset",
        Some(WorkloadKind::CronJob) => "cronjob",
        // None is ever written to.
        Some(WorkloadKind::DaemonSet | WorkloadKind::ReplicaSet | WorkloadKind::Job) => "other",
    }
}

/// The families, registered once in a process.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    reconciles: IntCounterVec,
    durations: HistogramVec,
    writes: IntCounterVec,
    refused: IntCounterVec,
    corrections: IntCounterVec,
    queued: [IntGauge; LEVELS.len()],
    attempts: IntGauge,
    dropped: IntCounter,
    leads: IntGaugeVec,
    panics: IntCounter,
}

impl OperatorMetrics {
    /// Registers the families with `registry`, and the build information. `controllers` are the names of all controllers.
    /// Contained panics are counted in `panics`.
    ///
    /// # Errors
    /// A name is already registered.
    pub fn register(registry: &Registry, controllers: &[&'static str], panics: &Panics) -> prometheus::Result<Self> {
        let families = Families(registry);
        let build = families.gauge(
            "redislease_build_info",
            "Always 1; the label is the version of the operator.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let queued = families.gauge(
            "redislease_api_queue_length",
            "Calls to the API server that wait to be sent, by how urgent they are; attempt: leases that wait to acquire.",
            &["priority"],
        )?;
        let metrics = Self {
            reconciles: families.counter(
                "redislease_reconcile_total",
                "Reconciliations, by controller and result.",
                &["controller", "result"],
            )?,
            durations: families.histogram(
                "redislease_reconcile_duration_seconds",
                "Duration of a reconciliation, by controller and result.",
                &["controller", "result"],
                &SECONDS,
            )?,
            writes: families.counter(
                "redislease_api_writes_total",
                "Writes to the API server, by kind of object and result.",
                &["kind", "result"],
            )?,
            refused: families.counter(
                "redislease_writes_refused_total",
                "Writes to pods and workloads that the API server refused or never answered (denied) or stored with other values (altered), by kind.",
                &["kind", "reason"],
            )?,
            corrections: families.counter(
                "redislease_corrections_total",
                "Writes to pods and workloads that correct what others changed after the operator had written it, by kind.",
                &["kind"],
            )?,
            attempts: queued.with_label_values(&[ATTEMPT]),
            queued: LEVELS.map(|level| queued.with_label_values(&[level])),
            dropped: families.add(IntCounter::new(
                "redislease_events_dropped_total",
                "Kubernetes events that were not sent because too many waited.",
            ))?,
            leads: families.gauge(
                "leader_election_master_status",
                "1 if this replica decides about the leases on the RedisQuorum of this name, else 0.",
                &["name"],
            )?,
            panics: panics.operator.clone(),
        };
        metrics.begin(controllers);
        Ok(metrics)
    }

    /// Every series begins with zero.
    fn begin(&self, controllers: &[&'static str]) {
        for controller in controllers {
            for result in RESULTS {
                self.durations.with_label_values(&[*controller, result]);
                self.reconciles.with_label_values(&[*controller, result]);
            }
        }
        for kind in WRITES {
            for outcome in OUTCOMES {
                self.writes.with_label_values(&[kind, outcome]);
            }
        }
        for kind in KINDS.map(kind_label) {
            self.corrections.with_label_values(&[kind]);
            for reason in REASONS {
                self.refused.with_label_values(&[kind, reason]);
            }
        }
    }

    /// Counts a reconciliation of a registered controller.
    pub fn reconciled(&self, controller: &'static str, success: bool, took: Duration) {
        let [ok, error] = RESULTS;
        let labels = [controller, if success { ok } else { error }];
        self.reconciles.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Sets the number of waiting calls, the most urgent first.
    pub fn queued(&self, lengths: [usize; LEVELS.len()]) {
        for (gauge, length) in self.queued.iter().zip(lengths) {
            gauge.set(i64::try_from(length).unwrap_or(i64::MAX));
        }
    }

    /// Sets the number of leases whose next attempt waits until fewer leases acquire and publish.
    pub fn attempts_wait(&self, leases: usize) {
        self.attempts.set(i64::try_from(leases).unwrap_or(i64::MAX));
    }

    /// Sets whether this replica leads on a quorum.
    pub fn leads(&self, quorum: &str, leads: bool) {
        self.leads.with_label_values(&[quorum]).set(leads.into());
    }

    /// Removes the series of a deleted quorum.
    pub fn forget_leader(&self, quorum: &str) {
        // A quorum without a recorded leader has no series.
        let _ = self.leads.remove_label_values(&[quorum]);
    }

    /// Counts a contained panic.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a dropped event.
    pub fn event_dropped(&self) {
        self.dropped.inc();
    }

    /// Counts a write to a pod (`None`) or a workload that did not take effect, because it was refused or `altered`.
    pub fn write_refused(&self, kind: Option<WorkloadKind>, altered: bool) {
        self.refused.with_label_values(&[kind_label(kind), REASONS[usize::from(altered)]]).inc();
    }

    /// Counts a correction of what others changed on a pod (`None`) or a workload.
    pub fn corrected(&self, kind: Option<WorkloadKind>) {
        self.corrections.with_label_values(&[kind_label(kind)]).inc();
    }

    /// Counts a call that has ended, if it is a write.
    pub fn called(&self, request: &Request, verdict: Verdict) {
        if let Some(kind) = write_label(request) {
            self.writes.with_label_values(&[kind, outcome_label(verdict)]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use redislease_core::time::Time;
    use redislease_plan::status::NoticeReason;

    use super::*;
    use crate::metrics::page::registered as page;

    #[test]
    fn every_series_is_there_at_zero() {
        let registry = Registry::new();
        let panics = Panics::register(&Registry::new()).unwrap();
        let metrics = OperatorMetrics::register(&registry, &["lease", "quorum"], &panics).unwrap();
        let before = page(&registry).unwrap();
        for line in [
            r#"redislease_reconcile_total{controller="quorum",result="error"} 0"#.to_owned(),
            r#"redislease_reconcile_duration_seconds_count{controller="lease",result="success"} 0"#.to_owned(),
            r#"redislease_api_writes_total{kind="lease_status",result="conflict"} 0"#.to_owned(),
            r#"redislease_api_writes_total{kind="pod_role",result="timeout"} 0"#.to_owned(),
            format!(r#"redislease_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
            "process_resident_memory_bytes ".to_owned(),
            r#"redislease_writes_refused_total{kind="pod",reason="altered"} 0"#.to_owned(),
            r#"redislease_corrections_total{kind="cronjob"} 0"#.to_owned(),
        ] {
            assert!(before.contains(&line), "{line} is missing in\n{before}");
        }
        assert_eq!(before.matches("redislease_api_writes_total{").count(), 20, "{before}");

        metrics.reconciled("lease", false, Duration::from_millis(20));
        let key = ("uid".into(), NoticeReason::Acquired);
        metrics.called(&Request::Event { namespace: "n".into(), key, not_before: Time(0) }, Verdict::Done);
        metrics.called(&Request::Probe, Verdict::Done);
        metrics.queued([0, 2, 0, 0, 0, 9]);
        metrics.attempts_wait(7);
        metrics.event_dropped();
        metrics.write_refused(Some(WorkloadKind::Deployment), true);
        metrics.corrected(None);
        let after = page(&registry).unwrap();
        for line in [
            r#"redislease_reconcile_total{controller="lease",result="error"} 1"#,
            r#"redislease_reconcile_total{controller="lease",result="success"} 0"#,
            r#"redislease_reconcile_duration_seconds_bucket{controller="lease",result="error",le="0.1"} 1"#,
            r#"redislease_reconcile_duration_seconds_bucket{controller="lease",result="error",le="0.005"} 0"#,
            r#"redislease_api_writes_total{kind="event",result="ok"} 1"#,
            r#"redislease_api_queue_length{priority="publication"} 2"#,
            r#"redislease_api_queue_length{priority="event"} 9"#,
            r#"redislease_api_queue_length{priority="attempt"} 7"#,
            "redislease_events_dropped_total 1",
            r#"redislease_writes_refused_total{kind="deployment",reason="altered"} 1"#,
            r#"redislease_corrections_total{kind="pod"} 1"#,
        ] {
            assert!(after.contains(line), "{line} is missing in\n{after}");
        }
    }
}
