//! The roles of leases that do not exist or cannot be read.

use super::{Engine, Machine, Outside};
use crate::api::names::{self, PodRole};
use crate::index::Orphan;
use crate::plan::{PodChange, Priority, RoleWrite};

impl<M: Machine, O: Outside> Engine<M, O> {
    /// Removes the roles of leases that do not exist from pods: once after leases and pods were listed, and again after
    /// an unreadable lease is deleted.
    pub(super) fn sweep(&mut self, again: bool) {
        if !self.index.is_listed() || (self.swept && !again) {
            return;
        }
        self.swept = true;
        for orphan in self.index.orphans() {
            self.clear_orphan(&orphan);
        }
    }

    pub(super) fn clear_orphan(&mut self, orphan: &Orphan) {
        if let Some(write) = role_without_lease(orphan) {
            self.outside.write_orphan(&orphan.pod.namespace, &orphan.lease, write);
        }
    }
}

/// The role that a pod should have for a lease that does not exist (none) or is unreadable (not `active`, because this
/// process does not renew it). `None` if the pod already has it.
fn role_without_lease(Orphan { pod, lease, unreadable }: &Orphan) -> Option<RoleWrite> {
    let (label, annotation) = (names::role_label(lease), names::token_annotation(lease));
    let active = pod.labels.get(&label).is_some_and(|role| role == PodRole::Active.as_str());
    if *unreadable && !active {
        return None;
    }
    Some(RoleWrite {
        priority: if active { Priority::Active } else { Priority::Standby },
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        version: pod.resource_version.clone(),
        role: unreadable.then_some(PodRole::Standby),
        token: pod.annotations.get(&annotation).filter(|_| *unreadable).cloned(),
        change: PodChange::None,
        marks: Vec::new(),
        workload: pod.workload.map(|workload| workload.kind),
        not_after: None,
    })
}
