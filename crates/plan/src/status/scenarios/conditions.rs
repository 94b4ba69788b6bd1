//! Conditions and obstacles.

use crate::api::validated::WorkloadKind;
use crate::election::WorkloadFacts;

use super::*;

#[test]
fn short_quorum_outage_does_not_change_a_held_lease() {
    let mut scenario = Scenario::held_by_a();
    let before = scenario.status.clone();
    for up in [2, 1, 0, 1, 2, 3] {
        scenario.up = Some(up);
        assert_eq!(events(&scenario.step()), NOTHING);
        assert_eq!(scenario.status, before, "{up} nodes vote");
    }
}

#[test]
fn obstacle_is_shown_while_the_lease_is_held() {
    for reason in [LeaseReady::Suspended, LeaseReady::InvalidReference, LeaseReady::InvalidSpec] {
        let mut scenario = Scenario::held_by_a();
        scenario.obstacle = Some((reason, "Why.".into()));
        scenario.step();
        assert_eq!(scenario.condition(ConditionType::Ready).message, "Why.");
        assert_eq!(scenario.condition(ConditionType::Ready).status, "False");
        assert_eq!(scenario.condition(ConditionType::Active).reason, "HeldHere");
    }
    let mut scenario = Scenario::held_by_a();
    scenario.obstacle = Some((LeaseReady::QuorumUnavailable, "Why.".into()));
    scenario.step();
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
}

#[test]
fn a_workload_that_cannot_be_read_leaves_a_held_lease_ready() {
    let why = "The operator could not read Deployment jobs/d.";
    let mut scenario = Scenario::held_by_a();
    let before = scenario.status.clone();
    scenario.obstacle = Some((LeaseReady::Starting, why.into()));
    scenario.pods = None;
    assert_eq!(events(&scenario.step()), NOTHING);
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    let message = format!("a holds the lease with fencing token 1795238400000043. {why}");
    assert_eq!(scenario.message(ConditionType::Ready), message);
    scenario.obstacle = None;
    scenario.step();
    assert_eq!(scenario.status, before);

    // It is not known whether a pod can be elected.
    for before in [Some(vec![]), Some(vec![pod("a", true)]), None] {
        let mut scenario = Scenario::new();
        scenario.pods = before;
        scenario.step();
        scenario.restart();
        scenario.obstacle = Some((LeaseReady::Starting, why.into()));
        assert_eq!(events(&scenario.step()), NOTHING);
        assert_eq!(scenario.ready_and_active(), ["Unknown", "Starting", "False", "Unheld"]);
        assert_eq!(scenario.message(ConditionType::Ready), why);
    }
}

#[test]
fn what_is_wrong_with_the_workload_is_shown_until_it_is_read_again() {
    for reason in [LeaseReady::NotPermitted, LeaseReady::InvalidReference] {
        for mut scenario in [Scenario::new(), Scenario::held_by_a()] {
            scenario.obstacle = Some((reason, "Why.".into()));
            scenario.step();
            let before = scenario.condition(ConditionType::Ready).clone();
            // Another replica leads.
            scenario.restart();
            scenario.obstacle = None;
            assert_eq!(events(&scenario.step()), NOTHING);
            assert_eq!(scenario.condition(ConditionType::Ready), &before);
            scenario.pods = Some(vec![pod("a", true)]);
            scenario.step();
            assert_ne!(scenario.condition(ConditionType::Ready).reason, before.reason);
        }
    }
}

#[test]
fn each_obstacle_message_has_one_event() {
    let mut scenario = Scenario::new();
    scenario.view = None;
    for (reason, event) in [
        (LeaseReady::InvalidSpec, "InvalidSpec"),
        (LeaseReady::InvalidReference, "InvalidReference"),
        (LeaseReady::ActivationNotAllowed, "ActivationNotAllowed"),
        (LeaseReady::NotPermitted, "NotPermitted"),
    ] {
        for message in ["One thing.", "Another thing."] {
            scenario.obstacle = Some((reason, message.into()));
            assert_eq!(events(&scenario.step()), [format!("Warning {event} [] {message}")]);
        }
    }
}

#[test]
fn first_start_waits_for_the_quorum() {
    let mut scenario = Scenario::new();
    (scenario.up, scenario.pods) = (None, None);
    scenario.step();
    assert_eq!(scenario.conditions(), "Ready=Unknown/Starting Active=False/Unheld");
    scenario.up = Some(0);
    scenario.step();
    assert_eq!(scenario.conditions(), "Ready=False/QuorumUnavailable Active=False/Unheld QuorumHealthy=False/Lost");
    assert_eq!(
        scenario.message(ConditionType::Ready),
        "Fewer than a majority of the nodes of RedisQuorum default vote. No pod can acquire the lease."
    );
    (scenario.up, scenario.pods) = (Some(3), Some(vec![pod("a", true)]));
    scenario.step();
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn candidates_are_counted_and_ineligible_pods_named() {
    let mut scenario = Scenario::held_by_a();
    scenario.pods = Some(vec![pod("a", true), pod("b", false)]);
    scenario.step();
    assert_eq!(scenario.condition(ConditionType::CandidatesAvailable).reason, "OnlyHolder");
    assert_eq!(
        serde_json::to_value(&scenario.status.candidates).unwrap(),
        serde_json::json!({"total": 2, "eligible": 1, "ineligible": [{"pod": "b", "reason": "NotReady"}]})
    );
    scenario.pods = Some(vec![pod("a", false), pod("b", false)]);
    let composed = scenario.step();
    assert_eq!(events(&composed), NOTHING, "a holder that is not Ready for a moment keeps the lease");
    assert_eq!(scenario.condition(ConditionType::CandidatesAvailable).reason, "NoCandidate");
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);

    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = scenario.step_to(View::default());
    let message = "No pod is eligible: a (NotReady), b (NotReady).";
    assert_eq!(events(&composed)[1], format!("Warning NoCandidate [] {message}"));
    assert_eq!(scenario.ready_and_active(), ["False", "NoCandidate", "False", "Unheld"]);
    assert_eq!(scenario.message(ConditionType::Ready), message);
    scenario.pods = Some(vec![]);
    scenario.step();
    assert_eq!(scenario.message(ConditionType::Ready), "No pod matches spec.candidates.");
}

#[test]
fn passive_cluster_is_ready_across_attempts() {
    let mut scenario = Scenario::new();
    let peer = refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing/x/uid-x");
    assert_eq!(events(&scenario.step_to(peer.clone())), NOTHING);
    assert_eq!(scenario.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(scenario.message(ConditionType::Active), "x of cluster us-east-1 holds the lease.");
    assert_eq!(scenario.status.holder, None);
    let before = scenario.status.clone();
    scenario.step_to(acquiring());
    scenario.step_to(peer);
    assert_eq!(scenario.status, before);
    scenario.restart();
    scenario.step();
    assert_eq!(scenario.status, before, "no attempt was made since the restart");
    (scenario.pods, scenario.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    scenario.step_to(View { keys_read: true, ..View::default() });
    assert_eq!(
        scenario.ready_and_active(),
        ["False", "Unheld", "False", "Unheld"],
        "an attempt that no foreign holder refused"
    );
}

#[test]
fn the_last_answer_about_the_keys_is_shown_also_if_no_attempt_can_begin() {
    let peer = || refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing/x/uid-x");
    let suspended = (LeaseReady::Suspended, "spec.suspend is true".to_owned());
    for (obstacle, ready) in [(None, ["True", "HeldByPeerCluster"]), (Some(suspended), ["False", "Suspended"])] {
        let by_peer = [ready[0], ready[1], "False", "HeldByPeerCluster"];
        let reason = if obstacle.is_some() { "Suspended" } else { "NoCandidate" };
        let mut scenario = Scenario::new();
        scenario.step_to(peer());
        scenario.restart();
        (scenario.pods, scenario.up, scenario.obstacle) = (Some(vec![pod("a", false)]), Some(3), obstacle);
        scenario.step();
        assert_eq!(scenario.ready_and_active(), by_peer, "the keys were not read since the restart");
        scenario.step_to(View { keys_read: true, ..View::default() });
        assert_eq!(scenario.ready_and_active(), ["False", reason, "False", "Unheld"]);
        scenario.step_to(peer());
        assert_eq!(scenario.ready_and_active(), by_peer);
        scenario.reads_keys = false;
        scenario.step_to(View::default());
        assert_eq!(scenario.ready_and_active(), ["False", reason, "False", "Unheld"], "nothing will read them");
    }
}

#[test]
fn a_peer_that_took_over_is_shown_before_the_last_term_of_this_cluster_is_over() {
    let mut scenario = Scenario::held_by_a();
    scenario.step_to(ending(1, "a", EndReason::Misses));
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "LeaseLost"]);
    let peer = refused(Stage::Term, TOKEN + 9, "us-east-1/uid-there/jobs/billing/x/uid-x");
    scenario.step_to(View { ending: ending(1, "a", EndReason::Misses).ending, ..peer.clone() });
    assert_eq!(scenario.ready_and_active(), ["True", "HeldByPeerCluster", "False", "LeaseLost"]);
    assert!(scenario.status.says_held_by_peer() && scenario.message(ConditionType::Active).contains("must stop"));
    scenario.step_to(peer);
    assert_eq!(scenario.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    let composed = scenario.step_to(held(20, "b"));
    let note = "term 1795238400000062: b in eu-west-1 (was a, reason KeysMissing, then held by another cluster)";
    assert_eq!(events(&composed), [format!("Normal Acquired [b] {note}")]);
}

#[test]
fn peer_holder_with_another_resource_name_is_shown() {
    let mut scenario = Scenario::new();
    scenario.step_to(refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing-us/x/uid-x"));
    assert_eq!(scenario.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    let message = "x of cluster us-east-1 holds the lease as RedisLease jobs/billing-us.";
    assert_eq!(scenario.message(ConditionType::Ready), message);
}

#[test]
fn peer_with_a_sealed_term_is_not_shown_as_holder() {
    let mut scenario = Scenario::new();
    scenario.step_to(refused(Stage::Sealed, 7, "us-east-1/uid-there/jobs/billing/x/uid-x"));
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn clusters_with_the_same_name_are_reported() {
    let mut scenario = Scenario::new();
    let same_name = refused(Stage::Term, 7, "eu-west-1/uid-there/jobs/billing/x/uid-x");
    let composed = scenario.step_to(same_name.clone());
    let message = "x of another cluster holds the lease. The other cluster has the name of this one, eu-west-1: \
                   set a different --cluster-name for each cluster on the quorum.";
    assert_eq!(events(&composed), [format!("Warning ClusterNameConflict [] {message}")]);
    assert_eq!(scenario.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(scenario.condition(ConditionType::QuorumHealthy).reason, "ClusterNameConflict");
    let before = scenario.status.clone();
    scenario.step_to(acquiring());
    assert_eq!(scenario.status, before);
    scenario.step_to(same_name);
    assert_eq!(scenario.status, before);
}

#[test]
fn values_of_this_cluster_and_lease_are_not_foreign() {
    // An attempt that was never published: for an existing pod, for a deleted pod, and under an earlier cluster name.
    for holder in [
        "eu-west-1/uid-here/jobs/billing/b/uid-b",
        "eu-west-1/uid-here/jobs/billing/x/uid-x",
        "old/uid-here/jobs/billing/x/uid-x",
    ] {
        let mut scenario = Scenario::new();
        assert_eq!(events(&scenario.step_to(refused(Stage::Term, 7, holder))), NOTHING, "{holder}");
        assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"], "{holder}");
        assert_eq!(scenario.condition(ConditionType::QuorumHealthy).reason, "MajorityReachable", "{holder}");
    }
    // A term of a deleted pod, on a node that missed the release.
    let mut scenario = Scenario::held_by_a();
    scenario.pods = Some(vec![pod("b", true)]);
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::HolderStopped, true);
    scenario.step_to(View::default());
    scenario.step_to(refused(Stage::Term, TOKEN + 1, "eu-west-1/uid-here/jobs/billing/a/uid-a"));
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn other_holder_of_a_key_is_named() {
    let mut scenario = Scenario::new();
    let composed = scenario.step_to(refused(Stage::Term, 7, "eu-west-1/uid-here/jobs/invoices/x/uid-x"));
    let message = "RedisLease jobs/invoices holds a key of this lease. \
                   Use different spec.keys, unless the two leases must exclude each other.";
    assert_eq!(events(&composed), [format!("Warning KeyHeldByOtherLease [] {message}")]);
    assert_eq!(scenario.ready_and_active(), ["False", "KeyHeldByOtherLease", "False", "Unheld"]);
    let before = scenario.status.clone();
    scenario.step_to(acquiring());
    assert_eq!(scenario.status, before);

    scenario.step_to(refused(Stage::Term, 7, "\u{1b}[31mme"));
    assert_eq!(
        scenario.message(ConditionType::Ready),
        "A program that uses `redislease run` or the library holds a key of this lease: \"\\u{1b}[31mme\". \
         Use different spec.keys, unless it and this lease must exclude each other."
    );
}

#[test]
fn the_health_of_a_quorum_that_is_not_opened_is_unknown_unless_a_term_runs() {
    let mut scenario = Scenario::held_by_a();
    (scenario.up, scenario.is_quorum_unused) = (None, true);
    scenario.step();
    assert_eq!(scenario.condition(ConditionType::QuorumHealthy).reason, "MajorityReachable");
    scenario.step_to(View::default());
    let condition = scenario.condition(ConditionType::QuorumHealthy);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("Unknown", "NotConnected"));
}

#[test]
fn config_mismatch_is_shown_while_a_majority_votes() {
    let mut scenario = Scenario::held_by_a();
    scenario.mismatch = Some("node r3: its marker names another configuration".into());
    scenario.step();
    let condition = scenario.condition(ConditionType::QuorumHealthy);
    assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("ConfigMismatch", "False"));
    assert_eq!(condition.message, "node r3: its marker names another configuration");
}

#[test]
fn condition_time_changes_with_its_status_only() {
    let mut scenario = Scenario::held_by_a();
    let since = scenario.condition(ConditionType::Active).last_transition_time.clone();
    scenario.step_to(held(1, "a"));
    assert_eq!(scenario.condition(ConditionType::Active).last_transition_time, since);
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    scenario.step_to(ending(1, "a", EndReason::Decided));
    let stopping = scenario.condition(ConditionType::Active).last_transition_time.clone();
    assert!(stopping > since);
    scenario.step_to(View::default());
    assert_eq!(scenario.condition(ConditionType::Active).reason, "Unheld");
    assert_eq!(
        scenario.condition(ConditionType::Active).last_transition_time,
        stopping,
        "the status is False as before"
    );
}

#[test]
fn conditions_of_other_writers_are_kept() {
    let mut scenario = Scenario::held_by_a();
    let other = Condition { type_: "Audited".into(), ..scenario.condition(ConditionType::Ready).clone() };
    scenario.status.conditions.push(other.clone());
    scenario.step_to(ending(1, "a", EndReason::Deadline));
    assert_eq!(scenario.status.conditions.last(), Some(&other));
    assert_eq!(scenario.status.conditions.len(), 5);
}

/// A finalizer, or a deletion in the foreground, can keep it for long.
#[test]
fn a_workload_that_is_being_deleted_is_no_candidate() {
    let mut scenario = Scenario::new();
    scenario.step();
    let object =
        serde_json::from_value(serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": "billing", "namespace": "jobs", "uid": "uid-d", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let facts = WorkloadFacts::of(WorkloadKind::Deployment, &object.unwrap()).unwrap();
    let electorate = Electorate::of_workload(std::sync::Arc::new(facts));
    let composed = scenario.compose_with(Some(&electorate));
    let message = |wanted| {
        let condition = composed.status.conditions.iter().find(|condition| condition.type_ == wanted).unwrap();
        (condition.reason.clone(), condition.message.clone())
    };
    assert_eq!(message("Ready"), ("NoCandidate".into(), "The workload is being deleted.".into()));
    assert_eq!(message("CandidatesAvailable").0, "NoCandidate");
    assert_eq!(composed.status.candidates.unwrap().eligible, 0);
}
