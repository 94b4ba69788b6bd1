//! Reads of the keys, by a process that makes no attempt.

use super::*;

#[test]
fn a_read_shows_the_term_that_most_nodes_hold_and_changes_nothing() {
    let mut scenario = Scenario::new();
    scenario.another_holds(0, 88, 20_000);
    scenario.another_holds(1, 77, 9000);
    scenario.another_holds(2, 77, 9000);
    let before = scenario.servers.clone();
    scenario.give(Command::ReadKeys);
    assert_eq!((scenario.refused_by(), scenario.lease.view().keys_read), (Some(Attempt(77)), true));
    assert_eq!(scenario.lease.view().refusal, None, "only an attempt learns how long the keys last");
    assert_eq!((scenario.servers.clone(), scenario.lease.is_quiet()), (before, true));
    scenario.pass(20_001);
    scenario.give(Command::ReadKeys);
    assert_eq!((scenario.refused_by(), scenario.lease.view().keys_read), (None, true));
}

#[test]
fn a_read_shows_who_holds_any_of_the_keys() {
    let mut scenario = Scenario::new();
    scenario.keys = &["b"];
    (0..3).for_each(|node| scenario.another_holds(node, 77, TTL));
    scenario.keys = &KEYS;
    scenario.give(Command::ReadKeys);
    assert_eq!(scenario.refused_by(), Some(Attempt(77)));
}

/// Its release did not reach this node, or it was confirmed nowhere else. With a node that does not answer, nobody knows.
#[test]
fn a_term_on_too_few_nodes_is_not_shown() {
    for (unreachable, known) in [(false, true), (true, false)] {
        let mut scenario = Scenario::new();
        scenario.another_holds(2, 77, 9000);
        if unreachable {
            scenario.links[0] = Link::Down;
        }
        scenario.give(Command::ReadKeys);
        scenario.pass(1000);
        assert_eq!((scenario.refused_by(), scenario.lease.view().keys_read), (None, known), "{unreachable}");
        assert!(!scenario.lease.has_sent(), "the first attempt still needs no turn");
    }
}

#[test]
fn a_read_that_no_majority_answers_shows_nothing() {
    for link in [Link::Down, Link::Away, Link::Silent] {
        let mut scenario = Scenario::new();
        scenario.another_holds(2, 77, 9000);
        scenario.links = [link, link, Link::Up];
        scenario.give(Command::ReadKeys);
        scenario.pass(1000);
        assert_eq!((scenario.refused_by(), scenario.lease.view().keys_read), (None, false), "{link:?}");
    }
}

#[test]
fn an_attempt_and_a_term_know_more_than_a_read() {
    let mut scenario = Scenario::new();
    for node in 0..3 {
        scenario.another_holds(node, 77, 9000);
    }
    scenario.links = [Link::Slow(400); 3];
    scenario.give(Command::ReadKeys);
    scenario.pass(9001);
    scenario.give(Command::ReadKeys);
    scenario.links = [Link::Up; 3];
    scenario.held();
    scenario.sent.clear();
    scenario.give(Command::ReadKeys);
    assert_eq!(scenario.sent, [], "a term runs");
    scenario.pass(1000);
    assert_eq!((scenario.refused_by(), scenario.lease.view().keys_read), (None, false), "the answers came too late");
}

#[test]
fn a_read_keeps_the_refusal_by_the_same_term_only() {
    let mut scenario = Scenario::refused([9000, 9000]);
    let refusal = scenario.lease.view().refusal;
    scenario.give(Command::ReadKeys);
    assert_eq!((refusal.is_some(), scenario.lease.view().refusal), (true, refusal));
    scenario.pass(9001);
    for node in 0..3 {
        scenario.another_holds(node, 88, 9000);
    }
    scenario.give(Command::ReadKeys);
    assert_eq!((scenario.refused_by(), scenario.lease.view().refusal), (Some(Attempt(88)), None));
}
