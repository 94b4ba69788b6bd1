//! The name in `status.leader` while the quorum is lost: who claims it, and who contradicts.

use super::*;

/// Without a majority of its nodes, or when this replica cannot open it: then the named one may still lead.
#[test]
fn a_dead_leader_is_replaced_by_name_while_the_quorum_is_lost() {
    for opens in [true, false] {
        let mut replica = Replica::new();
        if !opens {
            replica.facts.quorum = None;
        }
        replica.facts.named = Some("operator-1".into());
        replica.facts.quorum_lost = true;
        replica.turn();
        assert_eq!(replica.machine.authority(), Authority::Follow);
        replica.pass(5000);
        replica.answer();
        replica.pass(4999);
        replica.answer();
        assert!(!replica.effects.contains(&LeadershipEffect::Claim));
        replica.pass(1);
        assert!(replica.effects.contains(&LeadershipEffect::Claim));
        replica.pass(1000);
        assert!(!replica.effects.contains(&LeadershipEffect::Claim), "once");
        replica.facts.named = Some(ME.into());
        replica.turn();
        replica.reads_own_name();
        assert_eq!(replica.machine.authority(), Authority::Follow, "a leader that lives may still contradict");
        replica.pass(4000);
        replica.reads_own_name();
        assert_eq!(replica.machine.authority(), Authority::End);
        assert!(opens || !replica.wants());
    }
}

/// Without a connection to the quorum, it makes no other call. After an outage of the API server, a leader that lives must read its name
/// first, and write that the quorum is lost.
#[test]
fn a_replica_claims_only_when_the_api_server_has_answered_for_a_while() {
    let mut replica = Replica::new();
    (replica.facts.quorum, replica.facts.api_answered_at) = (None, None);
    replica.facts.named = Some("operator-1".into());
    replica.facts.quorum_lost = true;
    replica.turn();
    assert_eq!(replica.pass(10_000), [LeadershipEffect::Probe]);
    for _ in 0..5 {
        replica.facts.api_answered_at = Some(replica.now);
        assert_eq!(replica.pass(1000), [LeadershipEffect::Probe]);
    }
    let mut silent = replica.clone();
    replica.facts.api_answered_at = Some(replica.now);
    assert_eq!(replica.pass(1000), [LeadershipEffect::Claim]);
    silent.pass(4000);
    silent.facts.api_answered_at = Some(silent.now);
    assert_eq!(silent.pass(1000), [LeadershipEffect::Probe], "it did not answer in between");
}

#[test]
fn a_claim_that_is_contradicted_is_repeated_ever_later() {
    let mut replica = Replica::new();
    replica.facts.named = Some("operator-1".into());
    replica.facts.quorum_lost = true;
    replica.turn();
    let mut pauses = Vec::new();
    let mut since = replica.now;
    for _ in 0..160 {
        replica.facts.api_answered_at = Some(replica.now);
        replica.pass(1000);
        if replica.effects.contains(&LeadershipEffect::Claim) {
            pauses.push(replica.now.since(since).0 / 1000);
            since = replica.now;
        }
        assert_eq!(replica.machine.authority(), Authority::Follow);
    }
    assert_eq!(pauses, [10, 20, 40, 40, 40], "a leader that contradicts can die later");
}

#[test]
fn the_replica_that_ends_terms_follows_another_one_that_has_the_lock() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    assert_eq!(replica.machine.authority(), Authority::End);
    (replica.facts.named, replica.facts.is_claimed) = (Some("operator-1".into()), false);
    let follow = [LeadershipEffect::Authority(Authority::Follow)];
    assert_eq!(replica.turn(), follow, "this one is only cut off");
}

/// The other replica has no lock either, and does not end terms yet. A term that nobody ends in the meantime would be stopped too late.
#[test]
fn a_replica_that_contradicts_a_claim_goes_on_to_end_terms() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    replica.facts.named = Some("operator-1".into());
    assert_eq!(replica.turn(), [LeadershipEffect::Claim]);
    replica.pass(100);
    assert_eq!(replica.effects, [], "once");
    replica.facts.named = Some(ME.into());
    for _ in 0..10 {
        replica.pass(1000);
        if replica.effects.contains(&LeadershipEffect::ReadQuorum) {
            replica.reads_own_name();
        }
        assert_eq!(replica.machine.authority(), Authority::End);
    }
    // The API server does not answer its reads.
    replica.facts.named = Some("operator-1".into());
    replica.turn();
    assert!(replica.effects.contains(&LeadershipEffect::Claim), "{:?}", replica.effects);
    replica.pass(4999);
    assert_eq!(replica.machine.authority(), Authority::End);
    replica.pass(1);
    assert_eq!(replica.machine.authority(), Authority::Follow, "the other one may end terms now");
}

/// The write can fail, and a third replica can claim the name just before it.
#[test]
fn a_contradiction_is_repeated_until_the_status_shows_it() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    replica.facts.named = Some("operator-1".into());
    replica.turn();
    for second in 0..4 {
        assert!(replica.effects.contains(&LeadershipEffect::Claim), "{second} s: {:?}", replica.effects);
        replica.pass(999);
        assert_eq!(replica.effects, [], "{second} s");
        replica.pass(1);
        assert_eq!(replica.machine.authority(), Authority::End);
    }
    replica.facts.named = Some(ME.into());
    replica.turn();
    replica.pass(1000);
    assert!(!replica.effects.contains(&LeadershipEffect::Claim), "{:?}", replica.effects);
}

/// A read counts only when the last contradiction is settled.
#[test]
fn two_claims_one_after_the_other_leave_no_time_without_the_right_to_end_terms() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    for step in 0..200 {
        replica.facts.named = match step {
            20 => Some("operator-1".into()),
            65 => Some("operator-2".into()),
            _ => Some(ME.into()),
        };
        replica.pass(100);
        if replica.effects.contains(&LeadershipEffect::ReadQuorum) {
            replica.reads_own_name();
        }
        assert_eq!(replica.machine.authority(), Authority::End, "step {step}");
    }
}

/// Its terms would be adopted by a replica that does not know since when they are unconfirmed.
#[test]
fn a_leader_whose_read_has_no_answer_contradicts_a_few_claims() {
    let mut replica = Replica::cut_off();
    replica.reads(Err(()));
    assert_eq!(replica.machine.authority(), Authority::Renew);
    replica.facts.named = Some("operator-1".into());
    assert!(replica.turn().contains(&LeadershipEffect::Claim), "{:?}", replica.effects);
    assert_eq!(replica.machine.authority(), Authority::Renew);
    replica.facts.named = Some(ME.into());
    replica.pass(1000);
    let mut later = replica.clone();
    replica.pass(4000);
    replica.reads_own_name();
    assert_eq!(replica.machine.authority(), Authority::End);
    // If the other one may end terms, it contradicts too.
    for (contradicts, authority) in [(true, Authority::Renew), (true, Authority::Renew), (false, Authority::Follow)] {
        later.facts.named = Some("operator-1".into());
        assert_eq!(later.turn().contains(&LeadershipEffect::Claim), contradicts);
        assert_eq!(later.machine.authority(), authority);
        later.facts.named = Some(ME.into());
        later.turn();
    }
}

/// Otherwise two replicas that both have the right, because a write was slow, would take the name from each other for ever.
#[test]
fn contradictions_extend_the_right_to_end_terms_for_a_limited_time() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    let began = replica.now;
    let mut ended = None;
    for step in 0..60 {
        replica.facts.named = Some(if step % 2 == 0 { "operator-1" } else { ME }.into());
        replica.pass(500);
        if replica.machine.authority() != Authority::End {
            ended.get_or_insert(replica.now);
        }
    }
    let lasted = ended.expect("it ends").since(began);
    assert!(lasted <= Millis(17_000), "{lasted:?}");
}

/// Another replica may lead by then.
#[test]
fn a_replica_whose_right_has_ended_gets_it_back_only_by_a_read() {
    let mut replica = Replica::cut_off();
    replica.reads_own_name();
    replica.now += Millis(6000);
    replica.facts.named = Some("operator-1".into());
    replica.turn();
    assert_eq!(replica.machine.authority(), Authority::Renew);
}

#[test]
fn a_follower_that_saw_the_lock_of_a_dead_leader_can_replace_it() {
    let mut replica = Replica::contending();
    replica.view(refused_by_other());
    replica.facts.named = Some("operator-1".into());
    replica.facts.quorum_lost = true;
    replica.turn();
    for _ in 0..10 {
        replica.facts.api_answered_at = Some(replica.now);
        replica.pass(1000);
    }
    assert!(replica.effects.contains(&LeadershipEffect::Claim), "{:?}", replica.effects);
    replica.facts.named = Some(ME.into());
    replica.pass(5000);
    assert!(replica.effects.contains(&LeadershipEffect::ReadQuorum));
    replica.reads_own_name();
    assert_eq!(replica.effects, [LeadershipEffect::Authority(Authority::End)]);
    assert_eq!(replica.turn(), [], "the lock that it saw before the read says nothing");
    let by = Stored { attempt: Attempt(100), ..*refused_by_other().refused_by.unwrap() };
    replica.view(View { refused_by: Some(Box::new(by)), ..refused_by_other() });
    assert_eq!(replica.machine.authority(), Authority::Follow, "another lock does");
}

#[test]
fn where_nobody_was_ever_named_a_replica_claims_soon() {
    let mut replica = Replica::new();
    replica.facts.quorum_lost = true;
    replica.turn();
    replica.pass(1000);
    replica.answer();
    assert!(replica.effects.contains(&LeadershipEffect::Claim));
}
