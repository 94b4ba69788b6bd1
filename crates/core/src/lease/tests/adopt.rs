//! Going on with a term that the status names.

use super::*;

#[test]
fn a_restarted_process_adopts_by_attempt_and_token() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.pass(20_000);
    story.give(Input::Adopt(id.clone()));
    assert_eq!(story.standing().term().map(|term| term.id.clone()), Some(id));
    assert!(story.is_held());
    story.pass(100_000);
    assert!(story.is_held());
}

#[test]
fn an_adopted_term_that_is_gone_is_lost_at_once() {
    let mut story = Story::new();
    let id = story.held();
    story.lease = Lease::new(config());
    story.pass(TTL + 1);
    story.give(Input::Adopt(id));
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::Misses));
}

#[test]
fn an_adopted_term_without_a_quorum_becomes_uncertain_then_lost() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.links = [Link::Down, Link::Down, Link::Up];
    let start = story.now;
    story.give(Input::Adopt(id.clone()));
    story.pass_to(start + 4999);
    assert!(matches!(story.standing(), Standing::Adopting(_)));
    story.pass_to(start + 5000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.give(Input::DoubtShown(id.attempt));
    story.pass_to(start + 30_301);
    assert!(matches!(story.standing(), Standing::Uncertain(_)));
    story.pass_to(start + 30_302);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}

#[test]
fn a_term_that_another_process_keeps_is_doubted_once_a_lease_and_never_lost() {
    let mut story = Story::new();
    let id = story.held();
    story.lease = Lease::new(config());
    story.links = [Link::Down; 3];
    story.give(Input::Adopt(id.clone()));
    for doubt_after in [5000, 30_302, 30_302] {
        story.pass(doubt_after - 1);
        assert!(matches!(story.standing(), Standing::Adopting(_)), "{doubt_after}: {:?}", story.standing());
        story.pass(1);
        assert!(matches!(story.standing(), Standing::Uncertain(_)), "{doubt_after}: {:?}", story.standing());
        story.give(Input::KeptElsewhere(Attempt(99)));
        assert!(matches!(story.standing(), Standing::Uncertain(_)), "that is another term");
        story.give(Input::KeptElsewhere(id.attempt));
        assert!(matches!(story.standing(), Standing::Adopting(_)));
    }
    story.pass(200_000);
    assert!(matches!(story.standing(), Standing::Uncertain(_)), "nobody was told of the doubt");
    story.give(Input::DoubtShown(id.attempt));
    story.pass(4999);
    assert!(matches!(story.standing(), Standing::Uncertain(_)), "nobody had the time to answer");
    story.pass(1);
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::NeverConfirmed));
}

#[test]
fn an_uncertain_term_that_is_confirmed_is_held_with_the_same_token() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.links = [Link::Down, Link::Down, Link::Up];
    story.give(Input::Adopt(id.clone()));
    story.pass(6000);
    story.links = [Link::Up; 3];
    story.pass(3000);
    let Standing::Held(term) = story.standing() else { panic!("{:?}", story.standing()) };
    assert_eq!(term.id, id);
}

#[test]
fn a_failed_round_is_not_waited_for_once_the_quorum_is_back() {
    let mut story = Story::new();
    let id = TermId { attempt: Attempt(7), token: Token(1001), holder: Holder("pod".into()) };
    let taken = story.held();
    story.lease = Lease::new(config());
    story.links = [Link::Away; 3];
    story.give(Input::Adopt(TermId { attempt: taken.attempt, ..id }));
    assert!(matches!(story.standing(), Standing::Adopting(_)), "no node is connected yet");
    story.links = [Link::Up; 3];
    story.give(Input::TryNow);
    assert!(story.is_held(), "{:?}", story.standing());
    // A term that is well is left to its pace.
    story.sent.clear();
    story.give(Input::TryNow);
    assert_eq!(story.sent, []);
}
