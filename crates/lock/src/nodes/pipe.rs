//! Calls in flight on one connection, in the order in which they were sent.

use std::collections::VecDeque;
use std::future::poll_fn;

use redis::{Cmd, RedisResult, Value};
use redislease_core::time::Time;

use super::client::Client;

/// One connection and its calls without a reply.
pub(super) struct Pipe<C> {
    client: Client,
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

/// A call and the server's answer, which may be an error.
pub(super) type Answered<C> = (Sent<C>, RedisResult<Value>);

impl<C> Pipe<C> {
    pub fn new(client: Client) -> Self {
        Self { client, calls: VecDeque::new(), next: 0 }
    }

    /// Sends `command` after all earlier commands, without waiting: the next [`answer`](Self::answer) writes it.
    pub fn send(&mut self, command: &Cmd, at: Time, call: C) -> u64 {
        let id = self.next;
        self.next += 1;
        self.client.push(command);
        self.calls.push_back(Sent { id, at, call });
        id
    }

    /// Writes what was sent, and returns the next answer. Cancel-safe.
    ///
    /// # Errors
    /// The connection is lost, or a reply belongs to no call.
    pub async fn answer(&mut self) -> RedisResult<Answered<C>> {
        let reply = poll_fn(|context| self.client.poll_reply(context)).await?;
        self.matched(reply)
    }

    /// The next answer that has already arrived. Reads and writes nothing.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn received(&mut self) -> RedisResult<Option<Answered<C>>> {
        self.client.received()?.map(|reply| self.matched(reply)).transpose()
    }

    /// Redis replies in order.
    fn matched(&mut self, reply: RedisResult<Value>) -> RedisResult<Answered<C>> {
        let sent = self.calls.pop_front();
        let sent = sent.ok_or((redis::ErrorKind::Parse, "the server sent a reply without a command"))?;
        Ok((sent, reply))
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
