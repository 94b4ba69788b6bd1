//! Ending a term.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;

#[test]
fn a_process_that_wakes_after_the_end_of_validity_asks_for_no_wake_in_the_past() {
    let (mut scenario, id) = Scenario::holding();
    scenario.links = [Link::Silent; 3];
    scenario.give(Command::End { term: id, proof: false });
    scenario.pass(1000);
    scenario.now += VALID;
    scenario.give(Input::Wake);
    assert!(scenario.lease.view().ending.is_some(), "the keys may still exist");
    assert!(scenario.lease.next_deadline().unwrap() > Time(scenario.now), "{:?}", scenario.lease.next_deadline());
}

#[test]
fn proof_releases_at_once_and_the_next_holder_takes_a_greater_token() {
    let (mut scenario, first) = Scenario::holding();
    scenario.pass(7000);
    scenario.give(Command::End { term: first.clone(), proof: true });
    assert_eq!(*scenario.standing(), Standing::Idle);
    scenario.want();
    let second = scenario.written();
    assert!(second.token > first.token);
    assert_ne!(second.attempt, first.attempt);
}

#[test]
fn without_proof_the_term_is_sealed_and_the_next_attempt_waits_for_its_ttl() {
    let (mut scenario, first) = Scenario::holding();
    scenario.pass(5000);
    let extended = scenario.now;
    scenario.pass(1000);
    scenario.give(Command::End { term: first.clone(), proof: false });
    assert_eq!(scenario.sealed(), Some(true));
    scenario.want();
    let refused = scenario.lease.view().refused_by.clone().unwrap();
    assert_eq!((refused.stage, refused.attempt), (crate::op::Stage::Sealed, first.attempt));
    let retry_at = scenario.lease.view().retry_at.unwrap();
    assert!(retry_at.0 > extended + TTL && retry_at.0 <= extended + TTL + 101, "{retry_at:?}");
    scenario.pass_to(retry_at.0);
    scenario.want();
    assert!(scenario.written().token > first.token);
}

#[test]
fn proof_after_the_seal_releases_the_sealed_keys() {
    let (mut scenario, first) = Scenario::holding();
    scenario.give(Command::End { term: first.clone(), proof: false });
    assert!(scenario.values(0)[0].starts_with("s:"));
    scenario.give(Command::End { term: first, proof: true });
    assert_eq!(scenario.values(0).len() + scenario.values(1).len() + scenario.values(2).len(), 0);
    assert_eq!(scenario.lease.view().ending, None);
}

#[test]
fn a_term_that_ends_early_keeps_its_keys_until_the_time_that_was_asked_for() {
    for (hold, renewed) in [(50_000, false), (50_000, true), (10_000, true)] {
        let mut scenario = Scenario::new();
        scenario.give(Command::KeepKeysFor(Millis(hold)));
        let began = scenario.now;
        let first = scenario.held();
        let view = scenario.lease.view().standing.term().unwrap().clone();
        assert_eq!(view.valid_until, Some(Time(began + VALID)), "the validity is that of the TTL");
        assert!(scenario.servers.iter().all(|server| server.keys["a"].ends == began + TTL.max(hold)));
        scenario.pass(if renewed { 6000 } else { 1000 });
        let until = Time(began + hold);
        // One node does not answer at first.
        scenario.links[2] = Link::Silent;
        scenario.give(Command::Release { keep_until: Some(until) });
        assert_eq!(*scenario.standing(), Standing::Idle);
        scenario.links[2] = Link::Up;
        scenario.pass(4000);
        for server in &scenario.servers {
            let entry = &server.keys["a"];
            assert_eq!((entry.value.stage, entry.ends), (crate::op::Stage::Sealed, until.0), "{hold} {renewed}");
        }
        assert!(!scenario.has_sent("release"));
        scenario.want();
        assert_eq!(scenario.refused_by(), Some(first.attempt));
        scenario.pass_to(until.0 + 200);
        scenario.want();
        assert!(scenario.written().token > first.token);
    }
}

/// A holder whose term was lost: one node still has its keys.
fn lost() -> Scenario {
    let (mut scenario, first) = Scenario::holding();
    scenario.drop_keys(0);
    scenario.drop_keys(1);
    scenario.pass(5100);
    assert_eq!(scenario.ending().map(|ending| &ending.id), Some(&first));
    assert!(!scenario.values(2).is_empty());
    scenario
}

#[test]
fn a_release_after_a_loss_deletes_the_keys_that_are_left() {
    let mut scenario = lost();
    scenario.give(Command::Release { keep_until: None });
    assert!((0..3).all(|node| scenario.values(node).is_empty()), "{:?}", scenario.values(2));
    assert_eq!((scenario.standing(), &scenario.lease.view().ending), (&Standing::Idle, &None));
}

#[test]
fn a_release_after_a_loss_ends_also_the_next_attempt() {
    let mut scenario = lost();
    let keys_until = scenario.lease.view().ending.as_ref().unwrap().keys_until;
    scenario.pass_to(keys_until.0 - 1);
    scenario.links = [Link::Silent; 3];
    scenario.want();
    assert!(matches!(scenario.standing(), Standing::Acquiring(..)), "{:?}", scenario.standing());
    scenario.give(Command::Release { keep_until: None });
    assert_eq!((scenario.standing(), &scenario.lease.view().ending), (&Standing::Idle, &None));
}

#[test]
fn a_release_that_is_repeated_after_the_time_it_kept_the_keys_deletes_them() {
    let mut scenario = Scenario::new();
    scenario.give(Command::KeepKeysFor(Millis(2000)));
    scenario.held();
    scenario.links = [Link::Silent; 3];
    scenario.give(Command::Release { keep_until: Some(Time(scenario.now + 1000)) });
    scenario.pass(1500);
    scenario.links = [Link::Up; 3];
    scenario.pass(4000);
    assert!((0..3).all(|node| scenario.values(node).is_empty()), "{:?}", scenario.values(0));
}

#[test]
fn the_proof_for_one_term_does_not_end_the_sealing_of_another() {
    let (mut scenario, first) = Scenario::holding();
    scenario.links = [Link::Silent; 3];
    scenario.give(Command::End { term: first.clone(), proof: false });
    let other = TermId { attempt: Attempt(77), ..first.clone() };
    scenario.give(Command::End { term: other, proof: true });
    assert_eq!(scenario.ending().map(|ending| &ending.id), Some(&first));
    scenario.links = [Link::Up; 3];
    scenario.pass(4000);
    assert!(scenario.values(0)[0].starts_with("s:"), "the seal is repeated: {:?}", scenario.values(0));
}

#[test]
fn the_end_of_another_term_leaves_the_running_one() {
    for proof in [true, false] {
        let (mut scenario, term) = Scenario::holding();
        scenario.sent.clear();
        scenario.give(Command::End { term: TermId { attempt: Attempt(77), ..term }, proof });
        assert!(matches!(scenario.standing(), Standing::Held(_)) && scenario.sent.is_empty(), "{:?}", scenario.sent);
    }
}

#[test]
fn a_term_that_ends_already_is_not_sealed_anew() {
    let (mut scenario, term) = Scenario::holding();
    scenario.links = [Link::Silent; 3];
    scenario.give(Command::End { term: term.clone(), proof: false });
    let ending = scenario.lease.view().ending.clone();
    scenario.now += 1;
    scenario.sent.clear();
    scenario.give(Command::End { term, proof: false });
    assert_eq!((&scenario.lease.view().ending, &scenario.sent), (&ending, &Vec::new()));
}

#[test]
fn a_refusal_that_is_older_than_the_release_does_not_delay_the_next_attempt() {
    let (mut scenario, first) = Scenario::holding();
    scenario.give(Command::End { term: first.clone(), proof: false });
    scenario.links = [Link::Slow(20); 3];
    scenario.want();
    // The sealed keys have refused the attempt, and the answers are on the way.
    scenario.pass(10);
    scenario.give(Command::End { term: first.clone(), proof: true });
    scenario.pass(15);
    assert_eq!((scenario.standing(), &scenario.lease.view().refused_by), (&Standing::Idle, &None));
    let retry_at = scenario.lease.view().retry_at.unwrap();
    assert!(retry_at.0 <= scenario.now + config().backoff.min.0, "{retry_at:?}");
    scenario.links = [Link::Up; 3];
    scenario.pass_to(retry_at.0);
    scenario.want();
    assert!(scenario.written().token > first.token);
}

#[test]
fn a_release_is_repeated_until_a_silent_node_has_answered_it() {
    let (mut scenario, first) = Scenario::holding();
    scenario.links[1] = Link::Silent;
    scenario.give(Command::End { term: first, proof: true });
    assert_eq!(scenario.values(1).len(), 2);
    scenario.pass(1000);
    scenario.links[1] = Link::Up;
    scenario.pass(5000);
    assert_eq!(scenario.values(1).len(), 0);
    scenario.sent.clear();
    scenario.pass(60_000);
    assert_eq!(scenario.sent, [], "nothing is left to do");
}

#[test]
fn the_oldest_and_newest_releases_are_repeated_while_a_node_is_away() {
    let (mut scenario, first) = Scenario::holding();
    scenario.links[2] = Link::Away;
    let mut attempts = vec![first.attempt];
    scenario.give(Command::End { term: first, proof: true });
    for _ in 1..100 {
        let term = scenario.held();
        attempts.push(term.attempt);
        scenario.give(Command::End { term, proof: true });
        scenario.pass(1);
    }
    scenario.sent.clear();
    scenario.pass(3000);
    let repeated: BTreeSet<_> = scenario.sent.iter().map(|(node, op)| (*node, op.attempt())).collect();
    let kept = attempts[..8].iter().chain(&attempts[92..]);
    assert_eq!(repeated, kept.map(|attempt| (Node(2), *attempt)).collect());
    assert_eq!(scenario.values(2).len(), 2, "the keys of the first term stand on the node that is away");
    scenario.links[2] = Link::Up;
    scenario.pass(3000);
    assert_eq!(scenario.values(2).len(), 0);
}

#[test]
fn a_superseded_publication_is_sealed_and_never_released() {
    let mut scenario = Scenario::new();
    let attempt = scenario.want();
    scenario.sent.clear();
    scenario.give(Command::Published { attempt, outcome: Publication::Superseded });
    assert_eq!(scenario.end_reason(), Some(EndReason::Superseded));
    assert!(scenario.sent.iter().all(|(_, op)| matches!(op, Op::Seal { .. })), "{:?}", scenario.sent);
}

#[test]
fn a_term_known_from_the_status_only_can_be_sealed_and_released() {
    let (mut scenario, id) = Scenario::holding();
    scenario.pass(5000);
    scenario.restart(config());
    scenario.give(Command::End { term: id.clone(), proof: false });
    assert!(scenario.values(1)[0].starts_with("s:"));
    scenario.give(Command::Adopt(id.clone()));
    assert_eq!(*scenario.standing(), Standing::Idle, "a term that ends is not adopted");
    scenario.give(Command::End { term: id, proof: true });
    assert_eq!(scenario.values(1).len(), 0);
}

/// Until when the keys of the term can exist if it ended now without proof.
fn keys_until(scenario: &Scenario, term: &TermId) -> Time {
    let mut lease = scenario.lease.clone();
    lease.handle(Time(scenario.now), Command::End { term: term.clone(), proof: false }.into());
    lease.view().ending.as_ref().unwrap().keys_until
}

#[test]
fn the_keys_can_last_from_the_last_request_that_sets_them() {
    let (mut scenario, term) = Scenario::holding();
    scenario.pass(5000);
    assert_eq!(keys_until(&scenario, &term), Time(scenario.now + 500 + 30_302), "a renewal");

    let mut scenario = Scenario::new();
    scenario.give(Command::KeepKeysFor(Millis(50_000)));
    let began = scenario.now;
    let term = scenario.held();
    scenario.pass(5000);
    assert_eq!(keys_until(&scenario, &term), Time(began + 500 + 50_502), "a renewal makes no key longer");
    scenario.drop_keys(2);
    scenario.pass(5000);
    assert_eq!(keys_until(&scenario, &term), Time(scenario.now + 500 + 50_502), "a join");
}

#[test]
fn no_seal_is_sent_at_the_end_of_validity_or_later() {
    let (mut scenario, term) = Scenario::holding();
    let valid_until = scenario.now + VALID;
    // The twelfth round of seals is due at that instant.
    scenario.links = [Link::Silent; 3];
    scenario.now = valid_until - 11 * 2500;
    scenario.give(Command::End { term, proof: false });
    scenario.pass_to(valid_until - 1);
    let seals = scenario.count("seal");
    assert_eq!(seals, 11 * 3);
    let keys_until = scenario.keys_until();
    assert_eq!(scenario.lease.next_deadline(), keys_until);
    scenario.sent.clear();
    scenario.pass(1);
    assert_eq!(scenario.sent, []);
}

#[test]
fn a_seal_counts_until_its_keys_may_have_ended() {
    for (after, seals) in [(343, true), (344, false)] {
        let (mut scenario, term) = Scenario::holding();
        scenario.links = [Link::Silent; 3];
        scenario.give(Command::End { term, proof: false });
        scenario.now += after;
        // 400 ms without the margin for the drift.
        for node in [0, 1] {
            scenario.answer(node, Some(Vote::Sealed { ttl_left: Millis(400) }));
        }
        assert_eq!(scenario.sealed(), Some(seals), "{after} ms");
    }
}

#[test]
fn an_effective_seal_needs_no_wake_before_its_keys_have_ended() {
    let (mut scenario, term) = Scenario::holding();
    scenario.give(Command::End { term, proof: false });
    let ending = scenario.lease.view().ending.clone().unwrap();
    assert_eq!((ending.sealed, scenario.lease.next_deadline()), (true, Some(ending.keys_until)));
}
