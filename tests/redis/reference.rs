//! Compares the scripts on a real server with the reference implementation in Rust, so that the results of the model
//! checker and the simulator apply to the scripts too.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use redislease_core::admission::{self, Admission};
use redislease_core::check::reference::{Call, Node};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::op::{Attempt, Grant, Holder, Op, Stage, Stages, Stored, Token, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Beat, Drift, Millis, Time};
use redislease_core::wire::replies::{self, Answer};
use redislease_core::wire::{self, Answers, Effect, Input, Limits, Request, Sent, Wire};
use redislease_lab::RedisServer;
use redislease_lock::nodes::Keyspace;
use redislease_lock::nodes::script;

use crate::support::{PREFIX, connection, membership, plain};

const KEYS: [&str; 3] = ["a", "b", "c"];
const TTLS: [u64; 2] = [60_000, 120_000];

/// The vote on each of `count` requests.
fn votes(answers: &Answers, count: usize) -> Vec<Vote> {
    match answers {
        Answers::Votes(answers) => answers.iter().map(|answer| voted(answer.clone().unwrap())).collect(),
        Answers::Extended(Answer::Vote(exceptions)) => (0..count)
            .map(|place| exceptions.iter().find(|(exception, _)| *exception == place))
            .map(|exception| exception.map_or(Vote::Extended, |(_, vote)| vote.clone()))
            .collect(),
        Answers::Extended(Answer::Late | Answer::NotAdmitted) => vec![Vote::Abstained; count],
        Answers::Marker(_) => panic!("not votes: {answers:?}"),
    }
}

/// Less than the difference between two TTLs, more than a busy machine needs for one command.
const SAME_LIFE: u64 = 30_000;

/// Keys and operation of each request.
type Requests = Vec<(Vec<&'static str>, Op)>;

/// One operation on a node.
#[derive(Clone, Debug)]
enum Step {
    // Of one kind: each kind has its script.
    Ask { requests: Requests, expected: Marker, late: bool, exact: bool },
    // A key expires.
    End(&'static str),
    // Somebody deletes the counter.
    LoseFence,
    Observe { run_id: &'static str, nonce: u128, stepped: bool },
    Admit { right: bool, seed: u64 },
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (1..=3_u128).prop_map(Attempt)
}

fn number() -> impl Strategy<Value = u64> {
    1..=9_u64
}

fn begin() -> impl Strategy<Value = Op> {
    prop_oneof![
        (attempt(), prop::option::of(1..=30_u64), select(&TTLS)).prop_map(|(attempt, proposal, ttl)| {
            let holder = Holder(format!("pod:{} \"é\"", attempt.0).into());
            Op::Acquire { attempt, proposal: proposal.map(Token), ttl: Millis(ttl), holder }
        }),
        (attempt(), number(), number()).prop_map(|(attempt, grant, token)| Op::Confirm {
            attempt,
            grant: if grant % 3 == 0 { Grant::Proposed(Token(grant)) } else { Grant::Numbered(grant) },
            token: Token(token)
        }),
    ]
}

fn end() -> impl Strategy<Value = Op> {
    prop_oneof![
        attempt().prop_map(|attempt| Op::Seal { attempt }),
        (attempt(), select(&[Stages::Pending, Stages::Unpublished, Stages::All]))
            .prop_map(|(attempt, stages)| Op::Release { attempt, stages }),
        (attempt(), select(&TTLS)).prop_map(|(attempt, ttl)| Op::Keep { attempt, ttl: Millis(ttl) }),
    ]
}

fn extension() -> impl Strategy<Value = Op> {
    (attempt(), number(), select(&TTLS)).prop_map(|(attempt, token, ttl)| Op::Extend {
        attempt,
        token: Token(token),
        ttl: Millis(ttl),
    })
}

fn many(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Requests> {
    prop::collection::vec((prop::sample::subsequence(&KEYS, 1..=3), op), 1..=5)
}

/// The marker that a call expects on the server. Each part of it can be another one, also one that only begins in the same way.
fn expected() -> impl Strategy<Value = Marker> {
    let longer = Membership { fingerprint: "f00d2".into(), ..membership() };
    prop_oneof![
        36 => Just(Pair::ours()),
        1 => Just(membership().marker("you".into())),
        1 => Just(Membership { generation: 9, ..membership() }.marker("me".into())),
        1 => Just(Membership { generation: 12, ..membership() }.marker("me".into())),
        1 => Just(longer.marker("me".into())),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let often = || prop::bool::weighted(0.9);
    let requests = prop_oneof![3 => many(begin()), 1 => many(end()), 1 => many(extension())];
    prop_oneof![
        50 => (requests, expected(), often(), prop::bool::weighted(0.8))
            .prop_map(|(requests, expected, in_time, exact)| Step::Ask { requests, expected, late: !in_time, exact }),
        2 => select(&KEYS).prop_map(Step::End),
        1 => Just(Step::LoseFence),
        1 => (select(&["me", "me", "me", "you"]), 1..=2_u128, prop::bool::weighted(0.2))
            .prop_map(|(run_id, nonce, stepped)| Step::Observe { run_id, nonce, stepped }),
        4 => (often(), 0..=20_u64).prop_map(|(right, seed)| Step::Admit { right, seed }),
    ]
}

/// Adapts a random request to the value of the first key, so that not all requests miss.
fn fitted(op: Op, standing: Option<&Stored>) -> Op {
    let Some(Stored { attempt, stage, number, .. }) = standing.cloned() else { return op };
    let grant = if stage == Stage::Term { Grant::Proposed(Token(number)) } else { Grant::Numbered(number) };
    match op {
        Op::Confirm { token, .. } => Op::Confirm { attempt, grant, token },
        Op::Extend { ttl, .. } => Op::Extend { attempt, token: Token(number), ttl },
        Op::Seal { .. } => Op::Seal { attempt },
        Op::Release { stages, .. } => Op::Release { attempt, stages },
        Op::Keep { ttl, .. } => Op::Keep { attempt, ttl },
        Op::Acquire { ttl, holder, .. } => {
            let proposal = Some(Token(number)).filter(|_| stage == Stage::Term);
            Op::Acquire { attempt, proposal, ttl, holder }
        }
    }
}

fn voted(answer: Answer) -> Vote {
    match answer {
        Answer::Vote(vote) => vote,
        Answer::Late | Answer::NotAdmitted => Vote::Abstained,
    }
}

fn near(a: Millis, b: Millis) -> bool {
    a.0.abs_diff(b.0) < SAME_LIFE
}

struct Pair {
    connection: MultiplexedConnection,
    keyspace: Keyspace,
    model: Node<&'static str>,
    /// The server's TIME in the last answer.
    now: u64,
    seen: BTreeMap<&'static str, u64>,
}

impl Pair {
    async fn on(server: &RedisServer) -> Self {
        let (connection, keyspace) = (connection(server).await, Keyspace::new(PREFIX));
        Self { connection, keyspace, model: Node::new("me".into()), now: 0, seen: BTreeMap::new() }
    }

    fn ours() -> Marker {
        membership().marker("me".into())
    }

    async fn run(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        redis::cmd("FLUSHALL").query_async::<()>(&mut self.connection).await.unwrap();
        self.model = Node::new("me".into());
        self.observe("me", 1, None).await?;
        self.admit(true, 0).await?;
        for step in steps {
            match step.clone() {
                Step::Ask { requests, expected, late, exact } => self.ask(requests, expected, late, exact).await?,
                Step::End(key) => {
                    let lock = self.keyspace.lock("ns", key);
                    redis::cmd("DEL").arg(lock).query_async::<()>(&mut self.connection).await.unwrap();
                    self.model.keys.remove(key);
                }
                Step::LoseFence => {
                    redis::cmd("DEL").arg(self.keyspace.fence()).query_async::<()>(&mut self.connection).await.unwrap();
                    self.model.fence = None;
                }
                Step::Observe { run_id, nonce, stepped } => {
                    let stepped = self.model.marker.clone().filter(|_| stepped);
                    self.observe(run_id, nonce, stepped.as_ref()).await?;
                }
                Step::Admit { right, seed } => self.admit(right, seed).await?,
            }
            self.compare().await?;
        }
        Ok(())
    }

    async fn ask(&mut self, requests: Requests, marker: Marker, late: bool, exact: bool) -> Result<(), TestCaseError> {
        let deadline = if late { 1 } else { 1 << 50 };
        // The requests are fitted to what the earlier ones of the same call store.
        let mut ahead = self.model.clone();
        let mut fitting = Vec::new();
        for (keys, op) in requests {
            let standing = ahead.entry(&keys[0], self.now).map(|entry| &entry.value);
            let op = match (exact, fitted(op.clone(), standing)) {
                // A key of the attempt would make each acquire a repeat.
                (true, fitted) if !matches!(op, Op::Acquire { .. }) => fitted,
                _ => op,
            };
            ahead.vote(self.now, &Call { keys: keys.clone(), marker: marker.clone(), deadline, op: op.clone() });
            fitting.push((keys, op));
        }
        self.batches(fitting, marker, late).await
    }

    /// Gives the requests to the wire and compares the answers to each call that it forms.
    async fn batches(&mut self, requests: Requests, marker: Marker, late: bool) -> Result<(), TestCaseError> {
        const WAIT: Millis = Millis(1000);
        let Marker::Admitted { generation, fingerprint, .. } = marker.clone() else { panic!("{marker:?}") };
        let admission = Admission::new(admission::Config {
            membership: Membership { generation, fingerprint },
            quorum: Quorum::of(1).unwrap(),
            has_statuses: false,
            longest_lease: WAIT,
            drift: Drift::STANDARD,
            heartbeat: Beat { every: WAIT, phase: Time(0) },
        });
        let mut wire = Wire::<String, (), ()>::new(admission, Limits::STANDARD, WAIT);
        wire.handle(Time(0), Input::Opened);
        wire.handle(Time(0), Input::Admission(admission::Input::Connected(marker.run_id().clone())));
        while wire.poll_effect().is_some() {}
        wire.handle(Time(0), Input::Clock { node_time: if late { 0 } else { 1 << 50 } });
        let id = wire.oldest().unwrap().id;
        wire.handle(Time(0), Input::Answered { id, counts: true, answers: Answers::Marker(Some(marker.clone())) });
        while wire.poll_effect().is_some() {}
        for (keys, op) in &requests {
            let keys = keys.iter().map(|key| self.keyspace.lock("ns", key)).collect();
            wire.handle(Time(0), Input::Request(Request { keys, op: op.clone(), give_up_at: Time(0) + WAIT }, ()));
        }
        wire.handle(Time(0), Input::Flush);
        let mut answered = 0;
        while let Some(effect) = wire.poll_effect() {
            let Effect::Send(id) = effect else { panic!("{effect:?}") };
            let Some(Sent { call: sent @ wire::Call::Batch(batch), .. }) = wire.get(id) else { panic!("not a batch") };
            let call = script::batch(&self.keyspace, &wire, batch);
            let real = plain(call.query_async(&mut self.connection).await.unwrap());
            let real = Wire::read(sent, real).unwrap();
            self.now = real.time / 1000;
            let mut before = self.model.clone();
            let short = |lock: &String| *KEYS.iter().find(|key| *lock == self.keyspace.lock("ns", key)).unwrap();
            let asked: Vec<_> = (wire.requests(batch).iter())
                .map(|asked| (asked.request.keys.iter().map(short).collect::<Arc<[_]>>(), asked.request.op.clone()))
                .collect();
            let model = self.model.run(real.time, &asked, batch.terms());
            let model = Wire::read(sent, model).unwrap();
            prop_assert_eq!(real.time, model.time);
            let of_model = votes(&model.answer, asked.len());
            let (marker, deadline) = (marker.clone(), batch.terms().map_or(0, |terms| terms.deadline));
            for (((keys, op), real), model) in asked.iter().zip(votes(&real.answer, asked.len())).zip(of_model) {
                let name = self.same(&before, keys, op, &real, &model)?;
                *self.seen.entry(name).or_default() += 1;
                answered += 1;
                // What the next request of the call finds.
                let (keys, op, marker) = (keys.to_vec(), op.clone(), marker.clone());
                before.vote(self.now, &Call { keys, marker, deadline, op });
            }
            prop_assert!(before == self.model);
        }
        prop_assert_eq!(answered, requests.len());
        Ok(())
    }

    /// Compares two votes. Returns the name of their kind.
    fn same(
        &self,
        before: &Node<&'static str>,
        keys: &[&'static str],
        op: &Op,
        real: &Vote,
        model: &Vote,
    ) -> Result<&'static str, TestCaseError> {
        // TTLs differ only by the milliseconds that the commands take, so for two keys of the same age it is open which
        // one expires last.
        let alike = match (real, model) {
            (Vote::Refused { ttl_left: a, by }, Vote::Refused { ttl_left: b, .. }) => {
                let lasts = |key| before.entry(key, self.now).filter(|entry| near(Millis(entry.ends - self.now), *b));
                near(*a, *b) && keys.iter().filter_map(lasts).any(|entry| entry.value == *by)
            }
            (Vote::Confirmed { ttl_left: a }, Vote::Confirmed { ttl_left: b })
            | (Vote::Sealed { ttl_left: a }, Vote::Sealed { ttl_left: b }) => near(*a, *b),
            (a, b) => a == b,
        };
        prop_assert!(alike, "to {op:?}: real {real:?}, model {model:?}");
        Ok(match real {
            Vote::Granted(Grant::Numbered(_)) => "granted",
            Vote::Granted(Grant::Proposed(_)) => "proposed",
            Vote::Refused { .. } => "refused",
            Vote::Confirmed { .. } => "confirmed",
            Vote::Extended => "extended",
            Vote::Miss(None) => "missing",
            Vote::Miss(Some(_)) => "another",
            Vote::Sealed { .. } => "sealed",
            Vote::Released(0) => "nothing released",
            Vote::Released(_) => "released",
            Vote::Abstained => "abstained",
            Vote::Unknown => "unknown",
        })
    }

    async fn observe(&mut self, run_id: &str, nonce: u128, stepped: Option<&Marker>) -> Result<(), TestCaseError> {
        let run_id = RunId::from(run_id);
        let call = script::observe(&self.keyspace, &run_id, nonce, stepped);
        let real = replies::read_marker(plain(call.query_async(&mut self.connection).await.unwrap())).unwrap();
        prop_assert_eq!(real.answer, Some(self.model.observe(&run_id, nonce, stepped)));
        Ok(())
    }

    async fn admit(&mut self, right: bool, seed: u64) -> Result<(), TestCaseError> {
        let wrong = Marker::Wait { run_id: "me".into(), nonce: 99 };
        let ticket = self.model.marker.clone().filter(|_| right).unwrap_or(wrong);
        let call = script::admit(&self.keyspace, &ticket, &Self::ours(), Token(seed));
        let real = replies::read_marker(plain(call.query_async(&mut self.connection).await.unwrap())).unwrap();
        prop_assert_eq!(real.answer, self.model.admit(&ticket, &Self::ours(), Token(seed)));
        Ok(())
    }

    /// Compares all values on the server with the model.
    async fn compare(&mut self) -> Result<(), TestCaseError> {
        let mut all = redis::cmd("MGET");
        all.arg(self.keyspace.marker()).arg(self.keyspace.fence());
        all.arg(KEYS.map(|key| self.keyspace.lock("ns", key)).as_slice());
        // A node that votes for us votes for another configuration by the marker of the other one.
        for expected in [Self::ours(), Membership { generation: 9, ..membership() }.marker("me".into())] {
            let call = script::fence(&self.keyspace, &expected);
            let real = replies::read_fence(plain(call.query_async(&mut self.connection).await.unwrap())).unwrap();
            prop_assert_eq!(replies::read_fence(self.model.fence(real.clock, &expected)).unwrap(), real);
        }
        let real: Vec<Option<String>> = all.query_async(&mut self.connection).await.unwrap();
        let fence = self.model.fence.map(|fence| fence.to_string());
        let mut model = vec![self.model.marker.as_ref().map(Marker::to_string), fence];
        model.extend(KEYS.map(|key| self.model.entry(&key, self.now).map(|entry| entry.value.to_string())));
        prop_assert_eq!(real, model);
        for key in KEYS {
            if let Some(entry) = self.model.entry(&key, self.now) {
                let lock = self.keyspace.lock("ns", key);
                let left: u64 = redis::cmd("PTTL").arg(lock).query_async(&mut self.connection).await.unwrap();
                prop_assert!(left.abs_diff(entry.ends - self.now) < SAME_LIFE, "{} lives {} ms", key, left);
            }
        }
        Ok(())
    }
}

#[test]
fn a_real_server_and_the_reference_answer_and_store_the_same() {
    let server = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pair = RefCell::new(runtime.block_on(Pair::on(&server)));
    let config = Config { cases: 200, max_shrink_iters: 2000, source_file: Some(file!()), ..Config::default() };
    let outcome = TestRunner::new(config)
        .run(&prop::collection::vec(step(), 1..60), |steps| runtime.block_on(pair.borrow_mut().run(&steps)));
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let seen = &pair.borrow().seen;
    // All kinds but the vote that is not known.
    let often = seen.iter().filter(|(name, count)| **name != "unknown" && **count > 10).count();
    assert_eq!(often, 11, "too tame: {seen:?}");
}
