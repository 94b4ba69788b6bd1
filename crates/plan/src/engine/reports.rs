//! When mistakes in annotations are looked for and reported.

use super::{Effect, Engine, Machine, Watched};
use crate::annotations::problems_of_lease;
use crate::election::PodFacts;
use crate::index::LeaseId;
use crate::plan::Authority;

impl<M: Machine> Engine<M> {
    /// Checks the annotations of the pod of this event.
    pub(super) fn check_annotations(&mut self, event: &Watched<PodFacts>) {
        let mistakes = &mut self.mistakes;
        match event {
            Watched::ListBegins => mistakes.list.begins(),
            Watched::Seen(facts) => {
                mistakes.seen(facts);
                self.report_mistakes_of(&facts.uid);
            }
            Watched::Unreadable(metadata) => mistakes.named(metadata.uid.as_deref().unwrap_or_default()),
            Watched::Deleted(facts) => _ = mistakes.pods.remove(&facts.uid),
            Watched::DeletedUnreadable(metadata) => {
                mistakes.pods.remove(metadata.uid.as_deref().unwrap_or_default());
            }
            Watched::Unlisted(namespace) => mistakes.unlisted(namespace),
            Watched::ListEnds => mistakes.list_ends(),
        }
    }

    /// Every RedisQuorum that existed at the start has been read.
    pub(super) fn report_first_mistakes(&mut self) {
        self.mistakes.quorums_read = true;
        self.report_mistakes();
    }

    /// Reports every mistake that was not reported, if this replica leads now.
    pub(super) fn report_mistakes(&mut self) {
        if self.mistakes.reports() {
            self.effects.extend(self.mistakes.pods.iter_mut().flat_map(|(uid, pod)| pod.report(uid)));
        }
    }

    fn report_mistakes_of(&mut self, uid: &str) {
        if self.mistakes.reports()
            && let Some(pod) = self.mistakes.pods.get_mut(uid)
        {
            self.effects.extend(pod.report(uid));
        }
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
