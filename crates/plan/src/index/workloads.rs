//! The selectors of the workloads that leases name, and when each workload is read again.
//!
//! Workloads are read one by one: a watch on six kinds in all namespaces would transfer the spec of every workload for the few
//! that leases name. A workload's selector never changes, so reads after the first one only detect a workload that was deleted
//! or created again, and changed labels in the pod template of a CronJob. The rate of these reads is limited over all workloads
//! together. A workload without pods, or one that does not exist yet, is read sooner.
//!
//! A workload that is itself a candidate is read when the watch of the metadata of workloads shows a change, at most once a
//! second. Without this watch it is read every ten seconds. The same holds for a workload that carries marks of a lease and is not
//! its candidate any more: they are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::Selector;
use redislease_core::backoff::Backoff;
use redislease_core::time::{Millis, Time};

use super::ids::{LeaseId, is_older, remove_from};
use crate::api::conditions::LeaseReady;
use crate::api::validated::{Workload, WorkloadKind};
use crate::election::WorkloadFacts;
use crate::plan::Timers;
use crate::plan::calls::{WorkloadFound, WorkloadKey, WorkloadRead};
use crate::plan::lacks_right;

/// How long a selector is used before its workload is read again.
const FRESH: Millis = Millis(300_000);
/// The pause before reading a workload again that is missing or has no pods.
const EARLY: Backoff = Backoff::exponential(2000, 32_000, 0);
/// The pause between two reads of a workload that is itself a candidate, while no watch shows its changes.
const CANDIDATE: Millis = Millis(10_000);
/// The same while the watch of workloads shows changes: the watch of one kind may have failed.
const WATCHED: Millis = Millis(60_000);
/// The shortest pause between two reads of a workload that changes.
const CHANGED: Millis = Millis(1000);
/// Workloads of each kind of read, usual, early or of candidates, are read at most five times a second in total.
const PACE: Millis = Millis(200);

/// A workload that has changed, and the names of the leases for which the operator has written it.
pub type WorkloadChange = (WorkloadKey, BTreeSet<String>);

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
struct WorkloadEntry {
    known: Known,
    leases: BTreeSet<LeaseId>,
    /// The leases of which it is the candidate itself.
    candidacies: BTreeSet<LeaseId>,
    /// The names of the leases whose marks it carries.
    marked_by: BTreeSet<String>,
    /// Its facts, while it is a candidate or carries marks.
    object: Option<Arc<WorkloadFacts>>,
    was_read: bool,
    reading: Option<Reading>,
    read_at: Option<Time>,
    /// The number of early reads in a row.
    early_reads: u32,
}

impl WorkloadEntry {
    /// Whether the facts about the workload itself are used.
    fn is_used(&self) -> bool {
        !self.candidacies.is_empty() || !self.marked_by.is_empty()
    }
}

/// What a change of a workload concerns.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    /// The leases whose candidates the workload selects now.
    pub regrouped: BTreeSet<LeaseId>,
    /// The leases of which it is the candidate.
    pub candidacies: BTreeSet<LeaseId>,
    /// The names of the leases whose marks it carries.
    pub marked_by: BTreeSet<String>,
}

/// The workloads that leases name, and those that carry marks of leases.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    entries: BTreeMap<WorkloadKey, WorkloadEntry>,
    /// The workloads that carry marks of a lease, by its namespace and name.
    marked: BTreeMap<(Arc<str>, String), BTreeSet<WorkloadKey>>,
    /// When each of them is read next.
    due: Timers<WorkloadKey>,
    /// The number of workloads that are read early.
    read_early: usize,
    /// The number of workloads that are candidates themselves.
    candidates: usize,
    /// Whether a watch shows the changes of workloads.
    watched: bool,
}

impl Workloads {
    pub fn join(&mut self, key: &WorkloadKey, lease: LeaseId, is_candidate: bool, now: Time) {
        let entry = self.entries.entry(key.clone()).or_default();
        let is_new = entry.leases.is_empty() && entry.read_at.is_none();
        let is_first = is_candidate && entry.candidacies.is_empty();
        entry.leases.insert(lease);
        if is_candidate {
            entry.candidacies.insert(lease);
        }
        if is_new {
            self.schedule(key, now);
        }
        if is_first {
            self.candidates += 1;
            // An earlier read did not keep its facts.
            self.read_again(key, now);
        }
    }

    pub fn object(&self, key: &WorkloadKey) -> Option<&Arc<WorkloadFacts>> {
        self.entries.get(key)?.object.as_ref()
    }

    /// The names of the leases whose marks workloads carry.
    pub fn markers(&self) -> impl Iterator<Item = (&Arc<str>, &str)> {
        self.marked.keys().map(|(namespace, lease)| (namespace, lease.as_str()))
    }

    /// The workloads that carry marks of the lease with this name and are not the candidate of the lease `id`.
    pub fn strays(&self, namespace: &Arc<str>, lease: &str, id: Option<LeaseId>) -> Vec<Arc<WorkloadFacts>> {
        let Some(keys) = self.marked.get(&(namespace.clone(), lease.to_owned())) else { return Vec::new() };
        let entries = keys.iter().filter_map(|key| self.entries.get(key));
        let strays = entries.filter(|entry| id.is_none_or(|id| !entry.candidacies.contains(&id)));
        strays.filter_map(|entry| entry.object.clone()).collect()
    }

    /// Whether the workload has been read since it became a candidate.
    pub fn was_read(&self, key: &WorkloadKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.was_read)
    }

    pub fn leave(&mut self, key: &WorkloadKey, lease: LeaseId) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.leases.remove(&lease);
        if entry.candidacies.remove(&lease) && entry.candidacies.is_empty() {
            self.candidates -= 1;
        }
        self.drop_unused(key);
    }

    fn drop_unused(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if !entry.is_used() {
            entry.object = None;
        }
        if entry.leases.is_empty() && entry.marked_by.is_empty() {
            self.due.set(key.clone(), None);
            self.read_early -= usize::from(entry.early_reads > 0);
            self.entries.remove(key);
        }
    }

    fn mark(&mut self, key: &WorkloadKey, marked_by: BTreeSet<String>) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.marked_by != marked_by) else { return };
        let before = std::mem::replace(&mut entry.marked_by, marked_by);
        for lease in entry.marked_by.difference(&before) {
            self.marked.entry((key.0.clone(), lease.clone())).or_default().insert(key.clone());
        }
        for lease in before.difference(&entry.marked_by) {
            remove_from(&mut self.marked, &(key.0.clone(), lease.clone()), key);
        }
        self.drop_unused(key);
    }

    pub fn known(&self, key: &WorkloadKey) -> &Known {
        self.entries.get(key).map_or(&Known::Nothing, |entry| &entry.known)
    }

    /// The watch has shown a change of the workload, which carries annotations of the operator for these leases.
    pub fn changed(&mut self, (key, owners): &WorkloadChange, now: Time) {
        self.watched = true;
        if !owners.is_empty() && self.entries.get(key).is_none_or(|entry| entry.object.is_none()) {
            self.entries.entry(key.clone()).or_default();
            self.mark(key, owners.clone());
        }
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.is_used()) else { return };
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

    pub fn next_due(&mut self, now: Time) -> Option<WorkloadKey> {
        let key = self.due.expired(now)?;
        if let Some(entry) = self.entries.get_mut(&key) {
            let known = entry.object.as_ref().and_then(|object| object.resource_version.clone());
            entry.reading = Some(Reading { known, ..Reading::default() });
        }
        Some(key)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first()
    }

    /// Takes the result of a read. `has_pods` says whether the workload's selector matches any pod.
    pub fn read(&mut self, key: &WorkloadKey, found: WorkloadFound, has_pods: bool, now: Time) -> Concerned {
        let total = self.entries.len();
        let WorkloadFound { read, object } = found;
        // Pods would leave and join it with each label. The pods of a CronJob belong to its Jobs.
        let is_unstable = matches!(read, WorkloadRead::SelectsByRole(_)) && key.1.kind != WorkloadKind::CronJob;
        let object = object.filter(|_| !is_unstable);
        let is_answered = !matches!(read, WorkloadRead::Refused(_));
        let Some(entry) = self.entries.get_mut(key) else { return Concerned::default() };
        let Reading { again, void, known: known_when_sent } = entry.reading.take().unwrap_or_default();
        let was_read = entry.was_read;
        // A workload that changes all the time is known as of the last answer.
        entry.was_read |= !void && is_answered;
        let is_first = entry.was_read && !was_read;
        entry.read_at = Some(now);
        let known = known_from(read, key, &entry.known);
        let usual = has_pods && matches!(known, Known::Selector(_));
        self.read_early -= usize::from(entry.early_reads > 0);
        entry.early_reads = if usual { 0 } else { entry.early_reads.saturating_add(1) };
        self.read_early += usize::from(entry.early_reads > 0);
        let (pause, alike) =
            if usual { (FRESH, total - self.read_early) } else { (EARLY.delay(entry.early_reads), self.read_early) };
        let (pause, alike) = match (entry.candidacies.is_empty(), self.watched) {
            (true, _) if entry.marked_by.is_empty() => (pause, alike),
            (_, true) => (pause.min(WATCHED), alike),
            (_, false) => (pause.min(CANDIDATE), self.candidates),
        };
        let spread = Millis(PACE.0.saturating_mul(alike as u64));
        let changed = entry.known != known;
        entry.known = known;
        let regrouped = if changed { entry.leases.clone() } else { BTreeSet::new() };
        let candidacies = if is_first { entry.candidacies.clone() } else { BTreeSet::new() };
        // Nothing newer is known than when the read was sent: its answer counts, even with a lower version.
        let version = entry.object.as_ref().and_then(|object| object.resource_version.as_deref());
        let is_current = version == known_when_sent.as_deref();
        self.schedule(key, now + if again { CHANGED } else { pause.max(spread) });
        let taken = match object {
            Some(object) => self.take(key, Some(object), is_current),
            None if is_answered => self.take(key, None, true),
            None => Concerned::default(),
        };
        Concerned { regrouped, candidacies: taken.candidacies.union(&candidacies).copied().collect(), ..taken }
    }

    /// Takes a workload from the answer to a write.
    pub fn answered(&mut self, object: Arc<WorkloadFacts>) -> Concerned {
        let workload = Workload { kind: object.kind, name: object.name.clone() };
        self.take(&(object.namespace.as_str().into(), workload), Some(object), false)
    }

    /// The workload of this kind with this UID does not exist any more.
    pub fn missing(&mut self, namespace: &str, kind: WorkloadKind, uid: &str) -> BTreeSet<LeaseId> {
        let is_it = |(key, entry): (&WorkloadKey, &WorkloadEntry)| {
            let same = (&*key.0, key.1.kind) == (namespace, kind)
                && entry.object.as_ref().is_some_and(|object| object.uid == uid);
            same.then(|| key.clone())
        };
        let key = self.entries.iter().find_map(is_it);
        key.map(|key| self.take(&key, None, true).candidacies).unwrap_or_default()
    }

    /// Takes the workload as it is, or as missing. If the answer `is_current`, the read was sent after the known version was taken:
    /// a lower version then follows a restore of the API server.
    fn take(&mut self, key: &WorkloadKey, object: Option<Arc<WorkloadFacts>>, is_current: bool) -> Concerned {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.is_used()) else {
            return Concerned::default();
        };
        let version =
            |object: &Option<Arc<WorkloadFacts>>| object.as_ref().and_then(|object| object.resource_version.clone());
        let is_outdated = !is_current && is_older(version(&object).as_deref(), version(&entry.object).as_deref());
        let is_same = entry.object == object && (object.is_some() || entry.marked_by.is_empty());
        if is_outdated || is_same {
            return Concerned::default();
        }
        let marked_by: BTreeSet<String> =
            object.iter().flat_map(|object| object.marked_by()).map(str::to_owned).collect();
        let all = entry.marked_by.union(&marked_by).cloned().collect();
        entry.object = object;
        let candidacies = entry.candidacies.clone();
        self.mark(key, marked_by);
        Concerned { candidacies, marked_by: all, ..Concerned::default() }
    }

    /// The workload's last pod is deleted: it may have been created again with another selector, so it is read soon.
    pub fn read_soon(&mut self, key: &WorkloadKey, now: Time) {
        self.schedule(key, now + EARLY.min);
    }

    /// Reads the workload at `at`, or earlier if an earlier read is scheduled.
    fn schedule(&mut self, key: &WorkloadKey, at: Time) {
        let waits = self.entries.get(key).is_some_and(|entry| entry.reading.is_none());
        if waits && self.due.get(key).is_none_or(|due| at < due) {
            self.due.set(key.clone(), Some(at));
        }
    }
}

/// What the answer to a read says about the selector.
fn known_from(read: WorkloadRead, key: &WorkloadKey, before: &Known) -> Known {
    let (namespace, Workload { kind, name }) = key;
    let workload = format!("{} {namespace}/{name}", kind.as_str());
    let unusable = |message| Known::Unusable(LeaseReady::InvalidReference, message);
    match read {
        WorkloadRead::Selects(selector) => Known::Selector(selector),
        WorkloadRead::SelectsNothing => {
            let lacks = match kind {
                WorkloadKind::CronJob => "labels in its pod template",
                _ => "selector over pods",
            };
            unusable(format!("{workload}, which spec.candidates.workloadRef names, has no {lacks}"))
        }
        WorkloadRead::SelectsByRole(label) => unusable(format!(
            "the selector of {workload}, which spec.candidates.workloadRef names, uses the label {label}: the operator writes this \
             label, so its own writes would change which pods belong to the workload. Remove the label from the selector and from the \
             pod template"
        )),
        WorkloadRead::Missing => unusable(format!(
            "spec.candidates.workloadRef names {workload}, which does not exist: create it or correct the reference"
        )),
        // The previous selector is still right: a selector never changes.
        WorkloadRead::Refused(_) if matches!(before, Known::Selector(_)) => before.clone(),
        WorkloadRead::Refused(why) if lacks_right(&why) => Known::Unusable(
            LeaseReady::Forbidden,
            format!(
                "The operator has no right to read {workload}, which spec.candidates.workloadRef names: {why}. Grant it, for \
                 example with the roles of the chart."
            ),
        ),
        // It may exist and be right.
        WorkloadRead::Refused(why) => Known::Unusable(
            LeaseReady::Starting,
            format!(
                "The operator could not read {workload}, which spec.candidates.workloadRef names, and does not know \
                 which pods are candidates: {why}"
            ),
        ),
    }
}

#[cfg(test)]
#[path = "workloads_tests.rs"]
mod tests;
