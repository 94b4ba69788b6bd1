//! Labels on pods.

use super::*;

#[test]
fn no_pod_gets_active_while_another_may_have_it() {
    let mut story = Story::held_by_a();
    story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
    story.turn();
    story.facts.holder = PodKnowledge::Unseen;
    story.view(idle(0));
    // The write that removes `active` is not answered.
    let writes = story.role_writes();
    let written: Vec<_> = writes.iter().map(|write| (write.pod.as_str(), write.priority)).collect();
    assert_eq!(written, [("a", Priority::Active)]);
    story.view(publishing(term(2, 8, "b")));
    story.write();
    story.role_answered("a", RoleOutcome::Unanswered("timeout".into()));
    story.view(held(term(2, 8, "b")));
    assert!(!story.roles().contains(&("b".into(), Some(PodRole::Active))), "{:?}", story.effects);
    // The next one is answered.
    let a = with_token(labelled(pod("a"), "standby"), "8");
    story.candidates(&[a, pod("b")]);
    story.role_answered("a", RoleOutcome::Written(None));
    assert_eq!(story.role_writes().last().and_then(|write| write.role), Some(PodRole::Active), "{:?}", story.effects);
}

#[test]
fn a_pod_with_an_unanswered_active_write_gets_standby_after_a_loss() {
    let mut story = Story::wanting_a();
    story.elect(term(1, 7, "a"));
    let standby = story.role_writes();
    assert_eq!(standby.len(), 2, "b gets standby, and no other pod was active: {standby:?}");
    let unanswered = RoleOutcome::Unanswered("timeout".into());
    story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-b".into(), outcome: RoleOutcome::Written(None) });
    story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-a".into(), outcome: unanswered });
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    let is_standby = story.roles().contains(&("a".into(), Some(PodRole::Standby)));
    assert!(is_standby, "a was never observed with a label: {:?}", story.effects);
}

#[test]
fn a_waiting_active_write_is_withdrawn_when_the_term_is_lost() {
    let mut story = Story::wanting_a();
    story.elect(term(1, 7, "a"));
    assert!(story.role_writes().iter().any(|write| write.role == Some(PodRole::Active)));
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(story.wants(&Effect::WithdrawRole { uid: "uid-a".into() }), "{:?}", story.effects);
}

#[test]
fn a_later_token_on_a_pod_is_checked_with_the_api_server_first() {
    let mut story = Story::held_by_a();
    let b = with_token(labelled(pod("b"), "standby"), "99");
    let a = story.pod("a");
    story.candidates(&[a.clone(), b]);
    story.turn();
    assert_eq!(story.role_writes(), []);
    assert!(story.wants(&Effect::Read(Read::Lease)));
    story.read_lease();
    assert_eq!(story.role_writes().len(), 1, "7 is the latest token, 99 was left by an older resource");
    // That read says nothing about a token that appears later.
    let b = with_token(pod("b"), "100");
    story.candidates(&[a, b]);
    story.role_answered("b", RoleOutcome::Conflict);
    assert_eq!(story.role_writes(), []);
    assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
}

#[test]
fn labels_stay_as_they_are_while_a_term_is_being_adopted() {
    let mut story = Story::held_by_a();
    story.view(adopting(term(1, 7, "a")));
    assert_eq!(story.role_writes(), []);
}

#[test]
fn at_most_eight_pods_of_a_lease_are_written_at_a_time() {
    let mut story = Story::new();
    let pods: Vec<PodFacts> = (0..20).map(|number| pod(&format!("p{number:02}"))).collect();
    story.candidates(&pods);
    story.turn();
    assert_eq!(story.role_writes().len(), 0, "an attempt is due: its publication changes the token");
    story.view(idle(story.now.0 + 5000));
    assert_eq!(story.role_writes().len(), 8);
    assert_eq!(story.pods().len(), 20);
}

/// A label without a token would be one of the pod template.
#[test]
fn a_pod_that_comes_after_the_end_of_a_term_gets_its_token() {
    let mut story = Story::held_by_a();
    story.lose(term(1, 7, "a"));
    story.pods();
    story.candidates(&[pod("d")]);
    story.view(idle(story.now.0 + 5000));
    story.confirm();
    let writes = story.role_writes();
    assert_eq!((writes[0].role, writes[0].token.as_deref()), (Some(PodRole::Standby), Some("7")));
}

/// The selector of a ReplicaSet has the label too. It releases each pod whose label changes, and makes another one.
#[test]
fn pods_that_are_replaced_because_of_their_label_are_left_alone() {
    let mut story = Story::new();
    let of_template = |name: &str| labelled(pod(name), "active");
    let write = |story: &mut Story, pods: &[PodFacts]| {
        story.candidates(pods);
        story.view(idle(story.now.0 + 5000));
        story.role_writes().into_iter().map(|write| (write.pod, write.role, write.token)).collect::<Vec<_>>()
    };
    let standby = |pod: &str| (pod.to_owned(), Some(PodRole::Standby), Some("0".to_owned()));
    let first = [of_template("a"), of_template("b")];
    assert_eq!(write(&mut story, &first), [standby("a"), standby("b")]);
    story.pods();
    let mut pods = [story.known_pods(), vec![of_template("c")]].concat();
    assert_eq!(write(&mut story.clone(), &pods), [standby("c")], "their controller still owns them");
    pods[..2].iter_mut().for_each(|pod| pod.released = true);
    assert_eq!(write(&mut story, &pods), []);
    let ready = story.ready();
    assert_eq!(ready.reason, "InvalidReference");
    assert!(ready.message.starts_with("Pod c has the label lease.redislease.io/billing from its"), "{}", ready.message);
    // Somebody has deleted them.
    assert_eq!(write(&mut story, &pods[2..]), [standby("c")]);
}

/// Somebody has taken `a` from its controller, or no controller has ever owned the pods.
#[test]
fn a_pod_without_a_controller_is_no_sign_by_itself() {
    let of_template = |name: &str, hash: &str| {
        let mut pod = pod(name);
        pod.labels.insert("pod-template-hash".into(), hash.into());
        pod
    };
    let released = |name: &str, hash: &str| {
        let pod = with_token(labelled(of_template(name, hash), "standby"), "0");
        PodFacts { released: true, ..pod }
    };
    let is_obstacle = |hash: &str, others: &[PodFacts]| {
        let mut story = Story::new();
        let mut a = released("a", hash);
        // The template does not have it.
        a.labels.insert("debug".into(), "yes".into());
        story.candidates(&[&[a], others].concat());
        story.turn();
        let status = story.status_write().map(|write| write.status);
        let ready = status.as_ref().and_then(|status| status.condition(ConditionType::Ready));
        ready.is_some_and(|ready| ready.reason == "InvalidReference")
    };
    let c = labelled(of_template("c", "5d4"), "active");
    assert!(is_obstacle("5d4", std::slice::from_ref(&c)));
    assert!(!is_obstacle("taken", std::slice::from_ref(&c)));
    // A controller that gives each pod a label of its own has released the second one too.
    assert!(is_obstacle("a", &[released("b", "b"), c.clone()]));
    assert!(!is_obstacle("5d4", &[PodFacts { released: true, ..c }]));
    assert!(!is_obstacle("5d4", &[of_template("c", "5d4")]));
}

#[test]
fn no_pod_gets_active_beside_a_pod_that_is_left_alone() {
    let mut story = Story::wanting_a();
    let a = with_token(labelled(PodFacts { released: true, ..pod("a") }, "standby"), "0");
    let c = labelled(pod("c"), "active");
    story.holder(a.clone());
    story.view(publishing(term(1, 7, "a")));
    story.write();
    story.candidates(&[a.clone(), c]);
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.role_writes(), []);
    // Somebody has deleted it.
    story.candidates(&[a]);
    story.turn();
    assert_eq!(story.roles(), [("a".to_owned(), Some(PodRole::Active))]);
}

#[test]
fn the_pod_that_was_active_does_not_wait_for_the_writes_to_the_others() {
    let mut story = Story::held_by_a();
    let other = |number| with_token(labelled(pod(&format!("n{number}")), "standby"), "6");
    story.candidates(&story.known_pods().into_iter().chain((0..8).map(other)).collect::<Vec<_>>());
    story.turn();
    assert_eq!(story.role_writes().len(), 8);
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    let writes = story.role_writes();
    assert!(writes.iter().any(|write| write.uid == "uid-a" && write.role == Some(PodRole::Standby)), "{writes:?}");
}

/// Another replica may have changed the status meanwhile.
#[test]
fn a_later_token_is_checked_again_after_the_end_of_the_term() {
    let mut story = Story::held_by_a();
    let b = with_token(pod("b"), "99");
    let a = story.pod("a");
    story.candidates(&[a, b]);
    story.turn();
    story.read_lease();
    story.role_answered("b", RoleOutcome::Conflict);
    assert!(!story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(story.wants(&Effect::Read(Read::Lease)), "{:?}", story.effects);
}

#[test]
fn a_holder_gets_active_while_the_candidates_are_unknown() {
    let mut story = Story::publishing_by_a();
    story.holder(pod("a"));
    story.write();
    let b = with_token(labelled(pod("b"), "standby"), "7");
    story.facts.candidates = CandidateFacts::Unknown;
    story.facts.strays = vec![Arc::new(b)];
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.roles(), [("a".to_owned(), Some(PodRole::Active))]);
}

/// Nothing but its label would be written to it.
#[test]
fn a_request_ends_the_term_of_a_pod_that_was_not_read_yet() {
    let mut story = Story::held_by_a();
    story.facts.holder = PodKnowledge::Unseen;
    story.suspend();
    assert_eq!(story.commands(), [end(term(1, 7, "a"))]);
}

/// The watch has not shown the label of `a`, which is no candidate any more.
#[test]
fn no_pod_gets_active_while_a_write_of_active_to_a_pod_that_left_is_under_way() {
    let mut story = Story::wanting_a();
    story.elect(term(1, 7, "a"));
    story.lose(term(1, 7, "a"));
    story.candidates(&[pod("b")]);
    story.holder(pod("b"));
    story.view(publishing(term(2, 8, "b")));
    story.write();
    let mut gets_active = |event: Event| {
        story.event(event);
        story.role_writes().iter().any(|write| write.role == Some(PodRole::Active))
    };
    assert!(!gets_active(Event::View(held(term(2, 8, "b")))));
    let conflict = |pod: &str| Event::RoleWritten { uid: format!("uid-{pod}"), outcome: RoleOutcome::Conflict };
    assert!(!gets_active(conflict("b")));
    assert!(gets_active(conflict("a")));
}

#[test]
fn no_pod_gets_active_when_its_term_must_have_stopped() {
    let mut story = Story::publishing_by_a();
    story.write();
    for (stop_at, gets_active) in [(story.now, false), (story.now + Millis(1), true)] {
        story.facts.stop_at = Some(stop_at);
        story.view(held(term(1, 7, "a")));
        let is_active = |write: &RoleWrite| write.role == Some(PodRole::Active);
        assert_eq!(story.role_writes().iter().any(is_active), gets_active, "{:?}", story.effects);
    }
}

#[test]
fn another_reason_to_refuse_a_label_is_reported() {
    let mut story = Story::wanting_a();
    story.elect(term(1, 7, "a"));
    for why in ["a webhook", "a policy"] {
        story.role_answered("b", refusal(why));
        assert_eq!(
            story.reported(NoticeReason::WriteRefused).note,
            format!("b cannot get its label and its token: {why}")
        );
        story.pass(1000);
    }
}

/// The pods of a Job complete one after another: each term would cost a write to every one of them.
#[test]
fn a_finished_pod_is_not_written_for_the_terms_that_follow() {
    let finished = |name: &str, role| PodFacts { finished: true, ..with_token(labelled(pod(name), role), "0") };
    let mut story = Story::new();
    story.candidates(&[pod("a"), finished("b", "standby"), finished("c", "active"), pod("d")]);
    story.turn();
    let to = |pod: &str, role: &str| (pod.to_owned(), Some(role.to_owned()));
    assert_eq!(story.pods(), [to("c", "standby")]);
    story.answer();
    story.holder(pod("a"));
    story.elect(term(1, 7, "a"));
    assert_eq!(story.pods(), [to("d", "standby"), to("a", "active")]);
    story.lose(term(1, 7, "a"));
    let a = PodFacts { finished: true, ..with_token(labelled(story.pod("a"), "standby"), "7") };
    story.candidates(&[a, story.pod("b"), story.pod("c"), story.pod("d")]);
    story.role_answered("a", RoleOutcome::Written(None));
    story.write();
    story.holder(story.pod("d"));
    story.elect(term(2, 8, "d"));
    assert_eq!(story.pods(), [to("d", "active")]);
}

#[test]
fn a_finished_pod_with_an_unanswered_active_write_gets_standby() {
    let mut story = Story::new();
    let a = with_token(labelled(pod("a"), "standby"), "6");
    story.candidates(std::slice::from_ref(&a));
    let mut story = story.asked();
    story.holder(a.clone());
    story.elect(term(1, 7, "a"));
    assert_eq!(story.roles(), [("a".to_owned(), Some(PodRole::Active))]);
    let unanswered = RoleOutcome::Unanswered("timeout".into());
    story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-a".into(), outcome: unanswered });
    story.candidates(&[PodFacts { finished: true, ..a }]);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    assert_eq!(story.roles(), [("a".to_owned(), Some(PodRole::Standby))]);
}

/// Otherwise a late write could label it beside the next holder: no later term writes to a finished pod.
#[test]
fn a_finished_holder_does_not_get_active() {
    let mut story = Story::publishing_by_a();
    story.write();
    let a = PodFacts { finished: true, ..pod("a") };
    story.candidates(std::slice::from_ref(&a));
    story.facts.holder = PodKnowledge::Unseen;
    story.facts.stop_at = Some(Time(1_000_000_000));
    story.view(held(term(1, 7, "a")));
    assert_eq!(story.roles(), []);
}
