//! Taking the lease.

use super::*;

#[test]
fn a_term_is_taken_published_and_only_then_held() {
    let mut scenario = Scenario::new();
    let attempt = scenario.want();
    let Standing::Publishing(term) = scenario.standing().clone() else { panic!("{:?}", scenario.standing()) };
    assert_eq!((term.id.attempt, term.id.token), (attempt, Token(1001)));
    assert_eq!(term.valid_until, Some(Time(1_000_000 + VALID)));
    assert_eq!(term.stop_at, Some(Time(1_000_000 + STOP)));
    scenario.written();
    assert!(scenario.is_held());
    assert_eq!(scenario.values(0), [term_value(attempt, 1001), term_value(attempt, 1001)], "all keys or none");
}

#[test]
fn one_stopped_node_does_not_delay_an_acquire() {
    let mut scenario = Scenario::new();
    scenario.links[0] = Link::Silent;
    let before = scenario.now;
    scenario.want();
    assert!(matches!(scenario.standing(), Standing::Publishing(_)));
    assert_eq!(scenario.now, before);
}

#[test]
fn a_failed_attempt_is_released_and_the_next_has_a_fresh_id() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.want();
    assert_eq!(*scenario.standing(), Standing::Idle);
    assert_eq!(scenario.values(0), [""; 0], "released");
    let retry_at = scenario.lease.view().retry_at.unwrap();
    assert!(retry_at > Time(scenario.now) && retry_at <= Time(scenario.now + 100), "a split vote waits in [0, delay]");
    scenario.links = [Link::Up; 3];
    scenario.want();
    scenario.pass(100);
    assert_eq!(scenario.written().attempt, Attempt(2));
}

#[test]
fn a_grant_whose_answer_is_lost_never_becomes_a_term() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Deaf, Link::Down];
    scenario.want();
    assert_eq!(scenario.published, []);
    scenario.pass(40_000);
    assert_eq!(scenario.values(1).len(), 0, "released, or ended by its TTL");
}

#[test]
fn an_outage_of_every_node_leaves_nothing_to_clean_up() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Away; 3];
    for _ in 0..50 {
        scenario.want();
        scenario.pass(11_000);
    }
    assert!(scenario.sent.len() <= 4 * 51, "three acquires and the release that overtook the third answer");
}

#[test]
fn an_attempt_fails_where_another_holds_one_of_its_keys_on_a_majority() {
    let mut scenario = Scenario::new();
    scenario.keys = &["b"];
    scenario.contend(0);
    scenario.contend(1);
    scenario.keys = &KEYS;
    scenario.want();
    assert_eq!(scenario.published, []);
    assert_eq!(scenario.values(2).len(), 0, "all keys or none: those of the third node are released");
}

#[test]
fn a_refusal_says_when_a_majority_can_be_free_of_the_term() {
    let scenario = Scenario::refused([9000, 5000]);
    let refusal = Refusal { asked_at: Time(1_000_000), until: Time(1_005_001) };
    assert_eq!(
        scenario.lease.view().refusal,
        Some(refusal),
        "the second node is free a millisecond after the key's last"
    );
}

#[test]
fn a_refusal_is_shown_until_the_next_attempt_or_until_the_request_ends() {
    for forgets in [false, true] {
        let mut scenario = Scenario::refused([9000, 9000]);
        assert!(scenario.lease.view().refused_by.is_some());
        if forgets {
            scenario.give(Command::Forget);
        } else {
            scenario.pass(10_000);
            scenario.links = [Link::Silent; 3];
            scenario.want();
            assert!(matches!(scenario.standing(), Standing::Acquiring(..)));
        }
        let view = scenario.lease.view();
        assert_eq!((&view.refused_by, view.refusal), (&None, None), "forgets: {forgets}");
    }
}

#[test]
fn a_refusal_is_forgotten_also_beside_a_term_that_was_adopted() {
    let mut scenario = Scenario::refused([9000, 9000]);
    let term = TermId { attempt: Attempt(77), token: Token(2000), holder: Holder("another".into()) };
    scenario.links = [Link::Silent; 3];
    scenario.give(Command::Adopt(term));
    assert!(scenario.lease.view().refused_by.is_some());
    scenario.give(Command::Forget);
    assert_eq!((&scenario.lease.view().refused_by, scenario.lease.view().refusal), (&None, None));
}

/// A release of an earlier term is still repeated: it does not free the keys of another.
#[test]
fn a_refusal_by_another_term_lasts_while_an_own_one_is_released() {
    let (mut scenario, first) = Scenario::holding();
    scenario.links[2] = Link::Away;
    scenario.give(Command::End { term: first, proof: true });
    scenario.another_holds(0, 77, 9000);
    scenario.another_holds(1, 77, 9000);
    scenario.want();
    assert_eq!(scenario.refused_by(), Some(Attempt(77)));
}

#[test]
fn terms_that_no_majority_shows_are_no_refusal() {
    let mut scenario = Scenario::new();
    scenario.another_holds(0, 77, 9000);
    scenario.another_holds(1, 88, 5000);
    scenario.want();
    let view = scenario.lease.view();
    assert_eq!(view.refused_by, None, "they may be proposals that too few nodes have taken");
    assert_eq!(view.refusal, None, "the two nodes show different terms");
    let mut pending = Scenario::new();
    pending.contend(0);
    pending.contend(1);
    pending.want();
    assert_eq!(pending.lease.view().refusal, None, "an attempt is no term");
}

#[test]
fn an_attempt_without_answers_fails_at_the_timeout_of_a_command() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Slow(600), Link::Slow(600)];
    scenario.want();
    scenario.pass(499);
    assert!(matches!(scenario.standing(), Standing::Acquiring { .. }), "{:?}", scenario.standing());
    scenario.pass(1);
    assert_eq!(*scenario.standing(), Standing::Idle);
}

#[test]
fn an_unanswered_publication_is_extended_and_not_believed() {
    let mut scenario = Scenario::new();
    let attempt = scenario.want();
    scenario.give(Command::Published { attempt, outcome: Publication::Unknown });
    scenario.pass(100_000);
    assert!(matches!(scenario.standing(), Standing::Publishing(_)));
    scenario.written();
    assert!(scenario.is_held());
}

#[test]
fn forget_releases_an_attempt_that_is_not_published() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Silent, Link::Silent];
    scenario.want();
    assert!(matches!(scenario.standing(), Standing::Acquiring(..)));
    scenario.give(Command::Forget);
    assert_eq!(*scenario.standing(), Standing::Idle);
    assert_eq!(scenario.values(0).len(), 0);
    scenario.pass(60_000);
    assert_eq!(scenario.published, []);
}

#[test]
fn a_slow_acquire_that_reaches_stop_at_is_released() {
    let mut scenario = Scenario::new();
    scenario.restart(Config { command_timeout: Millis(20_000), ..config() });
    scenario.links = [Link::Slow(STOP); 3];
    scenario.want();
    scenario.now += STOP;
    for node in [0, 1] {
        scenario.answer(node, None);
    }
    assert_eq!(scenario.published, []);
    assert_eq!(*scenario.standing(), Standing::Idle);
}

/// An attempt that two nodes have granted. The first has confirmed it, and the second is asked.
fn half_confirmed(second: Link) -> Scenario {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Slow(100), Link::Down];
    scenario.want();
    scenario.links[1] = second;
    if second == Link::Up {
        scenario.drop_keys(1);
    }
    scenario.answer(1, None);
    scenario
}

fn confirms_to_the_second(scenario: &Scenario) -> usize {
    scenario.sent.iter().filter(|(node, op)| node.0 == 1 && matches!(op, Op::Confirm { .. })).count()
}

#[test]
fn a_confirm_that_a_node_refuses_is_not_repeated() {
    let scenario = half_confirmed(Link::Up);
    assert_eq!((scenario.standing(), confirms_to_the_second(&scenario)), (&Standing::Idle, 1));
}

#[test]
fn a_confirm_that_a_node_did_not_execute_is_repeated_at_once() {
    let mut scenario = half_confirmed(Link::Silent);
    scenario.links[1] = Link::Up;
    scenario.answer(1, Some(Vote::Abstained));
    assert_eq!((scenario.published.len(), confirms_to_the_second(&scenario)), (1, 2));
}

#[test]
fn a_confirm_without_an_answer_is_repeated_once() {
    let mut answered = half_confirmed(Link::Silent);
    assert_eq!(answered.published, [], "node 1 does not answer round 2");
    answered.links[1] = Link::Up;
    answered.pass(500);
    assert_eq!(answered.published.len(), 1);
    let mut scenario = half_confirmed(Link::Silent);
    scenario.pass(999);
    assert!(matches!(scenario.standing(), Standing::Acquiring(..)), "{:?}", scenario.standing());
    scenario.pass(1);
    assert_eq!((scenario.standing(), confirms_to_the_second(&scenario)), (&Standing::Idle, 2));
}

#[test]
fn a_grant_that_comes_after_the_term_was_taken_is_confirmed() {
    let mut scenario = Scenario::new();
    scenario.links[2] = Link::Slow(100);
    let id = scenario.held();
    scenario.links[2] = Link::Up;
    scenario.pass(100);
    assert_eq!(scenario.values(2)[0], term_value(id.attempt, id.token.0));
    let acquires = scenario.sent.iter().filter(|(node, op)| node.0 == 2 && matches!(op, Op::Acquire { .. })).count();
    assert_eq!(acquires, 1);
}

#[test]
fn the_next_attempt_waits_until_a_majority_can_be_free() {
    let scenario = Scenario::refused([9000, 5000]);
    let wait = scenario.lease.view().retry_at.unwrap().since(Time(scenario.now));
    assert!((5001..=5101).contains(&wait.0), "{wait:?}");
}

/// A program makes its own delays. The attempt ends when a majority has shown the term.
#[test]
fn without_a_delay_the_next_attempt_waits_until_the_keys_that_were_shown_end() {
    let mut scenario = Scenario::new();
    let backoff = Backoff::one_attempt(100);
    scenario.restart(Config { backoff, ..config() });
    scenario.links = [Link::Away, Link::Up, Link::Slow(100)];
    scenario.another_holds(1, 77, 2000);
    scenario.another_holds(2, 77, 2000);
    scenario.want();
    assert!(matches!(scenario.standing(), Standing::Acquiring(..)), "one node alone shows no term");
    scenario.pass(100);
    let wait = scenario.lease.view().retry_at.unwrap().since(Time(scenario.now));
    assert!((1901..=2201).contains(&wait.0), "{wait:?}");
}

#[test]
fn without_a_delay_the_next_attempt_waits_at_most_one_lease_for_the_key_that_one_node_shows() {
    let mut scenario = Scenario::new();
    scenario.restart(Config { backoff: Backoff::one_attempt(100), ..config() });
    scenario.links = [Link::Up, Link::Away, Link::Up];
    scenario.another_holds(2, 77, 57_000);
    scenario.execute(2, Op::Seal { attempt: Attempt(77) }, Time(u64::MAX));
    scenario.want();
    let wait = scenario.lease.view().retry_at.unwrap().since(Time(scenario.now));
    assert!(wait.0 > 0 && wait.0 <= TTL, "{wait:?}");
}

#[test]
fn bursts_end_at_the_limit_and_begin_again_after_one_lease() {
    let mut scenario = Scenario::new();
    let backoff = Backoff { limit: Some(2), ..config().backoff };
    scenario.restart(Config { backoff, ..config() });
    scenario.links = [Link::Down; 3];
    scenario.want();
    assert!(scenario.lease.view().retry_at.unwrap() <= Time(scenario.now + 110));
    scenario.pass(110);
    scenario.want();
    assert_eq!(scenario.lease.view().retry_at, Some(Time(scenario.now + TTL)));
    scenario.links = [Link::Up; 3];
    scenario.want();
    assert_eq!(scenario.published, []);
    scenario.give(Command::TryNow);
    assert_eq!(scenario.published.len(), 1, "a relevant change begins a new burst");
}
