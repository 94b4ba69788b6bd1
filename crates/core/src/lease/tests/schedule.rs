//! A driver moves the rounds and attempts of a lease in time.

use super::*;

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
