//! Attempts that propose a token.

use super::*;

impl Scenario {
    fn propose(&mut self, token: u64) -> Attempt {
        self.want_above(0, Some(token))
    }

    fn fences(&mut self, fences: [u64; 3]) {
        for (server, fence) in self.servers.iter_mut().zip(fences) {
            server.fence = Some(fence);
        }
    }
}

#[test]
fn a_token_that_a_majority_takes_needs_no_second_round() {
    let mut scenario = Scenario::new();
    let attempt = scenario.propose(1001);
    let Standing::Publishing(term) = scenario.standing().clone() else { panic!("{:?}", scenario.standing()) };
    assert_eq!((term.id.attempt, term.id.token), (attempt, Token(1001)));
    assert_eq!((term.valid_until, term.stop_at), (Some(Time(1_000_000 + VALID)), Some(Time(1_000_000 + STOP))));
    assert!(!scenario.has_sent("confirm"));
    for node in 0..3 {
        assert_eq!(scenario.values(node), [term_value(attempt, 1001), term_value(attempt, 1001)]);
        assert_eq!(scenario.servers[node].fence, Some(1001));
    }
    scenario.written();
    scenario.pass(STOP * 2);
    assert!(scenario.is_held(), "it is renewed as any other term");
}

#[test]
fn a_node_that_takes_it_late_holds_the_term_without_a_join() {
    let mut scenario = Scenario::new();
    scenario.links[2] = Link::Slow(100);
    scenario.propose(1001);
    scenario.links[2] = Link::Up;
    scenario.written();
    scenario.pass(4999);
    assert_eq!(scenario.sent_to(2), ["acquire"]);
    scenario.pass(20_000);
    assert!(!scenario.has_sent("confirm"));
}

/// Its value is of the attempt, and not of the term.
#[test]
fn a_node_that_takes_a_token_late_that_was_replaced_is_joined() {
    let mut scenario = Scenario::new();
    scenario.fences([1000, 2000, 1000]);
    scenario.links[2] = Link::Slow(100);
    let attempt = scenario.propose(1001);
    scenario.links[2] = Link::Up;
    let id = scenario.written();
    assert_eq!((id.token, scenario.values(2)), (Token(2001), alloc::vec![term_value(attempt, 1001); 2]));
    scenario.pass(200);
    assert_eq!(scenario.sent_to(2), ["acquire", "extend", "confirm"]);
    assert_eq!(scenario.values(2), [term_value(attempt, 2001), term_value(attempt, 2001)]);
}

#[test]
fn a_node_with_a_greater_counter_is_joined_to_the_term_with_the_proposed_token() {
    let mut scenario = Scenario::new();
    scenario.fences([1000, 1000, 3000]);
    let attempt = scenario.propose(1001);
    scenario.written();
    scenario.pass(200);
    assert_eq!(scenario.sent_to(2), ["acquire", "extend", "confirm"]);
    assert_eq!(scenario.values(2), [term_value(attempt, 1001), term_value(attempt, 1001)]);
    assert_eq!(scenario.servers[2].fence, Some(3001));
}

#[test]
fn an_attempt_that_fails_releases_what_took_its_token() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.propose(1001);
    assert_eq!(*scenario.standing(), Standing::Idle);
    assert_eq!(scenario.values(0), [""; 0]);
}

#[test]
fn a_token_that_is_not_above_the_floor_is_not_proposed() {
    let mut scenario = Scenario::new();
    scenario.want_above(5000, Some(5000));
    assert_eq!(scenario.published[0].token, Token(5001));
}

/// A proposal of another attempt, which this node has taken.
fn taken(scenario: &mut Scenario, node: usize, attempt: u128) {
    let vote = scenario.acquire_elsewhere(node, attempt, Some(1001), TTL);
    assert_eq!(vote, Vote::Granted(crate::op::Grant::Proposed(Token(1001))));
}

/// Three programs want one lock at once, and each gets one node. None of them waits until the others' keys end.
#[test]
fn proposals_that_too_few_have_taken_are_not_waited_for() {
    let mut scenario = Scenario::new();
    taken(&mut scenario, 0, 77);
    taken(&mut scenario, 1, 88);
    scenario.propose(1001);
    assert_eq!(*scenario.standing(), Standing::Idle);
    let view = scenario.lease.view();
    assert!(view.retry_at.unwrap() <= Time(scenario.now + 100), "{view:?}");
    assert_eq!((&view.refused_by, view.keys_read, view.refusal), (&None, true, None), "nobody holds the lease");
}

/// The third node does not answer, so neither contender knows whether the other has a term.
#[test]
fn a_proposal_on_one_of_two_nodes_says_nothing_about_a_holder() {
    let mut scenario = Scenario::new();
    scenario.links[2] = Link::Away;
    taken(&mut scenario, 1, 88);
    scenario.propose(1001);
    let view = scenario.lease.view();
    assert_eq!((&view.refused_by, view.keys_read), (&None, false));
    assert!(view.retry_at.unwrap() <= Time(scenario.now + 100), "{view:?}");
    scenario.give(Command::ReadKeys);
    let view = scenario.lease.view();
    assert_eq!((&view.refused_by, view.keys_read), (&None, false), "a read of the keys does not know it either");
}

#[test]
fn a_term_on_the_two_nodes_that_answer_is_shown_after_the_second_answer() {
    let mut scenario = Scenario::new();
    scenario.links = [Link::Away, Link::Up, Link::Slow(100)];
    taken(&mut scenario, 1, 88);
    taken(&mut scenario, 2, 88);
    scenario.propose(1002);
    assert!(matches!(scenario.standing(), Standing::Acquiring(..)));
    scenario.pass(100);
    let view = scenario.lease.view();
    assert_eq!(view.refused_by.as_ref().map(|by| by.attempt), Some(Attempt(88)));
    assert!(view.retry_at.unwrap() > Time(scenario.now + TTL - 1000), "it waits for the end of the keys: {view:?}");
}

/// Two attempts with two of four nodes each could not tell that neither has a majority.
#[test]
fn an_even_number_of_nodes_gets_no_proposal() {
    let quorum = Quorum::of(2).unwrap();
    let mut scenario = Scenario::with(Config { quorum, ..config() }, None);
    scenario.propose(5000);
    assert_eq!(scenario.published[0].token, Token(1001));
}

/// The node took the proposal, its answer was lost, and round 2 chose a greater token.
#[test]
fn a_node_that_kept_a_replaced_token_is_joined() {
    let mut scenario = Scenario::new();
    scenario.fences([1000, 2000, 1000]);
    scenario.links[2] = Link::Deaf;
    let attempt = scenario.propose(1001);
    let id = scenario.written();
    assert_eq!((id.token, scenario.values(2)), (Token(2001), alloc::vec![term_value(attempt, 1001); 2]));
    scenario.links[2] = Link::Up;
    scenario.pass(12_000);
    assert_eq!(scenario.values(2), [term_value(attempt, 2001), term_value(attempt, 2001)]);
}

/// The other attempt learns at about this time that it has failed, and releases the node.
#[test]
fn a_node_that_refused_is_asked_again_when_its_key_is_released() {
    let mut scenario = Scenario::new();
    scenario.lease.delay_joins(Millis(20));
    taken(&mut scenario, 2, 77);
    scenario.links[1] = Link::Slow(10);
    scenario.propose(1002);
    scenario.links[1] = Link::Up;
    scenario.pass(10);
    scenario.written();
    scenario.pass(19);
    assert_eq!(scenario.sent_to(2), ["acquire"]);
    scenario.pass(1);
    assert_eq!(scenario.sent_to(2), ["acquire", "acquire"]);
}
