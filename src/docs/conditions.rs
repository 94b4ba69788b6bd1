//! docs/conditions.md, from the reasons of conditions, ends of terms, candidates and events.

use std::time::Duration;

use redislease_core::time::Drift;
use redislease_plan::api::conditions::{LeaseActive, LeaseCandidates, LeaseReady, QuorumHealth, QuorumReady};
use redislease_plan::api::{ConditionReason, ValidLease};
use redislease_plan::election::Ineligible;
use redislease_plan::status::{NoticeReason, TermEnd};

use super::{assert_current, cell};

const HEAD: &str = "# Conditions and events

<!-- Generated from the reasons in the code by `make docs`. -->

Conditions explain the current state of a RedisLease and of a RedisQuorum. Each condition has a reason from this page, and a message
with the details. If something is wrong, the message says what to do.

- `kubectl describe` shows the conditions.
- `redislease why LEASE` explains them, together with the candidates and the Redis nodes.
- Wait for a holder in this cluster with `kubectl wait rl/LEASE --for=condition=Active`.
- `Ready` is also True in a cluster where no pod is active because another cluster holds the lease, so that GitOps tools report the
  lease as healthy.
- The state of each Redis node is in the status of the RedisQuorum only. One failing node causes no writes to the leases.
- A status changes when something happens, never for a renewal.
- The status cannot say that the operator itself does not run: it then shows the last known state.
";

const EVENTS: &str = "
## Events

Changes are also reported as Kubernetes events: about a term, on the RedisLease and on the pod of its holder; about a quorum and its
nodes, on the RedisQuorum. There is no event per renewal. `kubectl events --for redislease/LEASE` lists the events of a lease.

When many leases change together, pods get at most 100 events and then five a second. If the pods of one namespace cause most of them,
half of these are for the other namespaces.

| reason | type | meaning |
|---|---|---|
";

const ENDS: &str = "
## Why a term ended

These words are in `status.lastTransition.reason`, in `status.history[].reason`, in events, and in the metric
`redislease_transitions_total`. A term that was *lost* ended without a decision of the operator.

| reason | lost | meaning |
|---|---|---|
";

const CANDIDATES: &str = "
## Why a pod cannot be elected

These words are in `status.candidates.ineligible[].reason`.

| reason | meaning |
|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page += &condition("RedisLease: Ready", LeaseReady::ALL);
    page += &condition("RedisLease: Active", LeaseActive::ALL);
    page += &condition("RedisLease: CandidatesAvailable", LeaseCandidates::ALL);
    page += &condition("RedisLease and RedisQuorum: QuorumHealthy", QuorumHealth::ALL);
    page += &condition("RedisQuorum: Ready", QuorumReady::ALL);
    page += ENDS;
    for end in TermEnd::all() {
        let lost = if end.is_loss() { "yes" } else { "" };
        page += &format!("| {} | {lost} | {} |\n", end.as_str(), sentence(end.explanation()));
    }
    page += CANDIDATES;
    for reason in Ineligible::ALL {
        page += &format!("| {} | {} |\n", reason.as_str(), sentence(reason.explanation()));
    }
    page += EVENTS;
    for reason in NoticeReason::ALL {
        let kind = reason.importance().as_str();
        page += &format!("| {} | {kind} | {} |\n", reason.as_str(), cell(reason.description()));
    }
    page
}

fn condition<R: ConditionReason>(heading: &str, all: &[R]) -> String {
    let mut text = format!("\n## {heading}\n\n| reason | status | meaning |\n|---|---|---|\n");
    for reason in all {
        text += &format!("| {} | {} | {} |\n", reason.as_str(), reason.status().as_str(), cell(reason.description()));
    }
    text
}

/// A clause as a sentence. The name of a field at its beginning stays as it is.
fn sentence(clause: &str) -> String {
    if clause.split(' ').next().is_some_and(|word| word.contains('.')) {
        return cell(&format!("{clause}."));
    }
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    cell(&format!("{first}{}.", letters.as_str()))
}

#[test]
fn the_event_about_failed_renewals_says_when_the_lease_is_lost() {
    let lease = serde_json::from_value(serde_json::json!({
        "apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "metadata": {"name": "billing", "namespace": "shop"},
        "spec": {"candidates": {"selector": {"matchLabels": {"app": "billing"}}}},
    }));
    let spec = ValidLease::try_from(&lease.unwrap()).unwrap();
    let lifetime = Drift::STANDARD.least(spec.lease_duration.into());
    let seconds = Duration::from(lifetime.saturating_sub(spec.stop_budget().into())).as_secs_f64();
    let description = NoticeReason::RenewFailing.description();
    assert!(description.ends_with(&format!("({seconds:.1} s with the defaults).")), "{description}: {seconds}");
}

#[test]
fn page_of_conditions_is_current() {
    assert_current("docs/conditions.md", &page());
}
