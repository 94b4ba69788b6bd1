use super::*;
use crate::keeper::slots::Ids;
use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Publication, TermId};
use redislease_core::op::Grant;
use redislease_core::quorum::Quorum;
use redislease_core::time::Drift;

const CONFIG: Config = Config {
    quorum: Quorum::of(3).unwrap(),
    ttl: Millis(60_000),
    renew_interval: Millis(5000),
    stop_budget: Millis(500),
    command_timeout: Millis(100),
    drift: Drift::STANDARD,
    backoff: Backoff { strategy: Strategy::None, min: Millis(1), max: Millis(1), limit: None, jitter: 0 },
    deadline: OnDeadline::Seal,
};

/// One machine. The test gives the answers to its requests.
struct Driven {
    machine: Machine,
    tools: Tools,
}

impl Driven {
    fn new(random: Random) -> Self {
        Self::may_end(random, None)
    }

    fn may_end(random: Random, may_end: Option<Arc<dyn MayEnd>>) -> Self {
        let keys = ["k".to_owned()].into();
        let setup = Setup { nodes: None, keys, config: CONFIG, may_end, jump_wait: None, observer: Box::new(()) };
        let tools = Tools { ballots: Arc::new(Mailbox::new()), turns: Turns::new(), random };
        Self { machine: Machine::new(Ids::default().take(), setup, None), tools }
    }

    /// It adopted a term at `at`.
    fn adopting(at: Time) -> Self {
        let mut driven = Self::new(Random::new());
        driven.command(at, Command::Adopt(term()));
        driven
    }

    /// It held a term; its caller ended it with proof at time 1000.
    fn released(random: Random) -> Self {
        let mut driven = Self::new(random);
        driven.command(Time(900), Command::Adopt(term()));
        driven.command(Time(1000), Command::End { term: term(), proof: true });
        driven.requests();
        driven
    }

    fn command(&mut self, now: Time, command: Command) {
        self.machine.command(now, command, None, &mut self.tools);
    }

    fn want(&mut self, now: Time) {
        self.command(now, Command::Want(Holder("pod".into())));
    }

    fn wake(&mut self, now: Time) {
        self.machine.wake(now, None, &mut self.tools);
    }

    /// The requests since the last call.
    fn requests(&mut self) -> Vec<Ballot> {
        let mut sent = Vec::new();
        self.tools.ballots.take(&mut sent);
        sent
    }

    /// Two of the three nodes answer what was sent, and the third abstains.
    fn answer(&mut self, now: Time, vote: &Vote) {
        let sent = self.requests();
        assert!(sent.len() >= 2, "{sent:?}");
        for (place, ballot) in sent.into_iter().enumerate() {
            let vote = if place < 2 { vote.clone() } else { Vote::Abstained };
            self.machine.vote(now, Ballot { vote, ..ballot }, None, &mut self.tools);
        }
    }

    /// Other leases reserve the turns of the next seconds.
    fn use_up_turns(&mut self, now: Time) {
        for _ in 0..100_000 {
            self.tools.turns.round(now, now + Millis(60_000));
            self.tools.turns.attempt(now);
        }
    }

    /// The round that is due at `now` starts later, and by `latest`.
    fn expect_turn(&mut self, now: Time, latest: Time) {
        assert!(self.requests().is_empty(), "nothing is sent before the turn");
        let turn = self.machine.next_deadline().unwrap();
        assert!(turn > now + Millis(1000) && turn <= latest, "{turn:?}");
        self.wake(turn - Millis(1));
        assert!(self.requests().is_empty(), "nothing is sent before the turn");
        self.wake(turn);
        assert_eq!(self.requests().len(), 3);
    }
}

fn term() -> TermId {
    TermId { attempt: Attempt(7), token: Token(7), holder: Holder("pod".into()) }
}

#[test]
fn only_an_attempt_soon_after_a_released_term_needs_no_turn() {
    for (at, waits) in [(1999, false), (2000, true)] {
        let mut driven = Driven::released(Random::new());
        driven.use_up_turns(Time(at));
        driven.want(Time(at));
        assert_eq!(driven.requests().is_empty(), waits, "at {at}");
    }
}

/// A copy of the process, or a reader of its memory, does not know the attempts to come.
#[test]
fn attempt_ids_do_not_depend_on_what_is_in_memory() {
    let mut random = Random::new();
    random.word().unwrap();
    assert_eq!(random.clone().word().unwrap(), random.clone().word().unwrap(), "numbers are in memory");
    let attempt = || {
        let mut driven = Driven::released(random.clone());
        driven.want(Time(1500));
        let Standing::Acquiring(attempt, _) = &driven.machine.lease.view().standing else { panic!("no attempt") };
        *attempt
    };
    assert_ne!(attempt(), attempt());
}

/// Phases are multiples of 100 ms here. The times are not, so that a round at its phase is not one by chance.
#[test]
fn the_first_renewal_of_a_new_term_is_at_its_phase() {
    let mut driven = Driven::new(Random::new());
    driven.want(Time(903));
    driven.answer(Time(904), &Vote::Granted(Grant(1)));
    driven.answer(Time(907), &Vote::Confirmed { ttl_left: CONFIG.ttl });
    let attempt = driven.machine.running().expect("a majority confirmed the term");
    let phase = pace::next_phase(Time(907), CONFIG.renew_interval, attempt);
    assert_eq!(driven.machine.lease.next_round_at(), Some(phase));
    driven.command(Time(911), Command::Published { attempt, outcome: Publication::Written });
    assert_eq!(driven.machine.next_deadline(), Some(phase));
}

#[test]
fn after_a_round_the_next_is_at_the_phase_of_the_term() {
    let mut driven = Driven::adopting(Time(903));
    driven.answer(Time(911), &Vote::Extended);
    let phase = pace::next_phase(Time(903), CONFIG.renew_interval, Attempt(7));
    assert_eq!(driven.machine.lease.next_round_at(), Some(phase));
    assert!(phase < Time(903) + CONFIG.renew_interval);
}

#[test]
fn a_failed_round_is_tried_again_with_others_of_its_tick() {
    let mut driven = Driven::adopting(Time(903));
    driven.answer(Time(911), &Vote::Unknown);
    assert_eq!(Time(903) + CONFIG.retry_pace(), Time(3403));
    assert_eq!(driven.machine.lease.next_round_at(), Some(Time(3400)));
}

#[test]
fn without_a_turn_an_adopted_term_waits_for_one_retry_interval_at_most() {
    let now = Time(100_003);
    let mut driven = Driven::new(Random::new());
    driven.use_up_turns(now);
    driven.command(now, Command::Adopt(term()));
    driven.expect_turn(now, now + CONFIG.retry_pace());
}

/// A held term whose last round, at its phase, failed at `now`.
fn failed(now: Time) -> Driven {
    let mut driven = Driven::adopting(Time(903));
    driven.answer(Time(911), &Vote::Extended);
    driven.wake(now);
    driven.answer(now, &Vote::Unknown);
    driven
}

#[test]
fn without_a_turn_a_request_for_a_retry_starts_no_round() {
    let now = Time(5000);
    let mut driven = failed(now);
    driven.use_up_turns(now);
    assert_eq!(driven.machine.recovers(now), driven.machine.lease.view().standing.term().unwrap().stop_at);
    driven.command(now, Command::TryNow);
    let latest = driven.machine.latest_round(now);
    driven.expect_turn(now, latest);
}

#[test]
fn without_a_turn_a_round_that_is_due_does_not_start() {
    let mut driven = failed(Time(5000));
    let due = driven.machine.next_deadline().unwrap();
    driven.use_up_turns(due);
    driven.wake(due);
    let latest = driven.machine.latest_round(due);
    driven.expect_turn(due, latest);
}

#[test]
fn without_a_turn_a_request_for_an_attempt_is_dropped() {
    let now = Time(100_003);
    let mut driven = Driven::new(Random::new());
    // The first attempt needs no turn. It fails.
    driven.want(Time(100));
    driven.answer(Time(100), &Vote::Abstained);
    driven.wake(Time(90_000));
    driven.requests();
    driven.use_up_turns(now);
    driven.want(now);
    let turn = driven.machine.lease.view().retry_at.unwrap();
    assert!(turn > now + Millis(1000) && turn <= now + pace::ATTEMPT_WAITS, "{turn:?}");
    driven.want(turn - Millis(1));
    driven.wake(turn);
    assert!(driven.requests().is_empty(), "the request was dropped");
    driven.want(turn);
    assert_eq!(driven.requests().len(), 3, "a new request at the turn starts");
}

/// The right to end terms lasts until this time.
struct Until(Time);

impl MayEnd for Until {
    fn may_end(&self, now: Time) -> bool {
        now < self.0
    }
}

#[test]
fn a_deadline_after_the_right_to_end_terms_seals_nothing() {
    for (lasts, seals) in [(Time(0), false), (Time(u64::MAX), true)] {
        let mut driven = Driven::may_end(Random::new(), Some(Arc::new(Until(lasts))));
        driven.command(Time(900), Command::Adopt(term()));
        driven.answer(Time(900), &Vote::Extended);
        let stop_at = driven.machine.lease.view().standing.term().and_then(|term| term.stop_at).unwrap();
        // The renewals are not answered.
        while let Some(due) = driven.machine.next_deadline().filter(|due| *due <= stop_at) {
            driven.requests();
            driven.wake(due);
        }
        let ended = driven.machine.lease.view().ending.is_some();
        assert_eq!(ended, seals, "the right lasts until {lasts:?}: {:?}", driven.machine.lease.view());
        // A new configuration does not give the right back.
        driven.command(stop_at, Command::Configure(Box::new(CONFIG)));
        driven.wake(stop_at + CONFIG.ttl);
        assert_eq!(driven.machine.lease.view().ending.is_some() || ended, seals);
    }
}
