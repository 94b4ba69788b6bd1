//! One replica in the election of a leader.

mod claims;
mod reads;

use super::*;
use crate::plan::leadership::LeadershipFacts;
use redislease_core::lease::Publication;
use redislease_core::op::{Stage, Stored};

#[derive(Clone)]
struct Replica {
    now: Time,
    machine: Leadership,
    facts: LeadershipFacts,
    effects: Vec<LeadershipEffect>,
}

const ME: &str = "operator-0";

fn lock(attempt: u128) -> TermId {
    TermId { attempt: Attempt(attempt), token: Token(1), holder: Holder("here/uid-here///operator-0/1".into()) }
}

fn refused_by_other() -> View {
    let metadata = "here/uid-here///operator-1/9".to_owned();
    let by = Stored { stage: Stage::Term, attempt: Attempt(99), number: 5, metadata };
    View { refused_by: Some(Box::new(by)), retry_at: Some(Time(2_000_000)), ..View::default() }
}

#[test]
fn the_lock_survives_a_failed_round_on_a_quorum_for_short_leases() {
    for longest in 200..=6000 {
        let mut replica = Replica::new();
        Arc::make_mut(replica.facts.quorum.as_mut().expect("it is open")).longest_lease = Millis(longest);
        replica.turn();
        let opened = replica.effects.iter().find_map(|effect| match effect {
            LeadershipEffect::Open { config, .. } => Some(config),
            _ => None,
        });
        let config = opened.expect("the lock is opened");
        let (ttl, drift, stop_budget, renew_interval) =
            (config.ttl, config.drift, config.stop_budget, config.renew_interval);
        assert!(
            drift.least(ttl) >= stop_budget + Millis(renew_interval.0 * 3),
            "{longest} ms: every {renew_interval:?}"
        );
        assert!(longest < 5000 || renew_interval == Millis(1000), "{longest} ms");
    }
}

#[test]
fn an_edit_of_the_command_timeout_reaches_the_lock() {
    let mut replica = Replica::leading();
    for (timeout, expected) in [(500, None), (100, Some(100)), (1000, Some(1000)), (1000, None), (5000, Some(1500))] {
        Arc::make_mut(replica.facts.quorum.as_mut().expect("it is open")).command_timeout = Millis(timeout);
        replica.turn();
        let sent = replica.effects.iter().find_map(|effect| match effect {
            LeadershipEffect::Keeper(Command::Configure(config)) => Some(config.command_timeout),
            _ => None,
        });
        assert_eq!(sent, expected.map(Millis), "{timeout} ms");
    }
}

impl Replica {
    fn new() -> Self {
        let cluster = Cluster { name: "here".into(), uid: "uid-here".into() };
        let facts = LeadershipFacts { quorum: quorum(1, "f00d").open, ..LeadershipFacts::default() };
        let machine = Leadership::new(cluster, ME.into(), "1".into());
        Self { now: Time(1_000_000), machine, facts, effects: Vec::new() }
    }

    /// The API server answers, and the lock is wanted.
    fn contending() -> Self {
        let mut replica = Self::new();
        replica.turn();
        replica.answer();
        replica
    }

    /// It led, and has lost the quorum.
    fn cut_off() -> Self {
        let mut replica = Self::leading();
        replica.facts.quorum_lost = true;
        // A name of another replica that follows is a claim.
        replica.facts.is_claimed = true;
        replica.view(uncertain(lock(1)));
        replica
    }

    fn leading() -> Self {
        let mut replica = Self::contending();
        replica.view(publishing(lock(1)));
        replica.view(held(lock(1)));
        replica.facts.named = Some(ME.into());
        replica.turn();
        assert_eq!(replica.machine.authority(), Authority::Lead);
        replica
    }

    fn turn(&mut self) -> &[LeadershipEffect] {
        self.turn_with(News::default())
    }

    fn turn_with(&mut self, news: News) -> &[LeadershipEffect] {
        self.effects.clear();
        self.machine.turn(self.now, news, &self.facts);
        while let Some(effect) = self.machine.poll_effect() {
            self.effects.push(effect);
        }
        &self.effects
    }

    /// The API server answers a read of the RedisQuorum, or does not.
    fn reads(&mut self, named: Result<Option<String>, ()>) {
        self.machine.quorum_read(self.now, named);
        self.turn();
    }

    fn view(&mut self, view: View) -> &[LeadershipEffect] {
        self.turn_with(News { view: Some(view), ..News::default() })
    }

    fn keeper_ended(&mut self) -> &[LeadershipEffect] {
        self.turn_with(News { ended: true, ..News::default() })
    }

    /// The API server answers a read of the RedisQuorum: its status names this replica.
    fn reads_own_name(&mut self) {
        self.reads(Ok(Some(ME.into())));
    }

    fn answer(&mut self) -> &[LeadershipEffect] {
        self.facts.api_answered_at = Some(self.now);
        self.turn()
    }

    fn pass(&mut self, millis: u64) -> &[LeadershipEffect] {
        self.now += Millis(millis);
        self.turn()
    }

    fn wants(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, LeadershipEffect::Keeper(Command::Want(_))))
    }
}

/// What a lease knew about pods may be outdated: another replica may have decided meanwhile.
#[test]
fn each_gain_of_the_right_to_decide_is_counted_also_after_a_panic_of_the_election() {
    let mut replica = Replica::leading();
    assert_eq!(replica.machine.granted().gains, 1);
    replica.view(uncertain(lock(1)));
    assert_eq!((replica.machine.authority(), replica.machine.granted().gains), (Authority::Renew, 1));
    for attempt in 2..4 {
        replica.answer();
        replica.view(publishing(lock(attempt)));
        replica.view(held(lock(attempt)));
        assert_eq!(replica.machine.authority(), Authority::Lead);
        assert_eq!(u128::from(replica.machine.granted().gains), attempt);
        replica.machine = replica.machine.restarted();
    }
}

#[test]
fn a_replica_contends_only_while_the_api_server_answers() {
    let mut replica = Replica::new();
    replica.turn();
    assert!(replica.effects.contains(&LeadershipEffect::Probe) && !replica.wants(), "{:?}", replica.effects);
    assert!(replica.machine.awaits_api_answer());
    replica.pass(10_000);
    assert!(!replica.wants());
    replica.answer();
    assert!(replica.wants() && !replica.machine.awaits_api_answer());
    assert_eq!(replica.machine.next_deadline(), Some(replica.now + Millis(1000)), "the attempt may be dropped");
    assert_eq!(replica.machine.authority(), Authority::Follow, "not before the lock is held");
}

#[test]
fn the_holder_of_the_lock_leads_and_others_follow() {
    let mut replica = Replica::contending();
    let published = Command::Published { attempt: Attempt(1), outcome: Publication::Written };
    replica.view(publishing(lock(1)));
    assert_eq!(replica.effects, [LeadershipEffect::Keeper(published)], "it believes its own second round");
    replica.view(held(lock(1)));
    assert_eq!(replica.effects, [LeadershipEffect::Authority(Authority::Lead)]);
    let mut other = Replica::contending();
    other.view(refused_by_other());
    assert_eq!((other.machine.authority(), other.machine.next_deadline()), (Authority::Follow, Some(Time(1_000_300))));
    other.pass(300);
    assert!(other.effects.contains(&LeadershipEffect::Keeper(Command::TryNow)) && other.wants(), "{:?}", other.effects);
}

#[test]
fn a_leader_whose_api_server_is_silent_gives_the_lock_up_and_goes_on_renewing() {
    let mut replica = Replica::leading();
    replica.pass(2000);
    assert!(replica.effects.contains(&LeadershipEffect::Probe));
    replica.pass(4999);
    assert_eq!(replica.machine.authority(), Authority::Lead);
    replica.pass(1);
    let released = Command::End { term: lock(1), proof: true };
    assert_eq!(replica.effects, [LeadershipEffect::Keeper(released), LeadershipEffect::Authority(Authority::Renew)]);
    replica.view(idle(0));
    assert!(!replica.wants(), "it may not lead before the API server answers");
    replica.facts.named = Some("operator-1".into());
    replica.turn();
    assert_eq!(replica.machine.authority(), Authority::Follow, "another replica has adopted the terms");
}

/// The other one cannot acquire a lease whose term this one renews, and this one does not hear of it from the API server.
#[test]
fn a_replica_that_renews_without_the_api_server_looks_for_the_lock_of_another() {
    let mut replica = Replica::leading();
    for _ in 0..8 {
        replica.pass(1000);
    }
    assert_eq!(replica.machine.authority(), Authority::Renew);
    replica.view(idle(0));
    let reads = LeadershipEffect::Keeper(Command::ReadKeys);
    let mut count = 0;
    for _ in 0..50 {
        replica.pass(100);
        count += replica.effects.iter().filter(|effect| **effect == reads).count();
    }
    assert_eq!((replica.machine.authority(), count), (Authority::Renew, 5), "once a second");
    replica.view(refused_by_other());
    assert_eq!(replica.machine.authority(), Authority::Follow);
    replica.pass(2000);
    assert!(!replica.effects.contains(&reads));
}

#[test]
fn a_leader_whose_api_server_answers_stays() {
    let mut replica = Replica::leading();
    for _ in 0..20 {
        replica.pass(2000);
        replica.answer();
        assert_eq!(replica.machine.authority(), Authority::Lead);
    }
}

#[test]
fn a_leader_that_loses_the_lock_decides_nothing_more() {
    let mut replica = Replica::leading();
    replica.view(adopting(lock(1)));
    let released = Command::End { term: lock(1), proof: true };
    assert_eq!(replica.effects, [LeadershipEffect::Keeper(released), LeadershipEffect::Authority(Authority::Renew)]);
    assert_eq!(replica.turn(), [], "it is released once");
    replica.answer();
    replica.view(idle(0));
    assert!(replica.wants(), "it can have the lock again at once");
    replica.view(held(lock(2)));
    assert_eq!(replica.machine.authority(), Authority::Lead);
    replica.view(refused_by_other());
    assert_eq!(replica.machine.authority(), Authority::Follow);
}

#[test]
fn while_the_quorum_is_lost_the_named_replica_ends_after_a_fresh_read() {
    let mut replica = Replica::cut_off();
    assert_eq!(replica.machine.authority(), Authority::Renew);
    assert!(replica.effects.contains(&LeadershipEffect::ReadQuorum));
    replica.reads(Err(()));
    assert_eq!(replica.machine.authority(), Authority::Renew, "silence confirms nothing");
    replica.pass(1000);
    assert!(replica.effects.contains(&LeadershipEffect::ReadQuorum));
    replica.reads_own_name();
    assert_eq!(replica.machine.authority(), Authority::End);
    // It was only cut off: another replica was elected.
    (replica.facts.named, replica.facts.is_claimed) = (Some("operator-1".into()), false);
    replica.turn();
    assert_eq!(replica.machine.authority(), Authority::Follow);
}

#[test]
fn a_lock_whose_keeper_panics_again_and_again_is_opened_ever_later() {
    let mut replica = Replica::leading();
    let opens = |replica: &Replica| {
        let open = |effect: &LeadershipEffect| matches!(effect, LeadershipEffect::Open { .. });
        replica.effects.iter().any(open)
    };
    replica.keeper_ended();
    assert!(opens(&replica), "{:?}", replica.effects);
    assert_eq!(replica.machine.authority(), Authority::Renew);
    replica.keeper_ended();
    assert!(!opens(&replica) && !replica.wants(), "{:?}", replica.effects);
    replica.pass(999);
    assert!(!opens(&replica), "{:?}", replica.effects);
    replica.pass(1);
    assert!(opens(&replica), "{:?}", replica.effects);
}

#[test]
fn without_a_quorum_every_replica_may_say_so() {
    let mut replica = Replica::leading();
    let open = replica.facts.quorum.take();
    let released = LeadershipEffect::Keeper(Command::End { term: lock(1), proof: true });
    assert_eq!(replica.turn(), [released, LeadershipEffect::Keeper(Command::Close)]);
    assert_eq!(replica.machine.authority(), Authority::Lead);
    replica.facts.quorum = open;
    replica.turn();
    assert_eq!(replica.machine.authority(), Authority::Renew, "on a quorum it needs the lock");
    let mut new = Replica::new();
    new.facts.quorum = None;
    assert_eq!(new.turn(), [LeadershipEffect::Authority(Authority::Lead)]);
}

#[test]
fn after_an_outage_of_the_quorum_the_replica_that_led_before_goes_first() {
    for (named, waits) in [(ME, false), ("operator-1", true)] {
        let mut replica = Replica::new();
        replica.facts.named = Some(named.into());
        replica.facts.quorum_lost = true;
        replica.facts.api_answered_at = Some(replica.now);
        replica.turn();
        replica.view(idle(replica.now.0 + 100));
        replica.facts.quorum_lost = false;
        replica.pass(100);
        assert_eq!(replica.wants(), !waits, "{named}");
        replica.facts.api_answered_at = Some(replica.now);
        replica.pass(1500);
        assert!(replica.wants() || !waits, "{named}");
    }
}

#[test]
fn a_graceful_stop_releases_the_lock_at_once() {
    let mut replica = Replica::leading();
    replica.machine.stop();
    replica.turn();
    let released = Command::End { term: lock(1), proof: true };
    assert_eq!(replica.effects, [LeadershipEffect::Authority(Authority::Follow), LeadershipEffect::Keeper(released)]);
    replica.view(idle(0));
    replica.answer();
    assert!(!replica.wants());
}

#[test]
fn a_replica_asks_again_when_the_answer_became_old_before_it_could_contend() {
    let mut replica = Replica::new();
    replica.turn();
    assert_eq!(replica.pass(0), [], "one question at a time");
    // The nodes stop to vote and vote again, and the answer comes meanwhile.
    replica.facts.quorum_lost = true;
    replica.pass(10);
    replica.answer();
    replica.facts.quorum_lost = false;
    replica.pass(10);
    assert!(!replica.wants(), "another replica has a head start");
    assert_eq!(replica.pass(10_000), [LeadershipEffect::Probe]);
    replica.answer();
    assert!(replica.wants());
}
