//! Random sequences of inputs, including sequences that cannot occur in practice.

use super::*;
use crate::api::lease_status;
use proptest::prelude::*;

fn views() -> impl Strategy<Value = Option<View>> {
    let number = 1..6_u64;
    let pod = prop::sample::select(vec!["a", "b", "gone"]);
    let reason = prop::sample::select(vec![
        EndReason::Decided,
        EndReason::Misses,
        EndReason::Deadline,
        EndReason::NeverConfirmed,
        EndReason::Superseded,
        EndReason::Defect,
    ]);
    let metadata = prop::sample::select(vec![
        "eu-west-1/uid-here/jobs/billing/x/uid-x",
        "eu-west-1/uid-there/jobs/billing/x/uid-x",
        "us-east-1/uid-there/jobs/billing/x/uid-x",
        "eu-west-1/uid-here/jobs/invoices/x/uid-x",
        "me",
    ]);
    (0..9_u8, number, pod, reason, metadata).prop_map(|(kind, number, pod, reason, metadata)| {
        let term = running(term(number, pod));
        Some(match kind {
            0 => return None,
            1 => View::default(),
            2 => acquiring(),
            3 => standing(Standing::Publishing(term)),
            4 => standing(Standing::Held(term)),
            5 => standing(Standing::Adopting(term)),
            6 => standing(Standing::Uncertain(term)),
            7 => ending(number, pod, reason),
            _ => refused(Stage::Term, number, metadata),
        })
    })
}

type Step = (Option<View>, Option<usize>, Option<bool>, Option<(EndCause, bool)>, bool, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cause = (prop::sample::select(EndCause::ALL.to_vec()), any::<bool>());
    let step = (
        views(),
        prop::option::of(0..=3_usize),
        prop::option::of(any::<bool>()),
        prop::option::of(cause),
        any::<bool>(),
        any::<bool>(),
    );
    prop::collection::vec(step, 1..25)
}

proptest! {
    /// After any sequence of inputs: no event is sent twice, the token never decreases, and the fields of a term are present
    /// together.
    #[test]
    fn status_is_consistent_after_any_inputs(steps in steps()) {
        let mut scenario = Scenario::new();
        for (view, up, ready, decided, obstacle, withheld) in steps {
            let before = scenario.status.clone();
            scenario.view = view;
            scenario.up = up;
            scenario.pods = ready.map(|ready| vec![pod("a", ready), pod("b", !ready)]);
            scenario.withheld = withheld;
            scenario.obstacle = obstacle.then(|| (LeaseReady::Suspended, "Suspended.".into()));
            if let (Some((cause, proof)), Some(attempt)) = (decided, before.attempt.as_deref()) {
                scenario.observed_terms.record_decision(attempt.parse().unwrap(), cause, proof);
            }
            let composed = scenario.step();
            let status = &scenario.status;
            prop_assert!(status.fencing_token >= before.fencing_token);
            prop_assert!(status.transitions >= before.transitions);
            prop_assert!(status.history.len() <= MAX_HISTORY);
            prop_assert!(status.history.windows(2).all(|two| two[0].fencing_token > two[1].fencing_token));
            prop_assert_eq!(status.attempt.is_some(), status.holder.is_some());
            prop_assert_eq!(status.attempt.is_some(), status.acquire_time.is_some());
            let active = &scenario.condition(ConditionType::Active).status;
            prop_assert!(status.attempt.is_some() || active == "False");
            prop_assert_eq!(composed.began, status.fencing_token > before.fencing_token);
            if status.attempt == before.attempt {
                // The node of a holder that starts after its election is known later.
                let holder = status.holder.clone().map(|holder| lease_status::Holder { node: None, ..holder });
                prop_assert_eq!(holder, before.holder.clone().map(|holder| lease_status::Holder { node: None, ..holder }));
                let node = |holder: &Option<lease_status::Holder>| holder.as_ref().and_then(|holder| holder.node.clone());
                prop_assert!(node(&before.holder).is_none() || node(&before.holder) == node(&status.holder));
                let was = before.conditions.iter().find(|one| one.type_ == "Active");
                if let (Some(_), Some(was)) = (&status.attempt, was) {
                    prop_assert!(was.status != "False" || active == "False", "an ended term became active again");
                }
            }
        }
    }
}
