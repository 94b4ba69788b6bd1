//! The admission and the connection of one node; the test plays the node.

use alloc::string::String;

use super::*;
use crate::admission::Standing;
use crate::marker::Membership;
use crate::op::{Attempt, Grant, Op, Token};
use crate::quorum::Quorum;
use crate::time::{Beat, Drift, Millis};
use crate::wire::replies::Answer;
use crate::wire::{Answers, Input, Limits, Request, Why};

const NOW: Time = Time(1000);
const TIMEOUT: Millis = Millis(500);
pub const HEARTBEAT: Millis = Millis(1_000_000);

type Outcome = Effect<&'static str, u8, &'static str>;

/// The admission of a node of the configuration of [`marker`].
pub fn admission() -> Admission {
    Admission::new(admission::Config {
        membership: Membership { generation: 1, fingerprint: "f".into() },
        quorum: Quorum::of(3).unwrap(),
        has_statuses: false,
        longest_lease: Millis(60_000),
        drift: Drift::STANDARD,
        heartbeat: Beat { every: HEARTBEAT, phase: NOW },
    })
}

/// The marker of an admitted server `r`.
pub fn marker() -> Marker {
    Membership { generation: 1, fingerprint: "f".into() }.marker("r".into())
}

struct Node {
    wire: Wire<&'static str, u8, &'static str>,
    /// The calls that were sent: their numbers, and what they are.
    sent: Vec<(u64, String)>,
}

impl Node {
    /// A connection to server `r` is open, and the marker is being read.
    fn open() -> Self {
        let mut node = Self { wire: Wire::new(admission(), Limits::STANDARD, TIMEOUT), sent: Vec::new() };
        assert_eq!(node.give(Input::Opened), []);
        node.give(Input::Clock { node_time: 70_000 });
        let effects = node.give(Input::Admission(admission::Input::Connected("r".into())));
        assert_eq!(effects, [changed(Standing::Observing)]);
        node
    }

    fn admitted() -> Self {
        let mut node = Self::open();
        assert_eq!(node.mark(Some(marker())), [changed(Standing::Admitted)]);
        node
    }

    /// The effects other than the calls that are sent.
    fn give(&mut self, input: Input<&'static str, u8, &'static str>) -> Vec<Outcome> {
        self.wire.handle(NOW, input);
        let mut effects = Vec::new();
        while let Some(effect) = self.wire.poll_effect() {
            match effect {
                Effect::Send(id) => {
                    let text = match &self.wire.get(id).unwrap().call {
                        Call::Admission(admission::Call::Observe { .. }) => "observe",
                        Call::Admission(admission::Call::Admit { .. }) => "admit",
                        Call::Own(own) => own,
                        Call::Batch(_) => "votes",
                    };
                    self.sent.push((id, text.into()));
                }
                effect => effects.push(effect),
            }
        }
        effects
    }

    /// The marker in the reply to the oldest call.
    fn mark(&mut self, marker: Option<Marker>) -> Vec<Outcome> {
        let (id, _) = self.sent.remove(0);
        self.give(Input::Answered { id, counts: true, answers: Answers::Marker(marker) })
    }

    fn ask(&mut self, reply: u8) -> Vec<Outcome> {
        let op = Op::Confirm { attempt: Attempt(1), grant: Grant::Numbered(1), token: Token(1) };
        let request = Request { keys: ["k"].into(), op, give_up_at: NOW + TIMEOUT };
        let mut effects = self.give(Input::Request(request, reply));
        effects.extend(self.give(Input::Flush));
        effects
    }

    /// The answer to the oldest call.
    fn answer(&mut self, answer: Answer) -> Vec<Outcome> {
        let (id, _) = self.sent.remove(0);
        self.give(Input::Answered { id, counts: true, answers: Answers::Votes([Ok(answer)].into()) })
    }

    fn sent(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, text)| &**text).collect()
    }
}

fn changed(standing: Standing) -> Outcome {
    Effect::Admission(admission::Effect::Changed(standing))
}

#[test]
fn requests_are_sent_while_the_marker_is_the_one_of_the_configuration() {
    let mut node = Node::open();
    assert_eq!(node.sent(), ["observe"]);
    assert_eq!(node.ask(1), [Effect::Vote(1, Vote::Abstained)]);
    node.mark(Some(marker()));
    assert_eq!(node.ask(2), []);
    assert_eq!(node.sent(), ["votes"]);
}

#[test]
fn a_doubt_between_a_reply_and_its_votes_makes_them_unknown() {
    let mut node = Node::admitted();
    node.ask(1);
    node.give(Input::Admission(admission::Input::Doubted));
    let effects = node.answer(Answer::Vote(Vote::Confirmed { ttl_left: Millis(1) }));
    assert_eq!(effects, [Effect::Vote(1, Vote::Unknown)]);
}

#[test]
fn a_call_that_found_another_marker_takes_the_vote_away_and_reads_the_marker() {
    let mut node = Node::admitted();
    node.ask(1);
    let effects = node.answer(Answer::NotAdmitted);
    let failed = Effect::Failed(Why::NotAdmitted, 1);
    assert_eq!(effects, [Effect::Vote(1, Vote::Abstained), failed, changed(Standing::Observing)]);
    assert_eq!(node.sent(), ["observe"]);
    assert_eq!(node.ask(2), [Effect::Vote(2, Vote::Abstained)]);
}

#[test]
fn another_server_or_no_marker_ends_the_connection() {
    let other = Marker::Wait { run_id: "s".into(), nonce: 1 };
    assert_eq!(Node::open().mark(Some(other.clone())), [Effect::AnotherServer(other)]);
    assert_eq!(Node::open().mark(None), [Effect::Flushed]);
}

#[test]
fn the_end_of_a_connection_answers_everything_on_it_before_the_standing_changes() {
    let mut node = Node::admitted();
    node.ask(1);
    node.give(Input::Own("info"));
    let expected = [Effect::Vote(1, Vote::Unknown), Effect::Lost("info"), changed(Standing::Offline)];
    assert_eq!(node.give(Input::Closed), expected);
    assert_eq!(node.wire.next_deadline(), None);
    assert_eq!(node.ask(2), [Effect::Vote(2, Vote::Abstained)], "it was not executed");
    assert_eq!(node.give(Input::Own("info")), [Effect::Lost("info")]);
}
