//! Turns the objects that were read into sentences. Pure: no client, no clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_plan::api::conditions::{LeaseReady, QuorumHealth};
use redislease_plan::api::lease_status::{HandoverState, HandoverStatus, Holder, PastTerm};
use redislease_plan::api::quorum::{Leader, NodeState, NodeStatus};
use redislease_plan::api::{ConditionType, RedisLeaseStatus, RedisQuorum};
use redislease_plan::election::{Electorate, HandoverRequest, Ineligible, PodFacts};
use redislease_plan::status::TermEnd;
use serde::Serialize;

use super::facts::{Facts, HolderPod, TermState};
use super::outlook::{self, second};
use crate::cli::age::format_age;

/// The explanation of one lease.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation {
    pub namespace: String,
    pub name: String,
    /// Who holds the lease and since when, or why no pod holds it.
    pub holder: Vec<String>,
    /// What ended the last term.
    pub last_term: Vec<String>,
    /// The candidates, in one sentence.
    pub candidates_summary: String,
    /// Each candidate with its verdict: first those that can be elected, in the order of the election.
    pub candidates: Vec<Candidate>,
    /// Which Redis nodes vote.
    pub quorum: Vec<String>,
    /// Each Redis node.
    pub nodes: Vec<RedisNode>,
    /// What can change next.
    pub next: Vec<String>,
    /// The earliest time at which the state changes if nothing happens before, as far as it can be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_change: Option<Timestamp>,
}

/// A candidate pod.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub pod: String,
    pub eligible: bool,
    pub verdict: String,
}

/// A Redis node of the quorum.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RedisNode {
    pub name: String,
    pub votes: bool,
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Explanation {
    pub fn of(facts: &Facts) -> Self {
        let metadata = &facts.lease.metadata;
        let electorate = facts.electorate();
        let (candidates_summary, candidates) = match &electorate {
            Some(electorate) => candidates(facts, electorate),
            None => candidates_in_status(facts),
        };
        let (quorum, nodes) = quorum(facts);
        let outlook = outlook::of(facts, electorate.as_ref());
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            holder: holder(facts),
            last_term: last_term(facts),
            candidates_summary,
            candidates,
            quorum,
            nodes,
            next: outlook.sentences,
            next_change: outlook.at,
        }
    }
}

/// A time with its age, such as `2026-11-21T08:00:00Z (154m ago)`.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} ago)", second(at), format_age(between(at, now)))
}

/// The time from `earlier` to `later`; zero if `earlier` is later.
fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

fn in_cluster(cluster: &str) -> impl fmt::Display {
    if cluster.is_empty() { String::new() } else { format!(" in cluster {cluster}") }
}

fn holder(facts: &Facts) -> Vec<String> {
    let mut said = Vec::new();
    match facts.state() {
        TermState::NoStatus => said.push(
            "The operator has not written a status for this lease. Check that the operator runs and that it watches this \
             namespace."
                .into(),
        ),
        TermState::Held(holder) => {
            said.push(held(facts, holder));
            if facts.has_reason(LeaseReady::HeldHere) {
                // The first sentence says the same.
                said.extend(facts.message(ConditionType::Ready).split_once(". ").map(|(_, more)| more.to_owned()));
            } else {
                said.extend(facts.condition(ConditionType::Ready).map(reason_and_message));
            }
        }
        TermState::Unconfirmed(_) | TermState::Ending(_) => {
            said.push(facts.message(ConditionType::Active).to_owned());
            // These two reasons add nothing to the condition Active.
            let says_more = !facts.has_reason(LeaseReady::Unheld) && !facts.has_reason(LeaseReady::Starting);
            said.extend(facts.condition(ConditionType::Ready).filter(|_| says_more).map(reason_and_message));
        }
        TermState::HeldByPeer => said.push(facts.message(ConditionType::Ready).to_owned()),
        TermState::Unheld => said.extend(unheld(facts)),
    }
    if let TermState::Ending(holder) = facts.state()
        && let HolderPod::Gone = facts.holder
    {
        said.push(format!("The pod {} does not exist any more.", holder.pod));
    }
    said.extend(handover(facts));
    let processed = facts.status().and_then(|status| status.observed_generation);
    if processed.is_some_and(|processed| facts.lease.metadata.generation.is_some_and(|newest| newest > processed)) {
        said.push("The operator has not processed the latest change of the spec.".into());
    }
    if facts.lease.metadata.deletion_timestamp.is_some() {
        said.push("The RedisLease is being deleted.".into());
    }
    said
}

/// The requested handover, until a term has begun after its result.
fn handover(facts: &Facts) -> Option<String> {
    let shown = facts.status().and_then(|status| status.handover.as_deref());
    let requested = HandoverRequest::of(facts.lease.metadata.annotations.as_ref());
    if let Some(request) = requested.filter(|request| shown.is_none_or(|shown| shown.id != request.id)) {
        let to = request.to.map(|to| format!(" to {to}")).unwrap_or_default();
        return Some(format!("The operator has not handled the requested handover {}{to} yet.", request.id));
    }
    let HandoverStatus { id, to, state, time, message, .. } = shown?;
    let began = facts.status().and_then(|status| status.acquire_time.as_ref());
    if *state != HandoverState::Running && began.is_some_and(|began| began.0 > time.0) {
        return None;
    }
    let to = to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
    let state = match state {
        HandoverState::Running => "is running",
        HandoverState::Completed => "is completed",
        HandoverState::Refused => "was refused",
        HandoverState::Failed => "has failed",
        HandoverState::Unknown => "has an unknown result",
    };
    Some(format!("The requested handover {id}{to} {state}, {}: {message}", ago(time.0, facts.now)))
}

fn held(facts: &Facts, holder: &Holder) -> String {
    let status = facts.status();
    let node = holder.node.as_ref().map(|node| format!(" on Kubernetes node {node}")).unwrap_or_default();
    let since = status.and_then(|status| status.acquire_time.as_ref());
    let since = since.map(|since| format!(" since {} ({})", second(since.0), format_age(between(since.0, facts.now))));
    let token = status.map(RedisLeaseStatus::given_token).unwrap_or_default();
    let Holder { pod, cluster, .. } = holder;
    let (cluster, since) = (in_cluster(cluster), since.unwrap_or_default());
    format!("{pod}{cluster}{node} has held the lease{since}, with fencing token {token}.")
}

fn unheld(facts: &Facts) -> Vec<String> {
    let ready = facts.condition(ConditionType::Ready);
    let message = ready.map(reason_and_message);
    if facts.is_held_by_peer() {
        return [facts.message(ConditionType::Active).to_owned()].into_iter().chain(message).collect();
    }
    if ready.is_some_and(|ready| ready.message.starts_with("No pod holds the lease")) {
        return message.into_iter().collect();
    }
    ["No pod holds the lease.".to_owned()].into_iter().chain(message).collect()
}

/// The message of a condition with its reason, such as `spec.suspend is true (Suspended).`
fn reason_and_message(condition: &Condition) -> String {
    format!("{} ({})", condition.message, condition.reason)
}

fn last_term(facts: &Facts) -> Vec<String> {
    let past = facts.status().and_then(|status| status.history.first());
    let Some(PastTerm { fencing_token, cluster, pod, acquire_time, end_time, reason }) = past else {
        return vec!["No term has ended yet.".into()];
    };
    let lasted = format_age(between(acquire_time.0, end_time.0));
    let cluster = in_cluster(cluster);
    let ended = ago(end_time.0, facts.now);
    let why = TermEnd::from_word(reason).map(|end| format!(": {}", end.explanation())).unwrap_or_default();
    vec![
        format!("{pod}{cluster} held the lease for {lasted}, with fencing token {fencing_token}."),
        format!("The term ended at {ended} with reason {reason}{why}."),
    ]
}

/// What `spec.activation.schedulingGate` means for the candidates.
const GATED: &str = "Only the elected pod starts (spec.activation.schedulingGate).";

fn candidates(facts: &Facts, electorate: &Electorate) -> (String, Vec<Candidate>) {
    let holder = match facts.state() {
        TermState::Held(holder) | TermState::Unconfirmed(holder) => Some(holder),
        _ => None,
    };
    let holds = |uid: &str| holder.is_some_and(|holder| holder.pod_uid == uid);
    // As in the status, a holder that was started for its term counts as eligible.
    let ineligible: Vec<&(Arc<PodFacts>, Ineligible)> = electorate.ineligible_but(holder).collect();
    let started = electorate.ineligible.iter().filter(|(pod, why)| *why == Ineligible::Started && holds(&pod.uid));
    let (total, eligible) = (electorate.total(), electorate.total() - ineligible.len());
    let is_gated = facts.spec.as_ref().is_ok_and(|spec| spec.gated);
    let summary = match (total, eligible) {
        (0, _) => "No pod matches spec.candidates.".into(),
        (1, 1) => "The only candidate can be elected.".into(),
        _ => format!("{eligible} of {total} candidates can be elected."),
    };
    let summary = if is_gated { format!("{summary} {GATED}") } else { summary };
    let first = electorate.eligible.iter().find(|pod| !holds(&pod.uid)).map(|pod| &pod.uid);
    let mut all: Vec<Candidate> = started
        .map(|(pod, _)| pod)
        .chain(&electorate.eligible)
        .map(|pod| {
            let verdict = match (holds(&pod.uid), first == Some(&pod.uid)) {
                (true, _) if !pod.gates.is_empty() => "holds the lease, and is being started",
                (true, _) if is_gated && !pod.ready => "holds the lease, and is not Ready",
                (true, _) => "holds the lease",
                (false, true) => "can be elected, and is the first in the order of the election",
                (false, false) => "can be elected",
            };
            Candidate { pod: pod.name.clone(), eligible: true, verdict: verdict.into() }
        })
        .collect();
    all.extend(ineligible.into_iter().map(|(pod, reason)| {
        let why = not_eligible(*reason);
        let verdict = if holds(&pod.uid) { format!("holds the lease, and {why}") } else { why };
        Candidate { pod: pod.name.clone(), eligible: false, verdict }
    }));
    if let Some(Holder { pod, .. }) = holder {
        let verdict = match facts.holder {
            HolderPod::Here { candidate: false, .. } => "holds the lease, and is not a candidate any more",
            HolderPod::Gone => "is named as the holder, and does not exist any more",
            HolderPod::Here { .. } | HolderPod::Unknown => return (summary, all),
        };
        all.push(Candidate { pod: pod.clone(), eligible: false, verdict: verdict.into() });
    }
    (summary, all)
}

fn not_eligible(reason: Ineligible) -> String {
    format!("cannot be elected: {} ({})", reason.explanation(), reason.as_str())
}

/// The candidates as the status shows them, because they cannot be read.
fn candidates_in_status(facts: &Facts) -> (String, Vec<Candidate>) {
    let why = facts.candidates.as_ref().err().cloned().unwrap_or_default();
    let Some(known) = facts.status().and_then(|status| status.candidates.as_ref()) else {
        return (format!("Unknown: {why}."), Vec::new());
    };
    let summary = format!(
        "{} of {} candidates can be elected, as the status of the lease says; {why}.",
        known.eligible, known.total
    );
    let ineligible = known.ineligible.iter().map(|pod| Candidate {
        pod: pod.pod.clone(),
        eligible: false,
        verdict: Ineligible::from_word(&pod.reason)
            .map_or_else(|| format!("cannot be elected ({})", pod.reason), not_eligible),
    });
    (summary, ineligible.collect())
}

fn quorum(facts: &Facts) -> (Vec<String>, Vec<RedisNode>) {
    let name = format!("RedisQuorum {}/{}", facts.quorum_namespace, facts.lease.spec.quorum_ref.name);
    let mut said = Vec::new();
    let mut nodes = Vec::new();
    match &facts.quorum {
        Ok(quorum) => {
            said.push(format!("{name}: {}", votes(quorum)));
            let status = quorum.status.as_ref();
            nodes.extend(status.iter().flat_map(|status| &status.nodes).map(node));
            if let Some(Leader { instance, since, .. }) = status.and_then(|status| status.leader.as_ref()) {
                let since = ago(since.0, facts.now);
                said.push(format!(
                    "Replica {instance} of the operator has decided about its leases since {since}, as the status says. \
                     `redislease doctor` tells whether it works."
                ));
            }
        }
        Err(error) => {
            said.push(format!("{name} cannot be read: {error}."));
            said.extend(facts.condition(ConditionType::QuorumHealthy).map(reason_and_message));
        }
    }
    let conflict = [QuorumHealth::ClusterNameConflict, QuorumHealth::ConfigMismatch];
    if facts.quorum.is_ok() && conflict.into_iter().any(|reason| facts.has_reason(reason)) {
        said.extend(facts.condition(ConditionType::QuorumHealthy).map(reason_and_message));
    }
    (said, nodes)
}

fn votes(quorum: &RedisQuorum) -> String {
    let ready = quorum.status.iter().flat_map(|status| &status.conditions);
    let mut ready = ready.filter(|condition| condition.type_ == ConditionType::Ready.as_str());
    ready.next().map_or_else(|| "The operator has not written a status for it.".into(), |ready| ready.message.clone())
}

fn node(node: &NodeStatus) -> RedisNode {
    RedisNode {
        name: node.name.clone(),
        votes: node.state == NodeState::Up,
        state: node.state.as_str().into(),
        message: node.message.clone(),
    }
}
