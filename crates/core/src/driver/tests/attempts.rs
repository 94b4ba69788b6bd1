//! Which attempts need a turn.

use super::*;

/// Whether a request starts an attempt although other leases have reserved all turns.
fn starts(driven: &mut Driven, at: u64) -> bool {
    driven.use_up_turns(Time(at));
    driven.requests();
    driven.want(Time(at));
    driven.requests().iter().any(|(_, _, op)| matches!(op, Op::Acquire { .. }))
}

/// A lease whose first attempt has failed, after its back-off.
fn used() -> Driven {
    let mut driven = Driven::new();
    driven.want(Time(100));
    driven.answer(Time(100), &Vote::Abstained);
    driven.wake(Time(90_000));
    driven.requests();
    driven
}

fn end(proof: bool, attempt: u128) -> Command {
    Command::End { term: TermId { attempt: Attempt(attempt), ..term() }, proof }
}

#[test]
fn only_the_first_attempt_of_a_lease_and_one_soon_after_a_released_term_need_no_turn() {
    assert!(starts(&mut Driven::new(), 900));
    assert!(!starts(&mut used(), 100_003), "a repetition");
    assert!(starts(&mut Driven::released(), 1999));
    assert!(!starts(&mut Driven::released(), 2000), "that is too late");

    let mut driven = Driven::released();
    assert!(starts(&mut driven, 1500));
    driven.want_for("another", Time(1501), None);
    assert!(driven.requests().is_empty(), "the next one needs a turn");

    let mut driven = Driven::holding(Time(900));
    driven.command(Time(1000), end(false, 7));
    driven.answer(Time(1000), &Vote::Sealed { ttl_left: CONFIG.ttl });
    assert!(!starts(&mut driven, 1500), "the term was not released");

    let mut driven = Driven::released();
    driven.command(Time(1001), end(true, 77));
    assert!(!starts(&mut driven, 1500), "the end of a term that did not run");
}

#[test]
fn a_turn_from_before_a_term_does_not_delay_the_attempt_after_its_release() {
    let mut driven = used();
    assert!(!starts(&mut driven, 100_003));
    driven.command(Time(100_004), Command::Adopt(term()));
    driven.command(Time(100_005), end(true, 7));
    assert!(starts(&mut driven, 100_006));
}

#[test]
fn without_a_turn_a_request_for_an_attempt_is_dropped() {
    let (now, mut driven) = (Time(100_003), used());
    assert!(!starts(&mut driven, now.0));
    let turn = driven.driver.lease.view().retry_at.unwrap();
    assert!(turn > now + Millis(1000) && turn <= now + turns::ATTEMPT_WAITS, "{turn:?}");
    driven.want(turn - Millis(1));
    driven.wake(turn);
    assert!(driven.requests().is_empty(), "the request was dropped");
    let before = driven.turns.clone();
    driven.want(turn);
    assert_eq!(driven.requests().len(), 3, "a new request at the turn starts");
    assert_eq!(driven.turns, before, "its turn is counted already");
}

#[test]
fn an_attempt_that_starts_is_counted_and_a_request_beside_a_term_is_not() {
    for (mut driven, counts) in [(Driven::new(), true), (used(), true), (Driven::adopting(Time(900)), false)] {
        let (before, held_until) = (driven.turns.clone(), driven.driver.lease.held_until());
        driven.want(Time(100_003));
        assert_eq!(driven.turns != before, counts);
        assert_eq!(driven.driver.lease.held_until(), held_until);
    }
}
