mod attempts;
mod planted;

use super::*;
use crate::backoff::{Backoff, Entropy};
use crate::check::Mutant;
use crate::lease::{Publication, TermId};
use crate::op::{Grant, Op, Token};
use crate::quorum::{Node, Quorum};
use crate::time::Drift;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(crate) use planted::FOUND;

const CONFIG: Config = Config {
    quorum: Quorum::of(3).unwrap(),
    ttl: Millis(60_000),
    renew_interval: Millis(5000),
    stop_budget: Millis(500),
    command_timeout: Millis(100),
    drift: Drift::STANDARD,
    backoff: Backoff::one_attempt(1),
    deadline: OnDeadline::Seal,
};

const ID: LeaseId = LeaseId { slot: 0, generation: 1 };

/// One driver. The test gives the answers to its requests.
pub(crate) struct Driven {
    driver: Driver,
    turns: Turns,
    sent: Vec<(Round, Node, Op)>,
    released: bool,
    ended: bool,
    attempts: u128,
}

impl Driven {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(mutant: Option<Mutant>) -> Self {
        let mut turns = Turns::new();
        let driver = Driver::new(ID, CONFIG, Millis(60_000), &mut turns).with_mutant(mutant);
        Self { driver, turns, sent: Vec::new(), released: false, ended: false, attempts: 1000 }
    }

    /// It adopted a term at `at`.
    fn adopting(at: Time) -> Self {
        let mut driven = Self::new();
        driven.command(at, Command::Adopt(term()));
        driven
    }

    /// A majority confirmed the term that it adopted at `at`.
    fn holding(at: Time) -> Self {
        let mut driven = Self::adopting(at);
        driven.answer(at, &Vote::Extended);
        driven
    }

    /// It held a term; its caller ended it with proof at time 1000.
    fn released() -> Self {
        let mut driven = Self::adopting(Time(900));
        driven.command(Time(1000), Command::End { term: term(), proof: true });
        driven.requests();
        driven
    }

    fn give_to(&mut self, now: Time, to: LeaseId, input: Input) {
        self.driver.handle(now, to, input, &mut self.turns);
        while let Some(effect) = self.driver.poll_effect() {
            match effect {
                Effect::Lease(lease::Effect::Send { round, node, op, .. }) => self.sent.push((round, node, op)),
                Effect::Lease(_) => {}
                Effect::Released => self.released = true,
                Effect::Ended => return self.ended = true,
            }
        }
    }

    fn give(&mut self, now: Time, input: Input) {
        self.give_to(now, ID, input);
    }

    fn command(&mut self, now: Time, command: Command) {
        self.give(now, Input::Command(command, None));
    }

    fn want(&mut self, now: Time) {
        self.want_for("pod", now, None);
    }

    fn want_for(&mut self, holder: &str, now: Time, jumped_at: Option<Time>) {
        self.attempts += 1;
        let fresh =
            Fresh { attempt: Attempt(self.attempts), entropy: Entropy(7), floor: Token(0), jumped_at, proposal: None };
        self.give(now, Input::Command(Command::Want(Holder(holder.into())), Some(fresh)));
    }

    fn wake(&mut self, now: Time) {
        self.give(now, Input::Wake);
    }

    fn stop_at(&self) -> Option<Time> {
        self.driver.view().standing.term().and_then(|term| term.stop_at)
    }

    /// The requests since the last call.
    fn requests(&mut self) -> Vec<(Round, Node, Op)> {
        core::mem::take(&mut self.sent)
    }

    /// Two of the three nodes answer what was sent, and the third abstains.
    fn answer(&mut self, now: Time, vote: &Vote) {
        self.answer_to(now, ID, vote);
    }

    fn answer_to(&mut self, now: Time, to: LeaseId, vote: &Vote) {
        let sent = self.requests();
        assert!(sent.len() >= 2, "{sent:?}");
        for (place, (round, node, _)) in sent.into_iter().enumerate() {
            let vote = if place < 2 { vote.clone() } else { Vote::Abstained };
            self.give_to(now, to, Input::Vote { round, node, vote });
        }
    }

    /// Other leases reserve the turns of the next seconds.
    fn use_up_turns(&mut self, now: Time) {
        for _ in 0..100_000 {
            self.turns.round(now, now + Millis(60_000));
            self.turns.attempt(now);
        }
    }

    /// The round that is due at `now` starts later, and by `latest`.
    fn expect_turn(&mut self, now: Time, latest: Time) {
        assert!(self.requests().is_empty(), "nothing is sent before the turn");
        let turn = self.driver.next_deadline().unwrap();
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

/// Phases are multiples of 100 ms here. The times are not, so that a round at its phase is not one by chance.
#[test]
fn the_first_renewal_of_a_new_term_is_at_its_phase() {
    let mut driven = Driven::new();
    driven.want(Time(903));
    driven.answer(Time(904), &Vote::Granted(Grant::Numbered(1)));
    driven.answer(Time(907), &Vote::Confirmed { ttl_left: CONFIG.ttl });
    let attempt = driven.driver.running().expect("a majority confirmed the term");
    let phase = next_phase(Time(907), CONFIG.renew_interval, attempt);
    assert_eq!(driven.driver.lease.next_round_at(), Some(phase));
    driven.command(Time(911), Command::Published { attempt, outcome: Publication::Written });
    assert_eq!(driven.driver.next_deadline(), Some(phase));
}

/// A turn that was reserved for another holder meanwhile is not for this term.
#[test]
fn a_term_is_renewed_in_time_although_the_attempt_of_another_holder_waits() {
    let mut driven = Driven::new();
    driven.want(Time(903));
    driven.use_up_turns(Time(904));
    driven.want_for("another", Time(904), None);
    driven.answer(Time(905), &Vote::Granted(Grant::Numbered(1)));
    driven.answer(Time(907), &Vote::Confirmed { ttl_left: CONFIG.ttl });
    let phase = next_phase(Time(907), CONFIG.renew_interval, driven.driver.running().expect("it has won"));
    assert_eq!((driven.driver.lease.next_round_at(), driven.driver.lease.held_until()), (Some(phase), Time(0)));
}

#[test]
fn after_a_round_the_next_is_at_the_phase_of_the_term() {
    let mut driven = Driven::adopting(Time(903));
    driven.answer(Time(911), &Vote::Extended);
    let phase = next_phase(Time(903), CONFIG.renew_interval, Attempt(7));
    assert_eq!(driven.driver.lease.next_round_at(), Some(phase));
    assert!(phase < Time(903) + CONFIG.renew_interval);
}

#[test]
fn a_failed_round_is_tried_again_with_others_of_its_tick() {
    let mut driven = Driven::adopting(Time(903));
    driven.answer(Time(911), &Vote::Unknown);
    assert_eq!(Time(903) + CONFIG.retry_pace(), Time(3403));
    assert_eq!(driven.driver.lease.next_round_at(), Some(Time(3400)));
}

#[test]
fn without_a_turn_an_adopted_term_waits_for_one_retry_interval_at_most() {
    let now = Time(100_003);
    let mut driven = Driven::new();
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
    assert_eq!(driven.driver.recovers(now), driven.stop_at());
    driven.command(now, Command::TryNow);
    let latest = driven.driver.latest_round(now);
    driven.expect_turn(now, latest);
}

#[test]
fn leases_learn_that_a_node_or_a_majority_votes_again() {
    let told = |before: &[bool], after: &[bool]| returned(CONFIG.quorum, before, after).collect::<Vec<_>>();
    assert_eq!(told(&[false, false, false], &[true, false, false]), [Input::NodeReturned]);
    assert_eq!(told(&[true, false, false], &[true, true, false]), [Input::MajorityReturned, Input::NodeReturned]);
    assert_eq!(told(&[true, true, false], &[false, true, true]), [Input::NodeReturned]);
    assert_eq!(told(&[true, true, true], &[true, true, false]), []);
}

#[test]
fn without_a_turn_a_round_that_is_due_does_not_start() {
    let mut driven = failed(Time(5000));
    let due = driven.driver.next_deadline().unwrap();
    driven.use_up_turns(due);
    driven.wake(due);
    let latest = driven.driver.latest_round(due);
    driven.expect_turn(due, latest);
}

#[test]
fn a_deadline_after_the_right_to_end_terms_seals_nothing() {
    for seals in [false, true] {
        let mut driven = Driven::holding(Time(900));
        driven.driver.set_may_end(seals);
        let stop_at = driven.stop_at().unwrap();
        // The renewals are not answered.
        while let Some(due) = driven.driver.next_deadline().filter(|due| *due <= stop_at) {
            driven.wake(due);
        }
        let ended = driven.driver.view().ending.is_some();
        assert_eq!(ended, seals, "{:?}", driven.driver.view());
        // A new configuration does not give the right back.
        driven.command(stop_at, Command::Configure(Box::new(CONFIG)));
        driven.wake(stop_at + CONFIG.ttl);
        assert_eq!(driven.driver.view().ending.is_some() || ended, seals);
    }
}

#[test]
fn a_process_that_was_paused_until_just_after_the_deadline_seals_nothing() {
    let mut driven = Driven::holding(Time(900));
    let stop_at = driven.stop_at().unwrap();
    driven.wake(stop_at + Millis(500));
    assert!(matches!(driven.driver.view().standing, Standing::Adopting(_)), "{:?}", driven.driver.view());
}

#[test]
fn a_term_ends_at_its_deadline_whichever_input_comes_first() {
    for input in [Input::NodeReturned, Input::MajorityReturned, Input::Wake] {
        let mut driven = Driven::holding(Time(1000));
        let stop_at = driven.stop_at().unwrap();
        driven.give(stop_at, input.clone());
        assert_eq!(driven.stop_at(), None, "{input:?}");
    }
}

#[test]
fn no_attempt_begins_after_a_jump_of_the_clock() {
    let (mut driven, jumped_at) = (Driven::new(), Some(Time(1000)));
    let until = Time(1000) + CONFIG.drift.most(Millis(60_000));
    driven.want_for("pod", Time(1500), jumped_at);
    assert_eq!((driven.sent.len(), driven.driver.view().retry_at), (0, Some(until)));
    driven.want_for("pod", until, jumped_at);
    assert_eq!(driven.sent.len(), 3);
}

#[test]
fn without_random_words_the_caller_gets_an_answer_and_no_attempt_begins() {
    let mut driven = Driven::new();
    driven.driver.handle(Time(9), ID, Input::Command(Command::Want(Holder("pod".into())), None), &mut driven.turns);
    let shown = lease::Effect::Changed(View::default());
    assert_eq!((driven.driver.poll_effect(), driven.driver.poll_effect()), (Some(Effect::Lease(shown)), None));
}

#[test]
fn a_lease_that_retires_ends_after_its_last_key() {
    let mut driven = Driven::adopting(Time(900));
    driven.command(Time(1000), Command::End { term: term(), proof: false });
    driven.command(Time(1000), Command::Retire);
    assert!(!driven.ended);
    while let Some(due) = driven.driver.next_deadline().filter(|_| !driven.ended) {
        assert!(due < Time(900) + CONFIG.ttl + CONFIG.ttl, "it never ends");
        driven.wake(due);
    }
    assert!(driven.ended);
}

#[test]
fn a_lease_that_retires_does_not_end_while_its_term_runs() {
    let mut driven = Driven::holding(Time(900));
    driven.command(Time(1000), Command::Retire);
    assert!(!driven.ended && driven.driver.is_taken());
}

#[test]
fn a_lease_that_retires_waits_for_the_answers_to_its_releases() {
    let mut driven = Driven::released();
    driven.command(Time(1001), Command::Retire);
    assert!(!driven.ended);
    driven.wake(Time(1000) + CONFIG.retry_pace());
    assert_eq!(driven.requests().len(), 3, "they are repeated");
}

/// The first attempt of a lease needs no turn, and each test has one.
#[test]
fn a_request_for_another_holder_replaces_the_attempt_under_way() {
    let mut driven = Driven::new();
    driven.want(Time(900));
    driven.requests();
    driven.want(Time(901));
    assert_eq!(driven.requests(), [], "it is under way");
    driven.want_for("another", Time(902), None);
    let sent: Vec<bool> = driven.requests().iter().map(|(_, _, op)| op.is_release()).collect();
    assert_eq!(sent, [true, true, true, false, false, false]);
    assert!(matches!(&driven.driver.view().standing, Standing::Acquiring(_, Holder(name)) if &**name == "another"));
}

#[test]
fn a_lease_that_lets_go_ends_with_the_last_answer_or_after_the_timeout() {
    for answered in [true, false] {
        let mut driven = Driven::holding(Time(900));
        driven.command(Time(1000), Command::Release { keep_until: None });
        assert!(!driven.ended && !driven.released && driven.driver.is_closing());
        if answered {
            driven.answer(Time(1010), &Vote::Released(1));
        } else {
            driven.wake(Time(1099));
            assert!(!driven.ended);
            driven.wake(Time(1100));
        }
        assert_eq!((driven.ended, driven.released), (true, answered));
    }
}

/// The program lets its lock go before it knows that the term has ended.
#[test]
fn the_release_of_a_term_that_has_just_ended_is_counted() {
    for deleted in [true, false] {
        let mut driven = Driven::holding(Time(900));
        driven.command(Time(1000), Command::Prove);
        driven.wake(Time(1001));
        driven.answer(Time(1010), &Vote::Miss(None));
        assert!(driven.driver.view().ending.is_some() && !driven.driver.is_taken());
        driven.requests();
        driven.command(Time(1020), Command::Release { keep_until: None });
        driven.answer(Time(1030), &if deleted { Vote::Released(1) } else { Vote::Unknown });
        assert_eq!(driven.released, deleted);
    }
}

/// The program asks for a proof after `asked`, and cannot tell two rounds of the same millisecond apart.
#[test]
fn a_proof_begins_in_a_later_millisecond_than_its_command() {
    let mut driven = Driven::holding(Time(900));
    for asked in [Time(1000), Time(1001), Time(1001)] {
        driven.command(asked, Command::Prove);
        assert!(driven.sent.is_empty(), "{asked:?}");
        driven.wake(asked + Millis(1));
        driven.answer(asked + Millis(1), &Vote::Extended);
        let valid_until = driven.driver.view().standing.term().and_then(|term| term.valid_until).unwrap();
        assert!(
            valid_until > asked + Drift::STANDARD.least(driven.driver.lease().config().ttl),
            "{asked:?}: {valid_until:?}"
        );
    }
}

#[test]
fn a_command_for_a_lease_that_closes_is_dropped() {
    let mut driven = Driven::new();
    driven.want(Time(900));
    driven.requests();
    driven.command(Time(901), Command::Close);
    assert!(driven.requests().iter().all(|(_, _, op)| op.is_release()), "the attempt is given up");
    driven.want(Time(902));
    assert!(driven.sent.is_empty() && !driven.ended);
}
