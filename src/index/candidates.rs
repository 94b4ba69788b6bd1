//! Which pods, or which workload, are the candidates of a lease.

use kube::core::Expression;
use redislease_core::time::Time;

use super::leases::{Candidacy, Entry};
use super::namespace::Namespace;
use super::selectors::GroupId;
use super::workloads::{Known, Workloads};
use super::{Index, LeaseId, WorkloadFound, WorkloadKey, WorkloadRead};
use crate::api::names;
use crate::election::{PodFacts, Sighting};
use crate::plan::CandidateFacts;

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
        let itself;
        let selector = match &entry.candidacy {
            None => None,
            Some(Candidacy::Selector(selector)) => Some(selector),
            Some(Candidacy::Itself(key)) => {
                itself = Expression::Equal(names::WORKLOAD_LABEL.to_owned(), workload_label(key)).into();
                Some(&itself)
            }
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
        let key = self.workloads.next_due(now)?;
        let known = self.known_candidate(&key).and_then(|known| known.facts.resource_version.clone());
        self.workloads.read_sent(&key, known);
        Some(key)
    }

    /// The watch of the metadata of workloads has shown a change.
    pub fn workload_changed(&mut self, key: &WorkloadKey, now: Time) {
        self.workloads.changed(key, now);
    }

    /// The authority over the leases of a quorum has changed: their workloads are read again before anything begins.
    pub fn workloads_of_quorum(&mut self, quorum: &str, now: Time) {
        for id in self.quorums.leases(quorum) {
            if let Some(Candidacy::Itself(key)) = self.leases.get(id).and_then(|entry| entry.candidacy.as_ref()) {
                self.workloads.read_again(key, now);
            }
        }
    }

    fn known_candidate(&self, key: &WorkloadKey) -> Option<&Sighting> {
        let pods = self.namespaces.get(&key.0)?;
        let uid = pods.workloads(&workload_label(key)).into_iter().next()?;
        pods.pod(&uid).map(|sighting| &**sighting)
    }

    /// When a workload must be read.
    pub fn next_deadline(&self) -> Option<Time> {
        self.workloads.next_deadline()
    }

    /// Takes the result of reading a workload.
    pub fn workload_read(&mut self, key: &WorkloadKey, found: WorkloadFound, now: Time) {
        let WorkloadFound { read, object } = found;
        let is_candidate = self.workloads.has_candidacies(key);
        // Nothing newer is known than when the read was sent: its answer counts, even with a lower version.
        let known = self.known_candidate(key).and_then(|known| known.facts.resource_version.as_deref());
        let is_current = known == self.workloads.known_when_sent(key);
        let was_read = self.workloads.was_read(key);
        let is_missing = read == WorkloadRead::Missing;
        let pods = self.namespaces.get(&key.0);
        let has_pods = match &read {
            // Before the first list of pods, a workload without pods is not known to have none.
            WorkloadRead::Selects(selector) => !self.pods.listed || pods.is_some_and(|pods| pods.has_match(selector)),
            _ => false,
        };
        for id in self.workloads.read(key, read, has_pods, now) {
            self.regroup(id);
            self.mark(id);
        }
        if is_candidate {
            self.candidate_read(key, object.map(|object| *object), is_missing, is_current, now);
        }
        if self.workloads.was_read(key) && !was_read {
            for id in self.workloads.candidacies(key) {
                self.mark(id);
            }
        }
    }

    /// Takes a workload that is a candidate itself. It has the place of a pod.
    fn candidate_read(
        &mut self,
        key: &WorkloadKey,
        object: Option<PodFacts>,
        is_missing: bool,
        is_current: bool,
        now: Time,
    ) {
        let known = self.namespaces.get(&key.0).map(|pods| pods.workloads(&workload_label(key))).unwrap_or_default();
        let uid = object.as_ref().map(|object| object.uid.clone());
        for known in known {
            // A workload that was created again is another one.
            if is_missing || uid.as_ref().is_some_and(|uid| *uid != known) {
                self.pod_missing(&key.0, &known, false, now);
            }
        }
        if let Some(object) = object {
            let concerned = self.pods.workload_seen(&mut self.namespaces, object, is_current, now);
            self.pods_changed(concerned, now);
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
    // A workload that is a candidate itself is known when it was read. If it does not exist, there is a message.
    let itself = workload.filter(|_| matches!(entry.candidacy, Some(Candidacy::Itself(_))));
    let is_known = pods_listed && itself.is_none_or(|key| workloads.was_read(key));
    let group = entry.group.filter(|_| is_known);
    let electorate = group.and_then(|group| pods.electorate(group));
    let electorate = electorate.filter(|electorate| itself.is_none() || electorate.total() > 0);
    (electorate.map_or(unknown, CandidateFacts::Known), group)
}

/// The value of the label that selects the workload.
pub(super) fn workload_label((_, workload): &WorkloadKey) -> String {
    names::workload_label(workload.kind.as_str(), &workload.name)
}
