//! Terms: begun, confirmed, ended, lost and remembered.

use super::*;

#[test]
fn a_term_on_nodes_that_cannot_be_asked_stays_named_while_it_is_waited_out() {
    let mut world = World::held_by_a();
    world.withheld = true;
    world.turn(ending(1, "a", EndReason::NeverConfirmed));
    world.turn(View::default());
    assert_eq!(world.ready_and_active()[2..], ["False", "LeaseLost"]);
    assert!(world.status.attempt.is_some() && world.status.holder.is_some());
    world.withheld = false;
    world.settle();
    assert_eq!((&world.status.attempt, &world.status.holder), (&None, &None));
    assert_eq!(world.status.history.len(), 1);
}

#[test]
fn one_patch_publishes_a_term() {
    let mut world = World::new();
    let composed = world.turn(standing(Standing::Publishing(running(term(1, "a")))));
    assert!(composed.began);
    assert_eq!(told(&composed), ["Normal Acquired [a] term 1795238400000043: a in eu-west-1"]);
    assert_eq!(
        serde_json::to_value(&world.status).unwrap(),
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
                "message": "a took the lease with token 1795238400000043.",
            },
            "candidates": {"total": 2, "eligible": 2},
            "conditions": world.status.conditions,
        })
    );
    assert_eq!(
        world.conditions(),
        "Ready=True/HeldHere Active=True/HeldHere CandidatesAvailable=True/StandbyAvailable \
         QuorumHealthy=True/MajorityReachable"
    );
    // The answer to the write, and every renewal after it, is no news.
    let before = world.status.clone();
    assert_eq!(told(&world.turn(held(1, "a"))), NOTHING);
    assert_eq!(world.status, before);
}

#[test]
fn a_holder_that_has_stopped_hands_over_at_once() {
    let mut world = World::held_by_a();
    world.pods = Some(vec![pod("b", true)]);
    world.witness.decided(term(1, "a").attempt, EndCause::HolderStopped, true);
    let composed = world.turn(View::default());
    assert_eq!(
        told(&composed),
        ["Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason HolderStopped)"]
    );
    assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
    assert_eq!((&world.status.holder, &world.status.attempt, &world.status.acquire_time), (&None, &None, &None));
    assert_eq!(world.status.fencing_token, Some(1_795_238_400_000_043));

    world.leaderless = Some(Duration::from_millis(1_234));
    let composed = world.turn(held(2, "b"));
    assert_eq!(
        told(&composed),
        ["Normal Acquired [b] term 1795238400000044: b in eu-west-1 (was a, reason HolderStopped, leaderless 1.2s)"]
    );
    let transition = world.status.last_transition.clone().unwrap();
    assert_eq!((transition.from.as_deref(), transition.to.as_deref()), (Some("a"), Some("b")));
    assert_eq!(transition.reason, "HolderStopped");
    assert_eq!(world.status.transitions, 3);
    assert_eq!(world.status.history[0].pod, "a");
}

#[test]
fn a_term_ended_without_proof_stays_named_until_its_keys_have_ended() {
    for (cause, reason) in [
        (EndCause::HolderVanished, "Normal Stopping"),
        (EndCause::StopOverdue, "Normal Stopping"),
        (EndCause::HolderUnhealthy, "Warning HolderUnhealthy"),
        (EndCause::NoLongerCandidate, "Normal Stopping"),
        (EndCause::QuorumChanged, "Normal Stopping"),
    ] {
        let mut world = World::held_by_a();
        world.witness.decided(term(1, "a").attempt, cause, false);
        // The keeper has not heard of it yet: nothing is said.
        assert_eq!(told(&world.turn(held(1, "a"))), NOTHING);
        let composed = world.turn(ending(1, "a", EndReason::Decided));
        let [event] = &told(&composed)[..] else { panic!("{composed:?}") };
        assert!(
            event.starts_with(&format!("{reason} [a] term 1795238400000043: a in eu-west-1 must stop: ")),
            "{event}"
        );
        assert_eq!(composed.ended.map(crate::status::TermEnd::as_str), Some(cause.as_str()));
        assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Stopping"]);
        assert_eq!(world.status.holder.as_ref().unwrap().pod, "a");
        assert!(world.status.attempt.is_some());
        assert_eq!(world.status.history[0].reason, cause.as_str());

        // Another attempt may begin while the sealed keys still stand.
        let view = View { standing: acquiring().standing, ..ending(1, "a", EndReason::Decided) };
        let before = world.status.clone();
        world.turn(view);
        assert_eq!(world.status, before);

        let composed = world.turn(View::default());
        let released = format!(
            "Normal Released [a] term 1795238400000043: a in eu-west-1 released the lease (reason {})",
            cause.as_str()
        );
        assert_eq!(told(&composed), [released]);
        assert_eq!(composed.ended, None, "it is counted once");
        assert_eq!(world.ready_and_active(), ["False", "Unheld", "False", "Unheld"]);
        assert_eq!(world.status.holder, None);
        assert_eq!(world.status.history.len(), 1);
    }
}

#[test]
fn a_lost_term_is_said_to_be_lost() {
    for (reason, word) in [
        (EndReason::Deadline, "RenewDeadline"),
        (EndReason::Misses, "KeysMissing"),
        (EndReason::NeverConfirmed, "NeverConfirmed"),
    ] {
        let mut world = World::held_by_a();
        world.up = Some(1);
        let composed = world.turn(ending(1, "a", reason));
        let [event] = &told(&composed)[..] else { panic!("{composed:?}") };
        assert!(
            event.starts_with("Warning LeaseLost [a] term 1795238400000043: a in eu-west-1 lost the lease: "),
            "{event}"
        );
        assert_eq!(
            world.conditions(),
            "Ready=False/QuorumUnavailable Active=False/LeaseLost CandidatesAvailable=True/StandbyAvailable \
             QuorumHealthy=False/Lost"
        );
        assert_eq!(world.status.last_transition.as_ref().unwrap().reason, word);
        assert_eq!(told(&world.turn(View::default())), NOTHING);
        assert_eq!(world.ready_and_active(), ["False", "QuorumUnavailable", "False", "Unheld"]);
        world.up = Some(2);
        world.now += Duration::from_secs(14);
        let composed = world.turn(held(2, "b"));
        let tail = format!("b in eu-west-1 (was a, reason {word}, leaderless 16s)");
        assert!(told(&composed)[0].ends_with(&tail), "{composed:?}");
    }
}

#[test]
fn a_restart_that_confirms_the_term_writes_nothing() {
    let mut world = World::held_by_a();
    let before = world.status.clone();
    world.restart();
    world.settle();
    assert_eq!(world.status, before, "the keeper has not heard of the term yet");
    let mut adopted = running(term(1, "a"));
    (adopted.valid_until, adopted.stop_at) = (None, None);
    world.turn(standing(Standing::Adopting(adopted.clone())));
    assert_eq!(world.status, before);

    let composed = world.turn(standing(Standing::Uncertain(adopted)));
    assert_eq!(told(&composed), NOTHING);
    assert_eq!(world.ready_and_active(), ["Unknown", "Starting", "Unknown", "Starting"]);
    assert_eq!(world.status.attempt, before.attempt);
    (world.pods, world.up) = (Some(vec![pod("a", true), pod("b", true)]), Some(3));
    world.turn(held(1, "a"));
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!((world.status.transitions, world.status.fencing_token), (1, before.fencing_token));
}

#[test]
fn what_was_given_up_is_never_taken_back() {
    let mut world = World::held_by_a();
    world.witness.decided(term(1, "a").attempt, EndCause::NoLongerCandidate, false);
    world.turn(ending(1, "a", EndReason::Decided));
    let before = world.status.clone();
    // Another operator that still renews it reads this status.
    world.restart();
    world.turn(held(1, "a"));
    assert_eq!(world.status, before);
    // It seals again: the reason stays the first.
    world.turn(ending(1, "a", EndReason::Decided));
    assert_eq!(world.status, before);
    let composed = world.turn(View::default());
    assert_eq!(told(&composed).len(), 1, "{composed:?}");
    assert_eq!(world.status.history[0].reason, "NoLongerCandidate");
    assert_eq!(world.status.holder, None);
}

#[test]
fn a_greater_token_in_status_is_never_overwritten() {
    let mut world = World::new();
    world.turn(held(5, "b"));
    let before = world.status.clone();
    for late in
        [standing(Standing::Publishing(running(term(4, "a")))), held(4, "a"), ending(4, "a", EndReason::Superseded)]
    {
        world.witness = Witness::default();
        world.turn(late);
        assert_eq!(world.status, before);
    }
}

#[test]
fn without_a_keeper_nothing_is_known_until_the_keys_have_ended() {
    let mut world = World::held_by_a();
    world.restart();
    world.view = None;
    world.obstacle = Some((LeaseReady::InvalidReference, "Secret redis does not exist.".into()));
    let composed = world.settle();
    assert_eq!(told(&composed), ["Warning InvalidReference [] Secret redis does not exist."]);
    assert_eq!(world.ready_and_active(), ["False", "InvalidReference", "Unknown", "Starting"]);
    world.expired = true;
    let composed = world.settle();
    assert!(told(&composed)[0].starts_with("Warning LeaseLost [a] term 1795238400000043: "), "{composed:?}");
    assert_eq!(world.ready_and_active(), ["False", "InvalidReference", "False", "Unheld"]);
    assert_eq!(world.status.holder, None);
}

#[test]
fn suspending_stops_the_holder_and_unsuspending_begins_a_new_term() {
    let mut world = World::held_by_a();
    world.obstacle = Some((LeaseReady::Suspended, "The spec says suspend: true.".into()));
    world.witness.decided(term(1, "a").attempt, EndCause::Suspended, false);
    world.turn(ending(1, "a", EndReason::Decided));
    assert_eq!(world.ready_and_active(), ["False", "Suspended", "False", "Stopping"]);
    world.turn(View::default());
    assert_eq!(world.ready_and_active(), ["False", "Suspended", "False", "Unheld"]);
    world.obstacle = None;
    world.turn(held(2, "a"));
    assert_eq!(world.ready_and_active(), ["True", "HeldHere", "True", "HeldHere"]);
    assert_eq!(world.status.fencing_token, Some(1_795_238_400_000_044));
}

#[test]
fn history_keeps_the_latest_terms() {
    let mut world = World::new();
    for number in 1..=15 {
        let pod = if number % 2 == 0 { "a" } else { "b" };
        world.turn(held(number, pod));
        // Every third end happens while the API server is away: the next status is the next term's.
        if number % 3 != 0 {
            world.turn(ending(number, pod, EndReason::Deadline));
        }
    }
    let tokens: Vec<i64> = world.status.history.iter().map(|past| past.fencing_token).collect();
    let expected: Vec<i64> = (5..=14).rev().map(|number| i64::try_from(TOKEN).unwrap() + number).collect();
    assert_eq!(tokens, expected);
    assert_eq!(tokens.len(), MAX_HISTORY);
    assert_eq!(world.status.transitions, 15 + 14, "each term begins, and all but the last have ended");
    let reasons: Vec<&str> = world.status.history.iter().map(|past| past.reason.as_str()).take(3).collect();
    assert_eq!(reasons, ["RenewDeadline", "RenewDeadline", "Unobserved"]);
}

#[test]
fn renewals_that_fail_are_told_once() {
    let failing = |rounds| {
        let mut term = running(term(1, "a"));
        term.failed_rounds = rounds;
        standing(Standing::Held(term))
    };
    assert_eq!(renewal_notice(&failing(0), &failing(1)), None);
    let notice = renewal_notice(&failing(1), &failing(2)).unwrap();
    assert_eq!((notice.reason.as_str(), notice.reason.importance().as_str()), ("RenewFailing", "Warning"));
    assert_eq!(notice.on_pods, [("a".to_owned(), "uid-a".to_owned())]);
    assert!(notice.note.starts_with("term 1795238400000043: renewals of the lease of a fail"), "{}", notice.note);
    assert!(renewal_notice(&failing(0), &failing(4)).is_some(), "views in between may be missed");
    assert_eq!(renewal_notice(&failing(2), &failing(3)), None);
    assert_eq!(renewal_notice(&failing(3), &failing(0)), None);
}
