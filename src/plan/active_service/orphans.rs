//! The EndpointSlices of leases that do not exist or cannot be read.

use super::facts::{Family, SliceFacts};
use crate::plan::effect::{Priority, SliceChange, SliceWrite};

impl SliceWrite {
    /// The write that removes the endpoint of a lease that does not exist or is unreadable. `None` if it has none. The
    /// lease must be read before a removal.
    pub fn of_orphan(slice: &SliceFacts, unreadable: bool) -> Option<Self> {
        if unreadable && slice.endpoints.is_empty() {
            return None;
        }
        Some(Self {
            priority: Priority::Active,
            name: slice.name.clone(),
            uid: Some(slice.uid.clone()),
            version: slice.version.clone(),
            service: slice.service.clone(),
            family: slice.family.unwrap_or(Family::V4),
            change: if unreadable { SliceChange::empty(None) } else { SliceChange::Remove { with_service: false } },
            not_after: None,
        })
    }
}
