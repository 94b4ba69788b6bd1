//! What was read about the Service and is still valid, and the problem to report.

use redislease_core::op::Token;
use redislease_core::time::{Millis, Time};

use super::ActiveService;
use super::facts::Prepared;
use super::resolve::{Target, resolve};
use crate::election::PodFacts;
use crate::plan::Reconciler;
use crate::plan::effect::{Effect, ServiceRequest, SliceChange};
use crate::status::{Notice, NoticeReason, ServiceOutlook};

/// The longest time until the Service is read again, which shows a change of it.
const KNOWN_FOR: Millis = Millis(300_000);
/// The time is shorter by up to this span, which differs between leases, so that Services read together are not read
/// together again.
const SPREAD: u64 = 60_000;
/// The same while a problem is reported.
const PROBLEM_FOR: Millis = Millis(30_000);

/// A Service, and a pod during a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub request: ServiceRequest,
    pub token: Token,
}

/// What was found for a subject.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub subject: Subject,
    target: Result<Target, NoTarget>,
    until: Time,
}

/// Why there is no content for the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    /// It is not known yet: the holder stays the endpoint.
    Unknown,
    /// There can be no endpoint.
    Unusable,
}

/// A refused write of a slice.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The name of the slice.
    pub slice: String,
    /// When the next creation may be tried.
    pub until: Time,
    is_creation: bool,
    problem: String,
}

impl Refused {
    pub fn new(now: Time, slice: &str, change: &SliceChange, is_new: bool, why: &str) -> Self {
        let write = match change {
            SliceChange::Remove { .. } => "removed",
            SliceChange::Put { .. } if is_new => "created",
            SliceChange::Put { .. } => "changed",
        };
        let problem = format!("EndpointSlice {slice} could not be {write}: {why}");
        Self { slice: slice.to_owned(), until: now + PROBLEM_FOR, is_creation: write == "created", problem }
    }

    pub fn is_creation_of(&self, slice: &str) -> bool {
        self.is_creation && self.slice == slice
    }
}

/// A number below [`SPREAD`] that is always the same for a lease.
fn spread(uid: &str) -> u64 {
    uid.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % SPREAD)
}

impl Reconciler {
    /// The content of the slices for this pod. The Service is read if that is not known.
    pub(super) fn target(
        &mut self,
        now: Time,
        service: &str,
        pod: &PodFacts,
        token: Token,
    ) -> Result<Target, NoTarget> {
        let request = ServiceRequest { service: service.to_owned(), pod: pod.name.clone(), pod_uid: pod.uid.clone() };
        let subject = Subject { request, token };
        let state = self.service.get_or_insert_default();
        let known = state.known.clone().filter(|known| known.subject == subject);
        match known.as_ref().map(|known| known.until).filter(|until| now < *until) {
            Some(until) => self.wake_at(until),
            None if state.preparing.is_none() => {
                let request = subject.request.clone();
                state.requested.insert(request.service.clone());
                state.preparing = Some(subject);
                self.emit(Effect::PrepareService(request));
            }
            None => {}
        }
        known.map_or(Err(NoTarget::Unknown), |known| known.target)
    }

    /// Takes what was found for a request.
    pub(in crate::plan) fn service_prepared(
        &mut self,
        now: Time,
        request: &ServiceRequest,
        found: Result<&Prepared, &String>,
    ) {
        let Some(state) = self.service.as_deref_mut() else { return };
        let Some(subject) = state.preparing.take_if(|subject| subject.request == *request) else { return };
        // It was created again if it was removed after the request.
        state.requested.insert(request.service.clone());
        let known = state.known.take().filter(|known| known.subject == subject);
        // Without an answer about the Service, the holder stays the endpoint.
        let before = known.map_or(Err(NoTarget::Unknown), |known| known.target);
        let (target, problem) = match found {
            Ok(prepared) if prepared.ports.is_none() => (before, None),
            Ok(prepared) => match resolve(&self.identity.name, request, prepared) {
                Ok(target) => (Ok(target.clone()), target.problem),
                Err(problem) => (Err(NoTarget::Unusable), Some(problem)),
            },
            Err(why) => (before, Some(format!("Service {} could not be read: {why}.", request.service))),
        };
        let known_for = Millis(KNOWN_FOR.0 - spread(&self.identity.uid));
        let until = now + if target.is_ok() && problem.is_none() { known_for } else { PROBLEM_FOR };
        state.known = Some(Known { subject, target, until });
        state.problem = problem;
        self.report_service();
    }

    /// What the status says about the Service.
    pub(in crate::plan) fn service_outlook(&self) -> ServiceOutlook<'_> {
        if self.spec.valid.as_ref().is_none_or(|valid| valid.active_service.is_none()) {
            return ServiceOutlook::Usable;
        }
        match self.service.as_deref() {
            Some(ActiveService { reported: Some(problem), .. }) => ServiceOutlook::Problem(problem),
            Some(ActiveService { known: Some(_), .. }) => ServiceOutlook::Usable,
            _ => ServiceOutlook::Unknown,
        }
    }

    /// All slices exist.
    pub(super) fn clear_refused(&mut self) {
        let creation = |refused: &mut Refused| refused.is_creation;
        if self.service.as_deref_mut().is_some_and(|state| state.refused.take_if(creation).is_some()) {
            self.report_service();
        }
    }

    /// Reports the problem if it is new.
    pub(super) fn report_service(&mut self) {
        let Some(state) = self.service.as_deref_mut() else { return };
        let refused = state.refused.as_ref().map(|refused| &refused.problem);
        let problem = state.problem.as_ref().or(refused).cloned();
        if state.reported == problem {
            return;
        }
        state.reported.clone_from(&problem);
        if let Some(note) = problem {
            let reason = NoticeReason::ActiveServiceProblem;
            self.emit(Effect::Report(Notice { reason, note, on_pods: Vec::new() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read_at_different_times() {
        let uids = (0..1000).map(|number| format!("6f1d3c1e-2b7a-4d6e-9d53-{number:012x}"));
        let mut minutes: Vec<u64> = uids.map(|uid| spread(&uid)).collect();
        minutes.sort_unstable();
        minutes.dedup();
        assert!(minutes.len() > 900 && minutes.last().is_some_and(|last| *last < SPREAD), "{}", minutes.len());
    }
}
