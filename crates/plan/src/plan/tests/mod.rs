//! Tests of one reconciler, which a [`Story`] drives.

mod attempts;
mod authority;
mod gate;
mod guarded;
mod handover;
mod key_reads;
mod leadership;
mod permits;
mod publication;
mod quorum;
mod quorums;
mod requested;
mod roles;
mod story;
mod terms;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_core::lease::{EndReason, EndingView, Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::{Millis, Time};
use serde_json::json;
use story::{Story, written};

use super::*;
use crate::api::conditions::{ConditionReason as _, ConditionStatus, ConditionType};
use crate::api::names::PodRole;
use crate::api::{RedisLease, RedisLeaseStatus, ValidLease};
use crate::election::{Annotations, Cluster, Electorate, Eligibility, PodFacts, Sighting, WorkloadFacts};
use crate::samples;
use crate::status::{Notice, NoticeReason};

/// The lease of the specs below, in milliseconds.
const LEASE: u64 = 30_000;
const LABEL: &str = "lease.redislease.io/billing";
const TOKEN: &str = "token.redislease.io/billing";

pub(super) fn term(attempt: u128, token: u64, pod: &str) -> TermId {
    let holder = format!("here/uid-here/jobs/billing/{pod}/uid-{pod}");
    TermId { attempt: Attempt(attempt), token: Token(token), holder: Holder(holder.into()) }
}

pub(super) fn term_view(id: TermId) -> TermView {
    TermView { id, valid_until: Some(Time(1_000_000_000)), stop_at: Some(Time(1_000_000_000)), failed_rounds: 0 }
}

pub(super) fn publishing(id: TermId) -> View {
    View { standing: Standing::Publishing(term_view(id)), ..View::default() }
}

pub(super) fn held(id: TermId) -> View {
    View { standing: Standing::Held(term_view(id)), ..View::default() }
}

pub(super) fn adopting(id: TermId) -> View {
    View { standing: Standing::Adopting(term_view(id)), ..View::default() }
}

pub(super) fn uncertain(id: TermId) -> View {
    View { standing: Standing::Uncertain(term_view(id)), ..View::default() }
}

/// An attempt for the pod of this term is under way.
pub(super) fn acquiring(id: TermId) -> View {
    View { standing: Standing::Acquiring(id.attempt, id.holder), ..View::default() }
}

pub(super) fn idle(retry_at: u64) -> View {
    View { retry_at: Some(Time(retry_at)), ..View::default() }
}

pub(super) fn ending(id: TermId, reason: EndReason) -> View {
    let ending = EndingView { id, reason, sealed: false, keys_until: Time(10_000_000) };
    View { ending: Some(Box::new(ending)), retry_at: Some(Time(10_000_000)), ..View::default() }
}

pub(super) fn refusal(why: &str) -> RoleOutcome {
    RoleOutcome::Refused(why.into())
}

/// The end of a term without proof.
pub(super) const fn end(term: TermId) -> Command {
    Command::End { term, proof: false }
}

pub(super) fn pod(name: &str) -> PodFacts {
    PodFacts { namespace: "jobs".into(), resource_version: Some("1".into()), ..PodFacts::running(name) }
}

/// The pod with this label.
pub(super) fn labelled(mut pod: PodFacts, role: &str) -> PodFacts {
    pod.labels.insert(LABEL.into(), role.into());
    pod
}

/// The pod with this token.
pub(super) fn with_token(mut pod: PodFacts, token: &str) -> PodFacts {
    pod.annotations.set(TOKEN, Some(token));
    pod
}

pub(super) fn quorum(id: u64, fingerprint: &str) -> QuorumFacts {
    let open = OpenQuorum { id, fingerprint: fingerprint.into(), ..samples::open_quorum() };
    QuorumFacts { read: true, open: Some(Arc::new(open)), up: 3, evaluated: true, ..QuorumFacts::default() }
}
