//! The events of EndpointSlices, and the leases that they concern.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Index, slices};
use crate::plan::SliceFacts;

impl Index {
    /// A list of EndpointSlices begins.
    pub fn slice_list_begins(&mut self) {
        self.slices.list_begins();
    }

    /// Takes an EndpointSlice of an event or of a list.
    pub fn slice_seen(&mut self, facts: SliceFacts) {
        let concerned = self.slices.seen(facts);
        self.mark_names(&concerned);
    }

    /// The EndpointSlice exists and could not be read: its last facts stay, unless it was deleted and created again.
    pub fn slice_unreadable(&mut self, metadata: &ObjectMeta) {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let key = (name(&metadata.namespace), name(&metadata.name));
        let concerned = self.slices.unreadable(key, metadata.uid.as_deref());
        self.mark_names(&concerned);
    }

    /// Takes an EndpointSlice from the answer to a call.
    pub fn slice_answered(&mut self, facts: SliceFacts) {
        let concerned = self.slices.answered(facts);
        self.mark_names(&concerned);
    }

    /// The EndpointSlice does not exist any more. With `uid`, one that was created again stays.
    pub fn slice_gone(&mut self, namespace: &str, name: &str, uid: Option<&str>) {
        let concerned = self.slices.gone(namespace, name, uid);
        self.mark_names(&concerned);
    }

    /// Handles the end of a list of EndpointSlices.
    pub fn slice_list_ends(&mut self) {
        let concerned = self.slices.list_ends();
        self.mark_names(&concerned);
    }

    /// Whether all leases and all EndpointSlices have been listed once.
    pub const fn slices_are_listed(&self) -> bool {
        self.leases.listed && self.slices.listed
    }

    /// The EndpointSlices of leases that do not exist or could not be read, and whether the lease could not be read. A lease
    /// that is being finalized removes its own.
    pub fn orphan_slices(&self) -> Vec<(Arc<SliceFacts>, bool)> {
        let is_known = |namespace: &str, lease: &str| {
            self.namespaces.get(namespace).is_some_and(|pods| pods.names.contains_key(lease))
        };
        let orphans = self.slices.all().filter(|(namespace, lease, _)| !is_known(namespace, lease));
        let unreadable =
            |namespace: &str, lease: &str| self.leases.unreadable.contains(&(Arc::from(namespace), lease.to_owned()));
        orphans.map(|(namespace, lease, slice)| (slice.clone(), unreadable(namespace, lease))).collect()
    }

    fn mark_names(&mut self, leases: &[slices::Concerned]) {
        for (namespace, name) in leases {
            let id = self.namespaces.get(namespace.as_str()).and_then(|pods| pods.names.get(name));
            self.mark_all(id.copied());
        }
    }
}
