//! The lists of leases and pods: what a complete list lacks was deleted without an event.

use redislease_core::time::Time;

use super::Index;

impl Index {
    /// A list of leases begins.
    pub fn lease_list_begins(&mut self) {
        self.leases.list.begins();
    }

    /// The list in progress lacks this namespace: its leases stay.
    pub fn leases_unlisted(&mut self, namespace: &str) {
        self.leases.unlisted(namespace);
    }

    /// Handles the end of a list: leases that it does not contain are deleted. Returns whether one of them was
    /// unreadable.
    pub fn lease_list_ends(&mut self, now: Time) -> bool {
        let Some(list) = self.leases.list_ends() else { return false };
        for id in list.missed {
            self.drop_object(id);
        }
        for (id, lease) in list.older {
            self.renew(id, lease, now);
        }
        list.unreadable_gone
    }

    /// A list of pods begins.
    pub fn pod_list_begins(&mut self) {
        self.pods.list_begins();
    }

    /// The list in progress lacks this namespace: its pods stay.
    pub fn pods_unlisted(&mut self, namespace: &str) {
        self.pods.unlisted(namespace);
    }

    /// Handles the end of a list: pods that it does not contain were deleted without a last event.
    pub fn pod_list_ends(&mut self, now: Time) {
        let first = !self.pods.listed;
        let concerned = self.pods.list_ends(now);
        self.pods_changed(concerned, now);
        if first {
            self.mark_all(self.leases.ids().collect::<Vec<_>>());
        }
    }
}
