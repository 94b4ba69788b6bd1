//! The leases that exist. A resource that was deleted and created again with the same name is another lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Selector;

use super::selectors::GroupId;
use super::{LeaseId, is_older};
use crate::api::RedisLease;
use crate::api::validated::{Candidates, ValidQuorum};
use crate::election::Eligibility;
use crate::plan::SpecCache;
use crate::plan::calls::WorkloadKey;

/// Namespace and name.
pub(super) type Name = (Arc<str>, String);

/// How a lease selects its candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidacy {
    Selector(Selector),
    Workload(WorkloadKey),
    /// The workload itself is the only candidate.
    Itself(WorkloadKey),
}

impl Candidacy {
    /// The workload that it names.
    pub fn workload(&self) -> Option<&WorkloadKey> {
        match self {
            Self::Workload(key) | Self::Itself(key) => Some(key),
            Self::Selector(_) => None,
        }
    }
}

/// One lease.
#[derive(Debug)]
pub struct Entry {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The quorum that its spec names.
    pub quorum: String,
    /// The newest version; `None` if the resource is deleted.
    pub object: Option<Arc<RedisLease>>,
    version: Option<String>,
    pub(super) spec: SpecCache,
    /// From the spec in use.
    pub(super) candidacy: Option<Candidacy>,
    /// The workload under which the lease is indexed.
    joined: Option<WorkloadKey>,
    pub(super) eligibility: Eligibility,
    pub(super) candidates_changed: bool,
    pub(super) group: Option<GroupId>,
    pub(super) holder: Option<Arc<str>>,
}

impl Entry {
    /// Whether the known version is newer than this one.
    pub(super) fn is_newer_than(&self, lease: &RedisLease) -> bool {
        is_older(lease.metadata.resource_version.as_deref(), self.version.as_deref())
    }

    /// Forgets the resource version, so that any version counts as newer.
    pub(super) fn forget_version(&mut self) {
        self.version = None;
    }

    /// Takes a version of the resource. Returns whether it is new.
    pub(super) fn take(&mut self, lease: Arc<RedisLease>) -> bool {
        if self.is_newer_than(&lease) {
            return false;
        }
        let version = lease.metadata.resource_version.clone();
        if self.object.is_some() && version.is_some() && version == self.version {
            return false;
        }
        if self.object.as_ref().is_none_or(|known| known.spec != lease.spec) {
            self.spec.read(&lease);
        }
        self.version = version;
        self.object = Some(lease);
        true
    }

    /// Compares the spec with the quorum. The candidates come from the spec in use.
    pub(super) fn resolve(&mut self, quorum: Option<&ValidQuorum>) {
        self.spec.compare(quorum);
        let spec = self.spec.of_candidates();
        let eligibility = spec.map(Eligibility::from).unwrap_or_default();
        let candidacy = spec.map(|spec| match &spec.candidates {
            Candidates::Selector(selector) => Candidacy::Selector(selector.clone()),
            Candidates::Workload(workload) if spec.cluster.is_some() => {
                Candidacy::Itself((self.namespace.clone(), workload.clone()))
            }
            Candidates::Workload(workload) => Candidacy::Workload((self.namespace.clone(), workload.clone())),
        });
        if self.candidacy != candidacy || self.eligibility != eligibility {
            (self.candidacy, self.eligibility) = (candidacy, eligibility);
            self.candidates_changed = true;
        }
    }

    /// Indexes the lease under the workload that its spec names. Returns the workload.
    pub(super) fn join_workload(&mut self) -> Option<WorkloadKey> {
        self.joined = self.candidacy.as_ref().and_then(Candidacy::workload).cloned();
        self.joined.clone()
    }

    /// Removes the lease from its workload. Returns the workload.
    pub(super) const fn leave_workload(&mut self) -> Option<WorkloadKey> {
        self.joined.take()
    }
}

/// A list in progress.
#[derive(Debug, Default)]
struct Relist {
    named: BTreeSet<Name>,
    older: Vec<Arc<RedisLease>>,
    /// Leases for which an answer arrived after the list began.
    read: BTreeSet<Name>,
}

/// The result of a complete list.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub missed: Vec<LeaseId>,
    /// Leases in an older version than the known one: etcd was restored from a backup.
    pub older: Vec<Arc<RedisLease>>,
    /// Whether a lease that could not be read is deleted.
    pub unreadable_gone: bool,
}

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Boxed, because the nodes of a large map are half empty.
    entries: BTreeMap<LeaseId, Box<Entry>>,
    by_name: BTreeMap<Name, LeaseId>,
    next: u64,
    /// Leases that exist and could not be read.
    pub unreadable: BTreeSet<Name>,
    pub listed: bool,
    relist: Option<Relist>,
}

impl Leases {
    pub fn get(&self, id: LeaseId) -> Option<&Entry> {
        self.entries.get(&id).map(|entry| &**entry)
    }

    pub fn get_mut(&mut self, id: LeaseId) -> Option<&mut Entry> {
        self.entries.get_mut(&id).map(|entry| &mut **entry)
    }

    pub fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.entries.keys().copied()
    }

    /// The lease with this name and UID, if its resource exists.
    pub fn current(&self, metadata: &ObjectMeta) -> Option<LeaseId> {
        let id = *self.by_name.get(&name_of(metadata))?;
        let entry = self.entries.get(&id)?;
        (metadata.uid.as_deref().unwrap_or_default() == entry.uid).then_some(id)
    }

    /// Adds a new lease. Its object is taken afterwards.
    pub fn add(&mut self, lease: &RedisLease) -> LeaseId {
        let id = LeaseId(self.next);
        self.next += 1;
        let name = name_of(&lease.metadata);
        self.by_name.insert(name.clone(), id);
        let entry = Entry {
            namespace: name.0,
            name: name.1,
            uid: lease.metadata.uid.clone().unwrap_or_default(),
            quorum: lease.spec.quorum_ref.name.clone(),
            object: None,
            version: None,
            spec: SpecCache::default(),
            candidacy: None,
            joined: None,
            eligibility: Eligibility::default(),
            candidates_changed: false,
            group: None,
            holder: None,
        };
        self.entries.insert(id, Box::new(entry));
        id
    }

    /// The resource is deleted.
    pub fn drop_object(&mut self, id: LeaseId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.object = None;
        let name = (entry.namespace.clone(), entry.name.clone());
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
    }

    pub fn remove(&mut self, id: LeaseId) -> Option<Box<Entry>> {
        self.drop_object(id);
        self.entries.remove(&id)
    }

    pub fn list_begins(&mut self) {
        self.relist = Some(Relist::default());
    }

    /// Records that the list in progress contains the lease. Returns whether a list is in progress.
    pub fn name_listed(&mut self, metadata: &ObjectMeta) -> bool {
        let name = name_of(metadata);
        self.relist.as_mut().is_some_and(|relist| {
            relist.named.insert(name);
            true
        })
    }

    /// Keeps a listed lease that is older than the known version until the list is complete.
    pub fn keep_older(&mut self, lease: Arc<RedisLease>) {
        if let Some(relist) = &mut self.relist {
            relist.older.push(lease);
        }
    }

    pub fn read_during_list(&mut self, metadata: &ObjectMeta) {
        if let Some(relist) = &mut self.relist {
            relist.read.insert(name_of(metadata));
        }
    }

    pub fn list_ends(&mut self) -> Option<Listed> {
        self.listed = true;
        let relist = self.relist.take()?;
        let missed = self.by_name.iter().filter(|(name, _)| !relist.named.contains(*name)).map(|(_, id)| *id).collect();
        let unreadable = self.unreadable.len();
        self.unreadable.retain(|name| relist.named.contains(name));
        let older = relist.older.into_iter().filter(|lease| !relist.read.contains(&name_of(&lease.metadata))).collect();
        Some(Listed { missed, older, unreadable_gone: self.unreadable.len() < unreadable })
    }
}

pub(super) fn name_of(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.as_deref().unwrap_or_default().into(), metadata.name.clone().unwrap_or_default())
}
