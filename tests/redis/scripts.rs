//! The scripts on a real server: what the comparison with the reference implementation leaves out.

use std::io::Write;
use std::net::TcpStream;

use redis::Value;
use redis::aio::MultiplexedConnection;
use redislease_core::check::ops;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Attempt, Grant, Holder, Op, Stage, Stages, Stored, Token, Vote};
use redislease_core::seed::Allegiance;
use redislease_core::time::Millis;
use redislease_core::wire::replies::{self, Answer, NoAnswer};
use redislease_lab::RedisServer;
use redislease_lock::nodes::Keyspace;
use redislease_lock::nodes::script::{self, Extension};

use crate::support::{self, PREFIX, confirm, extend, membership, plain, release, seal};

#[path = "script_admission.rs"]
mod admission;
#[path = "script_calls.rs"]
mod calls;
#[path = "script_values.rs"]
mod values;

/// A deadline that no request misses.
const NEVER: u64 = 1 << 50;
const TTL: Millis = Millis(60_000);

/// What can be in the place of a counter when it is lost: nothing, or a text that is no number below 2^53.
const LOST_FENCES: [Option<&str>; 4] = [None, Some("x"), Some("nan"), Some("9007199254740992")];

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

    fn lose_fence(&self, instead: Option<&str>) {
        match instead {
            None => drop(self.redis.command(&["DEL", self.keyspace.fence()]).unwrap()),
            Some(text) => self.set(self.keyspace.fence(), text),
        }
    }

    fn fence(&self) -> Option<String> {
        support::get(&self.redis, self.keyspace.fence())
    }

    /// Asks for one vote that is not an extension.
    async fn call(&mut self, locks: &[String], op: &Op) -> redis::RedisResult<Value> {
        let call = script::votes(&self.keyspace, &self.marker.to_string(), NEVER, std::iter::once((locks, op)));
        call.query_async(&mut self.connection).await
    }

    async fn answer(&mut self, keys: &[&str], op: &Op) -> Answer {
        let locks: Vec<String> = keys.iter().map(|key| self.lock(key)).collect();
        if let Op::Extend { attempt, token, ttl } = *op {
            let one = std::iter::once(Extension { keys: &locks, attempt, token, ttl });
            let call = script::extend(&self.keyspace, &self.marker.to_string(), NEVER, one);
            let value = call.query_async(&mut self.connection).await.unwrap();
            return match replies::read_extend(1, plain(value)).unwrap().answer {
                Answer::Vote(mut exceptions) => Answer::Vote(exceptions.pop().map_or(Vote::Extended, |(_, vote)| vote)),
                Answer::NotAdmitted => Answer::NotAdmitted,
                Answer::Late => Answer::Late,
            };
        }
        let value = self.call(&locks, op).await.unwrap();
        replies::read_votes(std::iter::once(op), plain(value)).unwrap().answer.remove(0).unwrap()
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

fn acquire(attempt: u128) -> Op {
    ops::acquire(attempt, TTL, "m")
}
