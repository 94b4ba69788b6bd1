//! Conditions, and what stands in the way of a term.

use super::*;

#[test]
fn an_outage_that_is_over_in_time_costs_no_write() {
    let mut world = World::held_by_a();
    let before = world.status.clone();
    for up in [2, 1, 0, 1, 2, 3] {
        world.up = Some(up);
        assert_eq!(told(&world.settle()), NOTHING);
        assert_eq!(world.status, before, "{up} nodes give votes");
    }
}

#[test]
fn an_obstacle_shows_while_the_lease_is_held() {
    for reason in [LeaseReady::Suspended, LeaseReady::InvalidReference, LeaseReady::InvalidSpec] {
        let mut world = World::held_by_a();
        world.obstacle = Some((reason, "Why.".into()));
        world.settle();
        assert_eq!(world.condition(ConditionType::Ready).message, "Why.");
        assert_eq!(world.condition(ConditionType::Ready).status, "False");
        assert_eq!(world.condition(ConditionType::Active).reason, "HeldHere");
    }
    let mut world = World::held_by_a();
    world.obstacle = Some((LeaseReady::QuorumUnavailable, "Why.".into()));
    world.settle();
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
}

#[test]
fn every_refusal_of_a_spec_is_told_once_in_its_own_words() {
    let mut world = World::new();
    world.view = None;
    for (reason, event) in
        [(LeaseReady::InvalidSpec, "InvalidSpec"), (LeaseReady::InvalidReference, "InvalidReference")]
    {
        for message in ["One thing.", "Another thing."] {
            world.obstacle = Some((reason, message.into()));
            assert_eq!(told(&world.settle()), [format!("Warning {event} [] {message}")]);
        }
    }
}

#[test]
fn a_first_start_waits_for_its_quorum() {
    let mut world = World::new();
    (world.up, world.pods) = (None, None);
    world.settle();
    assert_eq!(world.conditions(), "Ready=Unknown/Starting Active=False/Unheld");
    world.up = Some(0);
    world.settle();
    assert_eq!(world.conditions(), "Ready=False/QuorumUnavailable Active=False/Unheld QuorumHealthy=False/Lost");
    assert_eq!(
        world.message(ConditionType::Ready),
        "Fewer than a majority of the nodes of quorum default give votes. No term can begin."
    );
    (world.up, world.pods) = (Some(3), Some(vec![pod("a", true)]));
    world.settle();
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn candidates_are_counted_and_named() {
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("a", true), pod("b", false)]);
    world.settle();
    assert_eq!(world.condition(ConditionType::CandidatesAvailable).reason, "OnlyHolder");
    assert_eq!(
        serde_json::to_value(&world.status.candidates).unwrap(),
        serde_json::json!({"total": 2, "eligible": 1, "ineligible": [{"pod": "b", "reason": "NotReady"}]})
    );
    world.pods = Some(vec![pod("a", false), pod("b", false)]);
    let composed = world.settle();
    assert_eq!(told(&composed), NOTHING, "a holder that flaps keeps the lease");
    assert_eq!(world.condition(ConditionType::CandidatesAvailable).reason, "NoCandidate");
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);

    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = world.turn(View::default());
    let message = "No pod may be elected: a (NotReady), b (NotReady).";
    assert_eq!(told(&composed)[1], format!("Warning NoCandidate [] {message}"));
    assert_eq!(world.ready_and_active(), ["False", "NoCandidate", "False", "Unheld"]);
    assert_eq!(world.message(ConditionType::Ready), message);
    world.pods = Some(vec![]);
    world.settle();
    assert_eq!(world.message(ConditionType::Ready), "No pod matches the candidates in the spec.");
}

#[test]
fn a_passive_cluster_is_ready_and_stays_so_try_after_try() {
    let mut world = World::new();
    let peer = refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing/x/uid-x");
    assert_eq!(told(&world.turn(peer.clone())), NOTHING);
    assert_eq!(world.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(world.message(ConditionType::Active), "x of cluster us-east-1 holds the lease.");
    assert_eq!(world.status.holder, None);
    let before = world.status.clone();
    world.turn(acquiring());
    world.turn(peer);
    assert_eq!(world.status, before);
    world.restart();
    world.settle();
    assert_eq!(world.status, before, "a restart has not tried yet");
    (world.pods, world.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    world.turn(View { retry_at: Some(Time(500)), ..View::default() });
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"], "a try that nobody refused");
}

#[test]
fn who_has_nobody_to_elect_does_not_go_on_saying_that_a_peer_holds() {
    let peer = || refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing/x/uid-x");
    let mut world = World::new();
    world.turn(peer());
    world.restart();
    (world.pods, world.up) = (Some(vec![pod("a", false)]), Some(3));
    let composed = world.settle();
    assert_eq!(told(&composed), ["Warning NoCandidate [] No pod may be elected: a (NotReady)."]);
    assert_eq!(world.ready_and_active(), ["False", "NoCandidate", "False", "Unheld"]);
    let mut world = World::new();
    world.turn(peer());
    world.obstacle = Some((LeaseReady::Suspended, "spec.suspend is true".into()));
    world.turn(View::default());
    assert_eq!(world.ready_and_active(), ["False", "Suspended", "False", "Unheld"]);
}

#[test]
fn a_peer_may_call_its_resource_as_it_likes() {
    let mut world = World::new();
    world.turn(refused(Stage::Term, 7, "us-east-1/uid-there/jobs/billing-us/x/uid-x"));
    assert_eq!(world.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    let message = "x of cluster us-east-1 holds the lease as RedisLease jobs/billing-us.";
    assert_eq!(world.message(ConditionType::Ready), message);
}

#[test]
fn a_peer_that_stops_is_no_holder() {
    let mut world = World::new();
    world.turn(refused(Stage::Sealed, 7, "us-east-1/uid-there/jobs/billing/x/uid-x"));
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn two_clusters_of_one_name_are_told_apart() {
    let mut world = World::new();
    let namesake = refused(Stage::Term, 7, "eu-west-1/uid-there/jobs/billing/x/uid-x");
    let composed = world.turn(namesake.clone());
    let message = "x of another cluster holds the lease under the cluster name of this one, eu-west-1: \
                   give each cluster on the quorum its own name.";
    assert_eq!(told(&composed), [format!("Warning ClusterNameConflict [] {message}")]);
    assert_eq!(world.ready_and_active(), ["True", "HeldByPeerCluster", "False", "HeldByPeerCluster"]);
    assert_eq!(world.condition(ConditionType::QuorumHealthy).reason, "ClusterNameConflict");
    let before = world.status.clone();
    world.turn(acquiring());
    assert_eq!(world.status, before);
    world.turn(namesake);
    assert_eq!(world.status, before);
}

#[test]
fn what_this_cluster_left_behind_is_no_conflict() {
    // An attempt that was never published: for a pod that lives, for one that is gone, under an older cluster name.
    for holder in [
        "eu-west-1/uid-here/jobs/billing/b/uid-b",
        "eu-west-1/uid-here/jobs/billing/x/uid-x",
        "old/uid-here/jobs/billing/x/uid-x",
    ] {
        let mut world = World::new();
        assert_eq!(told(&world.turn(refused(Stage::Term, 7, holder))), NOTHING, "{holder}");
        assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"], "{holder}");
        assert_eq!(world.condition(ConditionType::QuorumHealthy).reason, "MajorityReachable", "{holder}");
    }
    // A term of a pod that is gone, on a node that missed the release.
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("b", true)]);
    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    world.turn(View::default());
    world.turn(refused(Stage::Term, TOKEN + 1, "eu-west-1/uid-here/jobs/billing/a/uid-a"));
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
}

#[test]
fn another_lease_on_the_same_key_is_named() {
    let mut world = World::new();
    let composed = world.turn(refused(Stage::Term, 7, "eu-west-1/uid-here/jobs/invoices/x/uid-x"));
    let message = "RedisLease jobs/invoices holds a key of this lease.";
    assert_eq!(told(&composed), [format!("Warning KeyHeldByOtherLease [] {message}")]);
    assert_eq!(world.ready_and_active(), ["False", "KeyHeldByOtherLease", "False", "Unheld"]);
    let before = world.status.clone();
    world.turn(acquiring());
    assert_eq!(world.status, before);

    world.turn(refused(Stage::Term, 7, "\u{1b}[31mme"));
    let shown = world.message(ConditionType::Ready);
    assert_eq!(shown, "A value that is no holder's name holds a key of this lease: \"\\u{1b}[31mme\".");
}

#[test]
fn a_mismatch_is_shown_while_a_majority_votes() {
    let mut world = World::held_by_a();
    world.mismatch = Some("node r3: its marker names another configuration".into());
    world.settle();
    let condition = world.condition(ConditionType::QuorumHealthy);
    assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("ConfigMismatch", "False"));
    assert_eq!(condition.message, "node r3: its marker names another configuration");
}

#[test]
fn a_condition_s_time_moves_with_its_status_alone() {
    let mut world = World::held_by_a();
    let since = world.condition(ConditionType::Active).last_transition_time.clone();
    world.turn(held(1, "a"));
    assert_eq!(world.condition(ConditionType::Active).last_transition_time, since);
    world.witness.decided(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    world.turn(ending(1, "a", EndReason::Decided));
    let stopping = world.condition(ConditionType::Active).last_transition_time.clone();
    assert!(stopping > since);
    world.turn(View::default());
    assert_eq!(world.condition(ConditionType::Active).reason, "Unheld");
    assert_eq!(world.condition(ConditionType::Active).last_transition_time, stopping, "False stays False");
}

#[test]
fn foreign_conditions_stay() {
    let mut world = World::held_by_a();
    let foreign = Condition { type_: "Audited".into(), ..world.condition(ConditionType::Ready).clone() };
    world.status.conditions.push(foreign.clone());
    world.turn(ending(1, "a", EndReason::Deadline));
    assert_eq!(world.status.conditions.last(), Some(&foreign));
    assert_eq!(world.status.conditions.len(), 5);
}
