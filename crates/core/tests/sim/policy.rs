//! A small stand-in for the operator's decisions: who should hold, and what to do about a term. It is a pure function
//! of what the process remembers, what its machine shows and what its API cache says; one step at a time.

use std::collections::BTreeSet;

use redislease_core::lease::{EndReason, Input, Publication, Standing, TermId, View};
use redislease_core::op::{Attempt, Stage};

use crate::api::{Patch, PodState, Resource};
use crate::bug::Bug;
use crate::keeper::pod_of;
use crate::process::Cache;

/// What one process remembers of one resource beside the machine. A crash forgets it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Terms that were decided to be over: never adopted again.
    pub ended: BTreeSet<Attempt>,
    pub released: BTreeSet<Attempt>,
    /// Emitted and not sent yet.
    pub to_publish: Option<TermId>,
    /// Sent, and what became of it is not known.
    pub unanswered: bool,
    /// A request to the API server is out.
    pub busy: bool,
    /// For which pod the machine was told to want.
    pub wanting: Option<u32>,
    /// The holder that is being deleted, and since when it was seen so.
    pub deleting: Option<(u32, u64)>,
    pub lost: bool,
    /// The term that the machine last ran.
    pub ran: Option<Attempt>,
    /// The term of which the API server was told that it is not confirmed.
    pub doubted: Option<Attempt>,
}

/// One decision.
pub enum Step {
    Feed(Input),
    /// Hold for this pod.
    Want(u32),
    Write(Patch),
    /// Look at the resource before anything else.
    Read,
}

pub struct Situation<'a> {
    pub now: u64,
    /// How long a deleted pod may take to stop.
    pub grace: u64,
    pub resource: Option<&'a Resource>,
    pub place: usize,
    pub cache: &'a Cache,
    pub view: &'a View,
    pub bug: Option<Bug>,
}

impl Situation<'_> {
    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether the pod is proven to have stopped.
    fn proof(&self, pod: u32) -> bool {
        let state = self.cache.world.pods.get(&pod).map(|pod| pod.state);
        self.cache.proofs.contains(&pod)
            || self.is(Bug::GoneIsProof) && state.is_none()
            || self.is(Bug::DeletingIsProof) && state == Some(PodState::Deleting)
    }

    fn running(&self, pod: u32) -> bool {
        self.cache.world.pods.get(&pod).is_some_and(|pod| pod.state == PodState::Running)
    }

    /// The oldest candidate.
    fn candidate(&self) -> Option<u32> {
        let mut pods = self.cache.world.pods.iter();
        pods.find(|(_, pod)| pod.resource == self.place && pod.state == PodState::Running).map(|(&uid, _)| uid)
    }

    fn end(&self, memory: &mut Memory, term: TermId) -> Step {
        let proof = self.proof(pod_of(&term));
        memory.ended.insert(term.attempt);
        if proof {
            memory.released.insert(term.attempt);
        }
        Step::Feed(Input::End { term, proof })
    }

    /// The next step, if anything is to be done.
    pub fn decide(&self, memory: &mut Memory) -> Option<Step> {
        if let Some(ending) = &self.view.ending {
            memory.ended.insert(ending.id.attempt);
            memory.lost |= matches!(ending.reason, EndReason::Misses | EndReason::Deadline);
        }
        let Some(resource) = self.resource else { return self.without_resource(memory) };
        match &self.view.standing {
            Standing::Publishing(term) => self.publishing(memory, resource, &term.id),
            Standing::Held(term) | Standing::Adopting(term) | Standing::Uncertain(term) => {
                self.holding(memory, resource, &term.id)
            }
            Standing::Idle | Standing::Acquiring(..) => self.vacant(memory, resource),
        }
    }

    /// Deleted, or made again under another uid: nothing is extended, and nothing of it is published.
    fn without_resource(&self, memory: &mut Memory) -> Option<Step> {
        if self.is(Bug::DeletionIgnored) {
            return None;
        }
        match &self.view.standing {
            Standing::Publishing(term) if !self.proof(pod_of(&term.id)) => {
                memory.ended.insert(term.id.attempt);
                let (attempt, outcome) = (term.id.attempt, Publication::Superseded);
                Some(Step::Feed(Input::Published { attempt, outcome }))
            }
            Standing::Publishing(term)
            | Standing::Held(term)
            | Standing::Adopting(term)
            | Standing::Uncertain(term) => Some(self.end(memory, term.id.clone())),
            Standing::Acquiring(..) => Some(Step::Feed(Input::Forget)),
            Standing::Idle if memory.wanting.take().is_some() => Some(Step::Feed(Input::Forget)),
            Standing::Idle => self.late_proof(memory),
        }
    }

    /// A holder that was sealed and then seen to have stopped is released after all.
    fn late_proof(&self, memory: &mut Memory) -> Option<Step> {
        let ending = self.view.ending.as_ref()?;
        let stopped = self.proof(pod_of(&ending.id)) && !memory.released.contains(&ending.id.attempt);
        stopped.then(|| self.end(memory, ending.id.clone()))
    }

    fn publishing(&self, memory: &mut Memory, resource: &Resource, id: &TermId) -> Option<Step> {
        let attempt = id.attempt;
        let answer = |outcome| Some(Step::Feed(Input::Published { attempt, outcome }));
        let named = resource.term.as_ref().is_some_and(|term| term.attempt == attempt);
        if named {
            (memory.to_publish, memory.unanswered) = (None, false);
            return answer(Publication::Written);
        }
        if resource.token >= id.token && !self.is(Bug::BlindPublication) {
            memory.to_publish = None;
            return answer(Publication::Superseded);
        }
        if resource.suspend || !self.running(pod_of(id)) {
            memory.to_publish = None;
            return Some(self.end(memory, id.clone()));
        }
        if memory.busy || !self.cache.reachable && memory.unanswered {
            return None;
        }
        if memory.unanswered {
            return Some(Step::Read);
        }
        memory.to_publish.take().map(|id| Step::Write(Patch::Name(id)))
    }

    fn holding(&self, memory: &mut Memory, resource: &Resource, id: &TermId) -> Option<Step> {
        memory.ran = Some(id.attempt);
        let pod = pod_of(id);
        let named = resource.active && resource.term.as_ref().is_some_and(|term| term.attempt == id.attempt);
        let deleting = self.cache.world.pods.get(&pod).is_some_and(|pod| pod.state == PodState::Deleting);
        if deleting && memory.deleting.is_none_or(|(other, _)| other != pod) {
            memory.deleting = Some((pod, self.now));
        }
        let overdue = memory.deleting.is_some_and(|(other, since)| other == pod && self.now >= since + self.grace);
        let gone = !self.cache.world.pods.contains_key(&pod);
        let over = !named || resource.suspend || gone || overdue || self.proof(pod);
        if over {
            return Some(self.end(memory, id.clone()));
        }
        let uncertain = matches!(self.view.standing, Standing::Uncertain(_));
        if !uncertain {
            memory.doubted = None;
        }
        if uncertain && self.cache.reachable && memory.doubted != Some(id.attempt) {
            memory.doubted = Some(id.attempt);
            return Some(Step::Feed(Input::DoubtShown(id.attempt)));
        }
        None
    }

    fn vacant(&self, memory: &mut Memory, resource: &Resource) -> Option<Step> {
        memory.to_publish = None;
        memory.unanswered = false;
        memory.ended.extend(memory.ran.take());
        if let Some(step) = self.late_proof(memory) {
            return Some(step);
        }
        if let Some(term) = resource.term.clone() {
            if !memory.ended.contains(&term.attempt) {
                if resource.active && !resource.suspend && !self.proof(pod_of(&term)) {
                    return Some(Step::Feed(Input::Adopt(term)));
                }
                return Some(self.end(memory, term));
            }
            if self.proof(pod_of(&term)) && !memory.released.contains(&term.attempt) {
                return Some(self.end(memory, term));
            }
            if !memory.busy && self.cache.reachable && !self.is(Bug::LossNotWritten) {
                if resource.active {
                    return Some(Step::Write(Patch::Inactive(term.attempt)));
                }
                let standing = self.view.ending.as_ref().is_some_and(|ending| ending.id.attempt == term.attempt);
                if !standing || memory.released.contains(&term.attempt) {
                    return Some(Step::Write(Patch::Clear(term.attempt)));
                }
            }
        }
        self.foreign(memory, resource).or_else(|| self.contend(memory, resource))
    }

    /// What must not be done: an attempt that this status does not name is somebody else's.
    fn foreign(&self, memory: &mut Memory, resource: &Resource) -> Option<Step> {
        let value = self.view.refused_by.as_ref().filter(|_| self.is(Bug::ForeignUnpublishedReleased))?;
        let named = resource.term.as_ref().is_some_and(|term| term.attempt == value.attempt);
        if named || value.stage != Stage::Term || !memory.released.insert(value.attempt) {
            return None;
        }
        let holder = redislease_core::op::Holder(value.metadata.as_str().into());
        let token = redislease_core::op::Token(value.number);
        Some(Step::Feed(Input::End { term: TermId { attempt: value.attempt, token, holder }, proof: true }))
    }

    fn contend(&self, memory: &mut Memory, resource: &Resource) -> Option<Step> {
        let gave_up = self.is(Bug::NeverContendsAgain) && memory.lost;
        let pod = self.candidate().filter(|_| !resource.suspend && self.cache.reachable && !gave_up);
        match (pod, &self.view.standing) {
            (Some(pod), Standing::Idle) if memory.wanting != Some(pod) => {
                memory.wanting = Some(pod);
                Some(Step::Want(pod))
            }
            (None, Standing::Acquiring(..)) => {
                memory.wanting = None;
                Some(Step::Feed(Input::Forget))
            }
            (None, Standing::Idle) if memory.wanting.take().is_some() => Some(Step::Feed(Input::Forget)),
            _ => None,
        }
    }
}
