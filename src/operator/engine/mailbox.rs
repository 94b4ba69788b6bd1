//! Collects the leases whose machines have a new view, and passes the machines' reports to the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use redislease_core::lease::{Renewal, View};
use tokio::sync::Notify;

use crate::keeper::Observer;
use crate::metrics::lease::LeaseRecord;
use crate::metrics::renewals::QuorumRenewals;
use crate::operator::index::LeaseId;
use crate::operator::quorums::InUse;
use crate::operator::slot::Slot;

/// The leases whose machines have a new view.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    leases: Mutex<Vec<LeaseId>>,
    wake: Notify,
}

impl Mailbox {
    /// Creates a slot that adds its lease to the mailbox when the machine's view changes.
    pub fn slot(self: &Arc<Self>, lease: LeaseId) -> Arc<Slot> {
        let mailbox = self.clone();
        Slot::new(move || mailbox.add(lease))
    }

    /// Takes the leases with a new view.
    pub fn take(&self) -> Vec<LeaseId> {
        std::mem::take(&mut *self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when a lease was added since the last call.
    pub async fn filled(&self) {
        self.wake.notified().await;
    }

    fn add(&self, lease: LeaseId) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
        self.wake.notify_one();
    }
}

/// Passes what a machine reports to the engine and to the metrics.
pub(super) struct Watcher {
    pub slot: Arc<Slot>,
    pub record: Arc<LeaseRecord>,
    pub quorum: Option<Arc<QuorumRenewals>>,
    /// Keeps the quorum's connections open while the machine exists.
    pub _in_use: Option<Arc<InUse>>,
}

impl Observer for Watcher {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.record.renewed(renewal);
        if let Some(quorum) = &self.quorum {
            quorum.renewed(renewal, ttl_ms);
        }
    }

    fn changed(&self, view: &View) {
        self.record.viewed(view);
        self.slot.show(view);
    }

    fn ended(&self) {
        self.slot.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_once_until_its_slot_is_taken() {
        let mailbox = Arc::new(Mailbox::default());
        let slot = mailbox.slot(LeaseId(7));
        slot.end();
        slot.end();
        assert_eq!((mailbox.take(), mailbox.take()), (vec![LeaseId(7)], vec![]));
        assert!(slot.take().ended);
        slot.end();
        assert_eq!(mailbox.take(), [LeaseId(7)]);
    }
}
