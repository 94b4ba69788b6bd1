//! The selectors of the workloads that leases name, and when each workload is read again.
//!
//! Workloads are read one by one: a watch on six kinds in all namespaces would transfer the spec of every workload for the few
//! that leases name. A workload's selector never changes, so reads after the first one only detect a workload that was deleted
//! or created again, and changed labels in the pod template of a CronJob. The rate of these reads is limited over all workloads
//! together. A workload without pods, or one that does not exist yet, is read sooner.
//!
//! A workload that is itself a candidate is read when the watch of the metadata of workloads shows a change, at most once a
//! second. Without this watch it is read every ten seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::Selector;
use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::time::{Millis, Time};

use super::LeaseId;
use crate::api::conditions::LeaseReady;
use crate::api::validated::{Workload, WorkloadKind};
use crate::election::PodFacts;

/// How long a selector is used before its workload is read again.
const FRESH: Millis = Millis(300_000);
/// The pause before reading a workload again that is missing or has no pods.
const EARLY: Backoff =
    Backoff { strategy: Strategy::Exponential, min: Millis(2000), max: Millis(32_000), limit: None, jitter: 0 };
/// The pause between two reads of a workload that is itself a candidate, while no watch shows its changes.
const CANDIDATE: Millis = Millis(10_000);
/// The same while the watch of workloads shows changes: the watch of one kind may have failed.
const WATCHED: Millis = Millis(60_000);
/// The shortest pause between two reads of a workload that changes.
const CHANGED: Millis = Millis(1000);
/// Workloads of each kind of read, usual, early or of candidates, are read at most five times a second in total.
const PACE: Millis = Millis(200);

/// A workload in its namespace.
pub type WorkloadKey = (Arc<str>, Workload);

/// The result of reading a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadRead {
    /// It selects pods with this selector.
    Selects(Selector),
    /// It exists and has no selector, or an empty one.
    SelectsNothing,
    /// It does not exist.
    Missing,
    /// The API server refused the read, or its answer could not be understood. Whether the workload exists is unknown. The
    /// text is the error.
    Refused(String),
}

/// What a read of a workload found.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFound {
    /// Which pods it selects.
    pub read: WorkloadRead,
    /// The facts about the workload itself, if it can be a candidate.
    pub object: Option<Box<PodFacts>>,
}

impl From<WorkloadRead> for WorkloadFound {
    fn from(read: WorkloadRead) -> Self {
        Self { read, object: None }
    }
}

/// The facts about a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Known {
    /// It was not read yet.
    #[default]
    Nothing,
    Selector(Selector),
    /// No selector is known: why, as a reason and a sentence.
    Unusable(LeaseReady, String),
}

/// A read under way.
#[derive(Debug, Default)]
struct Reading {
    /// The version of the candidate that was known when it was sent.
    known: Option<String>,
    /// The workload has changed since.
    again: bool,
    /// The answer says nothing about the present: this process decides more than when the read was sent.
    void: bool,
}

#[derive(Debug, Default)]
struct Entry {
    known: Known,
    leases: BTreeSet<LeaseId>,
    /// The leases of which it is the candidate itself.
    candidacies: BTreeSet<LeaseId>,
    was_read: bool,
    reading: Option<Reading>,
    read_at: Option<Time>,
    due: Option<Time>,
    /// The number of early reads in a row.
    early_reads: u32,
}

/// The workloads that leases name.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    entries: BTreeMap<WorkloadKey, Entry>,
    due: BTreeSet<(Time, WorkloadKey)>,
    /// The number of workloads that are read early.
    read_early: usize,
    /// The number of workloads that are candidates themselves.
    candidates: usize,
    /// Whether a watch shows the changes of workloads.
    watched: bool,
}

impl Workloads {
    /// A lease names the workload.
    pub fn join(&mut self, key: &WorkloadKey, lease: LeaseId, is_candidate: bool, now: Time) -> &Known {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| {
            self.due.insert((now, key.clone()));
            Entry { due: Some(now), ..Entry::default() }
        });
        entry.leases.insert(lease);
        if is_candidate {
            let is_first = entry.candidacies.is_empty();
            entry.candidacies.insert(lease);
            if is_first {
                self.candidates += 1;
                // An earlier read did not keep its facts.
                self.read_again(key, now);
            }
        }
        self.known(key)
    }

    /// Whether the workload is the candidate of a lease itself.
    pub fn has_candidacies(&self, key: &WorkloadKey) -> bool {
        self.entries.get(key).is_some_and(|entry| !entry.candidacies.is_empty())
    }

    /// The leases of which the workload is the candidate itself.
    pub fn candidacies(&self, key: &WorkloadKey) -> Vec<LeaseId> {
        self.entries.get(key).map(|entry| entry.candidacies.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether the workload has been read since it became a candidate.
    pub fn was_read(&self, key: &WorkloadKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.was_read)
    }

    /// A lease does not name the workload any more.
    pub fn leave(&mut self, key: &WorkloadKey, lease: LeaseId) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.leases.remove(&lease);
        if entry.candidacies.remove(&lease) && entry.candidacies.is_empty() {
            self.candidates -= 1;
        }
        if entry.leases.is_empty() {
            if let Some(due) = entry.due {
                self.due.remove(&(due, key.clone()));
            }
            self.read_early -= usize::from(entry.early_reads > 0);
            self.entries.remove(key);
        }
    }

    pub fn known(&self, key: &WorkloadKey) -> &Known {
        self.entries.get(key).map_or(&Known::Nothing, |entry| &entry.known)
    }

    /// The watch has shown a change of the workload.
    pub fn changed(&mut self, key: &WorkloadKey, now: Time) {
        self.watched = true;
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.candidacies.is_empty()) else { return };
        if let Some(reading) = &mut entry.reading {
            reading.again = true;
            return;
        }
        let at = entry.read_at.map_or(now, |read_at| now.max(read_at + CHANGED));
        self.schedule(key, at);
    }

    /// The candidate is unknown until it was read again: this process may decide more than before.
    pub fn read_again(&mut self, key: &WorkloadKey, now: Time) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.candidacies.is_empty()) else { return };
        entry.was_read = false;
        match &mut entry.reading {
            Some(reading) => (reading.again, reading.void) = (true, true),
            None => self.schedule(key, now),
        }
    }

    /// Records which version of the candidate is known when its read is sent.
    pub fn read_sent(&mut self, key: &WorkloadKey, known: Option<String>) {
        if let Some(reading) = self.entries.get_mut(key).and_then(|entry| entry.reading.as_mut()) {
            reading.known = known;
        }
    }

    /// The version of the candidate that was known when the read under way was sent.
    pub fn known_when_sent(&self, key: &WorkloadKey) -> Option<&str> {
        self.entries.get(key)?.reading.as_ref()?.known.as_deref()
    }

    /// The next workload to read now.
    pub fn next_due(&mut self, now: Time) -> Option<WorkloadKey> {
        let (due, key) = self.due.first()?.clone();
        if now < due {
            return None;
        }
        self.due.remove(&(due, key.clone()));
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.due = None;
            entry.reading = Some(Reading::default());
        }
        Some(key)
    }

    /// When a workload must be read.
    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes the result of a read. Returns the leases for which something has changed. `has_pods` says whether the
    /// workload's selector matches any pod.
    pub fn read(&mut self, key: &WorkloadKey, read: WorkloadRead, has_pods: bool, now: Time) -> BTreeSet<LeaseId> {
        let total = self.entries.len();
        let Some(entry) = self.entries.get_mut(key) else { return BTreeSet::new() };
        let Reading { again, void, .. } = entry.reading.take().unwrap_or_default();
        // A workload that changes all the time is known as of the last answer.
        entry.was_read |= !void && !matches!(read, WorkloadRead::Refused(_));
        entry.read_at = Some(now);
        let (namespace, Workload { kind, name }) = key;
        let workload = format!("{} {namespace}/{name}", kind.as_str());
        let unusable = |message| Known::Unusable(LeaseReady::InvalidReference, message);
        let known = match read {
            WorkloadRead::Selects(selector) => Known::Selector(selector),
            WorkloadRead::SelectsNothing => {
                let lacks = match kind {
                    WorkloadKind::CronJob => "labels in its pod template",
                    _ => "selector over pods",
                };
                unusable(format!("{workload}, which spec.candidates.workloadRef names, has no {lacks}"))
            }
            WorkloadRead::Missing => unusable(format!(
                "spec.candidates.workloadRef names {workload}, which does not exist: create it or correct the reference"
            )),
            // The previous selector is still right: a selector never changes.
            WorkloadRead::Refused(_) if matches!(entry.known, Known::Selector(_)) => entry.known.clone(),
            // It may exist and be right.
            WorkloadRead::Refused(why) => Known::Unusable(
                LeaseReady::Starting,
                format!(
                    "The operator could not read {workload}, which spec.candidates.workloadRef names, and does not know \
                     which pods are candidates: {why}"
                ),
            ),
        };
        let usual = has_pods && matches!(known, Known::Selector(_));
        self.read_early -= usize::from(entry.early_reads > 0);
        entry.early_reads = if usual { 0 } else { entry.early_reads.saturating_add(1) };
        self.read_early += usize::from(entry.early_reads > 0);
        let (pause, alike) =
            if usual { (FRESH, total - self.read_early) } else { (EARLY.delay(entry.early_reads), self.read_early) };
        let (pause, alike) = match (entry.candidacies.is_empty(), self.watched) {
            (true, _) => (pause, alike),
            (false, true) => (pause.min(WATCHED), alike),
            (false, false) => (pause.min(CANDIDATE), self.candidates),
        };
        let spread = Millis(PACE.0.saturating_mul(alike as u64));
        let changed = entry.known != known;
        entry.known = known;
        let concerned = if changed { entry.leases.clone() } else { BTreeSet::new() };
        self.schedule(key, now + if again { CHANGED } else { pause.max(spread) });
        concerned
    }

    /// The workload's last pod is deleted: it may have been created again with another selector, so it is read soon.
    pub fn read_soon(&mut self, key: &WorkloadKey, now: Time) {
        self.schedule(key, now + EARLY.min);
    }

    /// Reads the workload at `at`, or earlier if an earlier read is scheduled.
    fn schedule(&mut self, key: &WorkloadKey, at: Time) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.reading.is_none()) else { return };
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = entry.due.replace(at) {
            self.due.remove(&(due, key.clone()));
        }
        self.due.insert((at, key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Expression;

    fn key(name: &str) -> WorkloadKey {
        ("n".into(), Workload { kind: WorkloadKind::Deployment, name: name.into() })
    }

    fn selector() -> Selector {
        Expression::Equal("app".into(), "a".into()).into()
    }

    #[test]
    fn one_read_serves_all_leases_and_the_next_is_late() {
        let mut workloads = Workloads::default();
        for lease in 0..3 {
            assert_eq!(*workloads.join(&key("a"), LeaseId(lease), false, Time(0)), Known::Nothing);
        }
        assert_eq!(workloads.next_due(Time(0)), Some(key("a")));
        assert_eq!(workloads.next_due(Time(0)), None);
        let all = [0, 1, 2].map(LeaseId).into();
        assert_eq!(workloads.read(&key("a"), WorkloadRead::Selects(selector()), true, Time(5)), all);
        assert_eq!(workloads.next_deadline(), Some(Time(5) + FRESH));
        // The workload was read before: a refused read changes nothing.
        workloads.next_due(Time(5) + FRESH);
        let refused = workloads.read(&key("a"), WorkloadRead::Refused("no".into()), true, Time(5));
        assert!(refused.is_empty() && *workloads.known(&key("a")) == Known::Selector(selector()));
        (0..3).for_each(|lease| workloads.leave(&key("a"), LeaseId(lease)));
        assert!(workloads.entries.is_empty() && workloads.due.is_empty());
    }

    #[test]
    fn a_missing_workload_is_read_soon_with_growing_pauses() {
        let mut workloads = Workloads::default();
        workloads.join(&key("a"), LeaseId(1), false, Time(0));
        let mut now = Time(0);
        for pause in [2, 4, 8, 16, 32, 32] {
            assert_eq!(workloads.next_due(now), Some(key("a")));
            workloads.read(&key("a"), WorkloadRead::Missing, false, now);
            assert_eq!(workloads.next_deadline(), Some(now + Millis(pause * 1000)));
            now += Millis(pause * 1000);
        }
        let Known::Unusable(reason, message) = workloads.known(&key("a")) else { panic!("it is missing") };
        assert_eq!(*reason, LeaseReady::InvalidReference);
        assert!(message.contains("Deployment n/a, which does not exist"), "{message}");
    }

    #[test]
    fn a_workload_that_cannot_be_read_is_unknown_and_no_invalid_reference() {
        let mut workloads = Workloads::default();
        workloads.join(&key("a"), LeaseId(1), false, Time(0));
        workloads.next_due(Time(0));
        let why = "the API server refused: deployments.apps \"a\" is forbidden (403)";
        workloads.read(&key("a"), WorkloadRead::Refused(why.into()), false, Time(0));
        let message = format!(
            "The operator could not read Deployment n/a, which spec.candidates.workloadRef names, and does not know which \
             pods are candidates: {why}"
        );
        assert_eq!(*workloads.known(&key("a")), Known::Unusable(LeaseReady::Starting, message));
        assert_eq!(workloads.next_deadline(), Some(Time(0) + EARLY.min), "it is read again early");
        workloads.next_due(Time(2000));
        workloads.read(&key("a"), WorkloadRead::Missing, false, Time(2000));
        assert!(matches!(workloads.known(&key("a")), Known::Unusable(LeaseReady::InvalidReference, _)));
    }

    #[test]
    fn the_read_rate_is_shared_and_a_change_schedules_one_early() {
        let mut workloads = Workloads::default();
        for workload in 0..10_000_u64 {
            workloads.join(&key(&workload.to_string()), LeaseId(workload), false, Time(0));
        }
        while let Some(next) = workloads.next_due(Time(0)) {
            workloads.read(&next, WorkloadRead::Selects(selector()), true, Time(0));
        }
        assert_eq!(workloads.next_deadline(), Some(Time(2_000_000)));
        workloads.read_soon(&key("77"), Time(10));
        assert_eq!(workloads.next_deadline(), Some(Time(2010)));
        workloads.read_soon(&key("77"), Time(100));
        assert_eq!(workloads.next_due(Time(2010)), Some(key("77")));
        assert_eq!(workloads.next_due(Time(2010)), None);
    }
}
