//! Which pods, or which workload, are the candidates of a lease.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::time::Time;

use super::leases::{Candidacy, Entry};
use super::namespace::Namespace;
use super::selectors::GroupId;
use super::workloads::{Concerned, Known, Workloads};
use super::{Asked, Index, LeaseId, WorkloadChange, WorkloadFound, WorkloadKey, WorkloadRead};
use crate::api::validated::WorkloadKind;
use crate::election::{Candidate, Electorate, WorkloadFacts};
use crate::plan::{CandidateFacts, PodKnowledge};

impl Index {
    /// Compares the spec with the quorum, and indexes the lease under the candidates that it selects, if they have changed.
    pub(super) fn resolve_spec(&mut self, id: LeaseId, now: Time) {
        let Some(entry) = self.leases.get_mut(id).filter(|entry| entry.object.is_some()) else { return };
        let quorum = self.quorums.facts_for(&entry.quorum, self.namespace_labels.get(&entry.namespace));
        entry.resolve(quorum.valid.as_deref());
        if !std::mem::take(&mut entry.candidates_changed) {
            return;
        }
        if let Some(key) = entry.leave_workload() {
            self.workloads.leave(&key, id);
        }
        if let Some(key) = entry.join_workload() {
            let is_candidate = matches!(entry.candidacy, Some(Candidacy::Itself(_)));
            self.workloads.join(&key, id, is_candidate, now);
        }
        self.regroup(id);
    }

    /// Moves the lease to the group of the pods that its selector matches now.
    fn regroup(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(id) else { return };
        let selector = match &entry.candidacy {
            None | Some(Candidacy::Itself(_)) => None,
            Some(Candidacy::Selector(selector)) => Some(selector),
            Some(Candidacy::Workload(key)) => match self.workloads.known(key) {
                Known::Selector(selector) => Some(selector),
                Known::Nothing | Known::Unusable(..) => None,
            },
        };
        let pods = self.namespaces.entry(entry.namespace.clone()).or_default();
        if let Some(group) = entry.group.take() {
            pods.leave(id, group);
        }
        entry.group = selector.map(|selector| pods.join(id, selector, entry.eligibility.clone()));
    }

    pub(super) fn leave_candidates(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(id) else { return };
        if let Some(group) = entry.group.take()
            && let Some(pods) = self.namespaces.get_mut(&entry.namespace)
        {
            pods.leave(id, group);
        }
        if let Some(key) = entry.leave_workload() {
            self.workloads.leave(&key, id);
        }
    }

    /// The next workload to read.
    pub fn next_workload(&mut self, now: Time) -> Option<WorkloadKey> {
        self.workloads.next_due(now)
    }

    /// The watch of the metadata of workloads has shown a change.
    pub fn workload_changed(&mut self, change: &WorkloadChange, now: Time) {
        self.workloads.changed(change, now);
    }

    /// The authority over the leases of a quorum has changed: their workloads are read again before anything begins.
    pub fn workloads_of_quorum(&mut self, quorum: &str, now: Time) {
        for id in self.quorums.leases(quorum) {
            if let Some(Candidacy::Itself(key)) = self.leases.get(id).and_then(|entry| entry.candidacy.as_ref()) {
                self.workloads.read_again(key, now);
            }
        }
    }

    /// When a workload must be read.
    pub fn next_deadline(&self) -> Option<Time> {
        self.workloads.next_deadline()
    }

    /// Takes the result of reading a workload.
    pub fn workload_read(&mut self, key: &WorkloadKey, found: WorkloadFound, now: Time) {
        let pods = self.namespaces.get(&key.0);
        let has_pods = match &found.read {
            // Before the first list of pods, a workload without pods is not known to have none.
            WorkloadRead::Selects(selector) => !self.pods.listed || pods.is_some_and(|pods| pods.has_match(selector)),
            _ => false,
        };
        let Concerned { regrouped, candidacies: mut concerned, marked_by } =
            self.workloads.read(key, found, has_pods, now);
        for id in regrouped {
            self.regroup(id);
            concerned.insert(id);
        }
        self.workload_concerns(&key.0, concerned, &marked_by);
    }

    /// Takes a pod or a workload from the answer to a call that was sent at `asked`.
    pub fn answered(&mut self, asked: Asked, found: Candidate, now: Time) {
        match found {
            Candidate::Pod(pod) => self.pod_answered(asked, Arc::unwrap_or_clone(pod), now),
            Candidate::Workload(workload) => {
                let namespace = Arc::from(workload.namespace.as_str());
                let Concerned { candidacies, marked_by, .. } = self.workloads.answered(workload);
                self.workload_concerns(&namespace, candidacies, &marked_by);
            }
        }
    }

    /// Takes pods from the answer to a list that was requested at `asked`. Returns `false` if they could not be taken, because
    /// another list is in progress.
    pub fn pods_answered(&mut self, asked: Asked, pods: Vec<Candidate>, now: Time) -> bool {
        let is_current = self.pods.is_current(asked);
        for pod in pods {
            self.answered(asked, pod, now);
        }
        is_current
    }

    /// No pod, or no workload of this kind, has this UID.
    pub fn answered_missing(&mut self, namespace: &str, uid: &str, workload: Option<WorkloadKind>, now: Time) {
        if let Some(kind) = workload {
            for id in self.workloads.missing(namespace, kind, uid) {
                self.mark(id);
            }
        }
        // It may be named as the holder.
        self.pod_missing(namespace, uid, false, now);
    }

    fn workload_concerns(&mut self, namespace: &Arc<str>, leases: BTreeSet<LeaseId>, marked_by: &BTreeSet<String>) {
        let all = self.namespaces.get(namespace).map(|namespace| &namespace.names);
        let carried: Vec<LeaseId> =
            marked_by.iter().filter_map(|name| all.and_then(|all| all.get(name))).copied().collect();
        self.mark_all(leases.into_iter().chain(carried));
    }

    /// What is known about the holder of a lease.
    pub(super) fn holder_of(&self, entry: &Entry, pods: &Namespace) -> PodKnowledge {
        let Some(uid) = &entry.holder else { return PodKnowledge::Unseen };
        let Some(Candidacy::Itself(key)) = &entry.candidacy else { return self.pods.find(pods, uid) };
        match self.workloads.object(key) {
            Some(workload) if *workload.uid == **uid => PodKnowledge::Workload,
            _ => match self.pods.find(pods, uid) {
                // Another workload has the name, or none.
                PodKnowledge::Unseen if self.pods.listed && self.workloads.was_read(key) => {
                    PodKnowledge::Gone { stopped: false }
                }
                known => known,
            },
        }
    }
}

/// The candidates of a lease, and the group of the pods that its selector matches; `None` while they are unknown.
pub(super) fn candidates_of(
    entry: &Entry,
    pods: &mut Namespace,
    workloads: &Workloads,
    pods_listed: bool,
) -> (CandidateFacts, Option<GroupId>) {
    let workload = entry.candidacy.as_ref().and_then(Candidacy::workload);
    let unknown = match workload.map(|key| workloads.known(key)) {
        Some(Known::Unusable(reason, message)) => CandidateFacts::Unusable(*reason, message.clone()),
        Some(Known::Nothing | Known::Selector(_)) | None => CandidateFacts::Unknown,
    };
    if let Some(Candidacy::Itself(key)) = &entry.candidacy {
        // If it does not exist, there is a message.
        let workload = workloads.object(key).filter(|_| pods_listed && workloads.was_read(key));
        let of =
            |workload: &Arc<WorkloadFacts>| CandidateFacts::Known(Arc::new(Electorate::of_workload(workload.clone())));
        return (workload.map_or(unknown, of), None);
    }
    let group = entry.group.filter(|_| pods_listed);
    let electorate = group.and_then(|group| pods.electorate(group));
    (electorate.map_or(unknown, CandidateFacts::Known), group)
}
