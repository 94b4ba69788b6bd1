//! A lease that waits for a permit, and the use of the permit.

use super::*;

/// A free lease for which an attempt is due and no permit is free.
fn without_permit() -> Story {
    let mut story = Story::new();
    story.facts.permitted.attempt = false;
    story.answer();
    story
}

#[test]
fn an_attempt_waits_for_a_permit_and_then_for_an_answer_of_the_api_server() {
    let mut story = without_permit();
    assert_eq!((story.wanted(), story.wants(&Effect::Probe)), (None, false));
    assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::Waits);
    story.now += Millis(20_000);
    story.facts.permitted.attempt = true;
    story.turn();
    assert_eq!(story.wanted(), None);
    assert!(story.wants(&Effect::Probe), "the last answer came before the permit: the API server may be away by now");
    assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::Uses);
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("a"));
}

#[test]
fn a_permit_is_used_until_the_term_is_published() {
    let mut story = Story::wanting_a();
    story.view(acquiring(term(1, 7, "a")));
    let uses = |story: &Story| story.reconciler.permit_uses().attempt;
    assert_eq!(uses(&story), PermitUse::Uses);
    story.holder(pod("a"));
    story.view(publishing(term(1, 7, "a")));
    story.write();
    assert_eq!(uses(&story), PermitUse::Uses);
    story.view(held(term(1, 7, "a")));
    assert_eq!(uses(&story), PermitUse::None, "the label needs no permit");
}

#[test]
fn a_failed_attempt_and_a_publication_without_success_give_the_permit_back() {
    let mut story = Story::wanting_a();
    story.view(idle(story.now.0 + 5000));
    assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::None, "the attempt failed");
    for outcome in [StatusOutcome::Refused("no".into()), StatusOutcome::Unanswered("timeout".into())] {
        let mut story = Story::publishing_by_a();
        assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::Uses);
        story.event(Event::StatusWritten(outcome.clone()));
        assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::None, "{outcome:?}");
    }
    let mut story = Story::publishing_by_a();
    story.pass(9999);
    assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::Uses);
    story.pass(1);
    assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::None, "the write has waited for 10 s");
}

#[test]
fn a_lease_that_may_not_begin_a_term_needs_no_permit() {
    type Change = fn(&mut Story);
    let cases: [(&str, Change); 5] = [
        ("no candidate", |story| story.candidates(&[])),
        ("the quorums were not read", |story| story.facts.quorum = Arc::default()),
        ("another replica leads", |story| story.facts.authority = Authority::Follow),
        ("this replica only renews", |story| story.facts.authority = Authority::Renew),
        ("deleted", |story| story.facts.lease = None),
    ];
    for (what, change) in cases {
        let mut story = without_permit();
        assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::Waits);
        change(&mut story);
        story.turn();
        assert_eq!(story.reconciler.permit_uses().attempt, PermitUse::None, "{what}");
    }
}

#[test]
fn a_lease_that_waits_for_a_permit_does_not_write_its_status_for_30_seconds() {
    let mut story = without_permit();
    assert_eq!(story.status_write(), None);
    story.pass(30_249);
    assert_eq!(story.status_write(), None);
    story.pass(1);
    assert!(story.status_write().is_some(), "users must see why nobody holds it");
}

#[test]
fn a_status_waits_for_a_permit_of_its_kind_and_keeps_no_content() {
    let mut story = Story::held_by_a();
    let uses = |story: &Story| story.reconciler.permit_uses();
    story.facts.permitted.end = false;
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert_eq!(story.status_write(), None);
    assert_eq!(uses(&story), PermitUses { end: PermitUse::Waits, ..PermitUses::default() });
    story.facts.permitted.end = true;
    story.turn();
    assert_eq!(story.status_write().map(|write| write.priority), Some(Priority::End));
    assert_eq!(uses(&story), PermitUses { end: PermitUse::Uses, ..PermitUses::default() });
    story.write();
    assert_eq!(uses(&story), PermitUses::default());

    story.facts.permitted.other = false;
    story.candidates(&[pod("a")]);
    story.pass(60_000);
    assert_eq!((story.status_write(), uses(&story).other), (None, PermitUse::Waits));
}

#[test]
fn a_publication_needs_no_permit_to_write() {
    let mut story = Story::wanting_a();
    (story.facts.permitted.end, story.facts.permitted.other) = (false, false);
    story.view(publishing(term(1, 7, "a")));
    assert_eq!(story.status_write().map(|write| write.priority), Some(Priority::Publication));
    assert_eq!(story.reconciler.permit_uses(), PermitUses { attempt: PermitUse::Uses, ..PermitUses::default() });
}

#[test]
fn after_a_refusal_a_status_neither_uses_nor_awaits_a_permit() {
    let mut story = Story::held_by_a();
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert_eq!(story.reconciler.permit_uses().end, PermitUse::Uses);
    story.event(Event::StatusWritten(StatusOutcome::Refused("a webhook".into())));
    story.facts.permitted = Permitted { attempt: true, end: false, other: false };
    story.read_lease();
    story.pass(250);
    assert_eq!(story.status_write().map(|write| write.priority), Some(Priority::End));
    assert_eq!(story.reconciler.permit_uses(), PermitUses::default());
}
