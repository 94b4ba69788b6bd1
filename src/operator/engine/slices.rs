//! The EndpointSlices of leases: their events, and those that no lease owns.

use std::sync::Arc;

use super::{Engine, Machine, Outside, Watched};
use crate::operator::writer::{SliceAnswer, SliceFound};
use crate::plan::{Family, Priority, RoleOutcome, SliceChange, SliceFacts, SliceWrite};

impl<M: Machine, O: Outside> Engine<M, O> {
    pub(super) fn take_slice(&mut self, event: Watched<SliceFacts>) {
        match event {
            Watched::ListBegins => self.index.slice_list_begins(),
            Watched::Seen(slice) => self.index.slice_seen(*slice),
            Watched::Unreadable(_) => {}
            Watched::Deleted(slice) => self.index.slice_gone(&slice.namespace, &slice.name, Some(&slice.uid)),
            Watched::DeletedUnreadable(metadata) => {
                let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
                self.index.slice_gone(&namespace, &name, None);
            }
            Watched::ListEnds => {
                self.index.slice_list_ends();
                self.sweep_slices(false);
            }
        }
    }

    /// Removes the endpoints of leases that do not exist or cannot be read: once after leases and slices were listed, and
    /// again after an unreadable lease is deleted, as [`Engine::sweep`] removes the roles.
    pub(super) fn sweep_slices(&mut self, again: bool) {
        if !self.index.slices_are_listed() || (self.swept_slices && !again) {
            return;
        }
        self.swept_slices = true;
        for (slice, unreadable) in self.index.orphan_slices() {
            self.clear_orphan_slice(&slice, unreadable);
        }
    }

    fn clear_orphan_slice(&mut self, slice: &SliceFacts, unreadable: bool) {
        if let Some(write) = slice_without_lease(slice, unreadable) {
            self.outside.write_orphan_slice(slice, write);
        }
    }

    /// Takes what the answer to a write shows.
    pub(super) fn take_found_slice(&mut self, namespace: &str, name: &str, found: Option<SliceFound>) {
        match found {
            Some(SliceFound::Here(slice)) => self.index.slice_answered(*slice),
            Some(SliceFound::Gone(uid)) => self.index.slice_gone(namespace, name, Some(&uid)),
            None => {}
        }
    }

    /// Takes the answer to a write of [`Engine::sweep_slices`], and repeats it if necessary.
    pub(super) fn take_orphan_slice(&mut self, namespace: &str, name: &str, answer: SliceAnswer) {
        let SliceAnswer { outcome, found } = answer;
        self.take_found_slice(namespace, name, found);
        let done = matches!(outcome, RoleOutcome::Written | RoleOutcome::Gone | RoleOutcome::Withdrawn);
        let orphans = if done { Vec::new() } else { self.index.orphan_slices() };
        let same = |(slice, _): &&(Arc<SliceFacts>, bool)| (&*slice.namespace, &*slice.name) == (namespace, name);
        if let Some((slice, unreadable)) = orphans.iter().find(same) {
            self.clear_orphan_slice(slice, *unreadable);
        }
    }
}

/// The write that removes the endpoint of a lease that does not exist or is unreadable. `None` if it has none.
fn slice_without_lease(slice: &SliceFacts, unreadable: bool) -> Option<SliceWrite> {
    if unreadable && slice.endpoints.is_empty() {
        return None;
    }
    Some(SliceWrite {
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
