//! Requested handovers: which request is handled, and which pod or cluster is to acquire the lease next.
//!
//! A request is handled once: `status.handover` names it. It ends the running term as every other decision does: without proof
//! that the holder has stopped, the next pod waits until the keys expire.

use redislease_core::lease::{Standing, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::Reconciler;
use super::facts::{Authority, Facts};
use super::inputs::Inputs;
use super::keeper_link::holder_of;
use super::recorded::Recorded;
use crate::api::RedisLease;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{HandoverState, HandoverStatus};
use crate::election::{HandoverOrder, HandoverRequest, HandoverResponse, HandoverTarget};
use crate::status::{HandoverOutlook, HandoverProgress};

/// How long another cluster can acquire the lease after the keys of the ended term have expired, before this cluster makes an
/// attempt. The next attempt of the other cluster starts when the keys have expired.
const HEAD_START: Millis = Millis(10_000);

/// A request that this process handles.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    request: HandoverRequest,
    /// The ID that the status showed before.
    previous: Option<String>,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Running(Running),
    /// It is over, in this state and for this reason.
    Over {
        state: HandoverState,
        from: Option<String>,
        message: String,
    },
}

#[derive(Clone, Debug)]
struct Running {
    target: HandoverTarget,
    /// The name of the pod whose term is ended.
    from: String,
    /// Its term; `None` if it has ended already.
    attempt: Option<Attempt>,
    /// Until when this cluster makes no attempt, if the target is another cluster.
    yields_until: Option<Time>,
}

impl Handover {
    /// For the status.
    pub fn outlook(&self) -> HandoverOutlook<'_> {
        let progress = match &self.step {
            Step::Running(running) => HandoverProgress::Running { from: &running.from },
            Step::Over { state, from, message } => {
                HandoverProgress::Over { state: *state, from: from.as_deref(), message }
            }
        };
        HandoverOutlook { request: &self.request, progress }
    }

    /// The order of the next election.
    pub fn order(&self) -> Option<HandoverOrder<'_>> {
        let Step::Running(Running { target, from, .. }) = &self.step else { return None };
        let to = match target {
            HandoverTarget::Pod(name) => Some(name.as_str()),
            HandoverTarget::NextPod | HandoverTarget::Cluster(_) => None,
        };
        Some(HandoverOrder { to, from })
    }

    /// Whether it ends the term of this attempt.
    pub fn ends(&self, term: Attempt) -> bool {
        matches!(&self.step, Step::Running(Running { attempt, .. }) if *attempt == Some(term))
    }

    /// Why this cluster makes no attempt now.
    pub fn obstacle(&self) -> Option<String> {
        let Step::Running(Running { target: HandoverTarget::Cluster(cluster), yields_until: Some(_), .. }) = &self.step
        else {
            return None;
        };
        Some(format!(
            "No pod of this cluster holds the lease. The operator hands it over to the cluster {cluster}, and makes no \
             attempt until that cluster has had time to acquire it."
        ))
    }

    /// The time for the other cluster is over, and this cluster can make no attempt whose result would show who holds the
    /// lease.
    fn cannot_be_observed(&mut self) {
        if let Step::Running(Running { target: HandoverTarget::Cluster(cluster), yields_until: None, from, .. }) =
            &self.step
        {
            let message = format!(
                "No pod of this cluster can be elected, so the operator cannot tell whether the cluster {cluster} acquired \
                 the lease."
            );
            self.step = Step::Over { state: HandoverState::Unknown, from: Some(from.clone()), message };
        }
    }
}

fn shown(lease: &RedisLease) -> Option<&HandoverStatus> {
    lease.status.as_ref()?.handover.as_deref()
}

impl Reconciler {
    /// Drops a request whose result the status shows, continues one that an earlier process began, and ends the wait for another
    /// cluster.
    pub(super) fn follow_handover(&mut self, now: Time, lease: &RedisLease) {
        let shown = shown(lease);
        let running = shown.filter(|shown| shown.state == HandoverState::Running);
        if let Some(handover) = &self.handover {
            let id = shown.map(|shown| &shown.id);
            let is_shown = id == Some(&handover.request.id);
            // Another replica handled the request, and a later one.
            let is_passed = !is_shown && id != handover.previous.as_ref();
            if is_passed || (is_shown && running.is_none()) {
                self.handover = None;
            }
        }
        if let Some(shown) = running
            && self.handover.is_none()
            && self.spec.valid.is_some()
            && let Ok(target) = HandoverTarget::of(shown.to.as_deref())
        {
            let request = HandoverRequest { id: shown.id.clone(), to: shown.to.clone() };
            let from = shown.from.clone().unwrap_or_default();
            let yields_until = self.yields_until(now, &target);
            let step = Step::Running(Running { target, from, attempt: None, yields_until });
            self.handover = Some(Box::new(Handover { request, previous: None, step }));
        }
        if let Some(handover) = self.handover.as_deref_mut()
            && let Step::Running(Running { yields_until, .. }) = &mut handover.step
            && let Some(until) = *yields_until
        {
            if now >= until {
                *yields_until = None;
            } else {
                self.wake_at(until);
            }
        }
    }

    /// The keys of a term live as long as the spec said when they were last extended.
    fn yields_until(&self, now: Time, target: &HandoverTarget) -> Option<Time> {
        let ttl = self.spec.valid.as_ref().map(|spec| Millis::from(spec.lease_duration));
        let ttl = ttl.max(self.link.as_ref().map(|link| link.config.ttl)).unwrap_or_default();
        matches!(target, HandoverTarget::Cluster(_)).then_some(now + Drift::STANDARD.most(ttl) + HEAD_START)
    }

    /// Decides what to do about a new request.
    pub(super) fn review_handover(
        &mut self,
        now: Time,
        lease: &RedisLease,
        inputs: &Inputs,
        facts: &Facts,
        view: &View,
    ) {
        let Some(request) = HandoverRequest::of(lease.metadata.annotations.as_ref()) else { return };
        // One handover at a time: the next one begins when the status shows the result of the last one.
        let is_handled = shown(lease).is_some_and(|shown| shown.id == request.id);
        if is_handled || self.handover.is_some() || facts.authority != Authority::Lead {
            return;
        }
        if inputs.deleting || inputs.suspended {
            return;
        }
        let recorded = Recorded::of(lease);
        let response = match &view.standing {
            Standing::Held(term) if recorded.is_some_and(|recorded| recorded.attempt == term.id.attempt) => {
                if !facts.pods_listed {
                    return;
                }
                match (&inputs.obstacle, holder_of(view), &inputs.electorate) {
                    (Some((LeaseReady::Starting, _)), ..) => return,
                    (Some((_, obstacle)), ..) => HandoverResponse::Refuse(format!("No new term can begin. {obstacle}")),
                    (None, Some(holder), Some(electorate)) => {
                        request.respond(&holder.pod, electorate, &self.identity.cluster.name)
                    }
                    (None, ..) => return,
                }
            }
            // The term is unconfirmed, not published or not adopted yet.
            standing if standing.term().is_some() => return,
            _ => match (recorded, HandoverTarget::of(request.to.as_deref())) {
                (Some(recorded), _) if recorded.active => return,
                // The term ends, perhaps by a replica that did not write why. The request says who is next.
                (Some(_), Ok(target)) => HandoverResponse::EndTerm(target),
                (_, Err(problem)) => HandoverResponse::Refuse(problem),
                (None, Ok(_)) => HandoverResponse::Refuse("No pod of this cluster holds the lease.".into()),
            },
        };
        let over = |state, message| Step::Over { state, from: None, message };
        let step = match response {
            HandoverResponse::AlreadyThere(text) => over(HandoverState::Completed, text),
            HandoverResponse::Refuse(text) => over(HandoverState::Refused, text),
            HandoverResponse::EndTerm(target) => {
                let holder = lease.status.as_ref().and_then(|status| status.holder.as_ref());
                Step::Running(Running {
                    yields_until: self.yields_until(now, &target),
                    target,
                    from: holder.map_or_else(String::new, |holder| holder.pod.clone()),
                    attempt: view.standing.term().map(|term| term.id.attempt),
                })
            }
        };
        let previous = shown(lease).map(|shown| shown.id.clone());
        self.handover = Some(Box::new(Handover { request, previous, step }));
    }

    /// Ends a handover to another cluster whose result this cluster cannot observe.
    pub(super) fn end_unobservable_handover(&mut self, inputs: &Inputs, facts: &Facts) {
        let has_candidate = inputs.electorate.as_ref().is_none_or(|electorate| electorate.has_eligible());
        // Other obstacles only delay the attempt.
        let makes_no_attempt = inputs.suspended || (inputs.may_begin() && facts.pods_listed && !has_candidate);
        if makes_no_attempt && let Some(handover) = self.handover.as_deref_mut() {
            handover.cannot_be_observed();
        }
    }
}
