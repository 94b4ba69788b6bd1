//! Requested handovers: which request is handled, and which pod or cluster is to acquire the lease next.
//!
//! A request is handled once: `status.handover` names it. It ends the running term as every other decision does: without proof
//! that the holder has stopped, the next pod waits until the keys expire.

use redislease_core::lease::Standing;
use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::facts::Authority;
use super::inputs::Turn;
use super::keeper_link::{KeeperLink, holder_of};
use super::output::Effects;
use super::recorded::Recorded;
use crate::api::RedisLease;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{HandoverState, HandoverStatus};
use crate::election::{HandoverOrder, HandoverRequest, HandoverResponse, HandoverTarget};
use crate::status::{HandoverOutlook, HandoverProgress};

/// How long another cluster can acquire the lease after the keys of the ended term have expired, before this cluster makes an
/// attempt. The next attempt of the other cluster starts when the keys have expired.
pub const HANDOVER_HEAD_START: Millis = Millis(10_000);

/// The requested handover, until the status shows its result. Boxed: most leases have none.
#[derive(Clone, Debug, Default)]
pub(super) struct Handovers(Option<Box<Handover>>);

/// A request that this process handles.
#[derive(Clone, Debug)]
struct Handover {
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
    /// Until when a read of the keys can show who holds the lease, if this cluster makes no attempt after that time.
    observes_until: Option<Time>,
}

fn shown(lease: &RedisLease) -> Option<&HandoverStatus> {
    lease.status.as_ref()?.handover.as_deref()
}

impl Handovers {
    pub fn outlook(&self) -> Option<HandoverOutlook<'_>> {
        let handover = self.0.as_deref()?;
        let progress = match &handover.step {
            Step::Running(running) => HandoverProgress::Running { from: &running.from },
            Step::Over { state, from, message } => {
                HandoverProgress::Over { state: *state, from: from.as_deref(), message }
            }
        };
        Some(HandoverOutlook { request: &handover.request, progress })
    }

    fn running(&self) -> Option<&Running> {
        match &self.0.as_ref()?.step {
            Step::Running(running) => Some(running),
            Step::Over { .. } => None,
        }
    }

    /// The order of the next election.
    pub fn order(&self) -> Option<HandoverOrder<'_>> {
        let Running { target, from, .. } = self.running()?;
        let to = match target {
            HandoverTarget::Pod(name) => Some(name.as_str()),
            HandoverTarget::NextPod | HandoverTarget::Cluster(_) => None,
        };
        Some(HandoverOrder { to, from })
    }

    /// Whether it ends the term of this attempt.
    pub fn ends(&self, term: Attempt) -> bool {
        self.running().is_some_and(|running| running.attempt == Some(term))
    }

    /// Why this cluster makes no attempt now.
    pub fn obstacle(&self) -> Option<String> {
        let Running { target: HandoverTarget::Cluster(cluster), yields_until: Some(_), .. } = self.running()? else {
            return None;
        };
        Some(format!(
            "No pod of this cluster holds the lease. The operator hands it over to the cluster {cluster}, and makes no \
             attempt until that cluster has had time to acquire it."
        ))
    }

    /// Drops a request whose result the status shows, continues one that an earlier process began, and ends the wait for another
    /// cluster.
    pub fn follow(&mut self, turn: &Turn<'_>, link: Option<&KeeperLink>, out: &mut Effects) {
        let &Turn { now, lease, spec, .. } = turn;
        let shown = shown(lease);
        let running = shown.filter(|shown| shown.state == HandoverState::Running);
        if let Some(handover) = &self.0 {
            let id = shown.map(|shown| &shown.id);
            let is_shown = id == Some(&handover.request.id);
            // Another replica handled the request, and a later one.
            let is_passed = !is_shown && id != handover.previous.as_ref();
            if is_passed || (is_shown && running.is_none()) {
                self.0 = None;
            }
        }
        if let Some(shown) = running
            && self.0.is_none()
            && spec.is_some()
            && let Ok(target) = HandoverTarget::of(shown.to.as_deref())
        {
            let request = HandoverRequest { id: shown.id.clone(), to: shown.to.clone() };
            let from = shown.from.clone().unwrap_or_default();
            let (yields_until, observes_until) = waits(turn, &target, link);
            let step = Step::Running(Running { target, from, attempt: None, yields_until, observes_until });
            self.0 = Some(Box::new(Handover { request, previous: None, step }));
        }
        if let Some(handover) = self.0.as_deref_mut()
            && let Step::Running(Running { yields_until, observes_until, .. }) = &mut handover.step
        {
            for until in [yields_until, observes_until] {
                *until = until.filter(|until| now < *until);
                if let Some(until) = *until {
                    out.wake_at(until);
                }
            }
        }
    }

    /// The request that this process is to handle. It begins when the status shows the result of the last one, or replaces one that the
    /// status calls running: that may wait for a pod that does not come back.
    pub fn new_request(&self, turn: &Turn<'_>) -> Option<HandoverRequest> {
        let Turn { lease, facts, .. } = turn;
        if (self.0.is_some() && self.replaceable(lease).is_none()) || facts.authority != Authority::Lead {
            return None;
        }
        if turn.is_deleting() || lease.spec.suspend {
            return None;
        }
        let request = HandoverRequest::of(lease.metadata.annotations.as_ref())?;
        shown(lease).is_none_or(|shown| shown.id != request.id).then_some(request)
    }

    /// The running handover, if the status shows it: its term has ended.
    fn replaceable(&self, lease: &RedisLease) -> Option<&Running> {
        let id = &self.0.as_ref()?.request.id;
        self.running().filter(|_| shown(lease).is_some_and(|shown| shown.id == *id))
    }

    pub fn review(&mut self, turn: &Turn<'_>, link: &KeeperLink) {
        let &Turn { identity, lease, facts, ref inputs, .. } = turn;
        let view = &link.view;
        let Some(request) = self.new_request(turn) else { return };
        let recorded = Recorded::of(lease);
        let replaced = self.replaceable(lease).map(|running| running.from.clone());
        let response = match &view.standing {
            Standing::Held(term) if recorded.is_some_and(|recorded| recorded.attempt == term.id.attempt) => {
                if !facts.pods_listed || inputs.tests_stop {
                    return;
                }
                match (&inputs.obstacle, holder_of(view), facts.electorate()) {
                    (Some((LeaseReady::Starting, _)), ..) => return,
                    (Some((_, obstacle)), ..) if inputs.unstoppable => HandoverResponse::Refuse(obstacle.clone()),
                    (Some((_, obstacle)), ..) => HandoverResponse::Refuse(format!("No new term can begin. {obstacle}")),
                    (None, Some(holder), Some(electorate)) => {
                        request.respond(&holder.pod, electorate, &identity.cluster.name)
                    }
                    (None, ..) => return,
                }
            }
            // The term is unconfirmed, not published or not adopted yet.
            standing if standing.term().is_some() => return,
            // The result of the attempt completes the handover that runs.
            Standing::Acquiring(..) if replaced.is_some() => return,
            _ => match (recorded, HandoverTarget::of(request.to.as_deref())) {
                (Some(recorded), _) if recorded.active => return,
                (_, Ok(HandoverTarget::Cluster(name))) if name == identity.cluster.name => HandoverResponse::Refuse(
                    "No pod of this cluster holds the lease now. One acquires it when it is free, without a handover."
                        .into(),
                ),
                // The term ends, perhaps by a replica that did not write why. The request says who is next.
                (Some(_), Ok(target)) => HandoverResponse::EndTerm(target),
                (None, Ok(target)) if replaced.is_some() => HandoverResponse::EndTerm(target),
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
                let (yields_until, observes_until) = waits(turn, &target, Some(link));
                Step::Running(Running {
                    yields_until,
                    observes_until,
                    target,
                    from: holder.map(|holder| holder.pod.clone()).or(replaced).unwrap_or_default(),
                    attempt: view.standing.term().map(|term| term.id.attempt),
                })
            }
        };
        let previous = shown(lease).map(|shown| shown.id.clone());
        self.0 = Some(Box::new(Handover { request, previous, step }));
    }

    /// Ends a handover to another cluster whose result this cluster cannot observe: the time for the other cluster is over, this one can
    /// make no attempt whose result would show who holds the lease, and no read of the keys since then has shown it.
    pub fn end_unobservable(&mut self, turn: &Turn<'_>) {
        let facts = turn.facts;
        let has_candidate = facts.electorate().is_none_or(|electorate| electorate.has_eligible());
        // Other obstacles only delay the attempt.
        let makes_no_attempt = turn.lease.spec.suspend || (turn.may_begin() && facts.pods_listed && !has_candidate);
        if makes_no_attempt
            && let Some(Running { target: HandoverTarget::Cluster(cluster), observes_until: None, from, .. }) =
                self.running()
        {
            let message = format!(
                "No pod of this cluster can be elected, so the operator cannot tell whether the cluster {cluster} acquired \
                 the lease."
            );
            let step = Step::Over { state: HandoverState::Unknown, from: Some(from.clone()), message };
            if let Some(handover) = self.0.as_deref_mut() {
                handover.step = step;
            }
        }
    }
}

/// Until when this cluster yields to the target, and until when it observes. The keys of a term live as long as the spec said when they
/// were last extended; without an attempt, they are read once in each lease duration.
fn waits(turn: &Turn<'_>, target: &HandoverTarget, link: Option<&KeeperLink>) -> (Option<Time>, Option<Time>) {
    if !matches!(target, HandoverTarget::Cluster(_)) {
        return (None, None);
    }
    let ttl = turn.spec.map(|spec| Millis::from(spec.lease_duration));
    let ttl = ttl.max(link.map(|link| link.config.ttl)).unwrap_or_default();
    let lease = Drift::STANDARD.most(ttl);
    let yields_until = turn.now + lease + HANDOVER_HEAD_START;
    (Some(yields_until), Some(yields_until + lease + HANDOVER_HEAD_START))
}
