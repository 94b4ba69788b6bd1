//! The EndpointSlices of leases in one operator: their writes, what the answers show, and the slices without a lease.

use std::sync::Arc;

use redislease::plan::{
    Event as Input, PodKnowledge, Prepared, RoleOutcome, ServiceRequest, SliceChange, SliceFacts, SliceWrite,
};
use redislease_core::time::Time;

use crate::api::calls::Reply;
use crate::api::objects::{self, NAMESPACE};
use crate::api::server::Verdict;
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::operator::writer::{Job, Key};
use crate::world::World;

impl World {
    /// Carries out an effect of a reconciler.
    pub fn write_slice(&mut self, process: usize, place: usize, uid: u32, mut write: Box<SliceWrite>) {
        let now = Time(self.local(process));
        if let SliceChange::Put { token, endpoint: None, .. } = &mut write.change
            && write.uid.is_some()
            && self.is(Bug::WithdrawalKeepsToken)
        {
            let id = self.unit(process, uid).map(|unit| unit.id);
            let snapshot = id.and_then(|id| self.processes[process].index.snapshot(id, now));
            let slices = snapshot.map(|snapshot| snapshot.slices).unwrap_or_default();
            *token = slices.iter().find(|slice| slice.name == write.name).and_then(|slice| slice.token);
        }
        if write.uid.is_none() && matches!(write.change, SliceChange::Remove { .. }) && self.is(Bug::ServiceLeft) {
            return self.slice_written(process, Some(uid), &write, RoleOutcome::Written);
        }
        let key = Key::Slice { lease: Some(uid), name: write.name.clone() };
        if self.processes[process].writer.has(&key) {
            return self.check.fail(format!("two writes of one slice are under way: {write:?}"));
        }
        self.address_is_current(process, uid, &write);
        self.submit(process, Job::Slice { place, uid: Some(uid), write });
    }

    /// A ready endpoint must have the newest address of the holder that this process has observed.
    fn address_is_current(&mut self, process: usize, uid: u32, write: &SliceWrite) {
        let Some(endpoint) = write.change.endpoint().filter(|endpoint| endpoint.ready) else { return };
        let Some(id) = self.unit(process, uid).map(|unit| unit.id) else { return };
        let now = Time(self.local(process));
        let Some(snapshot) = self.processes[process].index.snapshot(id, now) else { return };
        let PodKnowledge::Here(holder) = snapshot.holder else { return };
        if holder.facts.uid != endpoint.uid {
            return;
        }
        let known: Vec<String> = holder.facts.addresses.iter().map(ToString::to_string).collect();
        if !endpoint.addresses.iter().all(|address| known.contains(address)) {
            self.check.fail(format!("process {process} writes an old address: {endpoint:?}, known are {known:?}"));
        }
    }

    /// Removes the slices of leases that do not exist: once after leases and slices were listed.
    pub fn sweep_slices(&mut self, process: usize) {
        let swept = &mut self.processes[process];
        if !swept.index.slices_are_listed() || std::mem::replace(&mut swept.swept, true) {
            return;
        }
        if self.is(Bug::NoSweep) {
            return;
        }
        for (slice, _) in self.processes[process].index.orphan_slices() {
            self.remove_orphan(process, &slice);
        }
    }

    fn remove_orphan(&mut self, process: usize, slice: &SliceFacts) {
        if let Some(write) = SliceWrite::of_orphan(slice, false) {
            let place = objects::number(&slice.lease) as usize;
            self.submit(process, Job::Slice { place, uid: None, write: Box::new(write) });
        }
    }

    pub fn slice_reply(&mut self, process: usize, uid: Option<u32>, write: &SliceWrite, reply: Reply) {
        let outcome = match reply {
            Reply::Slice(Verdict::Written, slice) => {
                self.learn_slice_or_its_end(process, write, slice.as_ref());
                self.coverage.saw(Sight::of_slice(&write.change));
                RoleOutcome::Written
            }
            Reply::Slice(Verdict::Refused, _) => RoleOutcome::Refused("a webhook".into()),
            Reply::Slice(verdict, slice) => {
                self.learn_slice_or_its_end(process, write, slice.as_ref());
                self.coverage.saw(Sight::SliceConflict);
                if verdict == Verdict::Gone { RoleOutcome::Gone } else { RoleOutcome::Conflict }
            }
            _ => {
                self.coverage.saw(Sight::SliceUnanswered);
                RoleOutcome::Unanswered("no answer".into())
            }
        };
        self.slice_written(process, uid, write, outcome);
    }

    /// The outcome of a write goes to the reconciler of the lease. The removal of a slice without a lease is repeated if
    /// necessary.
    pub fn slice_written(&mut self, process: usize, uid: Option<u32>, write: &SliceWrite, outcome: RoleOutcome) {
        let name = write.name.clone();
        if let Some(uid) = uid {
            return self.answer(process, uid, Input::SliceWritten { name, outcome });
        }
        if matches!(outcome, RoleOutcome::Written | RoleOutcome::Gone | RoleOutcome::Withdrawn) {
            return;
        }
        let orphans = self.processes[process].index.orphan_slices();
        if let Some((slice, _)) = orphans.into_iter().find(|(slice, _)| slice.name == name) {
            self.remove_orphan(process, &slice);
        }
    }

    pub fn service_reply(
        &mut self,
        process: usize,
        uid: u32,
        request: ServiceRequest,
        found: Result<(Box<Prepared>, Vec<Arc<SliceFacts>>), String>,
    ) {
        let found = found.map(|(prepared, slices)| {
            for slice in &slices {
                self.learn_slice(process, slice);
            }
            prepared
        });
        self.answer(process, uid, Input::ServicePrepared { request, found });
    }

    fn learn_slice_or_its_end(&mut self, process: usize, write: &SliceWrite, slice: Option<&Arc<SliceFacts>>) {
        if let Some(slice) = slice {
            return self.learn_slice(process, slice);
        }
        if let Some(uid) = &write.uid {
            self.processes[process].index.slice_gone(NAMESPACE, &write.name, Some(uid));
            self.wake_marked(process);
        }
    }

    fn learn_slice(&mut self, process: usize, slice: &Arc<SliceFacts>) {
        self.processes[process].index.slice_answered(SliceFacts::clone(slice));
        self.wake_marked(process);
    }
}
