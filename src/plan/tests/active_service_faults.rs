//! Refusals, lost answers, and facts that change between a request and its answer.

use super::*;

#[test]
fn an_endpoint_has_the_address_of_the_pod_as_it_was_seen_last() {
    let mut story = Story::routed(&[Family::V4]);
    story.holder(PodFacts { ready: false, ..pod("a") });
    story.turn();
    story.serve(&prepared(&[Family::V4]));
    // Its sandbox was created again.
    let addresses: Vec<std::net::IpAddr> = vec!["10.0.0.8".parse().unwrap()];
    story.holder(PodFacts { addresses, ..pod("a") });
    story.turn();
    let writes = story.slice_writes();
    let endpoints: Vec<_> = writes.iter().filter_map(|write| write.change.endpoint()).collect();
    assert!(endpoints.iter().all(|endpoint| endpoint.ready && endpoint.addresses == ["10.0.0.8"]), "{endpoints:?}");
    assert_eq!((endpoints.len(), story.prepares()), (1, None), "nothing about the Service is new");
}

#[test]
fn an_older_answer_does_not_count_for_a_later_term() {
    let mut story = Story::with_service();
    assert_eq!(story.prepares(), Some(request("a")));
    story.write();
    story.loses(term(1, 7, "a"));
    story.next_holder();
    assert_eq!(story.prepares(), None, "the first request is not answered");
    let found = || Ok(Box::new(prepared(&[Family::V4])));
    story.event(Event::ServicePrepared { request: request("a"), found: found() });
    assert_eq!((story.slice_writes(), story.prepares()), (Vec::new(), Some(request("b"))));
    story.event(Event::ServicePrepared { request: request("b"), found: found() });
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 new", "IPv4 b"]);
    // The same pod in another term.
    story.pass(300_000);
    assert_eq!(story.prepares(), Some(request("b")));
    for write in story.loses(term(2, 8, "b")) {
        story.answer_slice(&write);
    }
    story.view(publishing(term(3, 9, "b")));
    story.write();
    story.view(held(term(3, 9, "b")));
    story.event(Event::ServicePrepared { request: request("b"), found: found() });
    assert_eq!((story.slice_writes(), story.prepares()), (Vec::new(), Some(request("b"))));
}

#[test]
fn no_endpoint_is_added_while_another_slice_of_the_service_is_being_removed() {
    for earlier_lease in [false, true] {
        let families = if earlier_lease { &BOTH[..] } else { &[Family::V4] };
        let mut story = Story::routed(&BOTH);
        let writes = story.loses(term(1, 7, "a"));
        story.answer_slice(&writes[0]);
        story.next_holder();
        if earlier_lease {
            let of_v6 = story.facts.slices.iter_mut().filter(|slice| slice.family == Some(Family::V6));
            of_v6.for_each(|slice| Arc::make_mut(slice).owner = Some("uid-earlier".to_owned()));
        }
        story.event(Event::ServicePrepared { request: request("b"), found: Ok(Box::new(prepared(families))) });
        assert_eq!(story.endpoints(), ["a"]);
        story.event(Event::SliceWritten { name: writes[1].name.clone(), outcome: RoleOutcome::Withdrawn });
        let removals = story.slice_writes();
        assert_eq!(removals.iter().map(title).collect::<Vec<_>>(), ["IPv6 removed"], "the second slice has the pod a");
        story.answer_slice(&removals[0]);
        let rest: &[&str] = if earlier_lease { &["IPv6 new", "IPv4 b", "IPv6 b"] } else { &["IPv4 b"] };
        assert_eq!(story.serve(&prepared(families)), rest);
    }
}

#[test]
fn a_withdrawal_without_a_holder_changes_the_version_in_any_case() {
    for token in [None, Some(7), Some(6)] {
        let mut story = Story::with_service();
        let found = || Ok(Box::new(prepared(&[Family::V4])));
        story.facts.slices = vec![Arc::new(SliceFacts { token: token.map(Token), ..slice(Family::V4, 5) })];
        story.event(Event::ServicePrepared { request: request("a"), found: found() });
        let write = story.slice_writes().remove(0);
        assert_eq!(title(&write), "IPv4 a");
        story.view(ending(term(1, 7, "a"), EndReason::Deadline));
        story.event(Event::SliceWritten { name: write.name, outcome: RoleOutcome::Unanswered("timeout".into()) });
        let name = story.slice_writes().remove(0).name;
        story.event(Event::SliceWritten { name, outcome: RoleOutcome::Refused("a webhook".into()) });
        let withdrawal = story.slice_writes().remove(0);
        assert!(
            withdrawal.change.endpoint().is_none() && !withdrawal.change.is_in(&story.facts.slices[0]),
            "{token:?}"
        );
        story.answer_slice(&withdrawal);
        assert_eq!(story.slice_writes(), []);
    }
}

#[test]
fn a_slice_whose_owner_was_edited_is_removed_before_it_is_created_again() {
    let mut story = Story::routed(&[Family::V4]);
    let edited = SliceFacts { owner: Some("uid-other".into()), ..story.facts.slices[0].as_ref().clone() };
    story.facts.slices = vec![Arc::new(edited)];
    story.turn();
    let withdrawals =
        |story: &Story| story.effects.iter().filter(|effect| matches!(effect, Effect::WithdrawSlice { .. })).count();
    let writes = story.slice_writes();
    assert_eq!(writes.iter().map(title).collect::<Vec<_>>(), ["IPv4 removed"]);
    assert_eq!(withdrawals(&story), 0);
    story.turn();
    assert_eq!((story.slice_writes().len(), withdrawals(&story)), (0, 0), "the removal is not answered");
    story.answer_slice(&writes[0]);
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 new", "IPv4 a"]);
}

#[test]
fn a_refused_read_changes_no_endpoint_and_is_reported() {
    let mut story = Story::routed(&[Family::V4]);
    story.pass(300_000);
    let refused = |story: &mut Story| {
        let request = story.prepares().unwrap();
        story.event(Event::ServicePrepared { request, found: Err("forbidden".into()) });
    };
    refused(&mut story);
    let problems = story.problems();
    assert!(problems.len() == 1 && problems[0].contains("forbidden"), "{problems:?}");
    assert_eq!((story.slice_writes(), story.prepares()), (Vec::new(), None));
    // Nor does it change anything after a restart of the process.
    story.reconciler = Reconciler::new(story.reconciler.identity().clone());
    story.turn();
    story.view(held(term(1, 7, "a")));
    refused(&mut story);
    assert_eq!(story.slice_writes(), []);
    story.pass(30_000);
    assert_eq!(story.serve(&prepared(&[Family::V4])), [""; 0]);
    assert_eq!(story.endpoints(), ["a"]);
}

#[test]
fn an_address_that_the_pod_does_not_have_is_removed_although_the_service_is_unknown() {
    let mut story = Story::routed(&[Family::V4]);
    story.reconciler = Reconciler::new(story.reconciler.identity().clone());
    story.turn();
    story.view(held(term(1, 7, "a")));
    let request = story.prepares().unwrap();
    story.event(Event::ServicePrepared { request, found: Err("forbidden".into()) });
    assert_eq!(story.slice_writes(), []);
    story.holder(PodFacts { addresses: vec!["10.0.0.8".parse().unwrap()], ..pod("a") });
    story.turn();
    let writes = story.slice_writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].change.endpoint().is_none(), "{writes:?}");
    story.answer_slice(&writes[0]);
    assert_eq!(story.slice_writes(), []);
    story.pass(30_000);
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 a"]);
}

#[test]
fn an_endpoint_is_withdrawn_although_the_spec_is_invalid() {
    for is_held in [true, false] {
        let mut story = Story::routed(&[Family::V4]);
        let slices = story.facts.slices.clone();
        if !is_held {
            story.loses(term(1, 7, "a"));
        }
        let status = serde_json::to_value(&story.facts.lease.as_ref().unwrap().status).unwrap();
        story.store(&json!({"leaseDuration": "1 week"}), &status);
        story.facts.slices = slices;
        story.reconciler = Reconciler::new(story.reconciler.identity().clone());
        story.turn();
        let withdrawn = story.slice_writes();
        assert!(withdrawn.iter().all(|write| write.change.endpoint().is_none()), "{withdrawn:?}");
        assert_eq!(withdrawn.is_empty(), is_held, "{withdrawn:?}");
    }
}

#[test]
fn the_service_is_read_again_after_its_removal() {
    let mut story = Story::routed(&[Family::V4]);
    story.name_service(None);
    let removal = story.slice_writes().remove(0);
    assert_eq!(title(&removal), "IPv4 removed with the Service");
    // The removal has been sent when the field is set again.
    story.name_service(Some(SERVICE));
    story.answer_slice(&removal);
    assert_eq!(story.prepares(), Some(request("a")), "{:?}", story.effects);
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 new", "IPv4 a"]);
}

#[test]
fn a_refused_change_or_removal_is_reported_until_it_succeeds() {
    let mut story = Story::routed(&[Family::V4]);
    let withdrawal = story.loses(term(1, 7, "a")).remove(0);
    story.event(Event::SliceWritten { name: withdrawal.name, outcome: RoleOutcome::Refused("a webhook".into()) });
    let problems = story.problems();
    assert!(problems.len() == 1 && problems[0].contains("could not be changed: a webhook"), "{problems:?}");
    let again = story.slice_writes().remove(0);
    story.answer_slice(&again);
    let outlook = story.reconciler.service_outlook();
    assert!(!matches!(outlook, crate::status::ServiceOutlook::Problem(_)), "{outlook:?}");

    let mut story = Story::routed(&[Family::V4]);
    story.name_service(Some("other"));
    let removal = story.slice_writes().remove(0);
    story.event(Event::SliceWritten { name: removal.name, outcome: RoleOutcome::Refused("a webhook".into()) });
    let problems = story.problems();
    assert!(problems.iter().any(|problem| problem.contains("could not be removed: a webhook")), "{problems:?}");
}

#[test]
fn a_refused_creation_is_reported_and_tried_again_later() {
    let mut story = Story::with_service();
    story.write();
    let found = || Ok(Box::new(prepared(&BOTH)));
    story.event(Event::ServicePrepared { request: request("a"), found: found() });
    let writes = story.slice_writes();
    assert_eq!(writes.iter().map(title).collect::<Vec<_>>(), ["IPv4 new"], "one at a time");
    let refuse = |story: &mut Story| {
        let name = story.slice_writes().remove(0).name;
        story.event(Event::SliceWritten { name, outcome: RoleOutcome::Refused("not ours".into()) });
    };
    refuse(&mut story);
    let problems = story.problems();
    assert!(problems.len() == 1 && problems[0].contains("not ours"), "{problems:?}");
    story.write();
    assert!(story.status_message().contains("not ours"), "{}", story.status_message());
    story.pass(29_000);
    assert_eq!(story.slice_writes(), []);
    story.pass(1000);
    refuse(&mut story);
    assert_eq!(story.problems(), [""; 0], "it was reported before");
    story.pass(30_000);
    assert_eq!(story.serve(&prepared(&BOTH)), ["IPv4 new", "IPv6 new", "IPv4 a", "IPv6 a"]);
    story.pass(60_000);
    story.serve(&prepared(&BOTH));
    assert!(!story.status_message().contains("not ours"), "{}", story.status_message());
}

#[test]
fn a_service_without_slices_is_removed_too() {
    for rename in [false, true] {
        let mut story = Story::with_service();
        assert_eq!(story.prepares(), Some(request("a")));
        story.name_service(rename.then_some("other"));
        assert_eq!(story.slice_writes(), [], "the Service may be created after its removal");
        story.event(Event::ServicePrepared { request: request("a"), found: Ok(Box::new(prepared(&BOTH))) });
        let removal = story.slice_writes().remove(0);
        assert_eq!((title(&removal).as_str(), removal.service.as_str()), ("IPv4 removed with the Service", SERVICE));
        story.answer_slice(&removal);
        assert_eq!(story.slice_writes(), []);
        assert_eq!(story.reconciler.service.is_some(), rename);
    }
}
