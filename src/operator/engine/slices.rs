//! The EndpointSlices of leases: their events, and those that no lease owns.

use std::sync::Arc;

use super::{Engine, Machine, Outside, Watched};
use crate::operator::writer::{SliceAnswer, SliceFound};
use crate::plan::{RoleOutcome, SliceFacts, SliceWrite};

impl<M: Machine, O: Outside> Engine<M, O> {
    pub(super) fn take_slice(&mut self, event: Watched<SliceFacts>) {
        match event {
            Watched::ListBegins => self.index.slice_list_begins(),
            Watched::Seen(slice) => self.index.slice_seen(*slice),
            Watched::Unreadable(metadata) => self.index.slice_unreadable(&metadata),
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
        if let Some(write) = SliceWrite::of_orphan(slice, unreadable) {
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
