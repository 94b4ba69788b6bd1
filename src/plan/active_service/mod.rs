//! A Service whose only endpoint is the holder's pod: the lease's EndpointSlices, one for each address family.
//!
//! The rules are those of the label `active`, with the same entitlement. An endpoint is removed when the label would be
//! removed. A slice gets the endpoint of a new term only after every other slice of the Service was written with the new
//! token and without an endpoint of another pod. That always changes its resource version, so a late write of a process
//! that was paused during the change conflicts. A new slice has no endpoint for the same reason: a late creation adds none.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`] | slices, Services and pods, as the API server has them |
//! | [`resolve`] | the addresses and ports of the holder's pod for a Service |

mod facts;
mod resolve;

pub use facts::{
    ContainerPort, Endpoint, Family, PodNetwork, Prepared, ServiceFacts, ServicePort, SliceFacts, SlicePort,
    TargetPort, new_service_ports, slice_labels, slice_name,
};

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::op::Token;
use redislease_core::time::{Millis, Time};

use super::Reconciler;
use super::effect::{Effect, Priority, ServiceRequest, SliceChange, SliceWrite};
use super::event::RoleOutcome;
use super::facts::{Facts, PodKnowledge};
use super::inputs::Inputs;
use crate::election::PodFacts;
use crate::status::{Notice, NoticeReason};
use resolve::{Target, resolve};

/// How long the Service and the pod count as known. Then a change of the Service is noticed.
const KNOWN_FOR: Millis = Millis(300_000);
/// The same for a Service that cannot have an endpoint, and for a pod without an address.
const UNUSABLE_FOR: Millis = Millis(30_000);

/// The state about the Service. A lease without one has none.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveService {
    /// Pending writes, by the name of the slice.
    writing: BTreeMap<String, Writing>,
    /// The UID of the pod that a slice may have as its endpoint regardless of the last observation: a write was not
    /// answered.
    unsure: BTreeMap<String, String>,
    known: Option<Known>,
    /// What is being read.
    preparing: Option<Subject>,
    /// The last reported problem.
    reported: Option<String>,
}

#[derive(Clone, Debug)]
struct Writing {
    change: SliceChange,
    withdrawn: bool,
}

/// What was found for a subject.
#[derive(Clone, Debug)]
struct Known {
    subject: Subject,
    /// `None`: the Service cannot have an endpoint.
    target: Option<Target>,
    until: Time,
}

/// A Service, and a pod during a term. A pod that becomes Ready may have a new address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    request: ServiceRequest,
    token: Token,
    ready: bool,
}

/// The pod that may be the endpoint, and the token of its term.
#[derive(Clone, Copy, Debug)]
struct Holder<'a> {
    uid: &'a str,
    token: Token,
}

impl ActiveService {
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Handles the outcome of a write.
    pub fn written(&mut self, slice: &str, outcome: &RoleOutcome) {
        self.writing.remove(slice);
        if !matches!(outcome, RoleOutcome::Unanswered(_)) {
            self.unsure.remove(slice);
        }
        if matches!(outcome, RoleOutcome::Conflict | RoleOutcome::Gone) {
            // The slices of the Service are listed again.
            self.known = None;
        }
    }

    /// Clears the state. Pending writes are still answered.
    pub fn forget(&mut self) {
        let writing = std::mem::take(&mut self.writing);
        *self = Self { writing, ..Self::default() };
    }

    /// Whether the slice may have another pod than the holder as its endpoint.
    fn may_have_other(&self, slice: &SliceFacts, holder: Option<Holder<'_>>) -> bool {
        let writing = self.writing.get(&slice.name).and_then(|writing| writing.change.endpoint());
        let observed = slice.endpoints.iter().chain(writing).map(|endpoint| &endpoint.uid);
        let mut all = observed.chain(self.unsure.get(&slice.name));
        all.any(|uid| holder.is_none_or(|holder| holder.uid != uid))
    }

    /// Whether a late write of another endpoint to the slice would conflict.
    fn is_fenced(&self, slice: &SliceFacts, holder: Holder<'_>) -> bool {
        slice.token == Some(holder.token) && !self.may_have_other(slice, Some(holder))
    }
}

impl Reconciler {
    /// Reconciles the endpoint of the Service with the entitlement to the label `active`.
    pub(super) fn assign_endpoint(&mut self, now: Time, inputs: &Inputs, facts: &Facts) {
        // While no spec was valid, it is not known which Service it names.
        let Some(wanted) = self.spec.valid.as_ref().map(|valid| valid.active_service.clone()) else { return };
        if wanted.is_none() && facts.slices.is_empty() && self.service.is_none() {
            return;
        }
        let Some(entitlement) = self.roles.entitlement().cloned() else { return };
        if facts.slices.iter().any(|slice| self.roles.is_later(slice.token, &entitlement)) {
            return self.verify_latest();
        }
        let Some(service) = wanted.filter(|_| !inputs.deleting) else { return self.remove_slices(&facts.slices) };
        let Some((uid, token)) = &entitlement.holder else {
            let own = self.own_slices(facts, &service, None);
            return self.withdraw_endpoints(&own, None, false);
        };
        let holder = Holder { uid, token: *token };
        let pod = match &facts.holder {
            // The address of a pod that has ended may belong to another pod already.
            PodKnowledge::Gone { .. } => Err(true),
            PodKnowledge::Here(sighting) if sighting.facts.uid != *uid => Err(false),
            PodKnowledge::Here(sighting) if sighting.facts.finished => Err(true),
            PodKnowledge::Here(sighting) => Ok(sighting.facts.clone()),
            PodKnowledge::Unseen => Err(false),
        };
        let target = match &pod {
            Ok(pod) => self.target(now, &service, pod, *token),
            Err(gone) => Err(*gone),
        };
        let own = self.own_slices(facts, &service, target.as_ref().ok());
        let (pod, target) = match (pod, target) {
            (Ok(pod), Ok(target)) => (pod, target),
            (_, Err(unusable)) | (Err(unusable), _) => return self.withdraw_endpoints(&own, Some(holder), unusable),
        };
        let missing = |(family, _): &&(Family, _)| own.iter().all(|slice| slice.family != Some(*family));
        let missing: Vec<Family> = target.addresses.iter().filter(missing).map(|(family, _)| *family).collect();
        for family in &missing {
            self.create_slice(&service, *family, *token);
        }
        let may_grant = missing.is_empty()
            && self.status.is_known()
            && self.holds(&entitlement)
            && facts.stop_at.is_none_or(|stop_at| now < stop_at);
        self.write_endpoints(&own, holder, &pod, &target, may_grant.then_some(facts.stop_at));
    }

    /// Removes the slices, and the Service if the operator created it: the lease is deleted, or names no Service any more.
    pub(super) fn remove_slices(&mut self, slices: &[Arc<SliceFacts>]) {
        for slice in slices {
            self.write_slice(slice, SliceChange::Remove { with_service: true }, None);
        }
        if slices.is_empty() && self.service.as_ref().is_some_and(|state| !state.is_writing()) {
            self.service = None;
        }
    }

    /// Takes what was found for a request.
    pub(super) fn service_prepared(&mut self, now: Time, request: &ServiceRequest, found: Result<&Prepared, &String>) {
        let Some(state) = self.service.as_deref_mut() else { return };
        let Some(subject) = state.preparing.take_if(|subject| subject.request == *request) else { return };
        let resolved = match found {
            Ok(prepared) => resolve(&self.identity.name, request, prepared),
            Err(why) => Err(format!("Service {} could not be read or created: {why}", request.service)),
        };
        let (target, problem) = match resolved {
            Ok(target) => (Some(target.clone()), target.problem),
            Err(problem) => (None, Some(problem)),
        };
        let has_address = target.iter().flat_map(|target| &target.addresses).any(|(_, address)| address.is_some());
        let until = now + if has_address { KNOWN_FOR } else { UNUSABLE_FOR };
        state.known = Some(Known { subject, target, until });
        if state.reported != problem {
            state.reported.clone_from(&problem);
            if let Some(note) = problem {
                let reason = NoticeReason::ActiveServiceProblem;
                self.emit(Effect::Report(Notice { reason, note, on_pods: Vec::new() }));
            }
        }
    }

    /// Withdraws the pending writes and clears the state: another replica leads.
    pub(super) fn forget_service(&mut self) {
        let Some(state) = &mut self.service else { return };
        let writing: Vec<String> = state.writing.keys().cloned().collect();
        state.forget();
        if writing.is_empty() {
            self.service = None;
        }
        for name in writing {
            self.emit(Effect::WithdrawSlice { name });
        }
    }

    /// The content of the slices for this pod; it is read if it is not known. The error says whether it is known that
    /// there can be no endpoint.
    fn target(&mut self, now: Time, service: &str, pod: &PodFacts, token: Token) -> Result<Target, bool> {
        let request = ServiceRequest { service: service.to_owned(), pod: pod.name.clone(), pod_uid: pod.uid.clone() };
        let subject = Subject { request, token, ready: pod.ready };
        let state = self.service.get_or_insert_default();
        let known = state
            .known
            .clone()
            .filter(|known| (&known.subject.request, known.subject.token) == (&subject.request, subject.token));
        match known.as_ref().filter(|known| known.subject == subject && now < known.until).map(|known| known.until) {
            Some(until) => self.wake_at(until),
            None if state.preparing.as_ref() != Some(&subject) => {
                let request = subject.request.clone();
                state.preparing = Some(subject);
                self.emit(Effect::PrepareService(request));
            }
            None => {}
        }
        known.map_or(Err(false), |known| known.target.ok_or(true))
    }

    /// The slices of this lease and Service. All others are removed: those of an earlier Service, of a family that the
    /// Service does not have any more, and of a deleted lease with this name.
    fn own_slices(&mut self, facts: &Facts, service: &str, target: Option<&Target>) -> Vec<Arc<SliceFacts>> {
        let mut own = Vec::new();
        for slice in &facts.slices {
            let family = slice.family.filter(|family| slice.name == slice_name(service, *family));
            let wanted =
                |family: Family| target.is_none_or(|target| target.addresses.iter().any(|(of, _)| *of == family));
            if slice.service == service
                && slice.owner.as_deref() == Some(&self.identity.uid)
                && family.is_some_and(wanted)
            {
                own.push(slice.clone());
            } else {
                let with_service = slice.service != service;
                self.write_slice(slice, SliceChange::Remove { with_service }, None);
            }
        }
        own.sort_by_key(|slice| slice.family);
        own
    }

    /// Removes the endpoints of other pods than the holder; if the Service is `unusable`, all endpoints.
    fn withdraw_endpoints(&mut self, own: &[Arc<SliceFacts>], holder: Option<Holder<'_>>, unusable: bool) {
        for slice in own {
            let state = self.service.get_or_insert_default();
            if state.may_have_other(slice, holder) || (unusable && !slice.endpoints.is_empty()) {
                self.write_slice(slice, SliceChange::empty(holder.map(|holder| holder.token)), None);
            }
        }
    }

    /// Makes the pod the only endpoint. `grant` is the end of the term, or `None` while no endpoint may be added.
    fn write_endpoints(
        &mut self,
        own: &[Arc<SliceFacts>],
        holder: Holder<'_>,
        pod: &PodFacts,
        target: &Target,
        grant: Option<Option<Time>>,
    ) {
        let state = self.service.get_or_insert_default().clone();
        for (number, slice) in own.iter().enumerate() {
            let address = target.addresses.iter().find(|(family, _)| Some(*family) == slice.family);
            let endpoint =
                address.and_then(|(_, address)| address.clone()).map(|address| endpoint(pod, address, target));
            let has_other = state.may_have_other(slice, Some(holder));
            let others_are_fenced = own.iter().all(|other| other.name == slice.name || state.is_fenced(other, holder));
            let empty = SliceChange::empty(Some(holder.token));
            let Some(endpoint) = endpoint else {
                if has_other || slice.token != Some(holder.token) || !slice.endpoints.is_empty() {
                    self.write_slice(slice, empty, None);
                }
                continue;
            };
            let change =
                SliceChange::Put { token: Some(holder.token), endpoint: Some(endpoint), ports: target.ports.clone() };
            if has_other || (number > 0 && slice.token != Some(holder.token)) {
                self.write_slice(slice, empty, None);
            } else if let Some(stop_at) = grant
                && others_are_fenced
                && !change.is_in(slice)
            {
                self.write_slice(slice, change, stop_at);
            }
        }
    }

    fn create_slice(&mut self, service: &str, family: Family, token: Token) {
        let name = slice_name(service, family);
        let slice = SliceFacts {
            namespace: self.identity.namespace.clone(),
            name,
            uid: String::new(),
            version: None,
            lease: self.identity.name.clone(),
            owner: Some(self.identity.uid.clone()),
            service: service.to_owned(),
            family: Some(family),
            token: None,
            endpoints: Vec::new(),
            ports: Vec::new(),
        };
        self.write_slice(&slice, SliceChange::empty(Some(token)), None);
    }

    fn write_slice(&mut self, slice: &SliceFacts, change: SliceChange, not_after: Option<Time>) {
        let state = self.service.get_or_insert_default();
        if let Some(writing) = state.writing.get_mut(&slice.name) {
            if writing.change != change && !std::mem::replace(&mut writing.withdrawn, true) {
                self.emit(Effect::WithdrawSlice { name: slice.name.clone() });
            }
            return;
        }
        if let Some(endpoint) = change.endpoint() {
            // Until the write is answered, the slice may have the endpoint, because the answer may be lost.
            state.unsure.insert(slice.name.clone(), endpoint.uid.clone());
        }
        state.writing.insert(slice.name.clone(), Writing { change: change.clone(), withdrawn: false });
        self.emit(Effect::WriteSlice(Box::new(SliceWrite {
            priority: Priority::Active,
            name: slice.name.clone(),
            uid: Some(slice.uid.clone()).filter(|uid| !uid.is_empty()),
            version: slice.version.clone(),
            service: slice.service.clone(),
            family: slice.family.unwrap_or(Family::V4),
            change,
            not_after,
        })));
    }
}

/// The endpoint with the conditions that Kubernetes gives to a pod of a Service with a selector. A holder that is not Ready
/// or is being deleted stays the only endpoint; kube-proxy sends new connections to it only while it is `serving`.
fn endpoint(pod: &PodFacts, address: String, target: &Target) -> Endpoint {
    let terminating = pod.deletion_grace.is_some();
    Endpoint {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        addresses: vec![address],
        ready: target.always_ready || (pod.ready && !terminating),
        serving: pod.ready,
        terminating,
    }
}
