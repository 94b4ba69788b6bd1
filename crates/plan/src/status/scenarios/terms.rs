//! The beginning and the end of terms, and their history.

use super::*;

#[test]
fn term_on_unreachable_nodes_stays_in_status_until_its_keys_expire() {
    let mut scenario = Scenario::held_by_a();
    scenario.withheld = true;
    scenario.step_to(ending(1, "a", EndReason::NeverConfirmed));
    scenario.step_to(View::default());
    assert_eq!(scenario.ready_and_active()[2..], ["False", "LeaseLost"]);
    assert!(scenario.status.attempt.is_some() && scenario.status.holder.is_some());
    scenario.withheld = false;
    scenario.step();
    assert_eq!((&scenario.status.attempt, &scenario.status.holder), (&None, &None));
    assert_eq!(scenario.status.history.len(), 1);
}

#[test]
fn one_write_publishes_a_term() {
    let mut scenario = Scenario::new();
    let composed = scenario.step_to(standing(Standing::Publishing(running(term(1, "a")))));
    assert!(composed.began);
    assert_eq!(events(&composed), ["Normal Acquired [a] term 1795238400000043: a in eu-west-1"]);
    assert_eq!(
        serde_json::to_value(&scenario.status).unwrap(),
        serde_json::json!({
            "observedGeneration": 1,
            "attempt": "00000000000000000000000000000001",
            "fencingToken": TOKEN + 1,
            "holder": {"cluster": "eu-west-1", "namespace": "jobs", "pod": "a", "podUID": "uid-a", "node": "node-of-a"},
            "quorum": {"name": "default", "fingerprint": "f1"},
            "acquireTime": "2026-11-21T08:00:01Z",
            "transitions": 1,
            "lastTransition": {
                "time": "2026-11-21T08:00:01Z", "reason": "Acquired", "to": "a",
                "message": "a acquired the lease with fencing token 1795238400000043.",
            },
            "candidates": {"total": 2, "eligible": 2},
            "conditions": scenario.status.conditions,
        })
    );
    assert_eq!(
        scenario.conditions(),
        "Ready=True/HeldHere Active=True/HeldHere CandidatesAvailable=True/StandbyAvailable \
         QuorumHealthy=True/MajorityReachable"
    );
    // The answer to the write and the renewals after it change nothing.
    let before = scenario.status.clone();
    assert_eq!(events(&scenario.step_to(held(1, "a"))), NOTHING);
    assert_eq!(scenario.status, before);
}

#[test]
fn stopped_holder_is_replaced_immediately() {
    let mut scenario = Scenario::held_by_a();
    scenario.pods = Some(vec![pod("b", true)]);
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = scenario.step_to(View::default());
    assert_eq!(
        events(&composed),
        ["Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason HolderStopped)"]
    );
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
    assert_eq!(
        (&scenario.status.holder, &scenario.status.attempt, &scenario.status.acquire_time),
        (&None, &None, &None)
    );
    assert_eq!(scenario.status.fencing_token, Some(1_795_238_400_000_043));
    let transition = scenario.status.last_transition.clone().unwrap();
    assert_eq!((transition.from.as_deref(), transition.to.as_deref()), (Some("a"), None));
    assert_eq!(transition.reason, "HolderStopped");
    assert_eq!(
        transition.message,
        "The operator ended the term of a with fencing token 1795238400000043: the holder has stopped."
    );

    scenario.leaderless = Some(Duration::from_millis(1_234));
    let composed = scenario.step_to(held(2, "b"));
    assert_eq!(
        events(&composed),
        ["Normal Acquired [b] term 1795238400000044: b in eu-west-1 (was a, reason HolderStopped, leaderless 1.2s)"]
    );
    let transition = scenario.status.last_transition.clone().unwrap();
    assert_eq!((transition.from.as_deref(), transition.to.as_deref()), (Some("a"), Some("b")));
    assert_eq!(transition.reason, "Acquired", "the reason of this transition, not of the one before");
    assert_eq!(
        transition.message,
        "b acquired the lease with fencing token 1795238400000044. \
         The previous term, of a, ended with reason HolderStopped."
    );
    assert_eq!(scenario.status.transitions, 2, "one failover counts once");
    assert_eq!(scenario.status.history[0].pod, "a");
}

#[test]
fn term_ended_without_proof_stays_in_status_until_its_keys_expire() {
    for (cause, reason, what) in [
        (EndCause::HolderVanished, "Warning HolderVanished", "vanished"),
        (EndCause::StopOverdue, "Normal Stopping", "must stop"),
        (EndCause::HolderUnhealthy, "Warning HolderUnhealthy", "must stop"),
        (EndCause::NoLongerCandidate, "Normal Stopping", "must stop"),
        (EndCause::QuorumChanged, "Normal Stopping", "must stop"),
        (EndCause::NamespaceNotAllowed, "Normal Stopping", "must stop"),
    ] {
        let mut scenario = Scenario::held_by_a();
        scenario.observed_terms.record_decision(term(1, "a").attempt, cause, false);
        // The lock layer has not ended the term yet.
        assert_eq!(events(&scenario.step_to(held(1, "a"))), NOTHING);
        let composed = scenario.step_to(ending(1, "a", EndReason::Decided));
        let [event] = &events(&composed)[..] else { panic!("{composed:?}") };
        assert!(event.starts_with(&format!("{reason} [a] term 1795238400000043: a in eu-west-1 {what}: ")), "{event}");
        assert_eq!(composed.ended.map(crate::status::TermEnd::as_str), Some(cause.as_str()));
        assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Stopping"]);
        assert_eq!(scenario.status.holder.as_ref().unwrap().pod, "a");
        assert!(scenario.status.attempt.is_some());
        assert_eq!(scenario.status.history[0].reason, cause.as_str());

        // Another attempt can begin while the sealed keys still exist.
        let view = View { standing: acquiring().standing, ..ending(1, "a", EndReason::Decided) };
        let before = scenario.status.clone();
        scenario.step_to(view);
        assert_eq!(scenario.status, before);

        let composed = scenario.step_to(View::default());
        let released = format!(
            "Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason {})",
            cause.as_str()
        );
        assert_eq!(events(&composed), [released]);
        assert_eq!(composed.ended, None, "the end is counted once");
        assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
        assert_eq!(scenario.status.holder, None);
        assert_eq!(scenario.status.history.len(), 1);
    }
}

#[test]
fn lost_term_is_reported_as_lease_lost() {
    for (reason, word) in [
        (EndReason::Deadline, "RenewDeadline"),
        (EndReason::Misses, "KeysMissing"),
        (EndReason::NeverConfirmed, "NeverConfirmed"),
        (EndReason::Defect, "InternalError"),
    ] {
        let mut scenario = Scenario::held_by_a();
        scenario.up = Some(1);
        let composed = scenario.step_to(ending(1, "a", reason));
        let [event] = &events(&composed)[..] else { panic!("{composed:?}") };
        assert!(
            event.starts_with("Warning LeaseLost [a] term 1795238400000043: a in eu-west-1 lost the lease: "),
            "{event}"
        );
        assert_eq!(
            scenario.conditions(),
            "Ready=False/QuorumUnavailable Active=False/LeaseLost CandidatesAvailable=True/StandbyAvailable \
             QuorumHealthy=False/Lost"
        );
        assert_eq!(scenario.status.last_transition.as_ref().unwrap().reason, word);
        assert_eq!(events(&scenario.step_to(View::default())), NOTHING);
        assert_eq!(scenario.ready_and_active(), ["False", "QuorumUnavailable", "False", "Unheld"]);
        scenario.up = Some(2);
        scenario.now += Duration::from_secs(14);
        let composed = scenario.step_to(held(2, "b"));
        let tail = format!("b in eu-west-1 (was a, reason {word}, leaderless 16s)");
        assert!(events(&composed)[0].ends_with(&tail), "{composed:?}");
    }
}

#[test]
fn restart_that_confirms_the_term_changes_nothing() {
    let mut scenario = Scenario::held_by_a();
    let before = scenario.status.clone();
    scenario.restart();
    scenario.step();
    assert_eq!(scenario.status, before, "the lock layer does not know the term yet");
    let mut adopted = running(term(1, "a"));
    (adopted.valid_until, adopted.stop_at) = (None, None);
    scenario.step_to(standing(Standing::Adopting(adopted.clone())));
    assert_eq!(scenario.status, before);

    let composed = scenario.step_to(standing(Standing::Uncertain(adopted)));
    assert_eq!(events(&composed), NOTHING);
    assert_eq!(scenario.ready_and_active(), ["Unknown", "Starting", "Unknown", "Starting"]);
    assert_eq!(scenario.status.attempt, before.attempt);
    (scenario.pods, scenario.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    scenario.step_to(held(1, "a"));
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!((scenario.status.transitions, scenario.status.fencing_token), (1, before.fencing_token));
}

#[test]
fn ended_term_never_becomes_active_again() {
    let mut scenario = Scenario::held_by_a();
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    scenario.step_to(ending(1, "a", EndReason::Decided));
    let before = scenario.status.clone();
    // Another replica that still renews the term reads this status.
    scenario.restart();
    scenario.step_to(held(1, "a"));
    assert_eq!(scenario.status, before);
    // It seals the term again. The first reason is kept.
    scenario.step_to(ending(1, "a", EndReason::Decided));
    assert_eq!(scenario.status, before);
    let composed = scenario.step_to(View::default());
    assert_eq!(events(&composed).len(), 1, "{composed:?}");
    assert_eq!(scenario.status.history[0].reason, "NoLongerCandidate");
    assert_eq!(scenario.status.holder, None);
}

#[test]
fn status_with_a_greater_token_is_not_overwritten() {
    let mut scenario = Scenario::new();
    scenario.step_to(held(5, "b"));
    let before = scenario.status.clone();
    for late in
        [standing(Standing::Publishing(running(term(4, "a")))), held(4, "a"), ending(4, "a", EndReason::Superseded)]
    {
        scenario.observed_terms = ObservedTerms::default();
        scenario.step_to(late);
        assert_eq!(scenario.status, before);
    }
}

#[test]
fn without_a_view_the_term_is_unconfirmed() {
    let mut scenario = Scenario::held_by_a();
    scenario.restart();
    scenario.view = None;
    scenario.obstacle = Some((LeaseReady::InvalidReference, "Secret redis does not exist.".into()));
    let composed = scenario.step();
    assert_eq!(events(&composed), ["Warning InvalidReference [] Secret redis does not exist."]);
    assert_eq!(scenario.ready_and_active(), ["False", "InvalidReference", "Unknown", "Starting"]);
}

#[test]
fn suspend_ends_the_term_and_resume_begins_a_new_one() {
    let mut scenario = Scenario::held_by_a();
    scenario.obstacle = Some((LeaseReady::Suspended, "spec.suspend is true.".into()));
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::Suspended, false);
    scenario.step_to(ending(1, "a", EndReason::Decided));
    assert_eq!(scenario.ready_and_active(), ["False", "Suspended", "False", "Stopping"]);
    scenario.step_to(View::default());
    assert_eq!(scenario.ready_and_active(), ["False", "Suspended", "False", "Unheld"]);
    scenario.obstacle = None;
    scenario.step_to(held(2, "a"));
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!(scenario.status.fencing_token, Some(1_795_238_400_000_044));
}

#[test]
fn history_keeps_the_last_terms() {
    let mut scenario = Scenario::new();
    for number in 1..=15 {
        let pod = if number % 2 == 0 { "a" } else { "b" };
        scenario.step_to(held(number, pod));
        // Every third end is not written: the next status is that of the next term.
        if number % 3 != 0 {
            scenario.step_to(ending(number, pod, EndReason::Deadline));
        }
    }
    let tokens: Vec<i64> = scenario.status.history.iter().map(|past| past.fencing_token).collect();
    let expected: Vec<i64> = (5..=14).rev().map(|number| i64::try_from(TOKEN).unwrap() + number).collect();
    assert_eq!(tokens, expected);
    assert_eq!(tokens.len(), MAX_HISTORY);
    assert_eq!(scenario.status.transitions, 15, "each term counts once");
    let reasons: Vec<&str> = scenario.status.history.iter().map(|past| past.reason.as_str()).take(3).collect();
    assert_eq!(reasons, ["RenewDeadline", "RenewDeadline", "Unobserved"]);
}

#[test]
fn an_end_that_was_seen_has_its_reason_when_the_status_is_written_later() {
    for next in [View::default(), held(2, "b")] {
        let mut scenario = Scenario::held_by_a();
        scenario.view = Some(ending(1, "a", EndReason::Misses));
        scenario.compose();
        scenario.step_to(next);
        assert_eq!(scenario.status.history[0].reason, "KeysMissing");
    }
}

#[test]
fn failing_renewals_have_one_event() {
    let failing = |rounds| {
        let mut term = running(term(1, "a"));
        term.failed_rounds = rounds;
        standing(Standing::Held(term))
    };
    assert_eq!(renewal_notice(&failing(0), &failing(1)), None);
    let notice = renewal_notice(&failing(1), &failing(2)).unwrap();
    assert_eq!((notice.reason.as_str(), notice.reason.importance().as_str()), ("RenewFailing", "Warning"));
    assert_eq!(notice.on_pods, [("a".to_owned(), "uid-a".to_owned())]);
    assert!(notice.note.starts_with("term 1795238400000043: the last 2 renewals for a failed"), "{}", notice.note);
    assert!(renewal_notice(&failing(0), &failing(4)).is_some(), "some views can be skipped");
    assert_eq!(renewal_notice(&failing(2), &failing(3)), None);
    assert_eq!(renewal_notice(&failing(3), &failing(0)), None);
}

#[test]
fn vanished_holder_is_a_warning_also_if_its_keys_are_free() {
    let mut scenario = Scenario::held_by_a();
    scenario.observed_terms.record_decision(term(1, "a").attempt, EndCause::HolderVanished, true);
    assert_eq!(
        events(&scenario.step_to(View::default())),
        [
            "Warning HolderVanished [a] term 1795238400000043: a in eu-west-1 vanished: it does not exist any more",
            "Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason HolderVanished)",
        ]
    );
}

#[test]
fn pause_after_an_unpublished_term_is_shown_until_the_lease_is_held() {
    let mut scenario = Scenario::new();
    let Obstacle { reason, message } = Obstacle::NOT_PUBLISHED;
    scenario.obstacle = Some((reason, message.into()));
    scenario.step();
    assert_eq!(scenario.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
    assert_eq!(scenario.message(ConditionType::Ready), message);
    scenario.step_to(held(1, "a"));
    assert_eq!(scenario.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
}
