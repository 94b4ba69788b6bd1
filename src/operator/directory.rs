//! Which leases there are, each with its actor. A resource that was created again under its name is another lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use super::House;
use super::lease::{Actor, Object};
use crate::api::RedisLease;
use crate::metrics::lease::LeaseSeries;

type Name = (String, String);

struct Entry {
    uid: String,
    object: watch::Sender<Object>,
    series: Arc<LeaseSeries>,
}

/// The actors by namespace and name.
#[derive(Default)]
pub struct Directory {
    entries: Mutex<BTreeMap<Name, Entry>>,
    /// Leases that are there and cannot be read.
    malformed: Mutex<BTreeSet<Name>>,
    /// One of these is gone: whoever looks for its labels is told.
    unreadable_gone: Notify,
}

impl Directory {
    /// The UID of the lease of this name, if there is one.
    pub fn uid_of(&self, namespace: &str, name: &str) -> Option<String> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).map(|entry| entry.uid.clone())
    }

    /// Whether a lease of this name is there and cannot be read.
    pub fn is_unreadable(&self, namespace: &str, name: &str) -> bool {
        self.malformed().contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// A lease is there that cannot be read. What this process holds of it goes on.
    pub fn unreadable(&self, lease: &ObjectMeta) {
        self.malformed().insert(name_of(lease));
    }

    /// Returns when a lease that could not be read is gone.
    pub async fn unreadable_gone(&self) {
        self.unreadable_gone.notified().await;
    }

    /// A lease was seen: its actor is told, or begins.
    pub fn seen(&self, house: &Arc<House>, tasks: &TaskTracker, lease: RedisLease) {
        let name = name_of(&lease.metadata);
        self.malformed().remove(&name);
        let uid = lease.uid().unwrap_or_default();
        let mut entries = self.lock();
        if entries.get(&name).is_some_and(|entry| entry.uid != uid) {
            bury(entries.remove(&name));
        }
        let lease = Arc::new(lease);
        if let Some(entry) = entries.get(&name) {
            entry.object.send_replace(Object::Here(lease));
            return;
        }
        let (object, seen) = watch::channel(Object::Here(lease.clone()));
        let series = Arc::new(house.lease_metrics.lease(&name.0, &name.1, &lease.spec.quorum_ref.name));
        let actor = Actor::new(house.clone(), seen, &lease, series.clone());
        let what = format!("what runs RedisLease {}/{}", name.0, name.1);
        tasks.spawn(house.lifeline.unbroken(what, actor.run()));
        entries.insert(name, Entry { uid, object, series });
    }

    /// A lease is gone.
    pub fn gone(&self, lease: &ObjectMeta) {
        let (name, uid) = (name_of(lease), lease.uid.clone().unwrap_or_default());
        if self.malformed().remove(&name) {
            self.unreadable_gone.notify_one();
        }
        let mut entries = self.lock();
        if entries.get(&name).is_some_and(|entry| entry.uid == uid) {
            bury(entries.remove(&name));
        }
    }

    /// A new list is complete: leases it did not name are gone.
    pub fn retain(&self, named: &BTreeSet<Name>) {
        let unreadable = self.malformed().len();
        self.malformed().retain(|name| named.contains(name));
        if self.malformed().len() < unreadable {
            self.unreadable_gone.notify_one();
        }
        let mut entries = self.lock();
        let missed: Vec<Name> = entries.keys().filter(|name| !named.contains(*name)).cloned().collect();
        for name in missed {
            bury(entries.remove(&name));
        }
    }

    fn malformed(&self) -> MutexGuard<'_, BTreeSet<Name>> {
        self.malformed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Entry>> {
        // The map is whole between any two statements that change it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn name_of(lease: &ObjectMeta) -> Name {
    (lease.namespace.clone().unwrap_or_default(), lease.name.clone().unwrap_or_default())
}

fn bury(entry: Option<Entry>) {
    if let Some(entry) = entry {
        // At once: a lease of the same name may come next, and its series are its own.
        entry.series.forget();
        entry.object.send_replace(Object::Gone);
    }
}
