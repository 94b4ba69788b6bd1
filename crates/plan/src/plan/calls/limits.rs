//! How many calls may be in flight at a time.

use std::sync::Arc;

/// How many calls may be in flight at most, besides a probe.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all tenants. More would increase etcd's batches and the latency of each answer.
    pub calls: usize,
    /// How many urgent calls may be in flight beside these, of tenants with few calls in flight. All others may be calls of one tenant
    /// whose webhook begins to hang.
    pub spare: usize,
    /// A tenant with so many calls in flight gets no spare place.
    pub spare_of_tenant: usize,
    /// How many of them may be repetitions of a call that was not answered. Each of them may wait for a webhook that hangs, and the
    /// other calls must not wait for it.
    pub unsure: usize,
    /// The same of one tenant. Those that stop something must not wait for each other until the keys have ended.
    pub unsure_of_tenant: usize,
}

impl Limits {
    /// Those of the operator.
    pub const STANDARD: Self = Self { calls: 24, spare: 8, spare_of_tenant: 2, unsure: 16, unsure_of_tenant: 12 };

    /// Whether any call may be sent beside so many in flight.
    pub(super) const fn have_place(&self, in_flight: usize, is_urgent: bool) -> bool {
        in_flight < if is_urgent { self.calls + self.spare } else { self.calls }
    }

    /// Whether a call of this tenant may have a place, if there is one. The tenants of the calls in flight are given.
    pub(super) fn allow<'a>(&self, in_flight: impl ExactSizeIterator<Item = &'a Arc<str>>, tenant: &Arc<str>) -> bool {
        in_flight.len() < self.calls || in_flight.filter(|of| *of == tenant).count() < self.spare_of_tenant
    }
}
