//! What is said about a term that is over, or that nothing has confirmed, while the operator may elect no pod.

use super::*;

const LOST: &str = "billing-0 has lost the lease and must stop.";
const UNCONFIRMED: &str = "The operator has not confirmed yet that billing-0 still holds the lease.";

/// The conditions of a term that has ended or is not confirmed.
fn with_ready(active: (&str, &str, &str), ready: (&str, &str, &str)) -> Situation {
    let mut situation = Situation::held();
    situation.conditions(ready, active);
    situation.status["history"] = json!([past("billing-0", TOKEN, "LeaseLost", "2026-11-21T09:59:50Z")]);
    situation
}

#[test]
fn reason_of_ready_is_shown_and_decides_what_is_next() {
    let lost = ("False", "LeaseLost", LOST);
    let unconfirmed = ("Unknown", "Starting", UNCONFIRMED);
    let replaced = "RedisQuorum default was replaced while no operator ran: the operator waits one hour.";
    let resumed = "The operator elects a pod when spec.suspend is false.";
    let corrected = "The operator elects a pod when the error above is corrected.";
    let quorum = "The operator elects a pod when the cause of QuorumUnavailable above has ended.";
    let confirmed = "If a majority of the Redis nodes confirms the term, billing-0 continues with the same fencing token. If no \
                     majority does so within about 31s, the lease counts as lost.";
    for (active, reason, message, next) in [
        (lost, "QuorumUnavailable", replaced, &[quorum][..]),
        (lost, "Suspended", "spec.suspend is true: no pod is elected until it is false.", &[resumed]),
        (lost, "NotPermitted", "Deployment shop/billing does not name this lease.", &[corrected]),
        (unconfirmed, "InvalidReference", "There is no RedisQuorum default.", &[confirmed, corrected]),
        (unconfirmed, "Suspended", "spec.suspend is true: no pod is elected until it is false.", &[resumed]),
    ] {
        let explanation = with_ready(active, ("False", reason, message)).explained();
        assert_eq!(explanation.holder, [active.2.to_owned(), format!("{message} ({reason})")], "{reason}");
        let next: Vec<String> = next.iter().map(|next| (*next).to_owned()).collect();
        assert_eq!((explanation.next, explanation.next_change), (next, None), "{reason}");
    }
}

#[test]
fn end_of_a_quarantine_is_named_for_a_term_that_was_lost() {
    let mut situation = with_ready(("False", "LeaseLost", LOST), ("False", "QuorumUnavailable", "No majority votes."));
    let quarantine = "b: it has no data; it votes again from 2026-11-21T10:00:40Z";
    situation.nodes =
        json!([node("a", "Up", None), node("b", "Quarantined", Some(quarantine)), node("c", "Down", None)]);
    let explanation = situation.explained();
    assert_eq!(explanation.next, ["A majority of the Redis nodes can vote again from 2026-11-21T10:00:40Z."]);
    assert_eq!(explanation.next_change, Some(at("2026-11-21T10:00:40Z")));
}

#[test]
fn no_pod_takes_over_a_lease_that_is_suspended_or_deleted() {
    let mut situation = Situation::held();
    situation.spec["suspend"] = json!(true);
    let ends = "The operator ends the term now: spec.suspend was set to true.";
    assert_eq!(situation.explained().next, [ends, "The operator elects a pod when spec.suspend is false."]);

    // The operator must not or cannot stop what holds the lease.
    for reason in ["ActivationNotAllowed", "Forbidden"] {
        let mut kept = Situation::held();
        kept.spec["suspend"] = json!(true);
        kept.conditions(("False", reason, "The term goes on."), ("True", "HeldHere", "billing-0 holds the lease."));
        let next = kept.explained().next;
        assert!(next[0].starts_with("No change is due."), "{next:?}");
    }

    // The operator has not processed the suspension yet.
    let mut situation = with_ready(("False", "LeaseLost", LOST), ("False", "Unheld", "The keys must expire."));
    situation.spec["suspend"] = json!(true);
    assert_eq!(situation.explained().next, ["The operator elects a pod when spec.suspend is false."]);

    let deleted = |situation: Situation| {
        let mut facts = situation.facts();
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(facts.now);
        facts.lease.metadata.deletion_timestamp = Some(time);
        Explanation::of(&facts).next
    };
    let next = deleted(Situation::held());
    assert!(matches!(next.as_slice(), [only] if only.starts_with("The operator ends the term now:")), "{next:?}");
    let unheld = Situation::unheld("Unheld", "No pod holds the lease. The operator is electing one.");
    assert_eq!(deleted(unheld), ["The operator elects no pod for a lease that is being deleted."]);
}

#[test]
fn a_held_lease_with_an_error_promises_no_next_holder() {
    let mut situation = Situation::held();
    situation.conditions(("False", "InvalidSpec", "why."), ("True", "HeldHere", "billing-0 holds the lease."));
    let next = situation.explained().next;
    assert!(!next[0].contains("billing-1") && next[1].ends_with("when the error above is corrected."), "{next:?}");
}

#[test]
fn a_peer_cluster_that_holds_the_lease_is_named_whatever_else_keeps_this_cluster_from_it() {
    let held = "x of cluster us holds the lease.";
    for (reason, message, next) in [
        ("Suspended", "spec.suspend is true: no pod is elected until it is false.", "when spec.suspend is false"),
        ("Forbidden", "This cluster does not hold the lease. a runs on.", "when the error above is corrected"),
        ("NoCandidate", "No pod matches spec.candidates.", "the first pod that can be elected"),
    ] {
        let mut situation = Situation::unheld(reason, message);
        situation.conditions(("False", reason, message), ("False", "HeldByPeerCluster", held));
        let explanation = situation.explained();
        assert_eq!(explanation.holder, [held.to_owned(), format!("{message} ({reason})")]);
        let [own, peer] = explanation.next.as_slice() else { panic!("{explanation:?}") };
        assert!(own.contains(next) && peer.contains("when the other cluster releases it"), "{explanation:?}");
    }
}
