//! The roles of leases that do not exist or cannot be read.

use std::sync::Arc;

use redislease_core::time::Time;

use crate::api::names::{self, PodRole};
use crate::index::Orphan;
use crate::plan::calls::{LeaseName, Request};
use crate::plan::{Allowed, Authority, PodChange, Priority, RoleOutcome, RoleWrite, is_written};

use super::{Caller, Effect, Engine, Machine, OrphanKey};

impl<M: Machine> Engine<M> {
    /// Removes the roles of leases that do not exist from pods, once after leases and pods were listed.
    pub(super) fn sweep(&mut self, now: Time) {
        if !self.swept {
            self.sweep_again(now);
        }
    }

    /// As [`Engine::sweep`], again: after an unreadable lease is deleted, and when this replica begins to lead.
    pub(super) fn sweep_again(&mut self, now: Time) {
        if !self.index.is_listed() {
            return;
        }
        self.swept = true;
        for orphan in self.index.orphans() {
            self.clear_orphan(now, &orphan);
        }
    }

    /// Whether this process decides about every lease, also about one that it cannot read, whose quorum is unknown. Otherwise a newer
    /// version that leads may hold such a lease.
    pub(super) fn leads_everywhere(&self) -> bool {
        self.mistakes.quorums_read
            && !self.authorities.is_empty()
            && self.authorities.values().all(|authority| *authority == Authority::Lead)
    }

    pub(super) fn clear_orphan(&mut self, now: Time, orphan: &Orphan) {
        if orphan.unreadable && !self.leads_everywhere() {
            return;
        }
        if let Some(write) = role_without_lease(orphan, self.config.allowed) {
            let namespace: Arc<str> = orphan.object.object().namespace.into();
            let (lease, object) = (orphan.lease.as_str().into(), write.uid.as_str().into());
            let key = OrphanKey { namespace, lease, object };
            if !self.refused.may_write(now, &key) {
                return;
            }
            // This is never the UID of a lease, so the key of the call is unique.
            let uid = format!("name:{}", key.lease).into();
            let lease = LeaseName { namespace: key.namespace.clone(), name: key.lease.clone(), uid };
            let request = Request::Role { lease, write: Box::new(write), quorum: None };
            self.effects.push_back(Effect::Call(Caller::Orphan(key), request));
        }
    }

    /// Takes the answer to the removal of a mark. One that is refused, or undone on its way or later, is
    /// repeated after a pause.
    pub(super) fn orphan_written(&mut self, now: Time, key: OrphanKey, outcome: &RoleOutcome) {
        match outcome {
            RoleOutcome::Written(None) => self.refused.stored(now, key),
            RoleOutcome::Gone => self.refused.forget(&key),
            RoleOutcome::Written(Some(_)) | RoleOutcome::Refused(_) | RoleOutcome::AtFault(_) => {
                self.refused.add(now, key);
            }
            RoleOutcome::Conflict | RoleOutcome::Unanswered(_) => self.clear_again(now, &key),
            RoleOutcome::Withdrawn => {}
        }
    }

    /// Repeats the writes whose pause is over.
    pub(super) fn retry_orphans(&mut self, now: Time) {
        for key in self.refused.take_due(now) {
            self.clear_again(now, &key);
        }
    }

    fn clear_again(&mut self, now: Time, key: &OrphanKey) {
        match self.index.orphan(&key.namespace, &key.lease, &key.object) {
            Some(orphan) => self.clear_orphan(now, &orphan),
            None => self.refused.unneeded(key),
        }
    }
}

/// The role that a pod or workload should have for a lease that does not exist (none) or is unreadable (not `active`, because this
/// process does not renew it). `None` if it already has it, or must not be written.
fn role_without_lease(Orphan { object, lease, unreadable }: &Orphan, allowed: Allowed) -> Option<RoleWrite> {
    let pod = object.object();
    let (label, annotation) = (names::role_label(lease), names::token_annotation(lease));
    let active = pod.labels.get(&label).is_some_and(|role| role == PodRole::Active.as_str());
    let marks = match pod.workload {
        // The workload runs on as it is.
        Some(kind) if *unreadable || !allowed.switches(kind) => return None,
        Some(_) => [names::owner_annotation(lease), names::withdrawn_annotation(lease)].map(|mark| (mark, None)).into(),
        None if (*unreadable && !active) || !is_written(pod, lease) => return None,
        None => Vec::new(),
    };
    Some(RoleWrite {
        priority: if active { Priority::Active } else { Priority::Standby },
        pod: pod.name.to_owned(),
        uid: pod.uid.to_owned(),
        version: pod.resource_version.clone(),
        role: unreadable.then_some(PodRole::Standby),
        token: pod.annotations.get(&annotation).filter(|_| *unreadable).cloned(),
        change: PodChange::None,
        marks,
        workload: pod.workload,
        waits: false,
        dry_run: false,
        not_after: None,
    })
}
