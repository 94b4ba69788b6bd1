//! Composes the status of a lease.

use std::time::Duration;

use jiff::Timestamp;
use redislease_core::lease::{Standing, View};
use redislease_core::op::Attempt;

use crate::api::RedisLeaseStatus;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{CandidatesStatus, Holder, IneligiblePod, MAX_INELIGIBLE};
use crate::election::{Cluster, Electorate, HolderName};
use crate::status::conditions::Conditions;
use crate::status::foreign_holder::ForeignHolder;
use crate::status::handover::{self, HandoverOutlook};
use crate::status::lease_conditions::LeaseConditions;
use crate::status::terms::{self, TermState, Update};
use crate::status::{Notice, NoticeReason, ObservedTerms, TermEnd};

/// The input of [`compose`].
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The status that the API server has.
    pub previous: &'a RedisLeaseStatus,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// The current time.
    pub now: Timestamp,
    /// This cluster.
    pub cluster: &'a Cluster,
    /// The namespace of the lease.
    pub namespace: &'a str,
    /// The name of the lease.
    pub lease: &'a str,
    /// The lease as the lock layer of this process sees it; `None` if the lock layer could not open it.
    pub view: Option<&'a View>,
    /// The terms that this process has observed.
    pub observed_terms: &'a ObservedTerms,
    /// Only without a view: whether the keys of the term in status have certainly expired.
    pub expired: bool,
    /// Whether the keys of the term in status are on nodes that cannot be reached, and the operator waits until they have expired.
    pub withheld: bool,
    /// Why no new term can begin.
    pub obstacle: Option<Obstacle<'a>>,
    /// The candidates; `None` until pods are listed.
    pub electorate: Option<&'a Electorate>,
    /// The quorum of the lease; `None` until each of its nodes was reached or timed out. A published term has a quorum.
    pub quorum: Option<QuorumOutlook<'a>>,
    /// How long no pod held the lease before the running term, for the event. It is more precise than the timestamps in status,
    /// which are whole seconds.
    pub leaderless: Option<Duration>,
    /// Why the holder can change when one replica of the operator fails.
    pub takeover_risk: Option<&'a str>,
    /// Why the elected pod is not started yet.
    pub start: Option<&'a str>,
    /// The requested handover whose result the status does not show yet.
    pub handover: Option<HandoverOutlook<'a>>,
}

/// Why no new term can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle<'a> {
    /// Suspended, `InvalidReference`, `InvalidSpec`, `QuorumUnavailable`, Unheld or Starting. `QuorumUnavailable` and Unheld are
    /// shown only if no pod of this cluster holds the lease. While a pod holds it, Starting is only added to the message.
    pub reason: LeaseReady,
    /// One sentence. It must not change unless the situation changes.
    pub message: &'a str,
}

impl Obstacle<'static> {
    /// The operator makes no attempt for a while because the API server did not accept its last term.
    pub const NOT_PUBLISHED: Self = Self {
        reason: LeaseReady::Unheld,
        message: "No pod holds the lease. The API server did not accept the last term, so the operator makes no attempt until the \
                  keys of that term have ended and other clusters have had time to acquire the lease.",
    };
}

impl Obstacle<'_> {
    pub(super) fn is_shown_while_held(&self) -> bool {
        !matches!(self.reason, LeaseReady::QuorumUnavailable | LeaseReady::Unheld | LeaseReady::Starting)
    }
}

/// The facts about the quorum that the status of a lease shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumOutlook<'a> {
    /// The name of the `RedisQuorum`.
    pub name: &'a str,
    /// The fingerprint of its configuration.
    pub fingerprint: &'a str,
    /// The number of nodes that vote.
    pub up: usize,
    /// The number of nodes that must vote.
    pub majority: usize,
    /// The message about a node whose marker names another configuration.
    pub mismatch: Option<&'a str>,
}

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
        eligible: count(electorate.total() - ineligible.len()),
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
