//! Compact facts from the watches: leases, pods, workloads and quorums. Pure and synchronous.
//!
//! An event names the leases it concerns. Only those become due for a turn, once each, however many events arrive. Leases
//! with the same selector share one electorate, which is computed once after a change.
//!
//! | module | concept |
//! |---|---|
//! | [`leases`] | which leases exist |
//! | [`pods`] | which pods exist, and for deleted pods whether their processes have provably ended |
//! | [`namespace`], [`selectors`] | the pods of one namespace by the selectors of its leases |
//! | [`namespace_labels`] | which namespaces may use which quorums |
//! | [`candidates`] | which pods, or which workload, are the candidates of a lease |
//! | [`workloads`] | the selectors of the workloads that leases name |
//! | [`quorums`] | the facts about quorums that leases use |
//! | [`quorum_events`] | takes the changes of quorums, of namespaces and of the authority over a quorum |

mod candidates;
mod leases;
mod namespace;
mod namespace_labels;
mod pods;
mod quorum_events;
mod quorums;
mod selectors;
#[cfg(test)]
mod tests;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::time::Time;

use crate::api::RedisLease;
use crate::election::{Candidate, PodFacts, WorkloadFacts};
use crate::plan::{CandidateFacts, FairQueue, PodKnowledge, QuorumFacts, SpecFacts};
use candidates::candidates_of;
pub use leases::Entry;
use leases::{Candidacy, Leases};
use namespace::Namespace;
pub use namespace_labels::NamespaceFacts;
use namespace_labels::NamespaceLabels;
pub use pods::ListCount;
use pods::Pods;
pub use quorums::ImplausibleToken;
use quorums::Quorums;
pub use workloads::WorkloadChange;
use workloads::Workloads;

pub use crate::plan::calls::{Asked, WorkloadFound, WorkloadKey, WorkloadRead};

/// The number of a lease in this process. A resource that was created again is another lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// The facts in the index for one turn of a lease.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The newest version of the resource; `None` if it is deleted.
    pub lease: Option<Arc<RedisLease>>,
    /// Whether another lease has the name now.
    pub has_successor: bool,
    /// The spec that the lease uses.
    pub spec: SpecFacts,
    /// The quorum that the lease names.
    pub quorum: Arc<QuorumFacts>,
    /// The pods that its selector matches.
    pub candidates: CandidateFacts,
    /// Pods that carry its label or token and are not candidates.
    pub strays: Vec<Arc<PodFacts>>,
    /// Workloads that carry its label or annotations and are not its candidate.
    pub stray_workloads: Vec<Arc<WorkloadFacts>>,
    /// The pod that [`Index::set_holder`] named.
    pub holder: PodKnowledge,
    /// Whether the pods have been listed once.
    pub pods_listed: bool,
}

/// A pod or workload that carries a role or a token of a lease that does not exist, or cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// The pod or workload.
    pub object: Candidate,
    /// The name of the lease.
    pub lease: String,
    /// Whether the lease exists and could not be read.
    pub unreadable: bool,
}

/// All facts from the watches.
#[derive(Debug)]
pub struct Index {
    leases: Leases,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    pods: Pods,
    workloads: Workloads,
    quorums: Quorums,
    namespace_labels: NamespaceLabels,
    due: FairQueue<LeaseId>,
}

impl Index {
    /// Creates an empty index. RedisQuorums are read from `system_namespace`.
    pub fn new(system_namespace: &str) -> Self {
        Self {
            leases: Leases::default(),
            namespaces: BTreeMap::new(),
            pods: Pods::default(),
            workloads: Workloads::default(),
            quorums: Quorums::new(system_namespace),
            namespace_labels: NamespaceLabels::default(),
            due: FairQueue::default(),
        }
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

    /// A list of leases begins.
    pub fn lease_list_begins(&mut self) {
        self.leases.list_begins();
    }

    /// Takes a lease from an event or a list. Returns its ID if it is new.
    pub fn lease_seen(&mut self, lease: RedisLease, now: Time) -> Option<LeaseId> {
        let lease = Arc::new(lease);
        let listed = self.leases.name_listed(&lease.metadata);
        self.leases.unreadable.remove(&leases::name_of(&lease.metadata));
        let known = self.leases.current(&lease.metadata);
        if let Some(id) = known {
            if listed && self.leases.get(id).is_some_and(|entry| entry.is_newer_than(&lease)) {
                self.leases.keep_older(lease);
            } else {
                self.renew(id, lease, now);
            }
            return None;
        }
        Some(self.add(lease, now))
    }

    fn add(&mut self, lease: Arc<RedisLease>, now: Time) -> LeaseId {
        let (namespace, name) = leases::name_of(&lease.metadata);
        let before = self.namespaces.get(&namespace).and_then(|pods| pods.names.get(&name)).copied();
        if let Some(before) = before {
            self.drop_object(before);
        }
        let id = self.leases.add(&lease);
        self.namespaces.entry(namespace).or_default().names.insert(name, id);
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
            self.leases.read_during_list(&lease.metadata);
            self.renew(id, lease, now);
        }
    }

    /// A lease exists and could not be read. A term that this process holds for it continues.
    pub fn lease_unreadable(&mut self, metadata: &ObjectMeta) {
        self.leases.name_listed(metadata);
        self.leases.unreadable.insert(leases::name_of(metadata));
    }

    /// Handles the last event of a lease. Returns whether the lease was unreadable: pods may still carry its labels.
    pub fn lease_gone(&mut self, metadata: &ObjectMeta) -> bool {
        if let Some(id) = self.leases.current(metadata) {
            self.drop_object(id);
        }
        self.leases.unreadable.remove(&leases::name_of(metadata))
    }

    /// Handles the end of a list: leases that it does not contain are deleted. Returns whether one of them was
    /// unreadable.
    pub fn lease_list_ends(&mut self, now: Time) -> bool {
        let Some(list) = self.leases.list_ends() else { return false };
        for id in list.missed {
            self.drop_object(id);
        }
        for lease in list.older {
            if let Some(id) = self.leases.current(&lease.metadata) {
                if let Some(entry) = self.leases.get_mut(id) {
                    entry.forget_version();
                }
                self.renew(id, lease, now);
            }
        }
        list.unreadable_gone
    }

    /// Whether all leases and all pods have been listed once.
    pub const fn is_listed(&self) -> bool {
        self.leases.listed && self.pods.listed
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
        self.quorums.leave(id);
        if let Some(pods) = self.namespaces.get_mut(&entry.namespace) {
            if pods.names.get(&entry.name) == Some(&id) {
                pods.names.remove(&entry.name);
            }
            if pods.is_empty() {
                self.namespaces.remove(&entry.namespace);
            }
        }
    }

    /// A list of pods begins.
    pub fn pod_list_begins(&mut self) {
        self.pods.list_begins();
    }

    /// Takes a pod of an event or of a list.
    pub fn pod_seen(&mut self, facts: PodFacts, now: Time) {
        let concerned = self.pods.seen(&mut self.namespaces, facts, now);
        self.pods_changed(concerned, now);
    }

    /// The pod exists and could not be read: its last facts stay.
    pub fn pod_unreadable(&mut self, metadata: &ObjectMeta) {
        self.pods.unreadable(metadata.uid.as_deref().unwrap_or_default());
    }

    /// Takes a pod from the answer to a call that was sent at `asked`.
    pub fn pod_answered(&mut self, asked: Asked, facts: PodFacts, now: Time) {
        let concerned = self.pods.answered(&mut self.namespaces, asked, facts, now);
        self.pods_changed(concerned, now);
    }

    /// Handles the end of a list: pods that it does not contain were deleted without a last event.
    pub fn pod_list_ends(&mut self, now: Time) {
        let first = !self.pods.listed;
        let concerned = self.pods.list_ends(&mut self.namespaces, now);
        self.pods_changed(concerned, now);
        if first {
            let all: Vec<LeaseId> = self.leases.ids().collect();
            self.mark_all(all);
        }
    }

    /// The last event of a pod.
    pub fn pod_deleted(&mut self, facts: &PodFacts, now: Time) {
        let concerned = self.pods.deleted(&mut self.namespaces, facts);
        self.pods_changed(concerned, now);
    }

    /// The pod does not exist any more; `stopped` if its processes have provably ended.
    pub fn pod_missing(&mut self, namespace: &str, uid: &str, stopped: bool, now: Time) {
        let concerned = self.pods.remove(&mut self.namespaces, namespace, uid, stopped);
        self.pods_changed(concerned, now);
    }

    fn pods_changed(&mut self, concerned: BTreeSet<LeaseId>, now: Time) {
        for id in concerned {
            self.mark(id);
            // A workload whose pods are all deleted may have been created again.
            let Some(entry) = self.leases.get(id) else { continue };
            if let (Some(Candidacy::Workload(key)), Some(group)) = (&entry.candidacy, entry.group)
                && self.namespaces.get(&entry.namespace).is_some_and(|pods| pods.has_no_members(group))
            {
                self.workloads.read_soon(key, now);
            }
        }
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
        let pods = self.namespaces.entry(entry.namespace.clone()).or_default();
        pods.move_holder(id, before.as_deref(), holder);
    }

    /// Pods and workloads that carry a mark of a lease that does not exist or could not be read. A lease that is being finalized
    /// removes its own marks.
    pub fn orphans(&self) -> Vec<Orphan> {
        let of_pods =
            self.namespaces.iter().flat_map(|(namespace, pods)| pods.orphans().map(move |lease| (namespace, lease)));
        let names: BTreeSet<_> = of_pods.chain(self.workloads.markers()).collect();
        names.into_iter().flat_map(|(namespace, lease)| self.orphans_of(namespace, lease)).collect()
    }

    /// Those of this lease.
    pub fn orphans_of(&self, namespace: &Arc<str>, lease: &str) -> Vec<Orphan> {
        let pods = self.namespaces.get(namespace);
        if pods.is_some_and(|pods| pods.names.contains_key(lease)) {
            return Vec::new();
        }
        let unreadable = self.leases.unreadable.contains(&(namespace.clone(), lease.to_owned()));
        let of_pods = pods.map(|pods| pods.strays(lease, None)).unwrap_or_default().into_iter().map(Candidate::Pod);
        let of_workloads = self.workloads.strays(namespace, lease, None).into_iter().map(Candidate::Workload);
        let orphan = |object| Orphan { object, lease: lease.to_owned(), unreadable };
        of_pods.chain(of_workloads).map(orphan).collect()
    }

    /// The mark that this object still carries for a lease that does not exist or could not be read.
    pub fn orphan(&self, namespace: &Arc<str>, lease: &str, uid: &str) -> Option<Orphan> {
        self.orphans_of(namespace, lease).into_iter().find(|orphan| orphan.object.object().uid == uid)
    }

    /// Namespace, name and UID of a lease.
    pub fn lease(&self, id: LeaseId) -> Option<&Entry> {
        self.leases.get(id)
    }

    /// The facts for a turn of the lease. The holder is the pod that [`Index::set_holder`] named last.
    pub fn snapshot(&mut self, id: LeaseId, now: Time) -> Option<Snapshot> {
        // The quorum may have changed.
        self.resolve_spec(id, now);
        let entry = self.leases.get(id)?;
        let pods = self.namespaces.entry(entry.namespace.clone()).or_default();
        let has_successor = pods.names.get(&entry.name) != Some(&id);
        let (candidates, group) = candidates_of(entry, pods, &self.workloads, self.pods.listed);
        let strays = pods.strays(&entry.name, group);
        let holder =
            self.namespaces.get(&entry.namespace).map_or(PodKnowledge::Unseen, |pods| self.holder_of(entry, pods));
        Some(Snapshot {
            lease: entry.object.clone(),
            has_successor,
            spec: entry.spec.facts().clone(),
            quorum: self.quorums.facts_for(&entry.quorum, self.namespace_labels.get(&entry.namespace)),
            candidates,
            strays,
            stray_workloads: self.workloads.strays(&entry.namespace, &entry.name, Some(id)),
            holder,
            pods_listed: self.pods.listed,
        })
    }
}

/// Whether a resource version is older than a known one. Versions increase, unless etcd was restored from a backup.
pub fn is_older(version: Option<&str>, known: Option<&str>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    matches!((number(version), number(known)), (Some(version), Some(known)) if version < known)
}
