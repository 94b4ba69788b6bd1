//! The status of a lease.

use std::time::Duration;

use jiff::Timestamp;
use redislease_core::lease::{Standing, View};
use redislease_core::op::Attempt;

use crate::api::RedisLeaseStatus;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{CandidatesStatus, IneligiblePod, MAX_INELIGIBLE};
use crate::election::{Cluster, Electorate, HolderName};
use crate::status::composer::Composer;
use crate::status::conditions::Conditions;
use crate::status::ledger::{self, Entries, Fate};
use crate::status::rival::Rival;
use crate::status::{Notice, NoticeReason, TermEnd, Witness};

/// Everything a lease's status is composed of.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// What the API server holds now.
    pub previous: &'a RedisLeaseStatus,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// Now.
    pub now: Timestamp,
    /// This cluster.
    pub cluster: &'a Cluster,
    /// The lease's namespace.
    pub namespace: &'a str,
    /// The lease's name.
    pub lease: &'a str,
    /// The keeper's view; `None` when no keeper runs, because nothing could be started.
    pub view: Option<&'a View>,
    /// What was seen of the keeper's views.
    pub witness: &'a Witness,
    /// Without a keeper: the keys of the term that the status names have certainly ended.
    pub expired: bool,
    /// The keys of that term are on nodes that cannot be asked, and are being waited out.
    pub withheld: bool,
    /// Why no new term may begin.
    pub obstacle: Option<Obstacle<'a>>,
    /// The candidates; `None` until pods were listed.
    pub electorate: Option<&'a Electorate>,
    /// The lease's quorum; `None` until it was evaluated. A term that is published has one.
    pub quorum: Option<QuorumOutlook<'a>>,
    /// How long nobody held the lease before the term that runs, on a clock finer than the status's: for the event.
    pub leaderless: Option<Duration>,
}

/// Why no new term may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle<'a> {
    /// One of Suspended, InvalidReference, InvalidSpec and QuorumUnavailable. All but the last are shown while the
    /// lease is held, too.
    pub reason: LeaseReady,
    /// One sentence that does not change by itself.
    pub message: &'a str,
}

/// What a lease shows of its quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumOutlook<'a> {
    /// The name of the RedisQuorum.
    pub name: &'a str,
    /// The fingerprint of its configuration.
    pub fingerprint: &'a str,
    /// How many nodes give votes.
    pub up: usize,
    /// How many must.
    pub majority: usize,
    /// What is wrong with a node's marker.
    pub mismatch: Option<&'a str>,
}

/// What the API server should hold, and what has happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// The status. Equal to the previous one when nothing has happened.
    pub status: RedisLeaseStatus,
    /// What has happened, to be told after the status was written.
    pub events: Vec<Notice>,
    /// Why the term of the previous status ended, if it did so now.
    pub ended: Option<TermEnd>,
    /// Whether a term began now.
    pub began: bool,
}

/// Composes the status of a lease.
pub fn compose(inputs: &Inputs<'_>) -> Composed {
    // The API server keeps whole seconds: with more, what was written would never equal what is read.
    let now = Timestamp::from_second(inputs.now.as_second()).unwrap_or(inputs.now);
    let fate = Fate::of(inputs);
    let mut status = inputs.previous.clone();
    let Entries { mut events, ended, began } = ledger::enter(&mut status, fate, inputs, now);
    status.observed_generation = inputs.generation.or(status.observed_generation);
    if let Some(electorate) = inputs.electorate {
        status.candidates = Some(candidates_of(electorate));
    }
    let rival = Rival::of(inputs);
    let previous = &inputs.previous.conditions;
    let mut composer = Composer {
        inputs,
        status: &status,
        fate,
        rival: &rival,
        conditions: Conditions::new(previous, status.observed_generation, now),
    };
    composer.active();
    composer.ready();
    composer.candidates();
    composer.quorum();
    events.extend(composer.notices());
    let conditions = composer.conditions.finish();
    status.conditions = conditions;
    Composed { status, events, ended, began }
}

fn candidates_of(electorate: &Electorate) -> CandidatesStatus {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let ineligible = electorate.ineligible.iter().take(MAX_INELIGIBLE);
    CandidatesStatus {
        total: count(electorate.total()),
        eligible: count(electorate.eligible.len()),
        ineligible: ineligible
            .map(|(pod, reason)| IneligiblePod { pod: pod.name.clone(), reason: reason.as_str().into() })
            .collect(),
    }
}

/// After so many failed rounds in a row renewals are said to fail: one lost packet is no event.
const RENEW_FAILING: u32 = 2;

/// The event for renewals that have begun to fail between two views of a held term. Status is silent about it: either
/// they succeed again, or the term is lost.
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
            "term {}: renewals of the lease of {} fail; it is lost unless a majority of the quorum answers in time",
            term.id.token, name.pod
        ),
        on_pods: vec![(name.pod, name.pod_uid)],
    })
}
