//! The writes of one process without an outcome.

use std::collections::{BTreeMap, BTreeSet};

use redislease_core::time::Time;
use redislease_plan::plan::{Priority, StatusOutcome};

use crate::api::objects::lease_of;

/// A write of a lease without an outcome so far.
pub struct Pending {
    pub not_after: Option<Time>,
    pub priority: Priority,
    pub sent: bool,
}

#[derive(Default)]
pub struct Writes {
    /// By unit; with the pod or workload for a write of a role, without it for a write of the status.
    pub pending: BTreeMap<(u32, Option<u32>), Pending>,
    /// The leases whose last write of the status was refused, or not answered: the next one may have to wait.
    refused: BTreeSet<u32>,
}

impl Writes {
    /// The role writes of one lease without an outcome.
    pub fn roles_of(&self, uid: u32) -> usize {
        self.pending.keys().filter(|(unit, object)| *unit == uid && object.is_some()).count()
    }

    /// A write has an outcome. Returns whether its deadline has passed.
    pub fn has_outcome(&mut self, now: Time, uid: u32, object: Option<u32>) -> bool {
        let pending = self.pending.remove(&(uid, object));
        pending.and_then(|pending| pending.not_after).is_some_and(|until| until <= now)
    }

    pub fn status_written(&mut self, uid: u32, outcome: &StatusOutcome) {
        let lease = lease_of(uid);
        match outcome {
            StatusOutcome::Written(_) => _ = self.refused.remove(&lease),
            StatusOutcome::Withdrawn => {}
            _ => _ = self.refused.insert(lease),
        }
    }

    /// A write is sent. Returns a lease whose more urgent write waits although nothing delays it.
    pub fn sent(&mut self, lease: u32, object: Option<u32>) -> Option<u32> {
        let of = |unit: &u32, which: &Option<u32>| lease_of(*unit) == lease && *which == object;
        let sent = self.pending.iter_mut().find(|((unit, which), pending)| of(unit, which) && !pending.sent);
        let (_, sent) = sent?;
        sent.sent = true;
        if sent.priority != Priority::Counts {
            return None;
        }
        // After a list that lacked the lease, the write of its earlier unit may still be under way.
        let is_busy = |of: u32| {
            self.pending.iter().any(|((unit, which), pending)| {
                which.is_none() && pending.sent && *unit != of && lease_of(*unit) == lease_of(of)
            })
        };
        let waits = |((unit, which), pending): &(&(u32, Option<u32>), &Pending)| {
            let is_urgent = matches!(pending.priority, Priority::End | Priority::Publication);
            which.is_none() && is_urgent && !pending.sent && !self.refused.contains(&lease_of(*unit)) && !is_busy(*unit)
        };
        self.pending.iter().find(waits).map(|((unit, _), _)| *unit)
    }
}
