//! Attempts that propose a token.

use super::*;

impl Scenario {
    fn propose(&mut self, token: u64) -> Attempt {
        self.attempts += 1;
        let attempt = Attempt(u128::from(self.attempts));
        let (floor, entropy) = (Token(0), Entropy(u64::MAX / 2));
        let fresh = Fresh { attempt, floor, entropy, jumped_at: None, proposal: Some(Token(token)) };
        self.give(Input::Command(Command::Want(Holder("pod".into())), Some(fresh)));
        attempt
    }

    fn fences(&mut self, fences: [u64; 3]) {
        for (server, fence) in self.servers.iter_mut().zip(fences) {
            server.fence = Some(fence);
        }
    }

    fn sent_to(&self, node: u8) -> Vec<&'static str> {
        self.sent.iter().filter(|(to, _)| to.0 == node).map(|(_, op)| name(op)).collect()
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

#[test]
fn a_token_that_too_few_take_is_replaced_by_the_greatest_number() {
    let mut scenario = Scenario::new();
    scenario.fences([1000, 2000, 3000]);
    scenario.links[2] = Link::Down;
    let attempt = scenario.propose(1001);
    assert_eq!(scenario.published[0].token, Token(2001));
    assert_eq!(scenario.values(0), [term_value(attempt, 2001), term_value(attempt, 2001)], "it had taken the proposal");
    assert_eq!((scenario.servers[0].fence, scenario.servers[1].fence), (Some(2001), Some(2001)));
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
    let (floor, proposal) = (Token(5000), Some(Token(5000)));
    let fresh = Fresh { attempt: Attempt(1), floor, entropy: Entropy(0), jumped_at: None, proposal };
    scenario.give(Input::Command(Command::Want(Holder("pod".into())), Some(fresh)));
    assert_eq!(scenario.published[0].token, Token(5001));
}

/// Three programs want one lock at once, and each gets one node. None of them waits until the others' keys end.
#[test]
fn proposals_that_too_few_have_taken_are_not_waited_for() {
    let mut scenario = Scenario::new();
    for (node, attempt) in [(0, 77), (1, 88)] {
        let (attempt, proposal) = (Attempt(attempt), Some(Token(1001)));
        let op = Op::Acquire { attempt, proposal, ttl: Millis(TTL), holder: Holder("contender".into()) };
        let vote = scenario.execute(node, op, Time(u64::MAX));
        assert_eq!(vote, Vote::Granted(crate::op::Grant::Proposed(Token(1001))));
    }
    scenario.propose(1001);
    assert_eq!(*scenario.standing(), Standing::Idle);
    let retry_at = scenario.lease.view().retry_at.unwrap();
    assert!(retry_at <= Time(scenario.now + 100), "{retry_at:?}");
}
