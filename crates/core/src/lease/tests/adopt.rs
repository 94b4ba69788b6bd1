//! Adopting a term that the status names.

use super::*;

#[test]
fn a_restarted_process_adopts_by_attempt_and_token() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.restart(config());
    scenario.pass(20_000);
    scenario.give(Command::Adopt(id.clone()));
    assert_eq!(scenario.term().map(|term| term.id.clone()), Some(id));
    assert!(scenario.is_held());
    scenario.pass(100_000);
    assert!(scenario.is_held());
}

#[test]
fn an_adopted_term_that_is_gone_is_lost_at_once() {
    let (mut scenario, id) = Scenario::holding();
    scenario.restart(config());
    scenario.pass(TTL + 1);
    scenario.give(Command::Adopt(id));
    assert_eq!(scenario.end_reason(), Some(EndReason::Misses));
}

#[test]
fn an_adopted_term_without_a_quorum_becomes_uncertain_then_lost() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.restart(config());
    scenario.links = [Link::Down, Link::Down, Link::Up];
    let start = scenario.now;
    scenario.give(Command::Adopt(id.clone()));
    scenario.is_lost_unconfirmed(start, id.attempt);
}

#[test]
fn a_term_that_another_process_keeps_becomes_unconfirmed_once_a_lease_and_is_never_lost() {
    let (mut scenario, id) = Scenario::adopting_alone(config());
    for unconfirmed_after in [5000, 30_302, 30_302] {
        scenario.pass(unconfirmed_after - 1);
        assert!(matches!(scenario.standing(), Standing::Adopting(_)), "{unconfirmed_after}: {:?}", scenario.standing());
        scenario.pass(1);
        assert!(
            matches!(scenario.standing(), Standing::Uncertain(_)),
            "{unconfirmed_after}: {:?}",
            scenario.standing()
        );
        scenario.give(Command::KeptElsewhere(Attempt(99)));
        assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "that is another term");
        scenario.give(Command::KeptElsewhere(id.attempt));
        assert!(matches!(scenario.standing(), Standing::Adopting(_)));
    }
    scenario.pass(200_000);
    assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "the status does not call it unconfirmed yet");
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.pass(4999);
    assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "no other process has had the time to contradict");
    scenario.pass(1);
    assert_eq!(scenario.end_reason(), Some(EndReason::NeverConfirmed));
}

#[test]
fn a_term_that_another_process_kept_once_is_lost_one_lease_after_it_became_uncertain() {
    let (mut scenario, id) = Scenario::adopting_alone(config());
    scenario.give(Command::KeptElsewhere(id.attempt));
    scenario.pass(30_302);
    assert!(matches!(scenario.standing(), Standing::Uncertain(_)), "{:?}", scenario.standing());
    scenario.give(Command::UnconfirmedShown(id.attempt));
    scenario.pass(30_301);
    assert_eq!(scenario.end_reason(), None);
    scenario.pass(1);
    assert_eq!(scenario.end_reason(), Some(EndReason::NeverConfirmed));
}

#[test]
fn the_keys_of_an_adopted_term_may_live_for_a_whole_lease() {
    let (mut scenario, id) = Scenario::holding();
    scenario.restart(config());
    scenario.lease.hold(Time(scenario.now + 10_000));
    scenario.give(Command::Adopt(id.clone()));
    scenario.give(Command::End { term: id, proof: false });
    let keys_until = scenario.keys_until();
    assert_eq!(keys_until, Some(Time(scenario.now + 30_302)));
}

#[test]
fn a_round_that_a_majority_confirms_at_its_own_stop_at_comes_too_late() {
    let (mut scenario, id) = Scenario::holding();
    scenario.restart(Config { command_timeout: Millis(20_000), ..config() });
    scenario.links = [Link::Up, Link::Slow(STOP), Link::Down];
    scenario.give(Command::Adopt(id));
    scenario.pass(STOP);
    assert_eq!(scenario.term().map(|term| (term.failed_rounds, term.valid_until)), Some((1, None)));
}

#[test]
fn an_uncertain_term_that_is_confirmed_is_held_with_the_same_token() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.restart(config());
    scenario.links = [Link::Down, Link::Down, Link::Up];
    scenario.give(Command::Adopt(id.clone()));
    scenario.pass(6000);
    scenario.links = [Link::Up; 3];
    scenario.pass(3000);
    let Standing::Held(term) = scenario.standing() else { panic!("{:?}", scenario.standing()) };
    assert_eq!(term.id, id);
}

#[test]
fn try_now_begins_the_next_round_at_once_after_a_failed_one() {
    let mut scenario = Scenario::new();
    let id = TermId { attempt: Attempt(7), token: Token(1001), holder: Holder("pod".into()) };
    let taken = scenario.held();
    scenario.restart(config());
    scenario.links = [Link::Away; 3];
    scenario.give(Command::Adopt(TermId { attempt: taken.attempt, ..id }));
    assert!(matches!(scenario.standing(), Standing::Adopting(_)), "no node is connected yet");
    scenario.links = [Link::Up; 3];
    scenario.give(Command::TryNow);
    assert!(scenario.is_held(), "{:?}", scenario.standing());
    // After a round that succeeded it changes nothing.
    scenario.sent.clear();
    scenario.give(Command::TryNow);
    assert_eq!(scenario.sent, []);
}

#[test]
fn an_overrun_term_ends_after_one_round_without_a_majority() {
    for answers in [false, true] {
        let (mut scenario, id) = Scenario::holding();
        scenario.restart(Config { deadline: OnDeadline::Unconfirm, ..config() });
        scenario.links = [Link::Down; 3];
        scenario.give(Command::AdoptOverrun(id.clone()));
        scenario.pass(20_000);
        assert_eq!(scenario.end_reason(), None, "it has no right to end it");
        scenario.links = [if answers { Link::Up } else { Link::Down }; 3];
        scenario.give(Command::Configure(Box::new(config())));
        scenario.pass(config().command_timeout.0 + 1);
        assert_eq!(scenario.end_reason(), (!answers).then_some(EndReason::Deadline));
        assert_eq!(matches!(scenario.standing(), Standing::Held(_)), answers, "{:?}", scenario.standing());
    }
}
