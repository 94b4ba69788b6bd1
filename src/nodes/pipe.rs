//! Calls in flight on one connection, in the order in which they were sent.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use redislease_core::time::Time;
use tokio::task::coop::unconstrained;

type Answer = Pin<Box<dyn Future<Output = (u64, RedisResult<Value>)> + Send>>;

/// One connection and what was sent on it without an answer so far.
pub(super) struct Pipe<C> {
    connection: MultiplexedConnection,
    answers: FuturesUnordered<Answer>,
    calls: BTreeMap<u64, Sent<C>>,
    next: u64,
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct Sent<C> {
    /// Counts the calls of the connection, in the order of sending.
    pub id: u64,
    /// Before its first byte left.
    pub at: Time,
    /// What it was.
    pub call: C,
}

impl<C> Pipe<C> {
    pub fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, answers: FuturesUnordered::new(), calls: BTreeMap::new(), next: 0 }
    }

    /// Sends `command` behind all that was sent before, without waiting.
    pub fn send(&mut self, command: Cmd, at: Time, call: C) -> u64 {
        let id = self.next;
        self.next += 1;
        self.calls.insert(id, Sent { id, at, call });
        let mut connection = self.connection.clone();
        // The first poll puts the command into the queue of the connection, or into the line before it, which is
        // first come, first served. It happens here and now, and no budget of the scheduler may put it off: otherwise
        // a release could overtake its acquire.
        let mut answer: Answer =
            Box::pin(unconstrained(async move { (id, command.query_async::<Value>(&mut connection).await) }));
        match (&mut answer).now_or_never() {
            Some(done) => self.answers.push(Box::pin(std::future::ready(done))),
            None => self.answers.push(answer),
        }
        id
    }

    /// The next answer; waits for ever when nothing is in flight. May be dropped at any time.
    pub async fn answer(&mut self) -> (Sent<C>, RedisResult<Value>) {
        loop {
            match self.answers.next().await {
                Some((id, answer)) => {
                    if let Some(sent) = self.calls.remove(&id) {
                        return (sent, answer);
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// When the call that waits longest was sent.
    pub fn oldest(&self) -> Option<Time> {
        self.calls.first_key_value().map(|(_, sent)| sent.at)
    }

    /// The call `id`, while it has no answer.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut C> {
        self.calls.get_mut(&id).map(|sent| &mut sent.call)
    }

    /// The calls behind `id`.
    pub fn behind(&self, id: u64) -> impl Iterator<Item = &C> {
        self.calls.range(id + 1..).map(|(_, sent)| &sent.call)
    }

    /// Gives the connection up: what is in flight gets no answer.
    pub fn close(self) -> impl Iterator<Item = C> {
        self.calls.into_values().map(|sent| sent.call)
    }
}
