//! A Service whose only endpoint is the holder's pod: the lease's EndpointSlices, one for each address family.
//!
//! The rules are those of the label `active`, with the same entitlement. An endpoint is removed when the label would be
//! removed. A slice gets the endpoint of a new term only after every other slice of the Service was written with the new
//! token and without an endpoint of another pod. That always changes its resource version, so a late write of a process
//! that was paused during the change conflicts. A new slice has no endpoint for the same reason: a late creation adds none.
//! A withdrawal without a new term sets or removes the token, so it changes the resource version too.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`] | slices, Services and pods, as the API server has them |
//! | [`known`] | what was read about the Service and is still valid; the problem to report |
//! | [`orphans`] | the slices of leases that do not exist |
//! | [`resolve`] | the families and ports of the slices |

mod facts;
mod known;
mod orphans;
mod resolve;

pub use facts::{
    ContainerPort, Endpoint, Family, Prepared, ServiceFacts, ServicePort, SliceFacts, SlicePort, TargetPort,
    is_managed, new_service_ports, slice_labels, slice_name,
};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use redislease_core::op::Token;
use redislease_core::time::Time;

use super::effect::{Effect, Priority, SliceChange, SliceWrite};
use super::event::RoleOutcome;
use super::facts::{Facts, PodKnowledge};
use super::inputs::Inputs;
use super::{Identity, Reconciler};
use crate::election::PodFacts;
use known::{Known, NoTarget, Refused, Subject};
use resolve::Target;

/// The state about the Service. A lease without one has none.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveService {
    /// Pending writes, by the name of the slice.
    writing: BTreeMap<String, Writing>,
    /// The pods that slices may have although they were observed without them: a write was not answered. The UID of the
    /// pod, by the name of the slice.
    unsure: BTreeMap<String, String>,
    known: Option<Known>,
    /// What is being read. There is no second request before the answer, so an answer is never older than its request.
    preparing: Option<Subject>,
    /// The Services that a request may have created and that were not removed since.
    requested: BTreeSet<String>,
    /// The last refused write of a slice.
    refused: Option<Refused>,
    /// What is wrong with the Service, according to the last answer.
    problem: Option<String>,
    /// The last reported problem.
    reported: Option<String>,
}

#[derive(Clone, Debug)]
struct Writing {
    service: String,
    change: SliceChange,
    is_new: bool,
    withdrawn: bool,
}

/// The pod that may be the endpoint, and the token of its term.
#[derive(Clone, Copy, Debug)]
struct Holder<'a> {
    uid: &'a str,
    token: Token,
}

/// Which endpoints may be written.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// Whether the pod may be added to a slice that does not have it. Otherwise only its conditions and its address may
    /// change.
    may_add: bool,
    /// The end of the term.
    stop_at: Option<Time>,
}

impl ActiveService {
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Clears the state. Pending writes and reads are still answered.
    pub fn forget(&mut self) {
        let (writing, preparing) = (std::mem::take(&mut self.writing), self.preparing.take());
        *self = Self { writing, preparing, ..Self::default() };
    }

    fn is_idle(&self) -> bool {
        !self.is_writing() && self.preparing.is_none() && self.requested.is_empty()
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
        let spec = self.spec.valid.as_ref();
        if spec.is_none_or(|valid| valid.active_service.is_none()) && facts.slices.is_empty() && self.service.is_none()
        {
            return;
        }
        let wanted = spec.map(|valid| valid.active_service.clone());
        let Some(entitlement) = self.roles.entitlement().cloned() else { return };
        let later = facts.slices.iter().filter_map(|slice| self.roles.later(slice.token, &entitlement)).max();
        if let Some(later) = later {
            return self.verify_latest(later);
        }
        let Some(wanted) = wanted else {
            // While no spec was valid, it is not known which Service it names.
            if entitlement.holder.is_none() {
                self.withdraw_endpoints(&facts.slices, None, None, entitlement.latest);
            }
            return;
        };
        let Some(service) = wanted.filter(|_| !inputs.deleting) else { return self.remove_slices(&facts.slices) };
        self.remove_requested(Some(&service), &facts.slices);
        let Some((uid, token)) = &entitlement.holder else {
            let own = self.own_slices(facts, &service, None);
            return self.withdraw_endpoints(&own, None, None, entitlement.latest);
        };
        let holder = Holder { uid, token: *token };
        let pod = match &facts.holder {
            // The address of a pod that has ended may belong to another pod already.
            PodKnowledge::Gone { .. } => Err(NoTarget::Unusable),
            PodKnowledge::Here(sighting) if sighting.facts.uid != *uid => Err(NoTarget::Unknown),
            PodKnowledge::Here(sighting) if sighting.facts.finished => Err(NoTarget::Unusable),
            PodKnowledge::Here(sighting) => Ok(sighting.facts.clone()),
            PodKnowledge::Unseen => Err(NoTarget::Unknown),
        };
        let addresses = pod.as_ref().ok().map(|pod| pod.addresses.clone());
        let target = pod.and_then(|pod| self.target(now, &service, &pod, *token).map(|target| (pod, target)));
        let own = self.own_slices(facts, &service, target.as_ref().ok().map(|(_, target)| target));
        let (pod, target) = match target {
            Ok(found) => found,
            Err(none) => {
                let keeps = Some(holder).filter(|_| none == NoTarget::Unknown);
                return self.withdraw_endpoints(&own, keeps, addresses.as_deref(), *token);
            }
        };
        // One at a time: of two leases that name one Service, only one gets the first slice.
        let missing = target.families.iter().find(|family| own.iter().all(|slice| slice.family != Some(**family)));
        match missing {
            Some(family) => self.create_slice(now, facts, &service, *family, *token),
            None => self.clear_refused(),
        }
        if !self.status.is_known() || !self.holds(&entitlement) || facts.stop_at.is_some_and(|stop_at| now >= stop_at) {
            return self.write_endpoints(&own, holder, &pod, &target, None);
        }
        // A slice that is being removed may still have the endpoint of an earlier term.
        let is_being_removed = |slice: &Arc<SliceFacts>| own.iter().all(|own| own.name != slice.name);
        let others_remain = facts.slices.iter().any(|slice| slice.service == service && is_being_removed(slice));
        let grant = Grant { may_add: missing.is_none() && !others_remain, stop_at: facts.stop_at };
        self.write_endpoints(&own, holder, &pod, &target, Some(grant));
    }

    /// Removes the slices, and the Service if the operator created it: the lease is deleted, or names no Service any more.
    pub(super) fn remove_slices(&mut self, slices: &[Arc<SliceFacts>]) {
        for slice in slices {
            self.write_slice(slice, SliceChange::Remove { with_service: true }, None);
        }
        self.remove_requested(None, slices);
        if slices.is_empty() && self.service.as_ref().is_some_and(|state| state.is_idle()) {
            self.service = None;
        }
    }

    /// Removes the Services that a request may have created, if they have no slice: otherwise they are removed with it.
    fn remove_requested(&mut self, wanted: Option<&str>, slices: &[Arc<SliceFacts>]) {
        let Some(state) = &self.service else { return };
        let is_free = |name: &&String| {
            // A slice of this name is written for another reason.
            let slice_names = [slice_name(name, Family::V4), slice_name(name, Family::V6)];
            wanted != Some(name.as_str())
                && slices.iter().all(|slice| slice.service != **name && !slice_names.contains(&slice.name))
                && state.preparing.as_ref().is_none_or(|subject| subject.request.service != **name)
        };
        let unwanted: Vec<String> = state.requested.iter().filter(is_free).cloned().collect();
        for service in unwanted {
            let slice = self.new_slice(&service, Family::V4);
            self.write_slice(&slice, SliceChange::Remove { with_service: true }, None);
        }
    }

    /// Handles the outcome of a write.
    pub(super) fn slice_written(&mut self, now: Time, slice: &str, outcome: &RoleOutcome) {
        let Some(state) = self.service.as_deref_mut() else { return };
        let Some(writing) = state.writing.remove(slice) else { return };
        match (outcome, writing.change.endpoint()) {
            (RoleOutcome::Unanswered(_), Some(endpoint)) => {
                state.unsure.insert(slice.to_owned(), endpoint.uid.clone());
            }
            (RoleOutcome::Written | RoleOutcome::Conflict | RoleOutcome::Gone, _) => {
                state.unsure.remove(slice);
            }
            // An earlier write that was not answered may still succeed.
            (
                RoleOutcome::Unanswered(_) | RoleOutcome::Refused(_) | RoleOutcome::Altered(_) | RoleOutcome::Withdrawn,
                _,
            ) => {}
        }
        let removes_service = writing.change == SliceChange::Remove { with_service: true };
        if removes_service || matches!(outcome, RoleOutcome::Conflict | RoleOutcome::Gone) {
            // The Service and its slices are read again.
            state.known = None;
        }
        match outcome {
            RoleOutcome::Written | RoleOutcome::Gone if removes_service => {
                state.requested.remove(&writing.service);
            }
            _ => {}
        }
        match outcome {
            RoleOutcome::Written | RoleOutcome::Gone => {
                state.refused.take_if(|refused| refused.slice == slice);
            }
            RoleOutcome::Refused(why) => {
                state.refused = Some(Refused::new(now, slice, &writing.change, writing.is_new, why));
            }
            _ => {}
        }
        self.report_service();
    }

    /// Withdraws the pending writes and clears the state: another replica leads.
    pub(super) fn forget_service(&mut self) {
        let Some(state) = &mut self.service else { return };
        let writing: Vec<String> = state.writing.keys().cloned().collect();
        state.forget();
        if state.is_idle() {
            self.service = None;
        }
        for name in writing {
            self.emit(Effect::WithdrawSlice { name });
        }
    }

    /// The slices of this lease and Service. All others are removed: those of an earlier Service, of a family that the
    /// Service does not have any more, and of a deleted lease with this name.
    fn own_slices(&mut self, facts: &Facts, service: &str, target: Option<&Target>) -> Vec<Arc<SliceFacts>> {
        let mut own = Vec::new();
        for slice in &facts.slices {
            let family = slice.family.filter(|family| slice.name == slice_name(service, *family));
            let wanted = |family: Family| target.is_none_or(|target| target.families.contains(&family));
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

    /// Removes the endpoints of other pods than the holder, and those with an address that the pod does not have.
    /// `addresses` are those of the holder's pod, if they are known; `latest` is the token of the latest term.
    fn withdraw_endpoints(
        &mut self,
        own: &[Arc<SliceFacts>],
        holder: Option<Holder<'_>>,
        addresses: Option<&[IpAddr]>,
        latest: Token,
    ) {
        let is_stale = |address: &String| {
            let parsed = address.parse().ok();
            addresses.is_some_and(|known| parsed.is_none_or(|parsed| !known.contains(&parsed)))
        };
        for slice in own {
            let stale = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses).any(is_stale);
            if stale || self.service.get_or_insert_default().may_have_other(slice, holder) {
                // It changes the token in any case: a write that is not answered yet may add the endpoint to a slice that was
                // seen without one, and conflicts then.
                let token = Some(latest).filter(|latest| slice.token != Some(*latest));
                self.write_slice(slice, SliceChange::empty(token), None);
            }
        }
    }

    /// Makes the pod the only endpoint, as far as `grant` allows. `None` allows only removals.
    fn write_endpoints(
        &mut self,
        own: &[Arc<SliceFacts>],
        holder: Holder<'_>,
        pod: &PodFacts,
        target: &Target,
        grant: Option<Grant>,
    ) {
        let state = self.service.get_or_insert_default().clone();
        for (number, slice) in own.iter().enumerate() {
            let address = pod.addresses.iter().find(|address| Some(Family::of_address(**address)) == slice.family);
            let has_other = state.may_have_other(slice, Some(holder));
            let is_fenced = slice.token == Some(holder.token);
            let empty = SliceChange::empty(Some(holder.token));
            let Some(address) = address else {
                if has_other || !is_fenced || !slice.endpoints.is_empty() {
                    self.write_slice(slice, empty, None);
                }
                continue;
            };
            if has_other || (number > 0 && !is_fenced) {
                self.write_slice(slice, empty, None);
                continue;
            }
            let Some(grant) = grant else { continue };
            let others_are_fenced = own.iter().all(|other| other.name == slice.name || state.is_fenced(other, holder));
            let may_add = grant.may_add && others_are_fenced;
            let has_it = is_fenced && !slice.endpoints.is_empty();
            let change = SliceChange::Put {
                token: Some(holder.token),
                endpoint: Some(endpoint(pod, address.to_string(), target)),
                ports: target.ports.clone(),
            };
            if (may_add || has_it) && !change.is_in(slice) {
                self.write_slice(slice, change, grant.stop_at);
            }
        }
    }

    fn create_slice(&mut self, now: Time, facts: &Facts, service: &str, family: Family, token: Token) {
        let slice = self.new_slice(service, family);
        // One with this name is being removed.
        if facts.slices.iter().any(|other| other.name == slice.name) {
            return;
        }
        let refused = self.service.as_ref().and_then(|state| state.refused.as_ref());
        let refused = refused.filter(|refused| refused.is_creation_of(&slice.name) && now < refused.until);
        match refused.map(|refused| refused.until) {
            Some(until) => self.wake_at(until),
            None => self.write_slice(&slice, SliceChange::empty(Some(token)), None),
        }
    }

    fn new_slice(&self, service: &str, family: Family) -> SliceFacts {
        let Identity { namespace, name, uid, .. } = &self.identity;
        SliceFacts::new(namespace, name, uid, service, family)
    }

    fn write_slice(&mut self, slice: &SliceFacts, change: SliceChange, not_after: Option<Time>) {
        let state = self.service.get_or_insert_default();
        if let Some(writing) = state.writing.get_mut(&slice.name) {
            if writing.change != change && !std::mem::replace(&mut writing.withdrawn, true) {
                self.emit(Effect::WithdrawSlice { name: slice.name.clone() });
            }
            return;
        }
        let uid = Some(slice.uid.clone()).filter(|uid| !uid.is_empty());
        let (service, is_new) = (slice.service.clone(), uid.is_none());
        state.writing.insert(
            slice.name.clone(),
            Writing { service: service.clone(), change: change.clone(), is_new, withdrawn: false },
        );
        self.emit(Effect::WriteSlice(Box::new(SliceWrite {
            priority: Priority::Active,
            name: slice.name.clone(),
            uid,
            version: slice.version.clone(),
            service,
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
