//! Ending a term.

use super::*;

#[test]
fn a_process_that_wakes_after_the_end_of_validity_asks_for_no_wake_in_the_past() {
    let mut story = Story::new();
    let id = story.held();
    story.links = [Link::Silent; 3];
    story.give(Input::End { term: id, proof: false });
    story.pass(1000);
    story.now += VALID;
    story.give(Input::Wake);
    assert!(story.lease.view().ending.is_some(), "the keys may still stand");
    assert!(story.lease.next_deadline().unwrap() > Time(story.now), "{:?}", story.lease.next_deadline());
}

#[test]
fn proof_releases_at_once_and_the_next_holder_takes_a_greater_token() {
    let mut story = Story::new();
    let first = story.held();
    story.pass(7000);
    story.give(Input::End { term: first.clone(), proof: true });
    assert_eq!(*story.standing(), Standing::Idle);
    story.want();
    let second = story.written();
    assert!(second.token > first.token);
    assert_ne!(second.attempt, first.attempt);
}

#[test]
fn without_proof_the_term_is_sealed_and_its_ttl_waited_out() {
    let mut story = Story::new();
    let first = story.held();
    story.pass(5000);
    let extended = story.now;
    story.pass(1000);
    story.give(Input::End { term: first.clone(), proof: false });
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.sealed), Some(true));
    story.want();
    let refused = story.lease.view().refused_by.clone().unwrap();
    assert_eq!((refused.stage, refused.attempt), (crate::op::Stage::Sealed, first.attempt));
    let retry_at = story.lease.view().retry_at.unwrap();
    assert!(retry_at.0 > extended + TTL && retry_at.0 <= extended + TTL + 101, "{retry_at:?}");
    story.pass_to(retry_at.0);
    story.want();
    assert!(story.written().token > first.token);
}

#[test]
fn proof_after_the_seal_releases_the_sealed_keys() {
    let mut story = Story::new();
    let first = story.held();
    story.give(Input::End { term: first.clone(), proof: false });
    assert!(story.values(0)[0].starts_with("s:"));
    story.give(Input::End { term: first, proof: true });
    assert_eq!(story.values(0).len() + story.values(1).len() + story.values(2).len(), 0);
    assert_eq!(story.lease.view().ending, None);
}

#[test]
fn a_release_is_repeated_until_a_silent_node_has_heard_it() {
    let mut story = Story::new();
    let first = story.held();
    story.links[1] = Link::Silent;
    story.give(Input::End { term: first, proof: true });
    assert_eq!(story.values(1).len(), 2);
    story.pass(1000);
    story.links[1] = Link::Up;
    story.pass(5000);
    assert_eq!(story.values(1).len(), 0);
    story.sent.clear();
    story.pass(60_000);
    assert_eq!(story.sent, [], "and then nothing is left to do");
}

#[test]
fn a_superseded_publication_is_sealed_and_never_released() {
    let mut story = Story::new();
    let attempt = story.want();
    story.sent.clear();
    story.give(Input::Published { attempt, outcome: Publication::Superseded });
    assert_eq!(story.lease.view().ending.as_ref().map(|ending| ending.reason), Some(EndReason::Superseded));
    assert!(story.sent.iter().all(|(_, op)| matches!(op, Op::Seal { .. })), "{:?}", story.sent);
}

#[test]
fn a_term_known_from_the_status_only_can_be_sealed_and_released() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.lease = Lease::new(config());
    story.give(Input::End { term: id.clone(), proof: false });
    assert!(story.values(1)[0].starts_with("s:"));
    story.give(Input::Adopt(id.clone()));
    assert_eq!(*story.standing(), Standing::Idle, "what is ending is not adopted");
    story.give(Input::End { term: id, proof: true });
    assert_eq!(story.values(1).len(), 0);
}
