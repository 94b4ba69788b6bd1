//! Composes the status of a lease.

use jiff::Timestamp;
use redislease_core::lease::{Standing, View};
use redislease_core::op::Attempt;

use crate::api::RedisLeaseStatus;
use crate::api::lease_status::{CandidatesStatus, Holder, IneligiblePod, MAX_INELIGIBLE};
use crate::election::{Electorate, HolderName};
use crate::status::conditions::Conditions;
use crate::status::foreign_holder::ForeignHolder;
use crate::status::handover;
use crate::status::lease_conditions::LeaseConditions;
use crate::status::terms::{self, TermState, Update};
use crate::status::{Inputs, Notice, NoticeReason, TermEnd};

/// The output of [`compose`].
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// The status that the API server should have. It equals the previous one if nothing has happened.
    pub status: RedisLeaseStatus,
    /// The events to send after the status was written.
    pub events: Vec<Notice>,
    /// Why the term in the previous status ended, if it ended now.
    pub ended: Option<TermEnd>,
    /// Whether a term began now.
    pub began: bool,
}

/// Composes the status of a lease and the events that go with it.
pub fn compose(inputs: &Inputs<'_>) -> Composed {
    // The API server stores whole seconds. With fractions, a written status would differ from the one that is read back.
    let now = Timestamp::from_second(inputs.now.as_second()).unwrap_or(inputs.now);
    let term = TermState::of(inputs);
    let mut status = inputs.previous.clone();
    let Update { mut events, ended, began } = terms::update(&mut status, term, inputs, now);
    status.observed_generation = inputs.generation.or(status.observed_generation);
    if let Some(electorate) = inputs.electorate {
        show_node(&mut status, electorate);
        let runs = !matches!(term, TermState::Ending(_) | TermState::Ended(_) | TermState::NoTerm);
        status.candidates = Some(candidates_of(electorate, status.holder.as_ref().filter(|_| runs)));
    } else if inputs.no_candidates.is_some() {
        status.candidates = Some(CandidatesStatus::default());
    }
    let foreign_holder = ForeignHolder::of(inputs);
    events.extend(handover::update(&mut status, term, &foreign_holder, inputs, began, now));
    let previous = &inputs.previous.conditions;
    let mut conditions = LeaseConditions {
        inputs,
        status: &status,
        term,
        foreign_holder: &foreign_holder,
        conditions: Conditions::new(previous, status.observed_generation, now),
    };
    conditions.active();
    conditions.ready();
    conditions.candidates();
    conditions.quorum();
    events.extend(conditions.notices());
    status.conditions = conditions.conditions.finish();
    Composed { status, events, ended, began }
}

/// A pod that starts only after its election has no node before.
fn show_node(status: &mut RedisLeaseStatus, electorate: &Electorate) {
    if let Some(holder) = status.holder.as_mut().filter(|holder| holder.node.is_none()) {
        holder.node = electorate.find(&holder.pod_uid).and_then(|pod| pod.node.clone());
    }
}

/// The holder counts as eligible although a pod that was started cannot be elected again.
fn candidates_of(electorate: &Electorate, holder: Option<&Holder>) -> CandidatesStatus {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let ineligible: Vec<_> = electorate.ineligible_but(holder).collect();
    CandidatesStatus {
        total: count(electorate.total()),
        eligible: count(electorate.lasting() - ineligible.len()),
        ineligible: ineligible
            .into_iter()
            .take(MAX_INELIGIBLE)
            .map(|(pod, reason)| IneligiblePod { pod: pod.name.clone(), reason: reason.as_str().into() })
            .collect(),
    }
}

/// The number of consecutive failed renewals after which an event is sent. One lost packet causes no event.
const RENEW_FAILING: u32 = 2;

/// The event for renewals that have begun to fail between two views of a held term. The status does not show it: either a
/// later renewal succeeds, or the term is lost.
pub fn renewal_notice(before: &View, after: &View) -> Option<Notice> {
    let failing = |view: &View, attempt: Attempt| match &view.standing {
        Standing::Held(term) => term.id.attempt == attempt && term.failed_rounds >= RENEW_FAILING,
        _ => false,
    };
    let term = after.standing.term()?;
    let attempt = term.id.attempt;
    if !failing(after, attempt) || failing(before, attempt) {
        return None;
    }
    let name = term.id.holder.0.parse::<HolderName>().ok()?;
    Some(Notice {
        reason: NoticeReason::RenewFailing,
        note: format!(
            "term {}: the last {} renewals for {} failed; the lease is lost unless a majority of the Redis nodes answers in time",
            term.id.token, term.failed_rounds, name.pod
        ),
        on_pods: vec![(name.pod, name.pod_uid)],
    })
}
