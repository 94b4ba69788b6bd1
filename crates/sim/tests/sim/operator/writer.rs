//! What one process remembers of its calls to the API server.

use std::collections::{BTreeMap, BTreeSet};

use redislease_core::time::Time;
use redislease_plan::api::names::PodRole;
use redislease_plan::index::WorkloadKey;
use redislease_plan::plan::calls::{Calls, Request};
use redislease_plan::plan::{Priority, StatusOutcome};

/// The caller of a call.
#[derive(Clone, Debug)]
pub enum Ticket {
    /// The unit of a lease.
    Lease(u32),
    Workload(WorkloadKey),
    /// The role of a lease that does not exist: its name, and the object's UID.
    Orphan(String, String),
    Leader,
    /// The admission of a node. `request` is [`Peer::tokens_asked`].
    ///
    /// [`Peer::tokens_asked`]: crate::operator::state::Peer::tokens_asked
    Tokens {
        node: usize,
        request: u64,
    },
}

/// A write of a lease without an outcome so far.
pub struct Pending {
    pub not_after: Option<Time>,
    /// As the reconciler asked for it.
    pub priority: Priority,
    pub sent: bool,
}

pub struct Writer {
    pub calls: Calls<Ticket>,
    /// By unit; with the pod or workload for a write of a role, without it for a write of the status.
    pub pending: BTreeMap<(u32, Option<u32>), Pending>,
    /// The leases whose last write of the status was refused: the next one may have to wait.
    pub refused: BTreeSet<u32>,
    /// Whether the election waits for any answer of the API server.
    pub leader_asks: bool,
}

impl Writer {
    pub fn new(concurrency: usize) -> Self {
        Self { calls: Calls::new(concurrency), pending: BTreeMap::new(), refused: BTreeSet::new(), leader_asks: false }
    }

    /// Whether a write of the status, or of the role of an object, has no outcome yet.
    pub fn has(&self, uid: u32, object: Option<u32>) -> bool {
        self.pending.contains_key(&(uid, object))
    }

    /// The role writes of one lease without an outcome.
    pub fn roles_of(&self, uid: u32) -> usize {
        self.pending.keys().filter(|(unit, object)| *unit == uid && object.is_some()).count()
    }

    /// Whether a pod's label `active` is being written.
    pub fn is_labelling_active(&self) -> bool {
        let active =
            |call: &Request| matches!(call, Request::Role { write, .. } if write.role == Some(PodRole::Active));
        self.calls.in_flight().any(active)
    }

    /// A write has an outcome. Returns whether its deadline has passed.
    pub fn has_outcome(&mut self, now: Time, uid: u32, object: Option<u32>) -> bool {
        let pending = self.pending.remove(&(uid, object));
        pending.and_then(|pending| pending.not_after).is_some_and(|until| until <= now)
    }

    pub fn status_written(&mut self, uid: u32, outcome: &StatusOutcome) {
        match outcome {
            StatusOutcome::Written(_) => _ = self.refused.remove(&lease_of(uid)),
            StatusOutcome::Conflict | StatusOutcome::Gone | StatusOutcome::Refused(_) => {
                self.refused.insert(lease_of(uid));
            }
            StatusOutcome::Unanswered(_) | StatusOutcome::Withdrawn => {}
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

/// The difference between the numbers of units for the same lease.
pub const AGAIN: u32 = 1_000_000;

/// The number of the UID of a lease.
pub const fn lease_of(unit: u32) -> u32 {
    unit % AGAIN
}
