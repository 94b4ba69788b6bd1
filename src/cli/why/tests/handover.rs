//! What is said while a handover runs: its term has ended, and nothing holds the lease yet.

use super::*;

/// The term of billing-0 ended 5 s ago.
fn running(mut situation: Situation, to: Option<&str>) -> Situation {
    situation.status["handover"] = json!({
        "id": "7", "from": "billing-0", "state": "Running", "time": "2026-11-21T09:59:55Z", "message": "This is why.",
    });
    if let Some(to) = to {
        situation.status["handover"]["to"] = json!(to);
    }
    situation
}

fn ending(to: Option<&str>) -> Situation {
    let mut situation = Situation::held();
    situation.conditions(("False", "Unheld", "The keys must expire."), ("False", "Stopping", "billing-0 must stop."));
    situation.status["history"] = json!([past("billing-0", TOKEN, "HandoverRequested", "2026-11-21T09:59:55Z")]);
    situation.pods[2] = pod("billing-2");
    running(situation, to)
}

fn unheld(to: Option<&str>) -> Situation {
    let mut situation = Situation::unheld("Unheld", "No pod holds the lease. The operator is electing one.");
    situation.pods[2] = pod("billing-2");
    running(situation, to)
}

#[test]
fn the_pod_that_is_to_acquire_the_lease_is_named() {
    for (to, next) in [(None, "billing-1"), (Some("pod/billing-2"), "billing-2"), (Some("pod/not-here"), "billing-1")] {
        let ends = ending(to).explained().next;
        assert!(ends[0].ends_with(&format!("{next} can acquire the lease.")), "{to:?}: {ends:?}");
        let tries = unheld(to).explained().next;
        assert_eq!(tries, [format!("The operator tries to acquire the lease for {next}.")], "{to:?}");
    }
}

#[test]
fn this_cluster_makes_no_attempt_while_another_may_acquire_the_lease() {
    for situation in [ending(Some("cluster/us")), unheld(Some("cluster/us"))] {
        let explanation = situation.explained();
        assert_eq!(
            explanation.next,
            [
                "The cluster us can acquire the lease when the keys are released or expire, at about 2026-11-21T10:00:25Z at the \
                 latest. This cluster makes no attempt before about 2026-11-21T10:00:35Z."
            ]
        );
        assert_eq!(explanation.next_change.map(Timestamp::as_second), Some(at("2026-11-21T10:00:25Z").as_second()));
    }
    let mut late = unheld(Some("cluster/us"));
    late.status["handover"]["time"] = json!("2026-11-21T09:59:00Z");
    assert!(late.explained().next[0].starts_with("The operator tries to acquire the lease for"));
}
