//! The reads of the name in `RedisQuorum.status.leader`.

use super::*;

/// Both outages last, and the replica may be the only one that has them: what the API server said before is outdated.
#[test]
fn the_right_to_end_terms_lasts_one_lock_duration_after_the_read_that_confirmed_it() {
    let mut replica = Replica::cut_off();
    let read_at = replica.now;
    replica.now += Millis(800);
    replica.reads_own_name();
    assert_eq!(replica.machine.authority(), Authority::End);
    let granted = replica.machine.granted();
    assert_eq!(granted.at(read_at + Millis(4999), None), Authority::End);
    assert_eq!(granted.at(read_at + Millis(5000), None), Authority::Renew, "also when it is paused and has no turn");
    assert_eq!(replica.machine.next_deadline(), Some(read_at + Millis(2500)));
    replica.pass(1700);
    assert_eq!(replica.effects, [LeadershipEffect::ReadQuorum]);
    replica.reads_own_name();
    assert_eq!(replica.machine.granted().named_until, Some(read_at + Millis(7500)));
    replica.pass(2500);
    assert_eq!(replica.effects, [LeadershipEffect::ReadQuorum]);
    assert_eq!(replica.machine.next_deadline(), Some(read_at + Millis(7500)));
    replica.pass(2500);
    assert_eq!(replica.effects, [LeadershipEffect::Authority(Authority::Renew)], "the API server does not answer");
}

/// The answer to the first of two reads would count as one to the second, and confirm the name for too long.
#[test]
fn a_read_that_is_under_way_is_not_sent_again() {
    let with_lock: fn(&mut Replica) = |replica| {
        replica.view(held(lock(2)));
        assert_eq!(replica.machine.authority(), Authority::Lead);
        replica.view(uncertain(lock(2)));
    };
    let without_quorum: fn(&mut Replica) = |replica| {
        let open = replica.facts.quorum.take();
        replica.facts.quorum_lost = false;
        replica.turn();
        (replica.facts.quorum, replica.facts.quorum_lost) = (open, true);
        replica.turn();
    };
    for meanwhile in [with_lock, without_quorum] {
        let mut replica = Replica::cut_off();
        assert!(replica.effects.contains(&LeadershipEffect::ReadQuorum), "{:?}", replica.effects);
        replica.answer();
        meanwhile(&mut replica);
        assert_eq!(replica.machine.authority(), Authority::Renew);
        assert!(!replica.effects.contains(&LeadershipEffect::ReadQuorum), "{:?}", replica.effects);
    }
}
