//! Every row of the table of scripts on a real server: the checks, the writes and the replies.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Attempt, Grant, Holder, Op, Stage, Stages, Stored, Token, Vote};
use redislease_core::seed::Allegiance;
use redislease_core::time::Millis;
use redislease_core::wire::replies::{self, Answer, NoAnswer};
use redislease_lab::RedisServer;
use redislease_lock::nodes::Keyspace;
use redislease_lock::nodes::script::{self, Extension};

use crate::support::{self, PREFIX, confirm, extend, membership, plain, pttl, release, seal};

#[path = "script_admission.rs"]
mod admission;
#[path = "script_calls.rs"]
mod calls;
#[path = "script_values.rs"]
mod values;

/// A deadline that no request misses.
const NEVER: u64 = 1 << 50;
const TTL: Millis = Millis(60_000);

/// A server that votes under this test's marker, and a connection to it.
struct Server {
    redis: RedisServer,
    connection: MultiplexedConnection,
    keyspace: Keyspace,
    marker: Marker,
}

impl Server {
    async fn start() -> Self {
        let redis = RedisServer::start().unwrap();
        let connection = support::connection(&redis).await;
        let marker = membership().marker("me".into());
        let server = Self { redis, connection, keyspace: Keyspace::new(PREFIX), marker };
        server.set(server.keyspace.fence(), "0");
        server.set(server.keyspace.marker(), &server.marker.to_string());
        server
    }

    fn lock(&self, key: &str) -> String {
        self.keyspace.lock("ns", key)
    }

    fn set(&self, key: &str, value: &str) {
        self.redis.command(&["SET", key, value]).unwrap();
    }

    /// The value of a lock key, abbreviated: stage, attempt, number, metadata.
    fn value(&self, key: &str) -> Option<String> {
        let value: Stored = support::get(&self.redis, &self.lock(key))?.parse().unwrap();
        Some(format!("{}:{:x}:{}:{}", value.stage.letter(), value.attempt.0, value.number, value.metadata))
    }

    fn ttl(&self, key: &str) -> i64 {
        pttl(&self.redis, &self.lock(key))
    }

    fn fence(&self) -> Option<String> {
        support::get(&self.redis, self.keyspace.fence())
    }

    async fn ask_until(&mut self, deadline: u64, keys: &[&str], op: &Op) -> Answer {
        let locks: Vec<String> = keys.iter().map(|key| self.lock(key)).collect();
        let marker = self.marker.to_string();
        if let Op::Extend { attempt, token, ttl } = *op {
            let one = std::iter::once(Extension { keys: &locks, attempt, token, ttl });
            let call = script::extend(&self.keyspace, &marker, deadline, one);
            let value = call.query_async(&mut self.connection).await.unwrap();
            return match replies::read_extend(1, plain(value)).unwrap().answer {
                Answer::Vote(mut exceptions) => Answer::Vote(exceptions.pop().map_or(Vote::Extended, |(_, vote)| vote)),
                Answer::NotAdmitted => Answer::NotAdmitted,
                Answer::Late => Answer::Late,
            };
        }
        let value = self.call(&locks, deadline, op).await.unwrap();
        replies::read_votes(std::iter::once(op), plain(value)).unwrap().answer.remove(0).unwrap()
    }

    /// Asks for one vote that is not an extension.
    async fn call(&mut self, locks: &[String], deadline: u64, op: &Op) -> redis::RedisResult<Value> {
        let call = script::votes(&self.keyspace, &self.marker.to_string(), deadline, std::iter::once((locks, op)));
        call.query_async(&mut self.connection).await
    }

    async fn answer(&mut self, keys: &[&str], op: &Op) -> Answer {
        self.ask_until(NEVER, keys, op).await
    }

    async fn ask(&mut self, keys: &[&str], op: &Op) -> Vote {
        match self.answer(keys, op).await {
            Answer::Vote(vote) => vote,
            other => panic!("{other:?} to {op:?}"),
        }
    }

    async fn granted(&mut self, keys: &[&str], attempt: u128) -> u64 {
        match self.ask(keys, &acquire(attempt)).await {
            Vote::Granted(Grant::Numbered(grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    /// Asks many requests in one call. Either all are ends, or none is.
    fn ask_all(&self, requests: &[(&str, Op)]) -> redis::RedisResult<Vec<Result<Answer, String>>> {
        let locks: Vec<[String; 1]> = requests.iter().map(|(key, _)| [self.lock(key)]).collect();
        let asked = locks.iter().map(<[String; 1]>::as_slice).zip(requests.iter().map(|(_, op)| op));
        let call = script::votes(&self.keyspace, &self.marker.to_string(), NEVER, asked);
        // The client library would return an error in the list as the only answer.
        let mut stream = TcpStream::connect(self.redis.address()).unwrap();
        stream.write_all(&call.get_packed_command()).unwrap();
        let value = match redis::Parser::new().parse_value(stream).unwrap() {
            Value::ServerError(error) => return Err(error.into()),
            value => value,
        };
        let mut errors = Vec::new();
        let value = script::value(value, &mut errors);
        let answers = replies::read_votes(requests.iter().map(|(_, op)| op), value).unwrap().answer;
        let mut codes = errors.iter().map(|error| error.code().unwrap_or_default().to_owned());
        let mut text = |no| match no {
            NoAnswer::Error => codes.next().unwrap(),
            NoAnswer::Invalid(invalid) => panic!("{invalid}"),
        };
        Ok(answers.into_iter().map(|answer| answer.map_err(&mut text)).collect())
    }

    /// Writes a term of `attempt` with `token`.
    async fn term(&mut self, keys: &[&str], attempt: u128, token: u64) {
        let grant = self.granted(keys, attempt).await;
        let vote = self.ask(keys, &confirm(attempt, grant, token)).await;
        assert!(matches!(vote, Vote::Confirmed { .. }), "{vote:?}");
    }

    async fn observe(&mut self, run_id: &str, nonce: u128, stepped: Option<&Marker>) -> Marker {
        let call = script::observe(&self.keyspace, &RunId::from(run_id), nonce, stepped);
        let value = call.query_async(&mut self.connection).await.unwrap();
        replies::read_marker(plain(value)).unwrap().answer.unwrap()
    }

    async fn admit(&mut self, ticket: &Marker, seed: u64) -> Option<Marker> {
        let call = script::admit(&self.keyspace, ticket, &self.marker.clone(), Token(seed));
        replies::read_marker(plain(call.query_async(&mut self.connection).await.unwrap())).unwrap().answer
    }

    async fn read_fence(&mut self) -> (Allegiance, Token) {
        let call = script::fence(&self.keyspace, &self.marker.clone());
        let report = replies::read_fence(plain(call.query_async(&mut self.connection).await.unwrap())).unwrap();
        (report.allegiance, report.fence)
    }
}

fn acquire_for(attempt: u128, ttl: Millis, metadata: &str) -> Op {
    Op::Acquire { attempt: Attempt(attempt), proposal: None, ttl, holder: Holder(Arc::from(metadata)) }
}

fn acquire(attempt: u128) -> Op {
    acquire_for(attempt, TTL, "m")
}

#[tokio::test]
async fn acquire_grants_free_keys_once() {
    let mut server = Server::start().await;
    assert_eq!(server.ask(&["k"], &acquire_for(1, TTL, "pod:a \"é\"")).await, Vote::Granted(Grant::Numbered(1)));
    assert_eq!(server.value("k").as_deref(), Some("p:1:1:pod:a \"é\""));
    let ttl = server.ttl("k");
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");

    let repeat = acquire_for(1, Millis(600_000), "other");
    assert_eq!(server.ask(&["k"], &repeat).await, Vote::Granted(Grant::Numbered(1)), "the same grant");
    assert!(server.ttl("k") <= ttl, "a repeat prolongs nothing");
    assert_eq!((server.value("k").as_deref(), server.fence().as_deref()), (Some("p:1:1:pod:a \"é\""), Some("1")));
    assert_eq!(server.ask(&["l"], &acquire(2)).await, Vote::Granted(Grant::Numbered(2)), "one counter for all leases");
}

#[tokio::test]
async fn acquire_is_refused_by_the_key_that_lives_longest() {
    let mut server = Server::start().await;
    server.ask(&["b"], &acquire_for(7, Millis(20_000), "seven")).await;
    server.ask(&["c"], &acquire_for(8, Millis(40_000), "eight")).await;
    let Vote::Refused { ttl_left, by } = server.ask(&["a", "b", "c"], &acquire(9)).await else { panic!("not refused") };
    assert!((30_000..=40_000).contains(&ttl_left.0), "{ttl_left:?}");
    assert_eq!(by, Stored { stage: Stage::Pending, attempt: Attempt(8), number: 2, metadata: "eight".into() });
    assert_eq!((server.value("a"), server.fence().as_deref()), (None, Some("2")), "all or nothing");
}

#[tokio::test]
async fn acquire_is_idempotent_only_for_its_own_grant() {
    let mut server = Server::start().await;
    let first = server.granted(&["a", "b"], 1).await;
    assert_eq!(server.granted(&["a", "b"], 1).await, first);
    let refused = |vote: Vote| matches!(vote, Vote::Refused { .. });
    assert!(refused(server.ask(&["a", "b", "c"], &acquire(1)).await), "one key more");
    server.granted(&["c"], 1).await;
    assert!(refused(server.ask(&["a", "c"], &acquire(1)).await), "keys of two grants");
    server.ask(&["a", "b"], &confirm(1, first, 9)).await;
    assert!(refused(server.ask(&["a", "b"], &acquire(1)).await), "a term is not a grant");
}

#[tokio::test]
async fn confirm_turns_exactly_this_grant_into_the_term() {
    let mut server = Server::start().await;
    let grant = server.granted(&["k"], 1).await;
    let pending = server.value("k");
    for wrong in [confirm(1, grant + 1, 50), confirm(2, grant, 50), confirm(1, grant * 10 + 1, 50)] {
        assert!(matches!(server.ask(&["k"], &wrong).await, Vote::Miss(Some(_))), "{wrong:?}");
        assert_eq!((server.value("k"), server.fence().as_deref()), (pending.clone(), Some("1")), "{wrong:?}");
    }
    let before = server.ttl("k");
    let Vote::Confirmed { ttl_left } = server.ask(&["k"], &confirm(1, grant, 50)).await else {
        panic!("not confirmed")
    };
    assert!(i64::try_from(ttl_left.0).unwrap() <= before && server.ttl("k") <= before, "the TTL stays");
    assert!(server.ttl("k") > 50_000, "the TTL stays");
    assert_eq!((server.value("k").as_deref(), server.fence().as_deref()), (Some("t:1:50:m"), Some("50")));

    assert!(matches!(server.ask(&["k"], &confirm(1, grant, 50)).await, Vote::Confirmed { .. }), "a repeat");
    let other = server.ask(&["k"], &confirm(1, grant, 51)).await;
    assert!(matches!(other, Vote::Miss(Some(Stored { number: 50, .. }))), "one token per term: {other:?}");
    let grant = server.granted(&["l"], 2).await;
    server.ask(&["l"], &confirm(2, grant, 7)).await;
    assert_eq!(server.fence().as_deref(), Some("51"), "the fence never falls");
    assert_eq!(server.ask(&["absent"], &confirm(3, 1, 60)).await, Vote::Miss(None));
}

#[tokio::test]
async fn confirm_is_all_or_nothing() {
    let mut server = Server::start().await;
    let grant = server.granted(&["a", "b"], 1).await;
    server.redis.command(&["DEL", &server.lock("b")]).unwrap();
    assert_eq!(server.ask(&["a", "b"], &confirm(1, grant, 50)).await, Vote::Miss(None));
    assert_eq!((server.value("a").as_deref(), server.fence().as_deref()), (Some("p:1:1:m"), Some("1")));
    assert_eq!(server.value("b"), None, "nothing is created");
}

#[tokio::test]
async fn extend_prolongs_exactly_this_term() {
    let mut server = Server::start().await;
    let long = |token| Op::Extend { attempt: Attempt(1), token: Token(token), ttl: Millis(90_000) };
    let grant = server.granted(&["k"], 1).await;
    assert!(matches!(server.ask(&["k"], &long(12)).await, Vote::Miss(Some(_))), "a grant is not a term");
    server.ask(&["k"], &confirm(1, grant, 123)).await;
    for wrong in [long(12), long(1234), extend(2, 123)] {
        assert!(matches!(server.ask(&["k"], &wrong).await, Vote::Miss(Some(_))), "{wrong:?}");
    }
    assert!(server.ttl("k") <= 60_000, "a miss prolongs nothing");
    assert_eq!(server.ask(&["k"], &long(123)).await, Vote::Extended);
    assert!(server.ttl("k") > 80_000);
    assert_eq!(server.ask(&["k"], &extend(1, 123)).await, Vote::Extended);
    assert!(server.ttl("k") > 80_000, "never shortened");
    assert_eq!(server.value("k").as_deref(), Some("t:1:123:m"));
    assert_eq!(server.ask(&["absent"], &long(123)).await, Vote::Miss(None));
    assert_eq!(server.value("absent"), None, "nothing is created");
}

#[tokio::test]
async fn extend_is_all_or_nothing() {
    let mut server = Server::start().await;
    server.term(&["a", "b"], 1, 50).await;
    server.redis.command(&["DEL", &server.lock("b")]).unwrap();
    let long = Op::Extend { attempt: Attempt(1), token: Token(50), ttl: Millis(90_000) };
    assert_eq!(server.ask(&["a", "b"], &long).await, Vote::Miss(None));
    assert!(server.ttl("a") <= 60_000, "a was prolonged alone");
}

#[tokio::test]
async fn a_sealed_key_only_expires() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    let before = server.ttl("k");
    let Vote::Sealed { ttl_left } = server.ask(&["k"], &seal(1)).await else { panic!("not sealed") };
    assert!(ttl_left.0 > 50_000 && server.ttl("k") > 50_000 && server.ttl("k") <= before, "the TTL stays");
    assert_eq!(server.value("k").as_deref(), Some("s:1:50:m"));
    assert!(matches!(server.ask(&["k"], &seal(1)).await, Vote::Sealed { .. }), "a repeat");
    for op in [extend(1, 50), confirm(1, 1, 50)] {
        let vote = server.ask(&["k"], &op).await;
        assert!(matches!(vote, Vote::Miss(Some(Stored { stage: Stage::Sealed, .. }))), "{vote:?}");
    }
    assert!(matches!(server.ask(&["k"], &acquire(1)).await, Vote::Refused { .. }));
    server.granted(&["p"], 2).await;
    assert!(matches!(server.ask(&["p"], &seal(2)).await, Vote::Sealed { .. }), "a grant is sealed too");
}

#[tokio::test]
async fn seal_seals_the_keys_it_finds_and_counts_only_with_all_of_them() {
    let mut server = Server::start().await;
    assert_eq!(server.ask(&["k"], &seal(1)).await, Vote::Miss(None), "absent is not sealed");
    server.term(&["a"], 1, 50).await;
    server.term(&["b"], 2, 60).await;
    let vote = server.ask(&["a", "b"], &seal(1)).await;
    assert!(matches!(&vote, Vote::Miss(Some(by)) if by.attempt == Attempt(2)), "{vote:?}");
    assert_eq!(server.value("a").as_deref(), Some("s:1:50:m"));
    assert_eq!(server.value("b").as_deref(), Some("t:2:60:m"), "not ours");
}

#[tokio::test]
async fn release_deletes_the_stages_it_names() {
    for (stages, deleted) in [(Stages::Pending, "p"), (Stages::Unpublished, "pt"), (Stages::All, "pts")] {
        let mut server = Server::start().await;
        server.granted(&["p"], 1).await;
        server.term(&["t"], 1, 50).await;
        server.term(&["s"], 1, 60).await;
        server.ask(&["s"], &seal(1)).await;
        server.term(&["other"], 2, 70).await;
        let keys = ["p", "t", "s", "other", "absent"];
        assert_eq!(server.ask(&keys, &release(2, Stages::Pending)).await, Vote::Released(0), "t is not p");
        let count = u64::try_from(deleted.len()).unwrap();
        assert_eq!(server.ask(&keys, &release(1, stages)).await, Vote::Released(count));
        for stage in ["p", "t", "s"] {
            assert_eq!(server.value(stage).is_none(), deleted.contains(stage), "{stage} of {stages:?}");
        }
        assert_eq!(server.value("other").as_deref(), Some("t:2:70:m"), "not ours");
    }
}

#[tokio::test]
async fn only_release_is_executed_without_the_expected_marker() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    let grant = server.granted(&["p"], 3).await;
    let others = [
        None,
        Some("me:1:f00d2"),
        Some("me:2:f00d"),
        Some("you:1:f00d"),
        Some("wait:me:00000000000000000000000000000001"),
    ];
    for other in others {
        let key = server.keyspace.marker().to_owned();
        match other {
            Some(other) => server.set(&key, other),
            None => drop(server.redis.command(&["DEL", &key]).unwrap()),
        }
        let asked = [("free", acquire(2)), ("p", confirm(3, grant, 99)), ("k", extend(1, 50)), ("k", seal(1))];
        for (key, op) in asked {
            assert_eq!(server.answer(&[key], &op).await, Answer::NotAdmitted, "{op:?} under {other:?}");
        }
        assert_eq!(server.value("free"), None);
        assert_eq!(server.value("k").as_deref(), Some("t:1:50:m"));
        assert_eq!(server.value("p"), Some(format!("p:3:{grant}:m")));
        assert_eq!(server.fence().as_deref(), Some("51"));
    }
    assert_eq!(server.ask(&["k"], &release(1, Stages::All)).await, Vote::Released(1));
}

#[tokio::test]
async fn late_requests_neither_start_nor_extend_a_term() {
    let mut server = Server::start().await;
    server.term(&["k"], 1, 50).await;
    let grant = server.granted(&["p"], 3).await;
    let past = redislease_lock::clock::unix_micros() / 1000 - 1;
    assert_eq!(server.ask_until(past, &["free"], &acquire(2)).await, Answer::Late);
    assert_eq!(server.value("free"), None);
    let long = Op::Extend { attempt: Attempt(1), token: Token(50), ttl: Millis(90_000) };
    assert_eq!(server.ask_until(past, &["k"], &long).await, Answer::Late);
    assert!(server.ttl("k") <= 60_000);
    for (key, op) in [("p", confirm(3, grant, 99)), ("k", seal(1)), ("k", release(1, Stages::All))] {
        let answer = server.ask_until(past, &[key], &op).await;
        assert!(matches!(answer, Answer::Vote(_)), "{op:?} is never late: {answer:?}");
    }
    let soon = redislease_lock::clock::unix_micros() / 1000 + 60_000;
    assert!(matches!(server.ask_until(soon, &["free"], &acquire(2)).await, Answer::Vote(Vote::Granted(_))));
}
