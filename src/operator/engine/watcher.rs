//! Passes the reports of a machine to its slot and to the metrics.

use std::sync::Arc;

use redislease_core::lease::{Renewal, View};
use redislease_lock::keeper::Observer;

use crate::metrics::lease::LeaseRecord;
use crate::metrics::renewals::QuorumRenewals;
use crate::operator::quorums::InUse;
use crate::operator::slot::Slot;

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
