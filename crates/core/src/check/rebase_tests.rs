//! Compares a machine that is rebased after every input with one that is never rebased: both must behave alike.

use super::*;
use crate::backoff::{Backoff, Entropy, Strategy};
use crate::check::Renumbering;
use crate::op::{Grant, Holder, Op, Stage, Token};
use crate::quorum::Quorum;
use crate::time::{Drift, Millis};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;

const ORIGIN: Time = Time(1_000_000);

fn config(deadline: OnDeadline) -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(30),
        renew_interval: Millis(10),
        stop_budget: Millis(5),
        command_timeout: Millis(6),
        drift: Drift::NONE,
        backoff: Backoff { strategy: Strategy::Linear, min: Millis(1), max: Millis(1), limit: None, jitter: 0 },
        deadline,
    }
}

fn want(attempt: Attempt, floor: Token) -> Input {
    let fresh = Fresh { attempt, floor, entropy: Entropy(0), jumped_at: None, proposal: None };
    Input::Command(Command::Want(Holder("pod".into())), Some(fresh))
}

/// One request, with its round in both machines. The rebased machine may have dropped the round.
#[derive(Debug)]
struct Asked {
    plain: (Round, Node),
    rebased: Option<(Round, Node)>,
    op: Op,
    give_up_at: Time,
}

/// The output of a machine in a form that both must produce: times as spans from now, nodes by their original numbers.
#[derive(Debug, PartialEq, PartialOrd, Eq, Ord)]
enum Output {
    Request(u8, String, Millis),
    Other(String),
    Standing(String, Option<Millis>),
}

/// A request with the span until it is given up.
type Sent = (Round, Node, Op, Millis);

struct Twins {
    plain: Lease,
    rebased: Lease,
    now: Time,
    /// The original number of each node of the rebased machine.
    names: [u8; 3],
    asked: Vec<Asked>,
    published: Option<TermId>,
    attempts: u128,
}

impl Twins {
    fn new(deadline: OnDeadline) -> Self {
        let lease = || Lease::new(config(deadline));
        Self {
            plain: lease(),
            rebased: lease(),
            now: Time(50),
            names: [0, 1, 2],
            asked: Vec::new(),
            published: None,
            attempts: 0,
        }
    }

    fn outputs(lease: &mut Lease, now: Time, names: [u8; 3]) -> (Vec<Output>, Vec<Sent>) {
        let (mut outputs, mut sent) = (Vec::new(), Vec::new());
        while let Some(effect) = lease.poll_effect() {
            match effect {
                Effect::Send { round, node, op, give_up_at } => {
                    outputs.push(Output::Request(names[node.index()], format!("{op:?}"), give_up_at.since(now)));
                    sent.push((round, node, op, give_up_at.since(now)));
                }
                Effect::Changed(_) => {}
                other => outputs.push(Output::Other(format!("{other:?}"))),
            }
        }
        let (name, left) = match &lease.view().standing {
            Standing::Idle | Standing::Acquiring(..) => (format!("{:?}", lease.view().standing), None),
            standing => {
                let term = standing.term().unwrap();
                (format!("{:?} {:?}", core::mem::discriminant(standing), term.id), term.valid_until)
            }
        };
        let ending = lease.view().ending.as_ref().map(|ending| (ending.id.clone(), ending.sealed));
        outputs.push(Output::Standing(format!("{name} {ending:?}"), left.map(|until| until.since(now))));
        outputs.sort();
        sent.sort_by_key(|(round, node, ..)| (*round, names[node.index()]));
        (outputs, sent)
    }

    /// Gives both the same input and compares.
    fn give(&mut self, plain: Input, rebased: Option<Input>) {
        let listening = rebased.is_some();
        self.plain.handle(self.now, plain);
        self.rebased.handle(ORIGIN, rebased.unwrap_or(Input::Wake));
        let (mut one, mut other) = (self.plain.clone(), self.rebased.clone());
        let (expected, asked) = Self::outputs(&mut one, self.now, [0, 1, 2]);
        let (outputs, asked_again) = Self::outputs(&mut other, ORIGIN, self.names);
        assert_eq!(outputs, expected, "listening: {listening}");
        (self.plain, self.rebased) = (one, other);
        for ((round, node, op, span), again) in asked.into_iter().zip(asked_again) {
            let give_up_at = self.now + span;
            self.asked.push(Asked { plain: (round, node), rebased: Some((again.0, again.1)), op, give_up_at });
        }
        self.published = self.plain.view().standing.term().map(|term| term.id.clone());
        let rounds = self.rebased.rebase(ORIGIN, ORIGIN);
        self.renumber(&rounds);
    }

    fn renumber(&mut self, rounds: &Renumbering) {
        for asked in &mut self.asked {
            asked.rebased = asked.rebased.and_then(|(round, node)| Some((rounds.of(round)?, node)));
        }
    }

    fn both(&mut self, input: impl Into<Input>) {
        let input = input.into();
        self.give(input.clone(), Some(input));
        if self.plain.view().standing == Standing::Idle {
            self.give(Command::TryNow.into(), Some(Command::TryNow.into()));
        }
    }

    fn pass(&mut self, span: Millis) {
        self.now += span;
        let rounds = self.rebased.rebase(ORIGIN + span, ORIGIN);
        self.renumber(&rounds);
        self.both(Input::Wake);
        while let Some(place) = self.asked.iter().position(|asked| asked.give_up_at <= self.now) {
            self.answer(place, &Vote::Unknown);
        }
    }

    fn answer(&mut self, place: usize, vote: &Vote) {
        let asked = self.asked.remove(place);
        let input = |(round, node)| Input::Vote { round, node, vote: vote.clone() };
        self.give(input(asked.plain), asked.rebased.map(input));
        if self.plain.view().standing == Standing::Idle {
            self.give(Command::TryNow.into(), Some(Command::TryNow.into()));
        }
    }

    fn vote(&self, place: usize, word: u8) -> Vote {
        let by = Stored { stage: Stage::Term, attempt: Attempt(99), number: 7, metadata: String::new() };
        let asked = &self.asked[place];
        let node = u64::from(asked.plain.1.0);
        match (&asked.op, word % 8) {
            (_, 0) => Vote::Unknown,
            (Op::Acquire { .. }, 1) => Vote::Refused { ttl_left: Millis(4), by },
            (Op::Acquire { .. }, _) => Vote::Granted(Grant::Numbered(3 + node)),
            (Op::Confirm { .. } | Op::Extend { .. } | Op::Seal { .. }, 1) | (Op::Extend { .. }, 2) => {
                Vote::Miss(Some(by))
            }
            (Op::Confirm { .. }, _) => Vote::Confirmed { ttl_left: Millis(25 - node) },
            (Op::Extend { attempt, .. }, 3) => {
                Vote::Miss(Some(Stored { stage: Stage::Pending, attempt: *attempt, number: 3 + node, ..by }))
            }
            (Op::Extend { .. }, _) => Vote::Extended,
            (Op::Seal { .. }, _) => Vote::Sealed { ttl_left: Millis(u64::from(word % 20)) },
            (Op::Release { .. } | Op::Keep { .. }, _) => Vote::Released(1),
        }
    }

    fn step(&mut self, what: u8, word: u8) {
        let known = self.published.clone();
        match (what % 16, known) {
            (0, _) => {
                self.attempts += 1;
                self.both(want(Attempt(self.attempts), Token(u64::from(word))));
            }
            (1, Some(id)) => self.both(Command::Published { attempt: id.attempt, outcome: Publication::Written }),
            (2, Some(term)) if word < 60 => self.both(Command::End { term, proof: word < 20 }),
            (2, Some(id)) if word > 250 => {
                self.both(Command::Published { attempt: id.attempt, outcome: Publication::Superseded });
            }
            (2, Some(id)) if word > 240 => self.both(Command::UnconfirmedShown(id.attempt)),
            (2, Some(id)) if word > 230 => self.both(Command::KeptElsewhere(id.attempt)),
            (2, _) if word > 220 => self.both(Command::Forget),
            (2, _) if word > 180 => {
                let after = Millis(u64::from(word % 4));
                let returned = |now: Time| Input::NodeReturned { ask_by: now + after };
                self.give(returned(self.now), Some(returned(ORIGIN)));
            }
            (3, _) if word < 60 => {
                let id = TermId { attempt: Attempt(50), token: Token(4), holder: Holder("pod".into()) };
                self.both(Command::Adopt(id));
            }
            (4, _) => self.pass(Millis(u64::from(word % 12))),
            (5, _) => self.permute(word),
            _ if !self.asked.is_empty() => {
                let place = usize::from(word) % self.asked.len();
                let vote = self.vote(place, what.wrapping_add(word));
                self.answer(place, &vote);
            }
            _ => self.pass(Millis(1)),
        }
    }

    fn permute(&mut self, word: u8) {
        let orders = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let order: [u8; 3] = orders[usize::from(word) % 5];
        self.rebased.permute(&order.map(Node));
        self.names = order.map(|node| self.names[usize::from(node)]);
        for (_, node) in self.asked.iter_mut().filter_map(|asked| asked.rebased.as_mut()) {
            let place = order.iter().position(|old| *old == node.0).unwrap();
            *node = Node(u8::try_from(place).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_rebased_machine_does_the_same(unconfirms: bool, script in vec((any::<u8>(), any::<u8>()), 1..120)) {
        let mut twins = Twins::new(if unconfirms { OnDeadline::Unconfirm } else { OnDeadline::Seal });
        for (what, word) in script {
            twins.step(what, word);
        }
    }
}

#[test]
fn states_that_differ_only_in_the_origin_of_time_become_one() {
    let at = |start: u64| {
        let mut lease = Lease::new(config(OnDeadline::Seal));
        lease.handle(Time(start), want(Attempt(1), Token(0)));
        while lease.poll_effect().is_some() {}
        lease.rebase(Time(start), ORIGIN);
        lease
    };
    assert_eq!(at(17), at(90_000));
}
