//! Keeping a term.

use super::*;

#[test]
fn a_straggler_is_joined_at_once_and_the_term_is_renewed_every_interval() {
    let (mut scenario, id) = Scenario::holding();
    // The third node is not part of round 2. A round that began after its grant succeeded, and then it was confirmed.
    assert_eq!(scenario.renewals, [Renewal::Success { took: Millis(0), left: Some(Millis(VALID)) }]);
    let sent: Vec<_> = scenario.sent.iter().filter(|(node, _)| node.index() == 2).map(|(_, op)| op.clone()).collect();
    assert!(matches!(sent.as_slice(), [Op::Acquire { .. }, Op::Extend { .. }, Op::Confirm { .. }]), "{sent:?}");
    assert_eq!(scenario.values(2), [term_value(id.attempt, 1001), term_value(id.attempt, 1001)]);
    scenario.pass(600_000);
    assert!(scenario.is_held());
    assert_eq!(scenario.renewals.len(), 121);
    let left = Some(Millis(VALID - 5000));
    assert_eq!(scenario.renewals.last(), Some(&Renewal::Success { took: Millis(0), left }), "of the round before");
}

#[test]
fn a_driver_may_delay_the_first_join() {
    let mut scenario = Scenario::new();
    scenario.lease.delay_joins(Millis(20));
    let id = scenario.held();
    scenario.pass(19);
    assert_eq!(scenario.sent_to(2), ["acquire"], "a term that ends before needs no join");
    scenario.pass(1);
    assert_eq!(scenario.values(2)[0], term_value(id.attempt, 1001));
}

#[test]
fn a_term_outlives_the_loss_of_any_node_right_after_the_acquire() {
    for dead in 0..3 {
        let (mut scenario, id) = Scenario::holding();
        scenario.links[dead] = Link::Down;
        scenario.pass(60_000);
        assert!(scenario.is_held(), "without node {dead}: {:?}", scenario.standing());
        assert_eq!(scenario.term().map(|term| term.id.clone()), Some(id));
    }
}

#[test]
fn a_node_that_grants_and_never_confirms_is_asked_at_retry_pace() {
    let (mut scenario, _) = Scenario::holding();
    scenario.pass(60_000);
    scenario.sent.clear();
    for _ in 0..20 {
        scenario.drop_keys(2);
        scenario.pass(1000);
    }
    let rounds = scenario.count("extend");
    // 3 nodes, and a round every 2.5 s at most.
    assert!(scenario.is_held() && rounds <= 3 * 9, "{rounds}");
}

#[test]
fn two_lost_nodes_end_the_belief_at_stop_at_and_nothing_is_released() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    let last_good = scenario.now;
    scenario.pass(1);
    scenario.links = [Link::Silent, Link::Silent, Link::Up];
    scenario.sent.clear();
    scenario.pass_to(last_good + STOP - 1);
    assert!(scenario.is_held(), "one millisecond before");
    scenario.pass_to(last_good + STOP);
    let view = scenario.lease.view().clone();
    assert_eq!(view.standing, Standing::Idle);
    let ending = view.ending.unwrap();
    assert_eq!((ending.id, ending.reason), (id, EndReason::Deadline));
    assert!(!scenario.has_sent("release"), "another process may still believe");
    assert!(scenario.has_sent("seal"));
}

#[test]
fn a_term_continues_when_the_quorum_is_back_before_stop_at() {
    let (mut scenario, id) = Scenario::holding();
    scenario.links = [Link::Down, Link::Down, Link::Up];
    scenario.pass(STOP - 3000);
    assert_eq!(scenario.term().map(|term| term.failed_rounds > 2), Some(true));
    scenario.links = [Link::Up; 3];
    scenario.pass(3000);
    assert_eq!(scenario.term().map(|term| (term.failed_rounds, term.id.clone())), Some((0, id)));
    let late = scenario.renewals.iter().find_map(|renewal| match renewal {
        Renewal::Success { left: Some(left), .. } if *left < Millis(VALID / 2) => Some(left.0),
        _ => None,
    });
    assert!(late.is_some_and(|left| left < VALID - STOP + 3000), "{:?}", scenario.renewals);
}

#[test]
fn failed_rounds_are_retried_at_the_pace_from_start_to_start() {
    let (mut scenario, _) = Scenario::holding();
    scenario.links = [Link::Down; 3];
    scenario.pass(5000);
    scenario.sent.clear();
    scenario.pass(2499);
    assert_eq!(scenario.sent.len(), 0);
    scenario.pass(1);
    assert_eq!(scenario.sent.len(), 3, "min(5 s / 2, 30 s / 10)");
}

#[test]
fn too_many_definite_misses_end_the_term_at_once_and_seal() {
    let (mut scenario, _) = Scenario::holding();
    scenario.pass(5000);
    scenario.drop_keys(0);
    scenario.drop_keys(1);
    scenario.pass(5000);
    let view = scenario.lease.view();
    assert_eq!(view.ending.as_ref().map(|ending| (ending.reason, ending.sealed)), Some((EndReason::Misses, false)));
    assert_eq!(scenario.renewals.last(), Some(&Renewal::Lost));
    assert!(scenario.values(2)[0].starts_with("s:"), "the surviving key is sealed, not deleted");
}

#[test]
fn a_node_that_lost_its_keys_is_joined_again_only_after_a_later_round() {
    let mut scenario = Scenario::new();
    scenario.lease.delay_joins(Millis(20));
    let id = scenario.held();
    scenario.pass(20);
    scenario.drop_keys(0);
    scenario.pass(5000);
    assert!(scenario.values(0)[0].starts_with("p:"), "granted, not confirmed: {:?}", scenario.values(0));
    scenario.pass(20);
    assert_eq!(scenario.values(0)[0], term_value(id.attempt, 1001));
    scenario.drop_keys(1);
    scenario.pass(5000);
    assert!(scenario.is_held(), "the joined node tolerates the next fault");
}

#[test]
fn new_durations_count_from_the_next_round() {
    let (mut scenario, _) = Scenario::holding();
    let before = scenario.term().and_then(|term| term.valid_until);
    scenario.give(Command::Configure(Box::new(Config { ttl: Millis(60_000), ..config() })));
    assert_eq!(scenario.term().and_then(|term| term.valid_until), before);
    scenario.pass(5000);
    assert_eq!(scenario.term().and_then(|term| term.valid_until), Some(Time(scenario.now + 59_348)));
}

/// The term is valid for as long as the earlier durations said.
#[test]
fn a_longer_interval_counts_only_after_a_round_with_the_longer_validity() {
    let longer =
        || Command::Configure(Box::new(Config { ttl: Millis(300_000), renew_interval: Millis(60_000), ..config() }));
    let (mut under_way, _) = Scenario::holding();
    under_way.links = [Link::Slow(300); 3];
    under_way.pass(5000);
    under_way.give(longer());
    under_way.pass(300);
    under_way.links = [Link::Up; 3];
    under_way.pass(25_000);
    assert!(under_way.is_held());
    let (mut failed, _) = Scenario::holding();
    failed.give(longer());
    failed.links = [Link::Down; 3];
    failed.pass(5600);
    failed.links = [Link::Up; 3];
    failed.pass(20_000);
    assert!(failed.is_held());
    failed.pass(100_000);
    assert!(failed.is_held());
}

#[test]
fn a_new_configuration_does_not_change_the_nodes() {
    let (mut scenario, _) = Scenario::holding();
    scenario.give(Command::Configure(Box::new(Config { quorum: Quorum::of(5).unwrap(), ..config() })));
    assert_eq!(*scenario.lease.config(), config());
    scenario.pass(60_000);
    assert!(scenario.is_held());
}

#[test]
fn a_node_with_the_grant_of_a_contender_is_joined_at_retry_pace() {
    let mut scenario = Scenario::new();
    scenario.contend(2);
    let id = scenario.held();
    assert_eq!(scenario.sent_to(2), ["acquire", "acquire"], "once in round 1, once as the first join");
    scenario.pass(2499);
    assert_eq!(scenario.sent_to(2).len(), 2, "the next join comes one retry pace later");
    scenario.drop_keys(2);
    scenario.pass(1);
    assert_eq!(scenario.values(2)[0], term_value(id.attempt, 1001), "2.5 s after the election");
    assert_eq!(scenario.sent_to(2), ["acquire", "acquire", "acquire", "extend", "confirm"]);
    scenario.links[0] = Link::Down;
    scenario.pass(60_000);
    assert!(scenario.is_held(), "the third node tolerates the first fault");
}

#[test]
fn a_node_that_a_contender_releases_at_once_is_joined_at_once() {
    let mut scenario = Scenario::new();
    scenario.contend(2);
    scenario.links[1] = Link::Slow(100);
    scenario.want();
    scenario.drop_keys(2);
    scenario.links[1] = Link::Up;
    scenario.answer(1, None);
    assert!(matches!(scenario.standing(), Standing::Publishing(_)), "{:?}", scenario.standing());
    assert_eq!(scenario.values(2)[0], term_value(Attempt(1), 1001), "joined while the publication is under way");
}

#[test]
fn a_node_that_refuses_is_asked_at_retry_pace_and_one_without_a_connection_at_renewal_pace() {
    let mut scenario = Scenario::new();
    scenario.contend(2);
    scenario.held();
    scenario.sent.clear();
    scenario.pass(25_000);
    assert_eq!(scenario.count("acquire"), 10);
    let mut scenario = Scenario::new();
    scenario.links[2] = Link::Away;
    scenario.held();
    scenario.sent.clear();
    scenario.pass(25_000);
    assert_eq!(scenario.count("acquire"), 5);
}

#[test]
fn a_node_that_loses_its_keys_and_refuses_once_is_joined_at_retry_pace() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.drop_keys(2);
    scenario.contend(2);
    scenario.pass(5000);
    scenario.drop_keys(2);
    scenario.pass(2500);
    assert_eq!(scenario.values(2)[0], term_value(id.attempt, 1001));
}

#[test]
fn a_term_whose_rounds_fail_joins_no_node() {
    let mut scenario = Scenario::new();
    scenario.contend(2);
    scenario.held();
    scenario.links[1] = Link::Down;
    scenario.pass(5000);
    assert_eq!(scenario.term().map(|term| term.failed_rounds), Some(1));
    scenario.sent.clear();
    scenario.pass_to(1_000_000 + STOP - 1);
    assert!(scenario.is_held() && scenario.has_sent("extend") && !scenario.has_sent("acquire"), "{:?}", scenario.sent);
}

#[test]
fn a_grant_that_comes_after_a_failed_round_waits_for_the_retry() {
    let mut scenario = Scenario::new();
    scenario.contend(2);
    scenario.held();
    let start = scenario.now;
    scenario.drop_keys(2);
    scenario.links[2] = Link::Slow(2600);
    scenario.pass_to(start + 2500);
    scenario.links = [Link::Up, Link::Down, Link::Down];
    scenario.pass_to(start + 5099);
    assert_eq!(scenario.term().map(|term| term.failed_rounds), Some(1));
    assert_eq!(scenario.pending.len(), 1, "the grant is on the way");
    scenario.pass(1);
    assert_eq!((scenario.pending.len(), scenario.lease.next_round_at()), (0, Some(Time(start + 7500))));
}
