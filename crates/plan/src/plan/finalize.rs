//! Finalizes a lease whose resource is deleted: its term ends, its labels are removed, and the keeper machine stays until
//! the last key has expired.

use redislease_core::time::Time;

use super::Reconciler;
use super::effect::{Command, Effect};
use super::facts::{Authority, Facts, PodKnowledge};

impl Reconciler {
    pub(super) fn finalize(&mut self, now: Time, facts: &Facts) {
        let stopped = match &facts.holder {
            PodKnowledge::Here(sighting) => sighting.facts.stopped,
            PodKnowledge::Gone { stopped } => *stopped,
            PodKnowledge::Unseen | PodKnowledge::Workload => false,
        };
        if let Some(link) = &mut self.link {
            let ending = link.view.ending.as_ref().filter(|_| stopped).map(|ending| ending.id.clone());
            if let Some(term) = link.running().cloned().or(ending)
                && link.request_end(term.attempt, stopped)
            {
                self.effects.push_back(Effect::Keeper(Command::End { term, proof: stopped }));
            }
            if let Some(link) = &mut self.link
                && !std::mem::replace(&mut link.retiring, true)
            {
                self.effects.push_back(Effect::Keeper(Command::Retire));
            }
        }
        if self.status.is_writing() {
            self.emit(Effect::WithdrawStatus);
        }
        self.clears_later = !matches!(facts.authority, Authority::Lead | Authority::End);
        if !self.clears_later {
            self.clear_roles(now, facts);
        }
    }
}
