//! The leases that exist. A resource that was deleted and created again with the same name is another lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::candidates::Selection;
use super::ids::{LeaseId, is_older};
use super::listing::Listing;
use super::pruned::is_pruned;
use crate::api::{RedisLease, ValidQuorum};
use crate::plan::SpecCache;

/// Namespace and name.
pub(super) type Name = (Arc<str>, String);

/// One lease.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct LeaseEntry {
    pub namespace: Arc<str>,
    pub name: String,
    pub uid: String,
    /// The quorum that its spec names.
    pub quorum: String,
    /// The newest version; `None` if the resource is deleted.
    pub object: Option<Arc<RedisLease>>,
    version: Option<String>,
    pub(super) spec: SpecCache,
    pub(super) selection: Selection,
    pub(super) holder: Option<Arc<str>>,
}

impl LeaseEntry {
    /// Whether the known version is newer than this one.
    pub(super) fn is_newer_than(&self, lease: &RedisLease) -> bool {
        is_older(lease.metadata.resource_version.as_deref(), self.version.as_deref())
    }

    /// Takes a version of the resource. Returns whether it is new.
    pub(super) fn take(&mut self, mut lease: Arc<RedisLease>) -> bool {
        if self.is_newer_than(&lease) {
            return false;
        }
        if let Some(known) = self.object.as_ref().filter(|known| self.version.is_some() && is_pruned(known, &lease)) {
            Arc::make_mut(&mut lease).spec.clone_from(&known.spec);
        }
        // After a restore of etcd, another content can have the version that is known.
        if self.object.as_ref() == Some(&lease) {
            return false;
        }
        if self.object.as_ref().is_none_or(|known| known.spec != lease.spec) {
            self.spec.read(&lease);
        }
        self.version.clone_from(&lease.metadata.resource_version);
        self.object = Some(lease);
        true
    }

    /// Compares the spec with the quorum. Returns whether it selects other candidates than before.
    pub(super) fn resolve(&mut self, quorum: Option<&ValidQuorum>) -> bool {
        self.spec.compare(quorum);
        self.selection.follow(self.spec.of_candidates(), &self.namespace)
    }
}

/// The result of a complete list.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub missed: Vec<LeaseId>,
    /// Leases in an older version than the known one: etcd was restored from a backup.
    pub older: Vec<(LeaseId, Arc<RedisLease>)>,
    /// Whether a lease that could not be read is deleted.
    pub unreadable_gone: bool,
}

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Boxed, because the nodes of a large map are half empty.
    entries: BTreeMap<LeaseId, Box<LeaseEntry>>,
    by_name: BTreeMap<Name, LeaseId>,
    next: u64,
    /// Leases that exist and could not be read.
    pub unreadable: BTreeSet<Name>,
    pub listed: bool,
    /// The list in progress. It shows leases in an older version than the known one.
    pub list: Listing<Name, Arc<RedisLease>>,
}

impl Leases {
    pub fn get(&self, id: LeaseId) -> Option<&LeaseEntry> {
        self.entries.get(&id).map(|entry| &**entry)
    }

    pub fn get_mut(&mut self, id: LeaseId) -> Option<&mut LeaseEntry> {
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
        let entry = LeaseEntry {
            namespace: name.0,
            name: name.1,
            uid: lease.metadata.uid.clone().unwrap_or_default(),
            quorum: lease.spec.quorum_ref.name.clone(),
            object: None,
            version: None,
            spec: SpecCache::default(),
            selection: Selection::default(),
            holder: None,
        };
        self.entries.insert(id, Box::new(entry));
        id
    }

    pub fn drop_object(&mut self, id: LeaseId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.object = None;
        let name = (entry.namespace.clone(), entry.name.clone());
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
    }

    pub fn remove(&mut self, id: LeaseId) -> Option<Box<LeaseEntry>> {
        self.drop_object(id);
        self.entries.remove(&id)
    }

    /// Records that the list in progress contains the lease. Returns whether a list is in progress.
    pub fn name_listed(&mut self, metadata: &ObjectMeta) -> bool {
        self.list.contains([name_of(metadata)]);
        self.list.is_in_progress()
    }

    pub fn unlisted(&mut self, namespace: &str) {
        let known = self.by_name.keys().chain(&self.unreadable);
        self.list.contains(known.filter(|name| *name.0 == *namespace).cloned());
    }

    pub fn list_ends(&mut self) -> Option<Listed> {
        self.listed = true;
        let list = self.list.ends()?;
        let missed = self.by_name.iter().filter(|(name, _)| list.lacks(name)).map(|(_, id)| *id).collect();
        let unreadable = self.unreadable.len();
        self.unreadable.retain(|name| !list.lacks(name));
        let older = list.older(|lease| name_of(&lease.metadata)).filter_map(|lease| {
            let id = self.current(&lease.metadata)?;
            // Any version counts as newer.
            self.entries.get_mut(&id)?.version = None;
            Some((id, lease))
        });
        Some(Listed { missed, older: older.collect(), unreadable_gone: self.unreadable.len() < unreadable })
    }
}

pub(super) fn name_of(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.as_deref().unwrap_or_default().into(), metadata.name.clone().unwrap_or_default())
}
