//! All facts from the watches: which leases each of them concerns.

mod lists;
pub(super) mod orphans;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::op::Token;
use redislease_core::time::Time;

use super::ids::LeaseId;
use super::leases::{self, LeaseEntry, Leases};
use super::namespace_labels::{NamespaceFacts, NamespaceLabels};
use super::pods::{ListCount, Pods};
use super::quorums::{ImplausibleToken, Quorums};
use super::watched::Watched;
use super::workloads::{Concerned, WorkloadChange, Workloads};
use crate::api::RedisLease;
use crate::api::validated::WorkloadKind;
use crate::election::{Candidate, PodFacts};
use crate::plan::calls::{Asked, WorkloadFound, WorkloadKey, WorkloadRead};
use crate::plan::{Facts, FairQueue, PodKnowledge, QuorumFacts};

/// All facts from the watches.
#[derive(Debug, Default)]
pub struct Index {
    leases: Leases,
    pods: Pods,
    workloads: Workloads,
    quorums: Quorums,
    namespace_labels: NamespaceLabels,
    due: FairQueue<LeaseId>,
}

impl Index {
    /// Creates an empty index. RedisQuorums are read from `system_namespace`.
    pub fn new(system_namespace: &str) -> Self {
        Self { quorums: Quorums::new(system_namespace), ..Self::default() }
    }

    /// The next lease that is due for a turn.
    pub fn next_due(&mut self) -> Option<LeaseId> {
        self.due.pop()
    }

    /// How many leases are due for a turn.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// Makes the lease due for a turn.
    pub fn mark(&mut self, id: LeaseId) {
        if let Some(entry) = self.leases.get(id) {
            self.due.push(&entry.namespace, id);
        }
    }

    fn mark_all(&mut self, leases: impl IntoIterator<Item = LeaseId>) {
        for id in leases {
            self.mark(id);
        }
    }

    /// Takes a lease from an event or a list. Returns its ID if it is new.
    pub fn lease_seen(&mut self, lease: RedisLease, now: Time) -> Option<LeaseId> {
        let lease = Arc::new(lease);
        let listed = self.leases.name_listed(&lease.metadata);
        self.leases.unreadable.remove(&leases::name_of(&lease.metadata));
        match self.leases.current(&lease.metadata) {
            None => return Some(self.add(lease, now)),
            Some(id) if listed && self.leases.get(id).is_some_and(|entry| entry.is_newer_than(&lease)) => {
                self.leases.list.shows_older(lease);
            }
            Some(id) => {
                self.leases.list.shows_newer(leases::name_of(&lease.metadata));
                self.renew(id, lease, now);
            }
        }
        None
    }

    fn add(&mut self, lease: Arc<RedisLease>, now: Time) -> LeaseId {
        let (namespace, name) = leases::name_of(&lease.metadata);
        if let Some(before) = self.pods.namespace_mut(&namespace).names.get(&name).copied() {
            self.drop_object(before);
        }
        let id = self.leases.add(&lease);
        self.pods.namespace_mut(&namespace).names.insert(name, id);
        self.quorums.join(&lease.spec.quorum_ref.name, id);
        self.renew(id, lease, now);
        id
    }

    /// Takes a newer version of a known lease.
    fn renew(&mut self, id: LeaseId, lease: Arc<RedisLease>, now: Time) {
        let Some(entry) = self.leases.get_mut(id) else { return };
        if !entry.take(lease) {
            return;
        }
        self.quorums.note_token(entry.object.as_deref());
        self.resolve_spec(id, now);
        self.mark(id);
    }

    /// Takes a lease from the answer to a read or write of this process.
    pub fn lease_answered(&mut self, id: LeaseId, lease: Arc<RedisLease>, now: Time) {
        let Some(entry) = self.leases.get(id) else { return };
        let same = lease.metadata.uid.as_deref() == Some(&entry.uid) && entry.object.is_some();
        if same && !entry.is_newer_than(&lease) {
            self.leases.list.answered(leases::name_of(&lease.metadata));
            self.renew(id, lease, now);
        }
    }

    /// A lease exists and could not be read. A term that this process holds for it continues, unless that was of a deleted lease with
    /// this name.
    pub fn lease_unreadable(&mut self, metadata: &ObjectMeta) {
        self.leases.name_listed(metadata);
        let (namespace, name) = leases::name_of(metadata);
        let known = self.pods.namespace(&namespace).and_then(|pods| pods.names.get(&name).copied());
        if let Some(id) = known.filter(|_| metadata.uid.is_some() && self.leases.current(metadata).is_none()) {
            self.drop_object(id);
        }
        self.leases.unreadable.insert((namespace, name));
    }

    /// Handles the last event of a lease. Returns whether the lease was unreadable: pods may still carry its labels.
    pub fn lease_gone(&mut self, metadata: &ObjectMeta) -> bool {
        if let Some(id) = self.leases.current(metadata) {
            self.drop_object(id);
        }
        self.leases.unreadable.remove(&leases::name_of(metadata))
    }

    /// Whether all leases and all pods have been listed once.
    pub const fn is_listed(&self) -> bool {
        self.leases.listed && self.pods.listed
    }

    /// Compares the spec with the quorum, and indexes the lease under the candidates that it selects, if they have changed.
    fn resolve_spec(&mut self, id: LeaseId, now: Time) {
        let Some(entry) = self.leases.get_mut(id).filter(|entry| entry.object.is_some()) else { return };
        let quorum = self.quorums.facts_for(&entry.quorum, self.namespace_labels.get(&entry.namespace));
        if entry.resolve(quorum.valid.as_deref()) {
            let pods = self.pods.namespace_mut(&entry.namespace);
            entry.selection.join(id, pods, &mut self.workloads, now);
        }
    }

    fn leave_candidates(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(id) else { return };
        entry.selection.leave(id, self.pods.namespace_mut(&entry.namespace), &mut self.workloads);
    }

    fn drop_object(&mut self, id: LeaseId) {
        self.leave_candidates(id);
        self.leases.drop_object(id);
        self.mark(id);
    }

    /// Removes a lease whose resource is deleted and that needs no more turns.
    pub fn remove(&mut self, id: LeaseId) {
        self.set_holder(id, None);
        self.leave_candidates(id);
        let Some(entry) = self.leases.remove(id) else { return };
        self.quorums.leave(&entry.quorum, id);
        self.pods.remove_name(&entry.namespace, &entry.name, id);
    }

    /// Takes a pod of an event or of a list.
    pub fn pod_seen(&mut self, facts: PodFacts, now: Time) {
        let concerned = self.pods.seen(facts, now);
        self.pods_changed(concerned, now);
    }

    /// The pod exists and could not be read: its last facts stay.
    pub fn pod_unreadable(&mut self, metadata: &ObjectMeta) {
        self.pods.unreadable(metadata.uid.as_deref().unwrap_or_default());
    }

    /// The last event of a pod.
    pub fn pod_deleted(&mut self, facts: &PodFacts, now: Time) {
        let concerned = self.pods.deleted(facts);
        self.pods_changed(concerned, now);
    }

    /// The pod does not exist any more; `stopped` if its processes have provably ended.
    pub fn pod_missing(&mut self, namespace: &str, uid: &str, stopped: bool, now: Time) {
        let concerned = self.pods.remove(namespace, uid, stopped);
        self.pods_changed(concerned, now);
    }

    fn pods_changed(&mut self, concerned: BTreeSet<LeaseId>, now: Time) {
        for id in concerned {
            self.mark(id);
            // A workload whose pods are all deleted may have been created again.
            let Some(entry) = self.leases.get(id) else { continue };
            let pods = self.pods.namespace(&entry.namespace);
            if let Some(key) = pods.and_then(|pods| entry.selection.without_pods(pods)) {
                self.workloads.read_soon(key, now);
            }
        }
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.namespaces().flat_map(|(_, pods)| pods.pods())
    }

    /// Counts the lists of pods.
    pub const fn pod_lists(&self) -> &ListCount {
        &self.pods.lists
    }

    /// The pod that holds the lease, by its UID.
    pub fn set_holder(&mut self, id: LeaseId, holder: Option<&str>) {
        let Some(entry) = self.leases.get_mut(id) else { return };
        if entry.holder.as_deref() == holder {
            return;
        }
        let before = std::mem::replace(&mut entry.holder, holder.map(Into::into));
        let pods = self.pods.namespace_mut(&entry.namespace);
        pods.move_holder(id, before.as_deref(), holder);
    }

    /// Namespace, name and UID of a lease.
    pub fn lease(&self, id: LeaseId) -> Option<&LeaseEntry> {
        self.leases.get(id)
    }

    /// The facts for a turn of the lease that the index knows. The holder is the pod that [`Index::set_holder`] named last.
    pub fn facts(&mut self, id: LeaseId, now: Time) -> Option<Facts> {
        // The quorum may have changed.
        self.resolve_spec(id, now);
        let entry = self.leases.get(id)?;
        let pods_listed = self.pods.listed;
        let holder = entry.holder.as_ref().map_or(PodKnowledge::Unseen, |uid| {
            entry.selection.holder((&entry.namespace, uid), &self.pods, &self.workloads)
        });
        let pods = self.pods.namespace_mut(&entry.namespace);
        let (candidates, group) = entry.selection.candidates(pods, &self.workloads, pods_listed);
        Some(Facts {
            lease: entry.object.clone(),
            has_successor: pods.names.get(&entry.name) != Some(&id),
            spec: entry.spec.facts().clone(),
            quorum: self.quorums.facts_for(&entry.quorum, self.namespace_labels.get(&entry.namespace)),
            candidates,
            strays: pods.strays(&entry.name, group),
            stray_workloads: self.workloads.strays(&entry.namespace, &entry.name, Some(id)),
            holder,
            pods_listed,
            ..Facts::default()
        })
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
            if let Some(key) = self.leases.get(id).and_then(|entry| entry.selection.itself()) {
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
        let pods = self.pods.namespace(&key.0);
        let has_pods = match &found.read {
            // Before the first list of pods, a workload without pods is not known to have none.
            WorkloadRead::Selects(selector) => !self.pods.listed || pods.is_some_and(|pods| pods.has_match(selector)),
            _ => false,
        };
        let Concerned { regrouped, candidacies: mut concerned, marked_by } =
            self.workloads.read(key, found, has_pods, now);
        for id in regrouped {
            if let Some(entry) = self.leases.get_mut(id) {
                let pods = self.pods.namespace_mut(&entry.namespace);
                entry.selection.regroup(id, pods, &self.workloads);
            }
            concerned.insert(id);
        }
        self.workload_concerns(&key.0, concerned, &marked_by);
    }

    /// Takes a pod or a workload from the answer to a call that was sent at `asked`.
    pub fn answered(&mut self, asked: Asked, found: Candidate, now: Time) {
        match found {
            Candidate::Pod(pod) => {
                let concerned = self.pods.answered(asked, Arc::unwrap_or_clone(pod), now);
                self.pods_changed(concerned, now);
            }
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
        let names = self.pods.namespace(namespace).map(|pods| &pods.names);
        let carried = marked_by.iter().filter_map(|name| names?.get(name).copied());
        self.mark_all(leases.into_iter().chain(carried).collect::<Vec<_>>());
    }

    /// The facts about a quorum have changed.
    pub fn quorum_changed(&mut self, name: &str, facts: Option<Arc<QuorumFacts>>) {
        let concerned = self.quorums.changed(name, facts);
        self.mark_all(concerned);
    }

    /// Takes an event of the watch of namespaces.
    pub fn namespace(&mut self, event: Watched<NamespaceFacts>) {
        for name in self.namespace_labels.take(event) {
            let leases = self.pods.namespace(&name).into_iter().flat_map(|pods| pods.names.values().copied());
            self.mark_all(leases.collect::<Vec<_>>());
        }
    }

    /// The authority of this process over the leases of a quorum has changed.
    pub fn mark_quorum(&mut self, name: &str) {
        self.mark_all(self.quorums.leases(name));
    }

    /// Every RedisQuorum that existed at the start has been read.
    pub fn quorums_read(&mut self) {
        let concerned = self.quorums.all_read();
        self.mark_all(concerned);
    }

    /// The greatest token that any status on this quorum has shown.
    pub fn floor(&self, quorum: &str) -> Token {
        self.quorums.floor(quorum)
    }

    /// Quorums whose greatest token has grown since the last call.
    pub fn raised_floors(&mut self) -> Vec<(String, Token)> {
        self.quorums.raised_floors()
    }

    /// Implausible tokens that statuses have shown since the last call.
    pub fn implausible_tokens(&mut self) -> BTreeSet<ImplausibleToken> {
        self.quorums.implausible_tokens()
    }
}

#[cfg(test)]
mod tests;
