//! What the metrics show of one lease.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::effect::{Effect, Measure, Shown};
use super::output::Effects;
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::{RedisLease, RedisLeaseStatus};
use crate::status::Composed;

/// What was counted and shown last.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    /// The attempt whose end was counted.
    counted_end: Option<String>,
    /// The fingerprint of the last state.
    shown: Option<u64>,
}

impl Metrics {
    /// Another process shows the state. An end is not counted twice.
    pub const fn forget(&mut self) {
        self.shown = None;
    }

    /// Metrics do not wait for the API server: a loss is counted at once, and only once.
    /// `is_unheld`: no pod holds the lease although one should.
    pub fn count(&mut self, lease: &RedisLease, composed: &Composed, is_unheld: bool, out: &mut Effects) {
        let before = lease.status.as_ref().and_then(|status| status.attempt.clone());
        if let Some(end) = composed.ended
            && self.counted_end != before
        {
            out.emit(Effect::Measure(Measure::Ended(end)));
            self.counted_end = before;
        }
        let shown = shown(lease, composed, is_unheld);
        let mut hasher = DefaultHasher::new();
        shown.hash(&mut hasher);
        let fingerprint = hasher.finish();
        if self.shown != Some(fingerprint) {
            self.shown = Some(fingerprint);
            out.emit(Effect::Measure(Measure::Shown(Box::new(shown))));
        }
    }
}

/// An unpublished term has no holder: the previous holder's term has ended.
fn shown(lease: &RedisLease, composed: &Composed, waiting: bool) -> Shown {
    let none = RedisLeaseStatus::default();
    let stored = lease.status.as_ref().unwrap_or(&none);
    let status = if composed.began { stored } else { &composed.status };
    let active = !composed.began && status.says(ConditionType::Active, ConditionStatus::True);
    // A workload that runs on without the lease, and a cluster that could not take over, are not Ready: the alert for that counts leases
    // that are held.
    let is_held_elsewhere =
        status.says(ConditionType::Ready, ConditionStatus::True) || (status.says_held_by_peer() && !lease.spec.suspend);
    let holder = status.holder.as_ref().filter(|_| !composed.began);
    Shown {
        active,
        held: active || (!composed.began && is_held_elsewhere),
        waiting,
        holder: holder
            .map(|holder| [holder.cluster.clone(), holder.pod.clone(), holder.node.clone().unwrap_or_default()]),
        // After one that no Redis node gave, the first token of the lease that is created again would look like a fault.
        token: status.given_token(),
        candidates: status.candidates.as_ref().map_or([0, 0], |candidates| {
            [i64::from(candidates.eligible), i64::from(candidates.total - candidates.eligible)]
        }),
        conditions: status.conditions.iter().map(|one| (one.type_.clone(), one.status.clone())).collect(),
    }
}
