//! The annotated workloads, the leases created for workloads, and which workloads need a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::annotations::Problem;
use crate::annotations::decide::{Change, Decision, changed_back, decide, judge_existing, refused};
use crate::annotations::facts::{LeaseFacts, WorkloadFacts, key_of};
use crate::api::validated::{Workload, WorkloadKind};
use crate::index::{Listing, Watched, WorkloadChange, WorkloadKey, is_older};
use crate::plan::Timers;
use crate::plan::calls::Changed;
use crate::status::NoticeReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::backoff::{Backoff, Entropy};
use redislease_core::time::{Millis, Time};

/// The pause before a change that could not be made is tried again without an event.
const AGAIN: Backoff = Backoff::exponential(1000, 60_000, 10);
/// How long a lease must stay as it was written before a change by somebody else counts as the first one.
const SETTLED: Millis = Millis(120_000);
/// How many writes in a row are normal: the lease follows its annotations, and one change by somebody else is reverted.
const WRITES: u32 = 2;
/// The pause before a decision that this replica may not carry out is made again.
const FOLLOW: Millis = Millis(10_000);
/// The pause before trying again to create a lease whose name is used.
const TAKEN: Millis = Millis(60_000);

/// The first one of a namespace, in order.
const FIRST: Workload = Workload { kind: WorkloadKind::Deployment, name: String::new() };

/// A workload with annotations, or with leases that were created for it.
#[derive(Debug, Default)]
struct WorkloadEntry {
    /// Its facts, if it has annotations.
    workload: Option<WorkloadFacts>,
    /// The names of the leases that were created for it.
    leases: BTreeSet<String>,
    /// The quorum of the change that is being made.
    busy: Option<String>,
    /// Whether a lease of the workload was deleted, or all were listed, after that change was sent: its answer may be older.
    answer_is_old: bool,
    /// The problems that were reported, with the UID of the workload.
    reported: BTreeSet<(String, Problem)>,
    /// A problem that a change met, until a time or another event.
    obstacle: Option<(Problem, String, Time)>,
    /// Changes in a row that were not made.
    failures: u32,
    /// Changes of the lease for the same annotations, each less than [`SETTLED`] after the one before, and the earliest time
    /// of the next one. Another client or an admission policy may change the lease back each time.
    writes: u32,
    written_at: Option<Time>,
    not_before: Option<Time>,
}

impl WorkloadEntry {
    /// The next change of the lease is the first one.
    const fn settle(&mut self) {
        (self.writes, self.written_at, self.not_before) = (0, None, None);
    }
}

/// The workloads that need a decision, by kind.
#[derive(Debug, Default)]
struct Due(BTreeMap<WorkloadKind, BTreeSet<WorkloadKey>>);

impl Due {
    fn insert(&mut self, key: WorkloadKey) {
        self.0.entry(key.1.kind).or_default().insert(key);
    }

    /// Takes a workload of one of these kinds.
    fn pop(&mut self, kinds: &BTreeSet<WorkloadKind>) -> Option<WorkloadKey> {
        kinds.iter().find_map(|kind| self.0.get_mut(kind)?.pop_first())
    }
}

impl Extend<WorkloadKey> for Due {
    fn extend<T: IntoIterator<Item = WorkloadKey>>(&mut self, keys: T) {
        keys.into_iter().for_each(|key| self.insert(key));
    }
}

/// What the shell carries out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make this change: answered by [`AnnotatedWorkloads::changed`].
    Change(WorkloadKey, Change),
    /// Report this problem on the workload with this UID.
    Report(WorkloadKey, String, Problem),
    /// Withdraw this report on the workload with this UID, if it was not sent yet: the problem does not exist any more.
    Withdraw(String, Problem),
}

/// All facts.
#[derive(Debug, Default)]
pub struct AnnotatedWorkloads {
    entries: BTreeMap<WorkloadKey, WorkloadEntry>,
    leases: BTreeMap<(Arc<str>, String), LeaseFacts>,
    due: Due,
    /// When a decision is made again without an event.
    again: Timers<WorkloadKey>,
    /// The kinds of workloads of which a complete list is known.
    listed: BTreeSet<WorkloadKind>,
    leases_listed: bool,
    lists: BTreeMap<WorkloadKind, Listing<WorkloadKey>>,
    lease_list: Listing<(Arc<str>, String)>,
}

/// The workload that an event of the watch is about, and the leases for which the operator has written it.
pub fn changed(kind: WorkloadKind, event: &Watched<WorkloadFacts>) -> Option<WorkloadChange> {
    match event {
        Watched::Seen(workload) | Watched::Deleted(workload) => Some((workload.key.clone(), workload.owners.clone())),
        Watched::Unreadable(metadata) | Watched::DeletedUnreadable(metadata) => {
            Some((key_of(kind, metadata), BTreeSet::new()))
        }
        Watched::ListBegins | Watched::Unlisted(_) | Watched::ListEnds => None,
    }
}

impl AnnotatedWorkloads {
    /// Takes an event of the watch of workloads of a kind.
    pub fn workload(&mut self, kind: WorkloadKind, event: Watched<WorkloadFacts>) {
        match event {
            Watched::ListBegins => {
                self.listed.remove(&kind);
                self.lists.entry(kind).or_default().begins();
            }
            Watched::Seen(workload) => {
                if !workload.annotations.is_empty() {
                    self.lists.entry(kind).or_default().contains([workload.key.clone()]);
                }
                self.take_workload(*workload);
            }
            Watched::Deleted(workload) => self.forget_workload(&workload.key),
            Watched::Unreadable(metadata) => self.keep_workload(kind, &metadata),
            Watched::DeletedUnreadable(metadata) => self.forget_workload(&key_of(kind, &metadata)),
            Watched::Unlisted(namespace) => {
                let kept = self.entries.keys().filter(|key| *key.0 == *namespace).cloned();
                self.lists.entry(kind).or_default().contains(kept);
            }
            Watched::ListEnds => {
                let list = self.lists.entry(kind).or_default().ends();
                self.listed.insert(kind);
                let of_kind = |key: &&WorkloadKey| key.1.kind == kind;
                let known: Vec<WorkloadKey> = self.entries.keys().filter(of_kind).cloned().collect();
                for key in known {
                    if list.as_ref().is_some_and(|list| list.lacks(&key)) {
                        self.forget_workload(&key);
                    }
                    self.due.insert(key);
                }
            }
        }
    }

    fn take_workload(&mut self, workload: WorkloadFacts) {
        let key = workload.key.clone();
        if workload.annotations.is_empty() {
            return self.forget_workload(&key);
        }
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.workload.as_ref() != Some(&workload) {
            entry.workload = Some(workload);
            entry.settle();
            self.event(&key);
        }
    }

    /// The workload could not be read. Its last facts stay, unless they are those of a deleted workload of the same name.
    fn keep_workload(&mut self, kind: WorkloadKind, metadata: &ObjectMeta) {
        let key = key_of(kind, metadata);
        let known = self.entries.get(&key).and_then(|entry| entry.workload.as_ref());
        if known.is_some_and(|known| metadata.uid.as_ref().is_some_and(|uid| *uid != known.uid)) {
            self.forget_workload(&key);
        }
        self.lists.entry(kind).or_default().contains([key]);
    }

    /// The workload has no annotations, or is deleted.
    fn forget_workload(&mut self, key: &WorkloadKey) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.workload.take().is_some()
        {
            self.event(key);
        }
    }

    /// Takes an event of the watch of leases.
    pub fn lease(&mut self, event: Watched<LeaseFacts>) {
        match event {
            Watched::ListBegins => {
                self.leases_listed = false;
                self.lease_list.begins();
            }
            Watched::Seen(lease) => {
                if lease.created_for.is_some() {
                    self.lease_list.contains([(lease.namespace.clone(), lease.name.clone())]);
                }
                self.take_lease(*lease);
            }
            Watched::Deleted(lease) => {
                // Each of them may have found this lease under the name that it wants.
                let from = (lease.namespace.clone(), FIRST)..;
                let of_namespace = self.entries.range_mut(from).take_while(|(key, _)| key.0 == lease.namespace);
                of_namespace.for_each(|(_, entry)| entry.answer_is_old = true);
                self.forget_lease(&lease.namespace, &lease.name, &lease.uid);
            }
            // The lease exists: its last facts stay.
            Watched::Unreadable(metadata) => {
                let name = (metadata.namespace.unwrap_or_default().into(), metadata.name.unwrap_or_default());
                self.lease_list.contains([name]);
            }
            Watched::DeletedUnreadable(metadata) => {
                let namespace = metadata.namespace.unwrap_or_default().into();
                let (name, uid) = (metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default());
                self.forget_lease(&namespace, &name, &uid);
            }
            Watched::Unlisted(namespace) => {
                self.lease_list.contains(self.leases.keys().filter(|name| *name.0 == *namespace).cloned());
            }
            Watched::ListEnds => {
                let list = self.lease_list.ends();
                self.leases_listed = true;
                self.entries.values_mut().for_each(|entry| entry.answer_is_old = true);
                let gone = self.leases.iter().filter(|(name, _)| list.as_ref().is_some_and(|list| list.lacks(name)));
                let gone: Vec<_> = gone.map(|(name, lease)| (name.clone(), lease.uid.clone())).collect();
                for ((namespace, name), uid) in gone {
                    self.forget_lease(&namespace, &name, &uid);
                }
                self.all_due();
            }
        }
    }

    fn take_lease(&mut self, lease: LeaseFacts) {
        let name = (lease.namespace.clone(), lease.name.clone());
        let known = self.leases.get(&name);
        // A list decides: etcd may have been restored from a backup.
        let is_outdated = |known: &LeaseFacts| {
            !self.lease_list.is_in_progress() && is_older(lease.version.as_deref(), known.version.as_deref())
        };
        if known.is_some_and(|known| known == &lease || (known.uid == lease.uid && is_outdated(known))) {
            return;
        }
        let Some(workload) = lease.workload() else {
            if let Some(uid) = known.map(|known| known.uid.clone()) {
                self.forget_lease(&name.0, &name.1, &uid);
            }
            return;
        };
        // Only metadata of no interest here or the status has changed.
        let only_version =
            known.is_some_and(|known| *known == LeaseFacts { version: known.version.clone(), ..lease.clone() });
        if let Some(before) = known.and_then(LeaseFacts::workload).filter(|before| *before != workload) {
            self.entries.entry(before.clone()).or_default().leases.remove(&name.1);
            self.event(&before);
        }
        self.leases.insert(name.clone(), lease);
        self.entries.entry(workload.clone()).or_default().leases.insert(name.1);
        if !only_version {
            self.event(&workload);
        }
    }

    fn forget_lease(&mut self, namespace: &Arc<str>, name: &str, uid: &str) {
        let key = (namespace.clone(), name.to_owned());
        if self.leases.get(&key).is_none_or(|known| known.uid != uid) {
            return;
        }
        if let Some(workload) = self.leases.remove(&key).and_then(|lease| lease.workload()) {
            if let Some(entry) = self.entries.get_mut(&workload) {
                entry.leases.remove(name);
            }
            self.event(&workload);
        }
        // Another workload may wait for this name.
        let from = (namespace.clone(), FIRST)..;
        let of_namespace = self.entries.range(from).take_while(|(key, _)| key.0 == *namespace);
        let waits = |(_, problem): &(String, Problem)| problem.reason == NoticeReason::LeaseNameTaken;
        let waiting = of_namespace.filter(|(_, entry)| entry.reported.iter().any(waits));
        self.due.extend(waiting.map(|(key, _)| key.clone()));
    }

    /// A fact about the workload has changed.
    fn event(&mut self, key: &WorkloadKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.obstacle = None;
        }
        self.due.insert(key.clone());
    }

    /// Makes every workload due: this replica may decide more than before.
    pub fn all_due(&mut self) {
        self.due.extend(self.entries.keys().cloned());
    }

    /// Takes a workload that needs a decision.
    pub fn next_due(&mut self, now: Time) -> Option<WorkloadKey> {
        while let Some(key) = self.again.expired(now) {
            self.due.insert(key);
        }
        if self.leases_listed { self.due.pop(&self.listed) } else { None }
    }

    /// The decision about this workload panicked. Its next event, or the end of the pause, begins another one.
    pub fn panicked(&mut self, now: Time, key: &WorkloadKey) {
        self.again.set(key.clone(), Some(now + AGAIN.max));
    }

    /// Decides about one workload that was due. `leads` says whether this replica may act for a quorum.
    pub fn decide(&mut self, now: Time, key: &WorkloadKey, leads: impl Fn(&str) -> bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.busy.is_none()) else { return effects };
        self.again.set(key.clone(), None);
        let mut again_at = None;
        let lease = |name: &str| self.leases.get(&(key.0.clone(), name.to_owned()));
        let created: Vec<&LeaseFacts> = entry.leases.iter().filter_map(|name| lease(name)).collect();
        let Decision { mut change, mut problems } = decide(key, entry.workload.as_ref(), &created, lease);
        if entry.workload.is_none() && entry.leases.is_empty() {
            let reported = self.entries.remove(key).map(|entry| entry.reported).unwrap_or_default();
            return reported.into_iter().map(|(uid, problem)| Effect::Withdraw(uid, problem)).collect();
        }
        if let Some((quorum, _)) = &change {
            if entry.writes > WRITES {
                problems.push((quorum.clone(), changed_back(&key.1)));
            }
            if let Some(at) = entry.not_before.filter(|at| now < *at) {
                change = None;
                again_at = Some(at);
            }
        } else if entry.written_at.is_some_and(|at| now >= at + SETTLED) {
            entry.settle();
        }
        if let Some((problem, quorum, until)) = &entry.obstacle {
            problems.push((quorum.clone(), problem.clone()));
            if now < *until {
                change = None;
                again_at = Some(*until);
            }
        }
        let uid = entry.workload.as_ref().map(|workload| workload.uid.clone()).unwrap_or_default();
        let mut current = BTreeSet::new();
        for (quorum, problem) in problems {
            let reported = (uid.clone(), problem);
            if entry.reported.contains(&reported) {
                current.insert(reported);
            } else if leads(&quorum) {
                effects.push(Effect::Report(key.clone(), uid.clone(), reported.1.clone()));
                current.insert(reported);
            } else {
                again_at = Some(now + FOLLOW);
            }
        }
        let corrected = entry.reported.difference(&current).cloned();
        effects.extend(corrected.map(|(uid, problem)| Effect::Withdraw(uid, problem)));
        entry.reported = current;
        match change {
            Some((quorum, change)) if leads(&quorum) => {
                (entry.busy, entry.answer_is_old) = (Some(quorum), false);
                effects.push(Effect::Change(key.clone(), change));
            }
            Some(_) => again_at = Some(now + FOLLOW),
            None => {}
        }
        self.again.set(key.clone(), again_at);
        effects
    }

    /// Takes the outcome of a change.
    pub fn changed(&mut self, now: Time, key: &WorkloadKey, outcome: Changed<Box<LeaseFacts>>, entropy: Entropy) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let quorum = entry.busy.take().unwrap_or_default();
        let (failures, is_old) = (std::mem::take(&mut entry.failures), entry.answer_is_old);
        let mut repeat = || {
            entry.failures = failures.saturating_add(1);
            now + AGAIN.jittered(entry.failures, entropy)
        };
        match outcome {
            Changed::Written(lease) => {
                entry.obstacle = None;
                if entry.written_at.replace(now).is_some_and(|at| now >= at + SETTLED) {
                    entry.writes = 0;
                }
                entry.writes = entry.writes.saturating_add(1);
                let more = entry.writes.checked_sub(WRITES).filter(|more| *more > 0);
                entry.not_before = more.map(|more| now + AGAIN.jittered(more, entropy));
                self.due.insert(key.clone());
                if !is_old {
                    self.take_lease(*lease);
                }
            }
            Changed::Deleted(uid) => {
                entry.obstacle = None;
                self.due.insert(key.clone());
                let mut names = entry.leases.iter().map(|name| (key.0.clone(), name.clone()));
                let found = names.find(|name| self.leases.get(name).is_some_and(|lease| lease.uid == uid));
                if let Some((namespace, name)) = found {
                    self.forget_lease(&namespace, &name, &uid);
                }
            }
            Changed::Exists(lease) => {
                let problem = entry.workload.as_ref().and_then(|workload| judge_existing(workload, &lease));
                if let Some(problem) = problem {
                    entry.obstacle = Some((problem, quorum, now + TAKEN));
                } else if !is_old {
                    self.take_lease(*lease);
                }
                self.due.insert(key.clone());
            }
            Changed::Refused(why) => {
                let until = repeat();
                entry.obstacle = Some((refused(&key.1, &why), quorum, until));
                self.due.insert(key.clone());
            }
            Changed::Outdated | Changed::Unanswered => {
                let at = repeat();
                self.again.set(key.clone(), Some(at));
            }
        }
    }

    /// When a decision must be made again without an event.
    pub fn next_deadline(&self) -> Option<Time> {
        self.again.first()
    }

    /// Whether no workload is in memory.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.due.0.values().all(BTreeSet::is_empty)
    }
}

#[cfg(test)]
#[path = "annotated_tests.rs"]
mod tests;
