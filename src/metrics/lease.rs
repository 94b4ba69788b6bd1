//! Metrics of the leases.
//!
//! A lease has a compact record, from which its lines are written directly: fifteen series as objects of the metrics
//! library would take more memory than the lease itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::{Histogram, Registry};
use redislease_core::lease::{Renewal, View};
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_plan::plan::Shown;

use super::families::Families;
use crate::locked::locked;

const CONDITIONS: [&str; 4] = ["Ready", "Active", "CandidatesAvailable", "QuorumHealthy"];

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// Buckets from a proof that already existed to a lost node, in seconds.
const HANDOVERS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// A part of the page ends with the lease that makes it this long, in bytes.
const PART: usize = 64 * 1024;

/// The key of a lease on the page: namespace and name.
type Name = (String, String);

/// All leases of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct LeaseMetrics {
    records: Arc<Mutex<BTreeMap<Name, Arc<LeaseRecord>>>>,
    graceful: Histogram,
    failover: Histogram,
}

impl LeaseMetrics {
    /// Registers the metrics of handovers with `registry`.
    ///
    /// # Errors
    /// A name is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Time from the end of one holder's term until status names the next holder. \
             graceful: the old holder was proven to have stopped; failover: its keys had to expire.";
        let handover =
            Families(registry).histogram("redislease_handover_duration_seconds", help, &["kind"], &HANDOVERS)?;
        Ok(Self {
            records: Arc::default(),
            graceful: handover.with_label_values(&["graceful"]),
            failover: handover.with_label_values(&["failover"]),
        })
    }

    /// Adds a lease to the page. It replaces a lease with the same name.
    pub fn lease(&self, namespace: &str, lease: &str, quorum: &str) -> Arc<LeaseRecord> {
        let mut labels = String::new();
        for (label, value) in [("lease", lease), ("lease_namespace", namespace), ("quorum", quorum)] {
            push_label(&mut labels, label, value);
        }
        let name = (namespace.to_owned(), lease.to_owned());
        let record = Arc::new(LeaseRecord { name: name.clone(), labels: labels.into(), ..LeaseRecord::default() });
        locked(&self.records).insert(name, record.clone());
        record
    }

    /// Removes a lease from the page. Its later counts are not shown.
    pub fn remove(&self, record: &Arc<LeaseRecord>) {
        let mut records = locked(&self.records);
        if records.get(&record.name).is_some_and(|present| Arc::ptr_eq(present, record)) {
            records.remove(&record.name);
        }
    }

    /// Counts a change of the holder. It is graceful if the old holder was proven to have stopped.
    pub fn handover(&self, graceful: bool, took: Duration) {
        let histogram = if graceful { &self.graceful } else { &self.failover };
        histogram.observe(took.as_secs_f64());
    }

    /// The series of the present leases in the text format that Prometheus scrapes, in parts of about 64 KiB.
    pub fn parts(&self) -> Parts {
        let records: Vec<Arc<LeaseRecord>> = locked(&self.records).values().cloned().collect();
        let now = clock::now();
        for record in &records {
            record.count_wait(now);
        }
        let wall = Duration::from_micros(clock::unix_micros());
        Parts { records, now, wall, family: 0, record: 0, has_header: false }
    }
}

/// The rest of the series of all leases.
#[derive(Debug)]
pub struct Parts {
    records: Vec<Arc<LeaseRecord>>,
    now: Time,
    wall: Duration,
    /// The next family and record.
    family: usize,
    record: usize,
    /// Whether the header of the family was written.
    has_header: bool,
}

impl Parts {
    /// Writes the lines of one record. As in the metrics library, a family without lines has no header.
    fn write(&mut self, part: &mut String, family: &Family, record: &LeaseRecord) {
        let before = part.len();
        if !self.has_header {
            let _ = writeln!(part, "# HELP {} {}\n# TYPE {} {}", family.name, family.help, family.name, family.kind);
        }
        let header = part.len();
        let (now, wall) = (self.now, self.wall);
        (family.write)(record, &mut Lines { page: part, family: family.name, labels: &record.labels, now, wall });
        if part.len() > header {
            self.has_header = true;
        } else {
            part.truncate(before);
        }
    }
}

impl Iterator for Parts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut part = String::new();
        while let Some(family) = FAMILIES.get(self.family) {
            while let Some(record) = self.records.get(self.record).cloned() {
                self.record += 1;
                self.write(&mut part, family, &record);
                if part.len() >= PART {
                    return Some(part);
                }
            }
            (self.family, self.record, self.has_header) = (self.family + 1, 0, false);
        }
        (!part.is_empty()).then_some(part)
    }
}

/// Appends a label to others.
fn push_label(labels: &mut String, label: &str, value: &str) {
    let separator = if labels.is_empty() { "" } else { "," };
    let _ = write!(labels, "{separator}{label}=\"");
    for character in value.chars() {
        match character {
            '\\' => labels.push_str("\\\\"),
            '"' => labels.push_str("\\\""),
            '\n' => labels.push_str("\\n"),
            other => labels.push(other),
        }
    }
    labels.push('"');
}

/// The metrics of one lease.
#[derive(Debug, Default)]
pub struct LeaseRecord {
    name: Name,
    /// The labels, formatted as in each line.
    labels: Box<str>,
    transitions: AtomicU64,
    renewals: AtomicU64,
    failed_renewals: AtomicU64,
    /// The `valid_until` of the running term, in milliseconds of the process clock; 0 without a term.
    valid_until: AtomicU64,
    status: Mutex<Status>,
}

#[derive(Debug, Default)]
struct Status {
    active: bool,
    held: bool,
    /// The holder as labels.
    holder: Option<Box<str>>,
    token: i64,
    candidates: [i64; 2],
    /// The index of each condition's status in [`STATUSES`].
    conditions: [Option<u8>; CONDITIONS.len()],
    waiting_since: Option<Time>,
    unheld_ms: u64,
}

impl LeaseRecord {
    /// Sets the state from the status.
    pub fn show(&self, shown: &Shown) {
        let now = clock::now();
        self.count_wait(now);
        let mut status = locked(&self.status);
        (status.active, status.held) = (shown.active, shown.held);
        (status.token, status.candidates) = (shown.token, shown.candidates);
        status.waiting_since = shown.waiting.then_some(now);
        status.holder = shown.holder.as_ref().map(|names| {
            let mut labels = String::new();
            for (label, name) in ["holder_cluster", "holder_pod", "holder_node"].into_iter().zip(names) {
                push_label(&mut labels, label, name);
            }
            labels.into()
        });
        status.conditions = CONDITIONS.map(|condition| {
            let (_, now) = shown.conditions.iter().find(|(type_, _)| type_ == condition)?;
            STATUSES.iter().position(|status| status == now).and_then(|place| u8::try_from(place).ok())
        });
    }

    /// The time without a holder counts on with the next [`show`](Self::show).
    pub fn stop_counting(&self) {
        self.count_wait(clock::now());
        locked(&self.status).waiting_since = None;
    }

    /// Counts the end of a term.
    pub fn ended(&self) {
        self.transitions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a renewal round.
    pub fn renewed(&self, renewal: &Renewal) {
        let counter = if matches!(renewal, Renewal::Success { .. }) { &self.renewals } else { &self.failed_renewals };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the `valid_until` of the running term.
    pub fn viewed(&self, view: &View) {
        let until = view.standing.term().and_then(|term| term.valid_until);
        self.valid_until.store(until.map_or(0, |until| until.0), Ordering::Relaxed);
    }

    /// Adds the current wait: a counter that only grew at the end of a wait would hide it.
    fn count_wait(&self, now: Time) {
        let mut status = locked(&self.status);
        if let Some(since) = status.waiting_since {
            status.unheld_ms += now.since(since).0;
            status.waiting_since = Some(now);
        }
    }
}

/// One metric family.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    write: Write,
}

/// Writes the lines of one lease.
type Write = fn(&LeaseRecord, &mut Lines<'_>);

const fn gauge(name: &'static str, help: &'static str, write: Write) -> Family {
    Family { name, kind: "gauge", help, write }
}

const fn counter(name: &'static str, help: &'static str, write: Write) -> Family {
    Family { name, kind: "counter", help, write }
}

/// Writes the lines of one lease and family.
struct Lines<'a> {
    page: &'a mut String,
    family: &'static str,
    labels: &'a str,
    now: Time,
    /// The same time as Unix time.
    wall: Duration,
}

impl Lines<'_> {
    fn line(&mut self, more: &str, value: impl std::fmt::Display) {
        let Self { page, family, labels, .. } = self;
        let separator = if more.is_empty() { "" } else { "," };
        let _ = writeln!(page, "{family}{{{labels}{separator}{more}}} {value}");
    }

    fn count(&mut self, more: &str, counter: &AtomicU64) {
        self.line(more, counter.load(Ordering::Relaxed));
    }
}

/// The fifteen series of each lease.
const FAMILIES: [Family; 10] = [
    gauge("redislease_lease_active", "1 while a pod of this cluster holds the lease.", |record, lines| {
        lines.line("", u8::from(locked(&record.status).active));
    }),
    gauge("redislease_lease_candidates", "Candidate pods, by whether they are eligible.", |record, lines| {
        let [eligible, ineligible] = locked(&record.status).candidates;
        lines.line(r#"state="eligible""#, eligible);
        lines.line(r#"state="ineligible""#, ineligible);
    }),
    gauge(
        "redislease_lease_expiry_timestamp_seconds",
        "Unix time at which the current term ends unless it is renewed; 0 if there is no term.",
        |record, lines| {
            let until = Time(record.valid_until.load(Ordering::Relaxed));
            let left = Duration::from(until.since(lines.now));
            let past = Duration::from(lines.now.since(until));
            let at = lines.wall.saturating_add(left).saturating_sub(past);
            lines.line("", if until == Time(0) { 0.0 } else { at.as_secs_f64() });
        },
    ),
    gauge(
        "redislease_lease_fencing_token",
        "Fencing token of the latest term; 0 if there was none.",
        |record, lines| lines.line("", locked(&record.status).token),
    ),
    gauge(
        "redislease_lease_held",
        "1 while a pod of this cluster holds the lease, or one of another cluster does and the lease is not suspended here.",
        |record, lines| lines.line("", u8::from(locked(&record.status).held)),
    ),
    gauge("redislease_lease_holder_info", "Always 1; the labels are the holder in status.", |record, lines| {
        if let Some(holder) = &locked(&record.status).holder {
            lines.line(holder, 1);
        }
    }),
    counter("redislease_lease_renewals_total", "Renewals of the lease, by result.", |record, lines| {
        lines.count(r#"result="success""#, &record.renewals);
        lines.count(r#"result="failure""#, &record.failed_renewals);
    }),
    gauge(
        "redislease_lease_status_condition",
        "Always 1; the labels are a condition and its current status.",
        |record, lines| {
            let conditions = locked(&record.status).conditions;
            for (condition, status) in CONDITIONS.iter().zip(conditions) {
                if let Some(status) = status.and_then(|place| STATUSES.get(usize::from(place))) {
                    lines.line(&format!("condition=\"{condition}\",status=\"{status}\""), 1);
                }
            }
        },
    ),
    counter("redislease_lease_transitions_total", "Terms that ended.", |record, lines| {
        lines.count("", &record.transitions);
    }),
    counter(
        "redislease_lease_unheld_seconds_total",
        "Seconds in which no pod of any cluster held a lease that one should hold: not while it is suspended, or between the runs of a Job or CronJob.",
        |record, lines| lines.line("", Duration::from_millis(locked(&record.status).unheld_ms).as_secs_f64()),
    ),
];

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
