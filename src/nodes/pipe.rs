//! Calls in flight on one connection, in the order in which they were sent.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use futures::future::FutureExt;
use futures::stream::{FuturesOrdered, StreamExt};
use redis::{Cmd, RedisResult, Value};
use redislease_core::time::Time;
use tokio::task::coop::unconstrained;

use super::transport::Client;

type Answer = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// How many votes may be in flight on one connection.
pub(super) const MOST: usize = 1 << 16;

/// The capacity of a connection's queue: for all votes and for the task's own calls. If the queue could be full, waiting
/// senders would enter it in arbitrary order.
pub(super) const ROOM: usize = 2 * MOST;

/// One connection and its calls without a reply.
pub(super) struct Pipe<C> {
    client: Client,
    /// As long as `calls`, because Redis replies in order.
    answers: FuturesOrdered<Answer>,
    calls: VecDeque<Sent<C>>,
    next: u64,
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct Sent<C> {
    /// The number of the call on this connection, in the order of sending.
    pub id: u64,
    /// When it was sent: before its first byte.
    pub at: Time,
    /// The call.
    pub call: C,
}

impl<C> Pipe<C> {
    pub fn new(client: Client) -> Self {
        Self { client, answers: FuturesOrdered::new(), calls: VecDeque::new(), next: 0 }
    }

    /// Sends `command` after all earlier commands, without waiting.
    pub fn send(&mut self, command: Cmd, at: Time, call: C) -> u64 {
        let id = self.next;
        self.next += 1;
        self.calls.push_back(Sent { id, at, call });
        let mut connection = self.client.connection.clone();
        // The first poll puts the command into the connection's queue, which always has room. It must happen now: if the
        // scheduler's budget delayed it, a release could overtake its acquire.
        let mut answer: Answer = Box::pin(unconstrained(async move { command.query_async(&mut connection).await }));
        self.answers.push_back(match (&mut answer).now_or_never() {
            Some(answered) => Box::pin(std::future::ready(answered)),
            None => answer,
        });
        id
    }

    /// The next reply; never returns when nothing is in flight. Cancel-safe.
    pub async fn answer(&mut self) -> (Sent<C>, RedisResult<Value>) {
        let answer = match self.answers.next().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        };
        match self.calls.pop_front() {
            Some(sent) => (sent, answer),
            None => std::future::pending().await,
        }
    }

    /// Whether no more requests for votes may be sent at present.
    pub fn is_full(&self) -> bool {
        self.calls.len() >= MOST
    }

    /// When the oldest call in flight was sent.
    pub fn oldest(&self) -> Option<Time> {
        self.calls.front().map(|sent| sent.at)
    }

    /// The call `id`, if it is in flight.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut C> {
        let first = self.calls.front()?.id;
        let place = usize::try_from(id.checked_sub(first)?).ok()?;
        self.calls.get_mut(place).map(|sent| &mut sent.call)
    }
}
