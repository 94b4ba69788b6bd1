//! What is said about a lease that is held here.

use super::*;

#[test]
fn a_lease_that_a_workload_holds_can_only_move_to_another_cluster() {
    let explanation = of_the_cluster().explained();
    assert_eq!(
        explanation.next,
        [
            "No change is due. When the term of billing-0 has ended, another cluster can acquire the lease as soon as its keys expire."
        ]
    );
}

#[test]
fn what_the_condition_says_beside_the_holder_is_said_too() {
    let mut situation = Situation::held();
    let risk =
        "The holder can change when one replica of the operator fails: increase spec.leaseDuration. Another sentence.";
    let message = format!("billing-0 holds the lease with fencing token 42. {risk}");
    situation.conditions(("True", "HeldHere", &message), ("True", "HeldHere", "billing-0 holds the lease."));
    assert_eq!(situation.explained().holder.last().map(String::as_str), Some(risk));
}

#[test]
fn without_the_pods_the_status_says_whether_one_can_take_over() {
    let no_change = "No change is due.";
    for (reason, next) in [
        (
            Some("StandbyAvailable"),
            "If billing-0 is deleted and its containers stop, another pod can acquire the lease at once.",
        ),
        (Some("OnlyHolder"), "No other pod can take over, because none can be elected."),
        (
            None,
            "If billing-0 is deleted and its containers stop, another pod, if one can be elected, can acquire the lease at once.",
        ),
    ] {
        let mut situation = Situation::held();
        let known = reason.map(|reason| condition("CandidatesAvailable", "False", reason, ""));
        situation.status["conditions"].as_array_mut().unwrap().extend(known);
        let mut facts = situation.facts();
        facts.candidates = Err("the pods cannot be listed: forbidden".into());
        assert_eq!(Explanation::of(&facts).next[0], format!("{no_change} {next}"), "{reason:?}");
        // Nobody knows whether it is a candidate: the workload does not exist, for example.
        let HolderPod::Here { candidate, .. } = &mut facts.holder else { panic!("{:?}", facts.holder) };
        *candidate = false;
        assert_eq!(Explanation::of(&facts).next[0], format!("{no_change} {next}"), "{reason:?}");
    }
}

/// As for a user with rights in the namespace of the lease only.
#[test]
fn without_the_quorum_it_is_said_that_its_votes_are_not_known() {
    let mut facts = Situation::held().facts();
    facts.quorum = Err("it cannot be read: Forbidden".into());
    let next = Explanation::of(&facts).next;
    assert!(
        next.last().unwrap().starts_with("Whether a majority of the Redis nodes votes is not known here"),
        "{next:?}"
    );
}

#[test]
fn a_quorum_that_does_not_exist_may_be_in_another_namespace() {
    let unread = unread_quorum(&CallError::NotFound);
    assert_eq!(
        unread,
        "the object does not exist; if the operator runs in another namespace, name it with --quorum-namespace"
    );
}

/// A lease of the whole Deployment billing-0, which holds it.
fn of_the_cluster() -> Situation {
    let mut situation = Situation::held();
    situation.spec = json!({
        "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing-0"}},
        "granularity": "Cluster",
        "activation": {"scale": {"replicas": 2}},
    });
    situation
}

#[test]
fn no_pod_acquires_the_lease_of_a_workload() {
    let mut suspended = of_the_cluster();
    suspended.spec["suspend"] = json!(true);
    let mut ending = of_the_cluster();
    ending.conditions(("False", "Unheld", "The keys must expire."), ("False", "LeaseLost", "billing-0 has lost it."));
    let mut invalid = of_the_cluster();
    invalid.conditions(("False", "InvalidReference", "Why."), ("False", "LeaseLost", "billing-0 has lost it."));
    let mut all = vec![suspended, ending, invalid];
    for reason in ["Unheld", "NoCandidate", "Starting", "KeyHeldByOtherLease", "Suspended"] {
        let mut unheld = Situation::unheld(reason, "Why.");
        unheld.spec = of_the_cluster().spec;
        all.push(unheld);
    }
    for situation in all {
        let mut facts = situation.facts();
        facts.candidates = Err("the candidate is the Deployment billing-0 itself".into());
        facts.holder = HolderPod::Unknown;
        let next = Explanation::of(&facts).next.join(" ");
        assert!(next.contains("cluster can acquire the lease") || next.contains("lease for this cluster"), "{next}");
        assert!(!next.contains("pod"), "{next}");
    }
}

#[test]
fn a_holder_that_cannot_be_started_is_given_up_in_time() {
    let next = |reason: &str, message: &str| {
        let mut situation = Situation::held();
        situation.spec["activation"] = json!({"schedulingGate": true});
        situation.status["acquireTime"] = json!("2026-11-21T09:59:00Z");
        let gates = json!([{"name": "lease.redislease.io/billing"}]);
        situation.pods = ["billing-0", "billing-1"].map(pod).into();
        for pod in &mut situation.pods {
            pod["spec"] = json!({"containers": [{"name": "app"}], "schedulingGates": gates});
            pod["status"] = json!({"phase": "Pending"});
        }
        let ready = if reason == "HeldHere" { "True" } else { "False" };
        situation.conditions((ready, reason, message), ("True", "HeldHere", "billing-0 holds the lease."));
        let explanation = situation.explained();
        (explanation.next.join(" "), explanation.next_change)
    };
    let refused = "billing-0 holds the lease. The API server refuses the write that starts it: a policy.";
    for (reason, message) in [("HeldHere", "billing-0 holds the lease."), ("Forbidden", refused)] {
        let (said, change) = next(reason, message);
        assert_eq!(change, Some(at("2026-11-21T10:04:00Z")), "{said}");
        assert!(said.contains("Then billing-1 can acquire the lease") && !said.contains("error above"), "{said}");
    }
    let waits = "billing-0 holds the lease. billing-0 is not started yet: billing-9, which was started for an earlier term, \
                 may still run and is deleted first.";
    let (said, change) = next("HeldHere", waits);
    assert!(change.is_none() && said.starts_with("No change is due."), "{said}");
}
