//! The clock of this process stood still: what began before does not count.

use super::*;

#[test]
fn a_term_is_held_again_after_a_round_that_begins_then() {
    let (mut scenario, _) = Scenario::holding();
    scenario.lose(300);
    scenario.feed(Input::ClockJumped);
    assert!(matches!(scenario.standing(), Standing::Adopting(_)), "{:?}", scenario.standing());
    assert_eq!(scenario.believed(), None);
    scenario.give(Input::Wake);
    assert!(scenario.is_held() && !scenario.has_sent("seal"));
}

#[test]
fn answers_to_a_round_from_before_do_not_count() {
    let (mut scenario, _) = Scenario::holding();
    scenario.links = [Link::Silent; 3];
    scenario.pass(5000);
    let round: Vec<_> = core::mem::take(&mut scenario.pending);
    assert_eq!(round.len(), 3);
    scenario.feed(Input::ClockJumped);
    for (_, round, node, _) in round {
        scenario.feed(Input::Vote { round, node, vote: Vote::Extended });
    }
    assert!(matches!(scenario.standing(), Standing::Adopting(_)), "{:?}", scenario.standing());
}

#[test]
fn a_term_whose_keys_ended_meanwhile_is_lost() {
    let (mut scenario, _) = Scenario::holding();
    scenario.forgot = true;
    scenario.lose(TTL + 1);
    scenario.give(Input::ClockJumped);
    assert_eq!(scenario.end_reason(), Some(EndReason::Misses));
}

/// The rounds are farther apart than a wake may be late.
#[test]
fn a_jump_in_the_last_seconds_of_a_term_postpones_its_end_no_more_than_an_earlier_one() {
    for before in (1..5000).step_by(7) {
        let (mut scenario, _) = Scenario::holding();
        let stop_at = scenario.term().and_then(|term| term.stop_at).expect("it is held");
        scenario.links = [Link::Up, Link::Down, Link::Down];
        scenario.pass_to(stop_at.0 - before);
        scenario.give(Input::ClockJumped);
        // It is woken only when it has asked for that.
        scenario.pass_to(stop_at.0 + 2000);
        assert_eq!(scenario.end_reason(), Some(EndReason::NeverConfirmed), "{before}");
    }
}

#[test]
fn a_term_that_is_overrun_stays_so() {
    let (mut scenario, _) = Scenario::holding();
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.give(Command::Configure(Box::new(Config { deadline: OnDeadline::Unconfirm, ..config() })));
    scenario.pass(40_000);
    scenario.give(Input::ClockJumped);
    scenario.give(Command::Configure(Box::new(config())));
    // The round that asks is void.
    scenario.give(Input::ClockJumped);
    scenario.pass(2 * config().command_timeout.0 + 1);
    assert_eq!(scenario.end_reason(), Some(EndReason::Deadline));
}

#[test]
fn an_attempt_is_given_up() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Silent, Link::Silent];
    let attempt = scenario.want();
    scenario.links = [Link::Up; 3];
    scenario.give(Input::ClockJumped);
    assert_eq!(*scenario.standing(), Standing::Idle);
    assert!((0..3).all(|node| scenario.life(node, attempt).is_none()), "its keys are released");
    scenario.pass(60_000);
    assert_eq!(*scenario.standing(), Standing::Idle, "another attempt needs another request");
}

#[test]
fn a_publication_under_way_ends_by_a_seal() {
    let mut scenario = Scenario::new();
    scenario.want();
    assert!(matches!(scenario.standing(), Standing::Publishing(_)));
    scenario.give(Input::ClockJumped);
    assert_eq!(scenario.end_reason(), Some(EndReason::Deadline));
    assert!(scenario.has_sent("seal") && !scenario.has_sent("release"), "the status may name it");
}

#[test]
fn a_seal_is_sent_again() {
    let (mut scenario, term) = Scenario::holding();
    scenario.give(Command::End { term, proof: false });
    let sealed = |scenario: &Scenario| scenario.sealed();
    assert_eq!(sealed(&scenario), Some(true));
    let before = scenario.sent.len();
    scenario.give(Input::ClockJumped);
    assert_eq!((sealed(&scenario), scenario.sent.len()), (Some(true), before + 3));
}

#[test]
fn a_grant_of_a_join_is_asked_for_again() {
    let (mut scenario, term) = Scenario::holding();
    scenario.drop_keys(2);
    scenario.lease.delay_joins(Millis(100));
    scenario.pass(5001);
    assert_eq!(scenario.values(2)[0], format!("p:{}:1002:pod", term.attempt), "granted, and not confirmed");
    scenario.sent.clear();
    scenario.lose(300);
    scenario.give(Input::ClockJumped);
    let steps = scenario.sent_to(2);
    assert_eq!(steps, ["extend", "acquire"], "the round from before the jump does not prove the grant");
    scenario.pass(5000);
    assert_eq!(scenario.values(2)[0], term_value(term.attempt, term.token.0));
}
