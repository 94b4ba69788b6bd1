//! One connection to a server: commands out, replies in, in the same order.
//!
//! Commands are gathered in a buffer and written together, and replies are taken from one buffer without a wake-up for
//! each: a node sends hundreds of commands in one tick. The task that owns the connection does all the work; nothing is
//! written or read while it does not poll.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use redis::{Cmd, FromRedisValue, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::resp;

/// How many bytes one read takes at least.
const READ: usize = 16 << 10;
/// Larger buffers are freed after a peak.
const KEPT: usize = 256 << 10;

/// The bytes of a connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection to a server. Dropping it closes the socket.
pub(super) struct Client {
    stream: Box<dyn Stream>,
    /// Commands; the first `written` bytes have been written.
    commands: Vec<u8>,
    written: usize,
    flushed: bool,
    /// Replies; the first `taken` bytes have been returned.
    replies: Vec<u8>,
    taken: usize,
}

impl Client {
    pub fn new(stream: impl Stream + 'static) -> Self {
        let (commands, replies) = (Vec::new(), Vec::new());
        Self { stream: Box::new(stream), commands, written: 0, flushed: true, replies, taken: 0 }
    }

    /// Adds a command behind the earlier ones. [`poll_reply`](Self::poll_reply) writes it.
    pub fn push(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.commands);
        self.flushed = false;
    }

    /// Sends one command and returns its reply. Nothing else may be in flight. After an error of the connection, or if
    /// the call is dropped before it returns, the connection cannot be used any more.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        self.push(command);
        let reply = poll_fn(|context| self.poll_reply(context)).await??;
        Ok(redis::from_redis_value(reply)?)
    }

    /// Writes the commands, and returns the next reply.
    ///
    /// # Errors
    /// The connection is lost. An error that the server returned is in the reply.
    pub fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<RedisResult<Value>>> {
        // A server that refuses a client answers before it closes the connection, so replies come before this error.
        let written = self.poll_write(context);
        loop {
            if let Some(reply) = self.received()? {
                return Poll::Ready(Ok(reply));
            }
            if ready!(self.poll_read(context))? == 0 {
                if let Poll::Ready(Err(error)) = written {
                    return Poll::Ready(Err(error.into()));
                }
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe).into()));
            }
        }
    }

    /// The next reply, if it has arrived completely. Reads nothing.
    ///
    /// # Errors
    /// The server does not speak the protocol.
    pub fn received(&mut self) -> RedisResult<Option<RedisResult<Value>>> {
        if self.taken < self.replies.len()
            && let Some((reply, length)) = resp::read(&self.replies[self.taken..])?
        {
            self.taken += length;
            return Ok(Some(reply));
        }
        self.replies.drain(..self.taken);
        self.taken = 0;
        Ok(None)
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.commands.len() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &self.commands[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        if !self.flushed {
            self.commands.clear();
            self.commands.shrink_to(KEPT);
            self.written = 0;
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.replies.is_empty() {
            self.replies.shrink_to(KEPT);
        }
        self.replies.reserve(READ);
        pin!(self.stream.read_buf(&mut self.replies)).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn replies_come_in_the_order_of_the_commands_however_they_arrive() {
        let (near, mut far) = tokio::io::duplex(7);
        let mut client = Client::new(near);
        let server = tokio::spawn(async move {
            let mut commands = vec![0; 2 * b"*1\r\n$4\r\nPING\r\n".len()];
            far.read_exact(&mut commands).await.unwrap();
            for part in [":1\r\n:2", "3\r\n$2\r", "\nab\r\n"] {
                far.write_all(part.as_bytes()).await.unwrap();
                far.flush().await.unwrap();
            }
            commands
        });
        client.push(&redis::cmd("PING"));
        client.push(&redis::cmd("PING"));
        let mut replies = Vec::new();
        for _ in 0..3 {
            replies.push(poll_fn(|context| client.poll_reply(context)).await.unwrap().unwrap());
        }
        assert_eq!(replies, [Value::Int(1), Value::Int(23), Value::BulkString(b"ab".to_vec())]);
        assert_eq!(server.await.unwrap(), b"*1\r\n$4\r\nPING\r\n".repeat(2));
    }

    #[tokio::test]
    async fn a_closed_connection_is_an_error_after_the_last_reply() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut client = Client::new(near);
        far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        drop(far);
        let refused = client.query::<Value>(&redis::cmd("INFO")).await.unwrap_err();
        assert!(refused.to_string().contains("max number of clients"), "{refused}");
        let lost = poll_fn(|context| client.poll_reply(context)).await.unwrap_err();
        assert!(lost.is_connection_dropped(), "{lost}");
    }
}
