//! Unit tests of the whole machine, and of its planted bugs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::check::{Mutant, ops};
use crate::marker::Membership;
use crate::quorum::Quorum;
use crate::time::{Beat, Drift};
use crate::wire::samples::{confirm, extend, release, seal};

mod connection;

const TIMEOUT: Millis = Millis(500);
const NOW: Time = Time(1000);
const HEARTBEAT: Millis = Millis(1_000_000);

type Outcome = Effect<&'static str, u128, &'static str>;

fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "f".into() }
}

/// The marker of an admitted server `r`.
fn marker() -> Marker {
    membership().marker("r".into())
}

/// A wire whose effects are carried out by writing them down.
struct Wired {
    wire: Wire<&'static str, u128, &'static str>,
    /// The calls that were sent, and how often the scripts were to be loaded.
    sent: Vec<String>,
    /// The other effects.
    effects: Vec<Outcome>,
    /// The last call of the admission.
    observe: u64,
}

impl Wired {
    /// A connection to server `r` is open, and the marker is being read.
    fn open(limits: Limits, mutant: Option<Mutant>) -> Self {
        let admission = Admission::new(admission::Config {
            membership: membership(),
            quorum: Quorum::of(3).unwrap(),
            has_statuses: false,
            longest_lease: Millis(60_000),
            drift: Drift::STANDARD,
            heartbeat: Beat { every: HEARTBEAT, phase: NOW },
        });
        let wire = Wire::new(admission, limits, TIMEOUT).with_mutant(mutant);
        let mut wired = Self { wire, sent: Vec::new(), effects: Vec::new(), observe: 0 };
        wired.give(NOW, Input::Opened);
        wired.give(NOW, Input::Clock { node_time: 70_000 });
        wired.give(NOW, Input::Admission(admission::Input::Connected("r".into())));
        wired
    }

    /// A wire to an admitted node.
    fn new(limits: Limits, mutant: Option<Mutant>) -> Self {
        let mut wired = Self::open(limits, mutant);
        wired.mark(Some(marker()));
        wired.take();
        wired
    }

    /// The answer to the last call of the admission.
    fn mark(&mut self, marker: Option<Marker>) {
        self.give(NOW, Input::Answered { id: self.observe, counts: true, answers: Answers::Marker(marker) });
    }

    fn doubt(&mut self) {
        self.give(NOW, Input::Admission(admission::Input::Doubted));
    }

    fn give(&mut self, now: Time, input: Input<&'static str, u128, &'static str>) {
        self.wire.handle(now, input);
        while let Some(effect) = self.wire.poll_effect() {
            match effect {
                Effect::Send(id) => match &self.wire.get(id).unwrap().call {
                    Call::Admission(_) => self.observe = id,
                    Call::Own(own) => self.sent.push(String::from(*own)),
                    Call::Batch(batch) => {
                        let asked = self.wire.requests(batch).iter().map(|asked| name(&asked.request.op));
                        self.sent.push(asked.collect::<Vec<_>>().join(" "));
                    }
                },
                Effect::Load => self.sent.push("load".into()),
                effect => self.effects.push(effect),
            }
        }
    }

    /// The effects since the last call, other than calls to the node.
    fn take(&mut self) -> Vec<Outcome> {
        core::mem::take(&mut self.effects)
    }

    fn ask_until(&mut self, give_up_at: Time, op: Op) {
        let attempt = op.attempt().0;
        self.give(NOW, Input::Request(Request { keys: ["k"].into(), op, give_up_at }, attempt));
    }

    fn ask(&mut self, op: Op) {
        self.ask_until(NOW + TIMEOUT, op);
    }

    fn flush(&mut self) -> Vec<String> {
        self.give(NOW, Input::Flush);
        core::mem::take(&mut self.sent)
    }

    /// The reply to the oldest call.
    fn reply(&mut self, parts: &[Value]) {
        self.reply_that(true, parts);
    }

    fn reply_that(&mut self, counts: bool, parts: &[Value]) {
        let Sent { id, call, .. } = self.wire.oldest().unwrap();
        let id = *id;
        let time = [Value::Int(70), Value::Int(0)];
        let value = Value::List(time.into_iter().chain(parts.iter().cloned()).collect());
        let answers = Wire::read(call, value).unwrap().answer;
        self.give(NOW, Input::Answered { id, counts, answers });
    }

    fn not_run(&mut self) {
        let id = self.wire.oldest().unwrap().id;
        self.give(NOW, Input::NotRun { id });
    }

    /// Takes some of the effects.
    fn extract<T>(&mut self, of: impl Fn(&Outcome) -> Option<T>) -> Vec<T> {
        let found = self.effects.iter().filter_map(&of).collect();
        self.effects.retain(|effect| of(effect).is_none());
        found
    }

    fn voted(&mut self) -> Vec<(u128, Vote)> {
        self.extract(|effect| match effect {
            Effect::Vote(attempt, vote) => Some((*attempt, vote.clone())),
            _ => None,
        })
    }

    fn failed(&mut self) -> Vec<(Why, usize)> {
        self.extract(|effect| match effect {
            Effect::Failed(why, count) => Some((*why, *count)),
            Effect::Foreign { .. } => panic!("{effect:?}"),
            _ => None,
        })
    }
}

fn name(op: &Op) -> String {
    let word = match op {
        Op::Acquire { .. } => "acquire",
        Op::Confirm { .. } => "confirm",
        Op::Extend { .. } => "extend",
        Op::Seal { .. } => "seal",
        Op::Release { .. } | Op::Keep { .. } => "release",
    };
    format!("{word}-{}", op.attempt().0)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn standard() -> Wired {
    Wired::new(Limits::STANDARD, None)
}

#[test]
fn requests_become_calls_and_replies_become_votes() {
    let mut wired = standard();
    for op in [extend(1), confirm(2), release(3), extend(4), seal(5)] {
        wired.ask(op);
    }
    assert_eq!(wired.flush(), ["release-3 seal-5", "confirm-2", "extend-1 extend-4"]);
    let sent = wired.wire.oldest().unwrap();
    let Call::Batch(batch) = &sent.call else { panic!("not a batch") };
    assert_eq!(batch.terms().unwrap().deadline, 70_000 + TIMEOUT.0);
    wired.reply(&[text("ends"), Value::Int(2), Value::Int(7)]);
    assert_eq!(wired.voted(), [(3, Vote::Released(2)), (5, Vote::Sealed { ttl_left: Millis(7) })]);
    wired.reply(&[text("votes"), Value::Error]);
    wired.reply(&[text("extended"), Value::Int(2), Value::Nil]);
    assert_eq!(wired.voted(), [(2, Vote::Unknown), (1, Vote::Extended), (4, Vote::Miss(None))]);
    assert_eq!(wired.wire.next_deadline(), Some(NOW + HEARTBEAT), "nothing is in flight");
}

#[test]
fn requests_about_one_lease_keep_their_order() {
    let mut wired = standard();
    wired.ask(extend(1));
    wired.ask(release(1));
    assert_eq!(wired.sent, ["extend-1"], "the waiting extension goes first");
    wired.ask(extend(1));
    assert_eq!(wired.sent[1..], ["release-1"]);
    assert_eq!(wired.flush()[2..], ["extend-1"]);
}

#[test]
fn without_a_marker_only_releases_are_sent() {
    let mut wired = standard();
    wired.doubt();
    wired.mark(Some(marker()));
    for op in [extend(1), confirm(2), seal(3), release(4)] {
        wired.ask(op);
    }
    assert_eq!(wired.flush(), ["release-4"]);
    assert_eq!(wired.voted(), [(1, Vote::Abstained), (3, Vote::Abstained), (2, Vote::Abstained)]);
    wired.reply(&[text("ends"), Value::Int(1)]);
    assert_eq!(wired.voted(), [(4, Vote::Released(1))]);
}

#[test]
fn votes_in_flight_when_the_marker_is_in_doubt_are_unknown() {
    let mut wired = standard();
    wired.ask(confirm(1));
    wired.ask(extend(2));
    wired.ask(release(3));
    wired.flush();
    wired.doubt();
    wired.reply(&[text("ends"), Value::Int(1)]);
    wired.reply(&[text("votes"), Value::Int(1)]);
    wired.reply(&[text("extended")]);
    assert_eq!(wired.voted(), [(3, Vote::Released(1)), (1, Vote::Unknown), (2, Vote::Unknown)]);
}

#[test]
fn each_sender_gives_up_at_its_own_time() {
    let mut wired = standard();
    for (op, after) in [(extend(1), 300), (extend(2), 290), (confirm(3), 280), (confirm(5), 0), (release(4), 0)] {
        wired.ask_until(NOW + Millis(after), op);
    }
    assert_eq!(wired.voted(), [(5, Vote::Unknown), (4, Vote::Unknown)], "their senders do not wait");
    assert_eq!(wired.flush(), ["release-4", "confirm-3", "extend-1 extend-2"], "a late release is useful");
    for (after, attempt) in [(280, 3), (290, 2), (300, 1)] {
        assert_eq!(wired.wire.next_deadline(), Some(NOW + Millis(after)));
        wired.give(NOW + Millis(after), Input::Wake);
        assert_eq!(wired.voted(), [(attempt, Vote::Unknown)]);
    }
    assert_eq!(wired.failed(), [(Why::Timeout, 1); 5]);
    wired.reply(&[text("ends"), Value::Int(1)]);
    wired.reply(&[text("votes"), Value::Int(1)]);
    assert_eq!(wired.voted(), [], "they have their votes");
    wired.give(NOW + TIMEOUT, Input::Wake);
    assert!(wired.take().contains(&Effect::Overdue), "the other call has no answer");
}

#[test]
fn too_many_requests_in_flight_are_refused() {
    let limits = Limits { in_flight: 2, ..Limits::STANDARD };
    let mut wired = Wired::new(limits, None);
    for attempt in 1..=3 {
        wired.ask(confirm(attempt));
    }
    assert_eq!(wired.take(), [Effect::Failed(Why::Busy, 1), Effect::Vote(3, Vote::Abstained)]);
}

/// The sender of a release may not repeat it.
#[test]
fn too_many_releases_in_flight_wait() {
    let limits = Limits { in_flight: 2, ..Limits::STANDARD };
    let mut wired = Wired::new(limits, None);
    wired.ask(confirm(1));
    wired.ask(confirm(2));
    wired.ask_until(NOW + Millis(460), release(3));
    wired.ask(release(4));
    assert_eq!(wired.flush(), ["confirm-1 confirm-2"]);
    assert_eq!((wired.voted(), wired.wire.next_deadline()), ([].into(), Some(NOW + Millis(460))));
    wired.give(NOW + Millis(460), Input::Wake);
    assert_eq!(wired.voted(), [(3, Vote::Unknown)]);
    wired.reply(&[text("votes"), Value::Int(1), Value::Int(1)]);
    assert_eq!(wired.flush(), ["release-3 release-4"], "a late release is useful");
    wired.reply(&[text("ends"), Value::Int(1), Value::Int(1)]);
    assert_eq!(wired.voted()[2..], [(4, Vote::Released(1))]);
    for attempt in 5..=8 {
        wired.ask(release(attempt));
    }
    wired.give(NOW, Input::Closed);
    assert_eq!(wired.voted().len(), 4, "also those that wait have a vote");
}

#[test]
fn a_release_that_waits_for_the_scripts_is_sent_although_it_is_late() {
    let mut wired = standard();
    wired.ask(seal(1));
    wired.flush();
    wired.not_run();
    wired.ask_until(NOW + Millis(100), release(2));
    wired.ask_until(NOW + Millis(100), seal(3));
    wired.give(NOW + Millis(100), Input::Wake);
    assert_eq!(wired.voted(), [(2, Vote::Unknown), (3, Vote::Unknown)]);
    wired.sent.clear();
    wired.give(NOW + Millis(101), Input::Loaded);
    assert_eq!(wired.sent, ["seal-1", "release-2"]);
    assert_eq!(wired.take(), [Effect::Failed(Why::NoScript, 1), Effect::Failed(Why::Timeout, 2)]);
}

#[test]
fn calls_without_scripts_are_sent_again_in_order_and_before_waiting_requests() {
    let mut wired = standard();
    wired.ask(seal(1));
    wired.flush();
    wired.ask(seal(2));
    wired.ask(extend(3));
    assert_eq!(wired.flush(), ["seal-2", "extend-3"]);
    wired.not_run();
    wired.ask(seal(5));
    wired.not_run();
    wired.not_run();
    assert_eq!(wired.flush(), ["load"], "once, and nothing new before it is done");
    wired.give(NOW, Input::Loaded);
    assert_eq!(wired.sent, ["seal-1", "seal-2", "extend-3", "seal-5"]);
    assert_eq!(wired.voted(), []);
}

/// Two seals and a release, of which the last is executed because another process has loaded the scripts.
fn a_call_runs_while_the_scripts_are_loaded(wired: &mut Wired) {
    for op in [seal(1), release(1)] {
        wired.ask(op);
        wired.give(NOW + Millis(2), Input::Wake);
    }
    wired.sent.clear();
    wired.not_run();
    wired.reply(&[text("ends"), Value::Int(1)]);
    wired.give(NOW, Input::Loaded);
}

#[test]
fn an_overtaken_request_is_not_sent_again() {
    let mut wired = standard();
    a_call_runs_while_the_scripts_are_loaded(&mut wired);
    assert_eq!(wired.sent, ["load"]);
    assert_eq!(wired.voted(), [(1, Vote::Released(1)), (1, Vote::Abstained)]);
}

#[test]
fn votes_that_do_not_count_are_unknown() {
    let mut wired = standard();
    for op in [confirm(1), release(2), extend(3)] {
        wired.ask(op);
    }
    wired.flush();
    wired.reply_that(false, &[text("ends"), Value::Int(1)]);
    wired.reply_that(false, &[text("votes"), Value::Int(1)]);
    wired.reply_that(false, &[text("extended")]);
    assert_eq!(wired.voted(), [2, 1, 3].map(|attempt| (attempt, Vote::Unknown)));
}

#[test]
fn requests_that_were_late_and_those_to_another_marker_are_counted_apart() {
    let acquire = |attempt| ops::acquire(attempt, Millis(1000), "pod");
    let mut wired = standard();
    for (word, why) in [("late", Why::Late), ("not_admitted", Why::NotAdmitted)] {
        wired.ask(extend(1));
        wired.ask(extend(2));
        wired.flush();
        wired.reply(&[text(word)]);
        assert_eq!(wired.failed(), [(why, 2)]);
        wired.mark(Some(marker()));
    }
    wired.ask(acquire(1));
    wired.ask(acquire(2));
    wired.flush();
    wired.reply(&[text("votes"), text("late"), text("late")]);
    assert_eq!(wired.failed(), [(Why::Late, 2)]);
    for attempt in [1, 2] {
        wired.ask(seal(attempt));
    }
    wired.flush();
    wired.reply(&[text("ends"), text("not_admitted"), text("not_admitted")]);
    assert_eq!(wired.failed(), [(Why::NotAdmitted, 2)]);
    let votes = wired.voted();
    assert!(votes.iter().all(|(_, vote)| *vote == Vote::Abstained), "{votes:?}");
}

#[test]
fn a_release_whose_sender_gives_up_when_it_is_sent_has_no_deadline() {
    let mut wired = standard();
    let at = NOW + Limits::STANDARD.wait;
    wired.ask_until(at, release(1));
    wired.give(at, Input::Wake);
    assert_eq!((wired.voted(), &wired.sent[..]), ([(1, Vote::Unknown)].into(), &[name(&release(1))][..]));
    let Call::Batch(batch) = &wired.wire.oldest().unwrap().call else { panic!("not a batch") };
    assert_eq!((batch.terms(), wired.wire.next_deadline()), (None, Some(at + TIMEOUT)));
}

pub(crate) const PLANTED: [Mutant; 3] =
    [Mutant::SentAgainAlthoughRun, Mutant::LastLeaseDropped, Mutant::EndsBehindVotes];

/// What was sent.
fn scenario(mutant: Mutant, planted: bool) -> Vec<String> {
    let mut wired = Wired::new(Limits::STANDARD, planted.then_some(mutant));
    if mutant == Mutant::SentAgainAlthoughRun {
        a_call_runs_while_the_scripts_are_loaded(&mut wired);
    }
    for op in [extend(2), extend(3), confirm(4), release(5)] {
        wired.ask(op);
    }
    wired.flush()
}

#[test]
fn planted_bugs_are_found() {
    for mutant in PLANTED {
        assert_ne!(scenario(mutant, true), scenario(mutant, false), "{mutant:?}");
    }
}
