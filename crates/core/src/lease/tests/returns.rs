//! A node votes again: it is joined before the next renewal.

use super::*;

/// A term that is renewed every 20 s. A faster retry pace than that would not join the node in time.
fn slow() -> Scenario {
    let config = Config { ttl: Millis(60_000), renew_interval: Millis(20_000), ..config() };
    let mut scenario = Scenario::with(config, None);
    scenario.lease.delay_joins(Millis(20));
    scenario
}

fn returned(scenario: &mut Scenario, node: usize, after: u64) {
    scenario.links[node] = Link::Up;
    let ask_by = Time(scenario.now + after);
    scenario.give(Input::NodeReturned { ask_by });
}

fn rounds(scenario: &Scenario) -> usize {
    scenario.sent.iter().filter(|(node, op)| node.0 == 0 && matches!(op, Op::Extend { .. })).count()
}

/// Another node may fail now.
fn is_on_all(scenario: &mut Scenario, id: &TermId) {
    for node in 0..3 {
        assert_eq!(scenario.values(node)[0], term_value(id.attempt, id.token.0), "node {node}");
    }
    scenario.links[0] = Link::Down;
    scenario.pass(60_000);
    assert_eq!(scenario.term().map(|term| (term.failed_rounds, &term.id)), Some((0, id)));
    assert!(scenario.is_held());
}

#[test]
fn a_node_that_comes_back_empty_is_joined_before_the_next_renewal() {
    let mut scenario = slow();
    let id = scenario.held();
    scenario.pass(1000);
    scenario.links[2] = Link::Away;
    scenario.drop_keys(2);
    scenario.pass(62_000);
    scenario.sent.clear();
    returned(&mut scenario, 2, 300);
    scenario.pass(299);
    assert!(scenario.sent.is_empty(), "the driver spreads the rounds");
    scenario.pass(21);
    assert_eq!(scenario.sent_to(2), ["extend", "acquire", "extend", "confirm"]);
    is_on_all(&mut scenario, &id);
}

#[test]
fn a_node_that_was_away_during_the_acquire_is_joined_while_the_publication_is_under_way() {
    let mut scenario = slow();
    scenario.links[2] = Link::Away;
    scenario.want();
    scenario.pass(1000);
    returned(&mut scenario, 2, 0);
    scenario.pass(20);
    assert!(matches!(scenario.standing(), Standing::Publishing(_)));
    let id = scenario.written();
    is_on_all(&mut scenario, &id);
}

#[test]
fn a_node_that_returns_during_the_attempt_is_joined_after_it() {
    let mut scenario = slow();
    scenario.links = [Link::Up, Link::Slow(100), Link::Away];
    scenario.want();
    returned(&mut scenario, 2, 0);
    scenario.links[1] = Link::Up;
    scenario.pass(119);
    assert!(matches!(scenario.standing(), Standing::Publishing(_)) && !scenario.has_sent("extend"), "the delay");
    scenario.pass(21);
    let id = scenario.written();
    is_on_all(&mut scenario, &id);
}

#[test]
fn a_node_that_returns_during_a_round_is_asked_by_another() {
    let mut scenario = slow();
    let id = scenario.held();
    scenario.pass(20);
    scenario.links = [Link::Up, Link::Slow(100), Link::Away];
    scenario.drop_keys(2);
    let due = scenario.lease.next_round_at().unwrap();
    scenario.pass_to(due.0);
    assert_eq!(scenario.lease.next_round_at(), None, "a round is under way");
    scenario.links[1] = Link::Up;
    returned(&mut scenario, 2, 0);
    scenario.sent.clear();
    scenario.pass(100);
    assert_eq!((scenario.lease.next_round_at(), scenario.sent.len()), (Some(Time(scenario.now + 20)), 0), "the delay");
    scenario.pass(100);
    is_on_all(&mut scenario, &id);
}

#[test]
fn a_node_that_still_holds_the_term_gets_a_fresh_ttl_and_no_join() {
    let mut scenario = slow();
    let id = scenario.held();
    scenario.pass(1000);
    scenario.links[2] = Link::Away;
    scenario.pass(40_000);
    scenario.sent.clear();
    returned(&mut scenario, 2, 0);
    assert_eq!(scenario.sent_to(2), ["extend"]);
    assert_eq!(scenario.life(2, id.attempt), Some(Millis(60_000)));
    scenario.pass(15_000);
    assert_eq!(rounds(&scenario), 1);
    is_on_all(&mut scenario, &id);
}

#[test]
fn the_renewal_does_not_come_later() {
    let mut scenario = slow();
    scenario.held();
    scenario.pass(20);
    let due = scenario.lease.next_round_at().unwrap();
    returned(&mut scenario, 2, 60_000);
    assert_eq!(scenario.lease.next_round_at(), Some(due));
}

#[test]
fn the_return_of_a_node_changes_nothing_without_a_term_or_after_a_failed_round() {
    let mut scenario = slow();
    returned(&mut scenario, 2, 0);
    assert!(scenario.lease.is_quiet() && scenario.sent.is_empty());
    scenario.held();
    scenario.pass(20);
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.pass(21_000);
    assert_eq!(scenario.term().map(|term| term.failed_rounds), Some(1));
    let due = scenario.lease.next_round_at();
    returned(&mut scenario, 2, 0);
    assert_eq!(scenario.lease.next_round_at(), due, "the retry asks every node");
}

/// Of five nodes two grant, at different times, and never confirm. The round for the grant of one is when the other is asked
/// again.
#[test]
fn nodes_that_grant_and_never_confirm_are_asked_at_retry_pace() {
    let config = Config { quorum: Quorum::of(5).unwrap(), ..config() };
    let mut lease = Lease::new(config);
    lease.delay_joins(Millis(20));
    let id = TermId { attempt: Attempt(1), token: Token(7), holder: Holder("pod".into()) };
    let mut now = Time(1000);
    let (mut rounds, mut granted) = (0, 0);
    let mut pending: Vec<(Time, Round, Node, Vote)> = Vec::new();
    lease.handle(now, Command::Adopt(id).into());
    while now < Time(21_000) {
        while let Some(effect) = lease.poll_effect() {
            let Effect::Send { round, node, op, .. } = effect else { continue };
            let faulty = node.index() >= 3;
            rounds += usize::from(node.index() == 0);
            let (delay, vote) = match op {
                Op::Extend { .. } if faulty => (1, Vote::Miss(None)),
                Op::Extend { .. } => (5, Vote::Extended),
                Op::Acquire { .. } => {
                    granted += 1;
                    (if node.index() == 3 { 1 } else { 23 }, Vote::Granted(crate::op::Grant::Numbered(9)))
                }
                _ => (1, Vote::Unknown),
            };
            pending.push((now + Millis(delay), round, node, vote));
        }
        let next = pending.iter().map(|(at, ..)| *at).chain(lease.next_deadline()).min().unwrap();
        now = now.max(next);
        match pending.iter().position(|(at, ..)| *at <= now) {
            Some(place) => {
                let (_, round, node, vote) = pending.remove(place);
                lease.handle(now, Input::Vote { round, node, vote });
            }
            None => lease.handle(now, Input::Wake),
        }
    }
    assert!(matches!(lease.view().standing, Standing::Held(_)) && granted > 8, "{granted} grants");
    // A renewal every 5 s, a round for a grant soon after it, and one every 2.5 s.
    assert!(rounds <= 4 * 4, "{rounds} rounds in 20 s");
}
