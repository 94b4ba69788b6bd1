//! A driver moves the rounds and attempts of a lease in time.

use super::*;

fn extends(story: &Story) -> usize {
    story.sent.iter().filter(|(_, op)| matches!(op, Op::Extend { .. })).count()
}

#[test]
fn a_round_begins_earlier_if_the_driver_says_so_and_never_later() {
    let mut story = Story::new();
    story.held();
    let due = story.lease.next_round_at().unwrap();
    story.lease.renew_by(due + Millis(1000));
    assert_eq!(story.lease.next_round_at(), Some(due));
    story.lease.renew_by(due - Millis(1000));
    assert_eq!(story.lease.next_deadline(), Some(due - Millis(1000)));
    story.sent.clear();
    story.pass_to(due.0 - 1001);
    assert_eq!(extends(&story), 0);
    story.pass_to(due.0 - 1000);
    assert_eq!(extends(&story), 3);
    assert_eq!(story.lease.next_round_at(), Some(due + Millis(4000)), "one interval after it began");
}

#[test]
fn a_held_round_waits_and_the_deadline_does_not() {
    let mut story = Story::new();
    story.held();
    let due = story.lease.next_round_at().unwrap();
    let stop_at = story.standing().term().unwrap().stop_at.unwrap();
    story.lease.hold(due + Millis(3000));
    story.sent.clear();
    story.pass_to(due.0 + 2999);
    assert_eq!(extends(&story), 0);
    story.pass_to(due.0 + 3000);
    assert_eq!(extends(&story), 3);
    assert!(story.is_held());

    let mut story = Story::new();
    story.held();
    story.lease.hold(stop_at + Millis(1000));
    story.pass_to(stop_at.0);
    assert!(!story.is_held(), "a driver that holds a round for too long loses the term in time");
}

#[test]
fn a_held_attempt_and_a_held_adoption_begin_when_the_hold_ends() {
    let mut story = Story::new();
    let begin = Time(story.now + 700);
    story.lease.hold(begin);
    story.want();
    assert_eq!(story.lease.next_attempt_at(), Some(Time(0)), "by its back-off it could begin");
    assert_eq!((story.sent.len(), story.lease.next_deadline()), (0, Some(begin)));
    story.pass_to(begin.0);
    assert!(!story.published.is_empty());

    let id = story.written();
    let mut second = Story::new();
    second.servers = story.servers;
    second.lease.hold(Time(second.now + 700));
    second.give(Input::Adopt(id.clone()));
    second.pass(699);
    assert!(second.sent.is_empty() && matches!(second.standing(), Standing::Adopting(_)));
    second.pass(1);
    assert_eq!(second.standing().term().map(|term| term.id.clone()), Some(id));
    assert!(second.is_held());
}
