//! Keeping a term.

use super::*;

#[test]
fn a_straggler_is_joined_at_once_and_the_term_is_renewed_every_interval() {
    let mut story = Story::new();
    let id = story.held();
    // The third grant came after the decision: a round begun after it has proven it, and then it was confirmed.
    assert_eq!(story.renewals, [Renewal::Success { took: Millis(0), left: Millis(VALID) }]);
    let sent: Vec<_> = story.sent.iter().filter(|(node, _)| node.index() == 2).map(|(_, op)| op.clone()).collect();
    assert!(matches!(sent.as_slice(), [Op::Acquire { .. }, Op::Extend { .. }, Op::Confirm { .. }]), "{sent:?}");
    assert_eq!(story.values(2), [term_value(id.attempt, 1001), term_value(id.attempt, 1001)]);
    story.pass(600_000);
    assert!(story.is_held());
    assert_eq!(story.renewals.len(), 121);
}

#[test]
fn a_node_that_dies_right_after_the_acquire_costs_nothing() {
    for dead in 0..3 {
        let mut story = Story::new();
        let id = story.held();
        story.links[dead] = Link::Down;
        story.pass(60_000);
        assert!(story.is_held(), "without node {dead}: {:?}", story.standing());
        assert_eq!(story.standing().term().map(|term| term.id.clone()), Some(id));
    }
}

#[test]
fn a_node_that_grants_and_never_confirms_is_asked_no_faster_than_failed_rounds_are() {
    let mut story = Story::new();
    story.held();
    story.pass(60_000);
    story.sent.clear();
    for _ in 0..20 {
        story.drop_keys(2);
        story.pass(1000);
    }
    let rounds = story.sent.iter().filter(|(_, op)| matches!(op, Op::Extend { .. })).count();
    // 3 nodes, and a round every 2.5 s at most.
    assert!(story.is_held() && rounds <= 3 * 9, "{rounds}");
}

#[test]
fn two_lost_nodes_end_the_belief_at_stop_at_and_nothing_is_released() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    let last_good = story.now;
    story.pass(1);
    story.links = [Link::Silent, Link::Silent, Link::Up];
    story.sent.clear();
    story.pass_to(last_good + STOP - 1);
    assert!(story.is_held(), "one millisecond before");
    story.pass_to(last_good + STOP);
    let view = story.lease.view().clone();
    assert_eq!(view.standing, Standing::Idle);
    let ending = view.ending.unwrap();
    assert_eq!((ending.id, ending.reason), (id, EndReason::Deadline));
    assert!(!story.sent.iter().any(|(_, op)| matches!(op, Op::Release { .. })), "another may still believe");
    assert!(story.sent.iter().any(|(_, op)| matches!(op, Op::Seal { .. })));
}

#[test]
fn a_quorum_that_is_back_before_stop_at_costs_nothing() {
    let mut story = Story::new();
    let id = story.held();
    story.links = [Link::Down, Link::Down, Link::Up];
    story.pass(STOP - 3000);
    assert_eq!(story.standing().term().map(|term| term.failed_rounds > 2), Some(true));
    story.links = [Link::Up; 3];
    story.pass(3000);
    assert_eq!(story.standing().term().map(|term| (term.failed_rounds, term.id.clone())), Some((0, id)));
}

#[test]
fn failed_rounds_are_retried_at_the_pace_from_start_to_start() {
    let mut story = Story::new();
    story.held();
    story.links = [Link::Down; 3];
    story.pass(5000);
    story.sent.clear();
    story.pass(2499);
    assert_eq!(story.sent.len(), 0);
    story.pass(1);
    assert_eq!(story.sent.len(), 3, "min(5 s / 2, 30 s / 10)");
}

#[test]
fn too_many_definite_misses_end_the_term_at_once_and_seal() {
    let mut story = Story::new();
    story.held();
    story.pass(5000);
    story.drop_keys(0);
    story.drop_keys(1);
    story.pass(5000);
    let view = story.lease.view();
    assert_eq!(view.ending.as_ref().map(|ending| (ending.reason, ending.sealed)), Some((EndReason::Misses, false)));
    assert_eq!(story.renewals.last(), Some(&Renewal::Lost));
    assert!(story.values(2)[0].starts_with("s:"), "the surviving key is sealed, not deleted");
}

#[test]
fn a_node_that_lost_its_keys_is_joined_again_only_after_a_later_round() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.drop_keys(0);
    story.pass(5000);
    assert!(story.values(0)[0].starts_with("p:"), "granted, not confirmed: {:?}", story.values(0));
    story.pass(5000);
    assert_eq!(story.values(0)[0], term_value(id.attempt, 1001));
    story.drop_keys(1);
    story.pass(5000);
    assert!(story.is_held(), "the join carries the next fault");
}

#[test]
fn new_durations_count_from_the_next_round() {
    let mut story = Story::new();
    story.held();
    let before = story.standing().term().and_then(|term| term.valid_until);
    story.give(Input::Configure(Config { ttl: Millis(60_000), ..config() }));
    assert_eq!(story.standing().term().and_then(|term| term.valid_until), before);
    story.pass(5000);
    assert_eq!(story.standing().term().and_then(|term| term.valid_until), Some(Time(story.now + 59_398)));
}

/// Another attempt holds the story's keys on `node`; it is released by clearing the node.
fn contender_on(story: &mut Story, node: usize) {
    let marker = Membership { generation: 1, fingerprint: "f".into() }.marker(story.servers[node].run_id.clone());
    let op = Op::Acquire { attempt: Attempt(77), ttl: Millis(TTL), holder: Holder("contender".into()) };
    let call = Call { keys: alloc::vec!["a", "b"], marker, deadline: u64::MAX, op };
    assert!(matches!(story.servers[node].vote(story.now, &call), Vote::Granted(_)));
}

fn sent_to(story: &Story, node: u8) -> Vec<&'static str> {
    let name = |op: &Op| match op {
        Op::Acquire { .. } => "acquire",
        Op::Confirm { .. } => "confirm",
        Op::Extend { .. } => "extend",
        Op::Seal { .. } => "seal",
        Op::Release { .. } => "release",
    };
    story.sent.iter().filter(|(to, _)| to.0 == node).map(|(_, op)| name(op)).collect()
}

#[test]
fn a_node_where_a_contender_stood_is_joined_at_retry_pace_and_not_only_with_the_next_renewal() {
    let mut story = Story::new();
    contender_on(&mut story, 2);
    let id = story.held();
    assert_eq!(sent_to(&story, 2), ["acquire", "acquire"], "once in round 1, once as the first join");
    story.pass(2499);
    assert_eq!(sent_to(&story, 2).len(), 2, "and then at the pace of retries");
    story.drop_keys(2);
    story.pass(1);
    assert_eq!(story.values(2)[0], term_value(id.attempt, 1001), "2.5 s after the election, half an interval");
    assert_eq!(sent_to(&story, 2), ["acquire", "acquire", "acquire", "extend", "confirm"]);
    story.links[0] = Link::Down;
    story.pass(60_000);
    assert!(story.is_held(), "the third node carries the first fault");
}

#[test]
fn a_contender_that_releases_at_once_costs_the_term_no_time_on_a_bare_majority() {
    let mut story = Story::new();
    contender_on(&mut story, 2);
    story.links[1] = Link::Silent;
    story.want();
    story.drop_keys(2);
    story.links[1] = Link::Up;
    let (_, round, node) = story.silent.remove(0);
    let marker = Membership { generation: 1, fingerprint: "f".into() }.marker("r1".into());
    let op = Op::Acquire { attempt: Attempt(1), ttl: Millis(TTL), holder: Holder("pod".into()) };
    let call = Call { keys: alloc::vec!["a", "b"], marker, deadline: u64::MAX, op };
    let vote = story.servers[1].vote(story.now, &call);
    story.give(Input::Vote { round, node, vote });
    assert!(matches!(story.standing(), Standing::Publishing(_)), "{:?}", story.standing());
    assert_eq!(story.values(2)[0], term_value(Attempt(1), 1001), "joined while the publication is under way");
}

#[test]
fn a_node_that_goes_on_refusing_is_asked_once_a_pace_and_one_that_is_away_once_an_interval() {
    let mut story = Story::new();
    contender_on(&mut story, 2);
    story.held();
    story.sent.clear();
    story.pass(25_000);
    assert_eq!(story.sent.iter().filter(|(_, op)| matches!(op, Op::Acquire { .. })).count(), 10);
    let mut story = Story::new();
    story.links[2] = Link::Away;
    story.held();
    story.sent.clear();
    story.pass(25_000);
    assert_eq!(story.sent.iter().filter(|(_, op)| matches!(op, Op::Acquire { .. })).count(), 5);
}

#[test]
fn a_node_that_loses_its_keys_during_the_term_and_refuses_once_is_joined_at_retry_pace() {
    let mut story = Story::new();
    let id = story.held();
    story.pass(5000);
    story.drop_keys(2);
    contender_on(&mut story, 2);
    story.pass(5000);
    story.drop_keys(2);
    story.pass(2500);
    assert_eq!(story.values(2)[0], term_value(id.attempt, 1001));
}

#[test]
fn a_term_whose_rounds_fail_joins_no_node() {
    let mut story = Story::new();
    contender_on(&mut story, 2);
    story.held();
    story.links = [Link::Up, Link::Down, Link::Up];
    story.drop_keys(2);
    story.pass(5000 - 2500);
    story.drop_keys(2);
    story.pass(2500);
    story.sent.clear();
    story.pass_to(1_000_000 + STOP - 1);
    assert!(!story.sent.iter().any(|(_, op)| matches!(op, Op::Acquire { .. })), "{:?}", story.sent);
}
