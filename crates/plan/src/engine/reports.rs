//! When mistakes in the annotations of pods and leases are reported.

use super::{Effect, Engine, Machine};
use crate::annotations::problems_of_lease;
use crate::index::LeaseId;
use crate::plan::Authority;

impl<M: Machine> Engine<M> {
    /// Reports every mistake on a pod that was not reported, if this replica leads now.
    pub(super) fn report_mistakes(&mut self) {
        self.effects.extend(self.mistakes.check_all(self.index.pods()));
    }

    /// Reports the mistakes in the annotations of a lease that were not reported yet.
    pub(super) fn check_annotations_of_lease(&mut self, id: LeaseId, authority: Authority) {
        let (Some(entry), Some(lease)) = (self.index.lease(id), self.leases.get(&id)) else { return };
        let Some(object) = &entry.object else { return };
        let problems = problems_of_lease(object.metadata.annotations.as_ref());
        if problems == lease.mistakes || authority != Authority::Lead {
            return;
        }
        let new = problems.iter().filter(|problem| !lease.mistakes.contains(problem)).cloned();
        let subject = self.subject(id);
        self.effects.extend(new.filter_map(|problem| Some(Effect::ReportOnLease(subject.clone()?, problem))));
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.mistakes = problems;
        }
    }
}
