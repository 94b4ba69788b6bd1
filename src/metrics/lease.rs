//! The leases, and how their renewals go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};
use redislease_core::lease::{Renewal, View};
use redislease_core::time::Time;

use crate::clock;

/// How a round of renewal may end.
const RESULTS: [&str; 4] = ["success", "no_quorum", "lost", "timeout"];

const CANDIDATES: [&str; 2] = ["eligible", "ineligible"];

const CONDITIONS: [&str; 4] = ["Ready", "Active", "CandidatesAvailable", "QuorumHealthy"];

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

const LEASE: [&str; 3] = ["lease_namespace", "lease", "quorum"];

/// From a quorum on the same machine to a round that exhausts the longest timeout.
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5];

/// Shares of the lease. Half of it is gone when something is wrong, a third when the next failure may end it.
const SHARES: [f64; 8] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.95];

/// From a proof that was already there to a node that was lost.
const HANDOVERS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// How the lease came from one holder to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandoverKind {
    /// The old holder was proven to have stopped.
    Graceful,
    /// It was waited for until its keys had ended.
    Failover,
}

/// What a lease shows; all of it changes with its status only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown<'a> {
    /// A pod of this cluster is active.
    pub active: bool,
    /// Somebody holds the lease, here or in another cluster.
    pub held: bool,
    /// Nobody holds it, and somebody is to.
    pub waiting: bool,
    /// Cluster, pod and node of the holder that status names.
    pub holder: Option<[&'a str; 3]>,
    /// The token of the latest term; 0 when there was none.
    pub token: i64,
    /// Candidates that may be elected, and the others.
    pub candidates: [i64; 2],
    /// Type and status of each condition.
    pub conditions: Vec<(&'a str, &'a str)>,
}

/// The families, registered once in a process.
#[derive(Clone, Debug)]
pub struct LeaseMetrics {
    active: IntGaugeVec,
    held: IntGaugeVec,
    holder: IntGaugeVec,
    token: IntGaugeVec,
    expiry: GaugeVec,
    transitions: IntCounterVec,
    renewals: IntCounterVec,
    unheld: CounterVec,
    candidates: IntGaugeVec,
    conditions: IntGaugeVec,
    duration: HistogramVec,
    margin: HistogramVec,
    graceful: Histogram,
    failover: Histogram,
    reasons: &'static [&'static str],
    quorums: Arc<Mutex<BTreeMap<String, Weak<QuorumRenewals>>>>,
    waits: Waits,
}

/// The leases that may be unheld now: their seconds are counted when somebody looks.
type Waits = Arc<Mutex<Vec<Weak<Wait>>>>;

impl LeaseMetrics {
    /// Registers the families with `registry`. `reasons` is every reason for which a term may end.
    ///
    /// # Errors
    /// When one of the names is taken.
    pub fn register(registry: &Registry, reasons: &'static [&'static str]) -> prometheus::Result<Self> {
        let gauge = |name, help, more: &[&str]| -> prometheus::Result<IntGaugeVec> {
            let family = IntGaugeVec::new(Opts::new(name, help), &[&LEASE, more].concat())?;
            registry.register(Box::new(family.clone()))?;
            Ok(family)
        };
        let counter = |name, help, more: &[&str]| -> prometheus::Result<IntCounterVec> {
            let family = IntCounterVec::new(Opts::new(name, help), &[&LEASE, more].concat())?;
            registry.register(Box::new(family.clone()))?;
            Ok(family)
        };
        let histogram = |name, help, buckets: &[f64], label| -> prometheus::Result<HistogramVec> {
            let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &[label])?;
            registry.register(Box::new(family.clone()))?;
            Ok(family)
        };
        let expiry = GaugeVec::new(
            Opts::new(
                "redislease_lease_expiry_timestamp_seconds",
                "Unix time at which the current term ends unless it is renewed; 0 if there is no term.",
            ),
            &LEASE,
        )?;
        registry.register(Box::new(expiry.clone()))?;
        let unheld = CounterVec::new(
            Opts::new("redislease_lease_unheld_seconds_total", "Seconds in which no pod held the lease."),
            &LEASE,
        )?;
        let waits = Waits::default();
        registry.register(Box::new(UnheldCollector { family: unheld.clone(), waits: waits.clone() }))?;
        let handover = histogram(
            "redislease_handover_duration_seconds",
            "Time from the end of one holder's term until status names the next holder. \
             graceful: the old holder was proven to have stopped; failover: its keys had to expire.",
            &HANDOVERS,
            "kind",
        )?;
        Ok(Self {
            active: gauge("redislease_lease_active", "1 while a pod of this cluster holds the lease.", &[])?,
            held: gauge("redislease_lease_held", "1 while a pod of this or another cluster holds the lease.", &[])?,
            holder: gauge(
                "redislease_lease_holder_info",
                "Always 1; the labels are the holder in status.",
                &["holder_cluster", "holder_pod", "holder_node"],
            )?,
            token: gauge(
                "redislease_lease_fencing_token",
                "Fencing token of the latest term; 0 if there was none.",
                &[],
            )?,
            expiry,
            transitions: counter("redislease_lease_transitions_total", "Terms that ended, by reason.", &["reason"])?,
            renewals: counter("redislease_lease_renewals_total", "Renewals of the lease, by result.", &["result"])?,
            unheld,
            candidates: gauge(
                "redislease_lease_candidates",
                "Candidate pods, by whether they are eligible.",
                &["state"],
            )?,
            conditions: gauge(
                "redislease_lease_status_condition",
                "1 for the current status of the condition, 0 for the other statuses.",
                &["condition", "status"],
            )?,
            duration: histogram(
                "redislease_renew_duration_seconds",
                "Duration of a successful renewal, until a majority has confirmed it.",
                &SECONDS,
                "quorum",
            )?,
            margin: histogram(
                "redislease_renew_margin_ratio",
                "Remaining share of the lease, from 0 to 1, when a renewal succeeded.",
                &SHARES,
                "quorum",
            )?,
            graceful: handover.with_label_values(&["graceful"]),
            failover: handover.with_label_values(&["failover"]),
            reasons,
            quorums: Arc::default(),
            waits,
        })
    }

    /// The series of one lease. They vanish with [`LeaseSeries::forget`], or when it is dropped.
    pub fn lease(&self, namespace: &str, lease: &str, quorum: &str) -> LeaseSeries {
        let labels = [namespace, lease, quorum];
        let with = |value: &'static str| [namespace, lease, quorum, value];
        let wait = Arc::new(Wait { since: Mutex::new(None), total: self.unheld.with_label_values(&labels) });
        locked(&self.waits).push(Arc::downgrade(&wait));
        LeaseSeries {
            active: self.active.with_label_values(&labels),
            held: self.held.with_label_values(&labels),
            token: self.token.with_label_values(&labels),
            expiry: self.expiry.with_label_values(&labels),
            transitions: self.reasons.iter().map(|r| (*r, self.transitions.with_label_values(&with(r)))).collect(),
            renewals: RESULTS.map(|result| self.renewals.with_label_values(&with(result))),
            candidates: CANDIDATES.map(|state| self.candidates.with_label_values(&with(state))),
            conditions: CONDITIONS.map(|condition| {
                STATUSES.map(|s| self.conditions.with_label_values(&[namespace, lease, quorum, condition, s]))
            }),
            wait,
            quorum: self.quorum(quorum),
            holder: Mutex::default(),
            labels: labels.map(str::to_owned),
            families: self.clone(),
        }
    }

    /// Counts a change from one holder to the next.
    pub fn handover(&self, kind: HandoverKind, took: Duration) {
        match kind {
            HandoverKind::Graceful => self.graceful.observe(took.as_secs_f64()),
            HandoverKind::Failover => self.failover.observe(took.as_secs_f64()),
        }
    }

    fn quorum(&self, name: &str) -> Arc<QuorumRenewals> {
        let mut quorums = locked(&self.quorums);
        if let Some(known) = quorums.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(QuorumRenewals {
            name: name.to_owned(),
            duration: self.duration.with_label_values(&[name]),
            margin: self.margin.with_label_values(&[name]),
            families: self.clone(),
        });
        quorums.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }
}

/// A thread that panicked while it held one of these locks left numbers behind, and any number will do.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The renewals of all leases of one quorum. They vanish with its last lease.
#[derive(Debug)]
struct QuorumRenewals {
    name: String,
    duration: Histogram,
    margin: Histogram,
    families: LeaseMetrics,
}

impl Drop for QuorumRenewals {
    fn drop(&mut self) {
        let mut quorums = locked(&self.families.quorums);
        // A lease that came in the meantime has taken the series over.
        if quorums.get(&self.name).is_some_and(|other| other.strong_count() == 0) {
            quorums.remove(&self.name);
            let _ = self.families.duration.remove_label_values(&[self.name.as_str()]);
            let _ = self.families.margin.remove_label_values(&[self.name.as_str()]);
        }
    }
}

/// The seconds in which nobody holds one lease.
#[derive(Debug)]
struct Wait {
    since: Mutex<Option<Time>>,
    total: Counter,
}

impl Wait {
    fn count(&self, now: Time) {
        if let Some(since) = &mut *locked(&self.since) {
            self.total.inc_by(Duration::from(now.since(*since)).as_secs_f64());
            *since = now;
        }
    }

    fn set(&self, waiting: bool, now: Time) {
        self.count(now);
        let mut since = locked(&self.since);
        *since = waiting.then_some(now);
    }
}

/// Counts on when somebody looks: a counter that only moved at the end of a wait would hide the wait that lasts.
struct UnheldCollector {
    family: CounterVec,
    waits: Waits,
}

impl Collector for UnheldCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.family.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let now = clock::now();
        locked(&self.waits).retain(|wait| match wait.upgrade() {
            Some(wait) => {
                wait.count(now);
                true
            }
            None => false,
        });
        self.family.collect()
    }
}

/// Whose series is on the page.
#[derive(Debug, Default)]
struct Holder {
    shown: Option<[String; 3]>,
    /// The lease is gone: no other is shown.
    forgotten: bool,
}

/// The series of one lease.
#[derive(Debug)]
pub struct LeaseSeries {
    active: IntGauge,
    held: IntGauge,
    token: IntGauge,
    expiry: Gauge,
    transitions: Vec<(&'static str, IntCounter)>,
    renewals: [IntCounter; RESULTS.len()],
    candidates: [IntGauge; CANDIDATES.len()],
    conditions: [[IntGauge; STATUSES.len()]; CONDITIONS.len()],
    wait: Arc<Wait>,
    quorum: Arc<QuorumRenewals>,
    holder: Mutex<Holder>,
    labels: [String; 3],
    families: LeaseMetrics,
}

impl LeaseSeries {
    /// Shows what the status says.
    pub fn show(&self, shown: &Shown<'_>) {
        self.active.set(i64::from(shown.active));
        self.held.set(i64::from(shown.held));
        self.wait.set(shown.waiting, clock::now());
        self.token.set(shown.token);
        for (gauge, count) in self.candidates.iter().zip(shown.candidates) {
            gauge.set(count);
        }
        for (condition, gauges) in CONDITIONS.iter().zip(&self.conditions) {
            let status = shown.conditions.iter().find(|(type_, _)| type_ == condition).map(|(_, status)| *status);
            for (name, gauge) in STATUSES.iter().zip(gauges) {
                gauge.set(i64::from(status == Some(*name)));
            }
        }
        self.show_holder(&mut locked(&self.holder), shown.holder);
    }

    fn show_holder(&self, present: &mut Holder, holder: Option<[&str; 3]>) {
        // All other series are only set here, and one that was taken off the page stays off; this one would return.
        let holder = holder.filter(|_| !present.forgotten);
        let present = &mut present.shown;
        if present.as_ref().map(|names| names.each_ref().map(String::as_str)) == holder {
            return;
        }
        if let Some(old) = present.take() {
            let _ = self.families.holder.remove_label_values(&self.of_holder(old.each_ref().map(String::as_str)));
        }
        if let Some(new) = holder {
            self.families.holder.with_label_values(&self.of_holder(new)).set(1);
        }
        *present = holder.map(|names| names.map(str::to_owned));
    }

    fn of_holder<'a>(&'a self, [cluster, pod, node]: [&'a str; 3]) -> [&'a str; 6] {
        let [namespace, lease, quorum] = &self.labels;
        [namespace, lease, quorum, cluster, pod, node]
    }

    /// Counts the end of a term. A reason outside the set given at the start is not counted.
    pub fn ended(&self, reason: &str) {
        if let Some((_, counter)) = self.transitions.iter().find(|(name, _)| *name == reason) {
            counter.inc();
        }
    }

    /// Counts a round of renewal of a lease that lasts `ttl_ms`.
    pub fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        let [success, no_quorum, lost, timeout] = &self.renewals;
        match renewal {
            Renewal::Success { took, left } => {
                success.inc();
                self.quorum.duration.observe(Duration::from(*took).as_secs_f64());
                let ttl = Duration::from_millis(ttl_ms.max(1)).as_secs_f64();
                self.quorum.margin.observe(Duration::from(*left).as_secs_f64() / ttl);
            }
            Renewal::NoQuorum => no_quorum.inc(),
            Renewal::Lost => lost.inc(),
            Renewal::Timeout => timeout.inc(),
        }
    }

    /// Shows until when the running term may be believed in.
    pub fn viewed(&self, view: &View) {
        let until = view.standing.term().and_then(|term| term.valid_until);
        self.expiry.set(until.map_or(0.0, |until| {
            let left = Duration::from(until.since(clock::now()));
            Duration::from_micros(clock::unix_micros()).saturating_add(left).as_secs_f64()
        }));
    }

    /// Takes the series off the page at once and for good: what is counted after this, nobody sees, and a lease that is
    /// created again under the same name begins anew.
    pub fn forget(&self) {
        let mut holder = locked(&self.holder);
        if std::mem::replace(&mut holder.forgotten, true) {
            return;
        }
        self.show_holder(&mut holder, None);
        drop(holder);
        self.wait.set(false, clock::now());
        let families = &self.families;
        let [namespace, lease, quorum] = self.labels.each_ref().map(String::as_str);
        let labels = [namespace, lease, quorum];
        let with = |value: &'static str| [namespace, lease, quorum, value];
        // A series that is not there any more is what is wanted.
        for family in [&families.active, &families.held, &families.token] {
            let _ = family.remove_label_values(&labels);
        }
        let _ = families.expiry.remove_label_values(&labels);
        let _ = families.unheld.remove_label_values(&labels);
        for reason in families.reasons {
            let _ = families.transitions.remove_label_values(&with(reason));
        }
        for result in RESULTS {
            let _ = families.renewals.remove_label_values(&with(result));
        }
        for state in CANDIDATES {
            let _ = families.candidates.remove_label_values(&with(state));
        }
        for condition in CONDITIONS {
            for status in STATUSES {
                let _ = families.conditions.remove_label_values(&[namespace, lease, quorum, condition, status]);
            }
        }
    }
}

impl Drop for LeaseSeries {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
