//! A driver moves the rounds and attempts of a lease in time.

use super::*;
use crate::driver::attempts::{Attempts, Requested};

#[test]
fn a_round_begins_earlier_if_the_driver_says_so_and_never_later() {
    let (mut scenario, _) = Scenario::holding();
    let due = scenario.lease.next_round_at().unwrap();
    scenario.lease.renew_by(due + Millis(1000));
    assert_eq!(scenario.lease.next_round_at(), Some(due));
    scenario.lease.renew_by(due - Millis(1000));
    assert_eq!(scenario.lease.next_deadline(), Some(due - Millis(1000)));
    scenario.sent.clear();
    scenario.pass_to(due.0 - 1001);
    assert_eq!(scenario.count("extend"), 0);
    scenario.pass_to(due.0 - 1000);
    assert_eq!(scenario.count("extend"), 3);
    assert_eq!(scenario.lease.next_round_at(), Some(due + Millis(4000)), "one interval after it began");
}

#[test]
fn a_held_round_waits_and_the_deadline_does_not() {
    let (mut scenario, _) = Scenario::holding();
    let due = scenario.lease.next_round_at().unwrap();
    let stop_at = scenario.term().unwrap().stop_at.unwrap();
    scenario.lease.hold(due + Millis(3000));
    scenario.sent.clear();
    scenario.pass_to(due.0 + 2999);
    assert_eq!(scenario.count("extend"), 0);
    scenario.pass_to(due.0 + 3000);
    assert_eq!(scenario.count("extend"), 3);
    assert!(scenario.is_held());

    let (mut scenario, _) = Scenario::holding();
    scenario.lease.hold(stop_at + Millis(1000));
    scenario.pass_to(stop_at.0);
    assert!(!scenario.is_held(), "a driver that holds a round for too long loses the term in time");
}

#[test]
fn a_held_attempt_and_a_held_adoption_begin_when_the_hold_ends() {
    let mut scenario = Scenario::new();
    let begin = Time(scenario.now + 700);
    scenario.lease.hold(begin);
    scenario.want();
    assert_eq!(scenario.lease.next_attempt_at(), Some(Time(0)), "by its back-off it could begin");
    assert_eq!((scenario.sent.len(), scenario.lease.next_deadline()), (0, Some(begin)));
    scenario.pass_to(begin.0);
    assert!(!scenario.published.is_empty());

    let id = scenario.written();
    let mut second = Scenario::new();
    second.servers = scenario.servers;
    second.lease.hold(Time(second.now + 700));
    second.give(Command::Adopt(id.clone()));
    second.pass(699);
    assert!(second.sent.is_empty() && matches!(second.standing(), Standing::Adopting(_)));
    second.pass(1);
    assert_eq!(second.term().map(|term| term.id.clone()), Some(id));
    assert!(second.is_held());
}

/// A machine whose last term was ended, with or without proof.
fn ended(proof: bool) -> (Scenario, Attempts) {
    let (mut scenario, mut attempts) = (Scenario::new(), Attempts::default());
    scenario.held();
    let term = scenario.term().unwrap().id.clone();
    scenario.lease.hold(Time(scenario.now + 9000));
    attempts.term_ends(Time(scenario.now), &mut scenario.lease, &term, proof);
    scenario.give(Command::End { term, proof });
    (scenario, attempts)
}

fn request(scenario: &mut Scenario, attempts: &mut Attempts, turn_after: u64) -> Requested {
    let now = Time(scenario.now);
    attempts.request(now, &mut scenario.lease, &Holder("pod".into()), || now + Millis(turn_after))
}

/// A machine that has made an attempt, which failed.
fn used() -> (Scenario, Attempts) {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Down; 3];
    scenario.want();
    scenario.give(Command::Forget);
    scenario.links = [Link::Up; 3];
    // Longer than its back-off and its releases.
    scenario.pass(60_000);
    scenario.sent.clear();
    (scenario, Attempts::default())
}

#[test]
fn the_first_attempt_of_a_new_lease_needs_no_turn() {
    let (mut scenario, mut attempts) = (Scenario::new(), Attempts::default());
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::StartsWithoutTurn);
    let (mut scenario, mut attempts) = used();
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits, "a repetition");

    let (mut scenario, mut attempts) = (Scenario::new(), Attempts::default());
    scenario.give(Command::Adopt(TermId { attempt: Attempt(77), token: Token(77), holder: Holder("pod".into()) }));
    scenario.give(Command::Forget);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Dropped, "a term runs");
}

#[test]
fn a_request_that_cannot_start_is_dropped_and_the_view_shows_its_turn() {
    let (mut scenario, mut attempts) = used();
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits);
    let turn = Time(scenario.now + 700);
    scenario.give(Input::Wake);
    assert_eq!(scenario.lease.view().retry_at, Some(turn));
    scenario.pass(699);
    assert_eq!(request(&mut scenario, &mut attempts, 0), Requested::Dropped);
    scenario.pass(1);
    assert!(scenario.sent.is_empty(), "nothing starts without a request");
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Starts, "it has its turn");
    scenario.want();
    assert_eq!(request(&mut scenario, &mut attempts, 0), Requested::Dropped, "a term runs");

    let (mut scenario, mut attempts) = used();
    assert_eq!(request(&mut scenario, &mut attempts, 0), Requested::Starts, "its turn is now");
}

#[test]
fn one_attempt_soon_after_a_released_term_needs_no_turn() {
    let (mut scenario, mut attempts) = ended(true);
    scenario.pass(999);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::StartsWithoutTurn);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits, "the next one needs a turn");

    let (mut scenario, mut attempts) = ended(true);
    scenario.pass(1000);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits, "that was too late");

    let (mut scenario, mut attempts) = ended(false);
    scenario.pass(999);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits, "the term was not released");

    let (mut scenario, mut attempts) = ended(true);
    let other = TermId { attempt: Attempt(77), token: Token(77), holder: Holder("pod".into()) };
    attempts.term_ends(Time(scenario.now), &mut scenario.lease, &other, true);
    assert_eq!(request(&mut scenario, &mut attempts, 700), Requested::Waits, "the end of a term that did not run");
}

#[test]
fn a_turn_from_before_a_term_does_not_delay_the_attempt_after_its_release() {
    let (mut scenario, mut attempts) = used();
    assert_eq!(request(&mut scenario, &mut attempts, 60_000), Requested::Waits);
    let term = TermId { attempt: Attempt(77), token: Token(77), holder: Holder("pod".into()) };
    scenario.give(Command::Adopt(term.clone()));
    attempts.term_ends(Time(scenario.now), &mut scenario.lease, &term, true);
    scenario.give(Command::End { term, proof: true });
    assert_eq!(request(&mut scenario, &mut attempts, 60_000), Requested::StartsWithoutTurn);
}
