//! One connection to a server: sends commands, and returns their replies in the same order.
//!
//! Commands are gathered in a buffer and written together, and replies are taken from one buffer without a wake-up for
//! each: a node sends hundreds of commands in one tick. The task that owns the connection does all the work; nothing is
//! written or read while it does not poll.
//!
//! The client library packs the commands and parses the replies. Its own connection is not used: it moves each command
//! through two channels and another task. Without that, and with the leases on the same thread, an acquire and release
//! takes 108 us of processor time instead of 258 us (256 workers, three servers).

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use redis::{Cmd, ErrorKind, FromRedisValue, Parser, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// The longest reply that is accepted, in bytes. The longest legitimate one, of a full batch that is refused by holders with the
/// longest metadata, has about 180 KB. The limit
/// bounds the memory and the time that one server can take from the other nodes, which share its thread.
const LONGEST: usize = 256 << 10;
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
    /// Bytes of replies; the parser has the first `taken` ones.
    replies: Vec<u8>,
    taken: usize,
    parser: Parser,
    /// The parser has asked for more bytes than have arrived.
    is_starved: bool,
    /// How many bytes the parser took since the last complete reply.
    incomplete: usize,
    /// A command of [`answers`](Self::answers) has no reply yet.
    is_asking: bool,
}

/// The bytes that have arrived. The parser stops at their end and continues with the next bytes.
struct Arrived<'a> {
    bytes: &'a [u8],
    ended: bool,
}

impl Read for Arrived<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.ended = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Read::read(&mut self.bytes, buffer)
    }
}

impl Client {
    pub fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            commands: Vec::new(),
            written: 0,
            flushed: true,
            replies: Vec::new(),
            taken: 0,
            parser: Parser::new(),
            is_starved: true,
            incomplete: 0,
            is_asking: false,
        }
    }

    /// Adds a command behind the earlier ones. [`poll_reply`](Self::poll_reply) writes it.
    pub fn push(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.commands);
        self.flushed = false;
    }

    /// Sends one command and returns the server's answer, which may be an error. Nothing else may be in flight.
    ///
    /// # Errors
    /// As [`answers`](Self::answers).
    pub async fn answer(&mut self, command: &Cmd) -> RedisResult<RedisResult<Value>> {
        let mut answers = self.answers(std::slice::from_ref(command)).await?;
        answers.pop().ok_or_else(|| (ErrorKind::Client, "a command without an answer").into())
    }

    /// Sends commands together and returns the answer to each. Nothing else may be in flight.
    ///
    /// # Errors
    /// The connection is lost. Also if an earlier call failed, or was dropped before it returned: its answers may still
    /// arrive, and must not be taken for the answers to these commands.
    pub async fn answers(&mut self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        if std::mem::replace(&mut self.is_asking, true) {
            return Err((ErrorKind::Client, "an earlier command has no reply").into());
        }
        for command in commands {
            self.push(command);
        }
        let mut answers = Vec::new();
        for _ in commands {
            answers.push(poll_fn(|context| self.poll_reply(context)).await?);
        }
        self.is_asking = false;
        Ok(answers)
    }

    /// As [`answer`](Self::answer), and an error of the server or a value of another type is an error.
    pub async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.answer(command).await??)?)
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
        // Without new bytes the parser would only fail once more.
        if self.is_starved && self.replies.is_empty() {
            return Ok(None);
        }
        let mut arrived = Arrived { bytes: &self.replies[self.taken..], ended: false };
        let parsed = self.parser.parse_value(&mut arrived);
        let (left, ended) = (arrived.bytes.len(), arrived.ended);
        let taken = self.replies.len() - left;
        self.incomplete += taken - self.taken;
        self.taken = taken;
        if left == 0 {
            self.replies.clear();
            self.taken = 0;
        }
        self.is_starved = ended;
        match parsed {
            // RedisLease asks for no messages. One would be taken for the reply to a command.
            Ok(Value::Push { .. }) => Err((ErrorKind::Parse, "the server sent a message that is not a reply").into()),
            Ok(value) => {
                self.incomplete = 0;
                // An error inside of a list is a part of the reply.
                Ok(Some(if let Value::ServerError(error) = value { Err(error.into()) } else { Ok(value) }))
            }
            Err(_) if ended && self.incomplete <= LONGEST => Ok(None),
            Err(_) if ended => Err((ErrorKind::Parse, "the reply is longer than 256 KiB").into()),
            Err(error) => Err(error),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.commands.len() {
            let polled = Pin::new(&mut self.stream).poll_write(context, &self.commands[self.written..]);
            if polled.is_pending() {
                self.drop_written();
            }
            let count = ready!(polled)?;
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

    /// Frees most of what has been written. A server that always lags a little behind never empties the buffer.
    fn drop_written(&mut self) {
        if self.written >= KEPT && self.written * 2 >= self.commands.len() {
            self.commands.drain(..self.written);
            self.written = 0;
        }
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
    use tokio::io::{AsyncWriteExt, DuplexStream};

    /// A client, and the server's end of its connection.
    fn connected(capacity: usize) -> (Client, DuplexStream) {
        let (near, far) = tokio::io::duplex(capacity);
        (Client::new(near), far)
    }

    #[tokio::test]
    async fn replies_come_in_the_order_of_the_commands_however_they_arrive() {
        let (mut client, mut far) = connected(7);
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
    async fn a_long_reply_arrives_in_parts() {
        let (mut client, mut far) = connected(1000);
        let text = vec![b'x'; 120_000];
        let reply = [format!("*2\r\n:1\r\n${}\r\n", text.len()).as_bytes(), &text, b"\r\n:2\r\n"].concat();
        let server = tokio::spawn(async move { far.write_all(&reply).await.map(|()| far) });
        let mut replies = Vec::new();
        for _ in 0..2 {
            replies.push(poll_fn(|context| client.poll_reply(context)).await.unwrap().unwrap());
        }
        assert!(replies == [Value::Array(vec![Value::Int(1), Value::BulkString(text)]), Value::Int(2)]);
        assert!(client.replies.capacity() <= KEPT, "{} bytes", client.replies.capacity());
        server.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_endless_reply_ends_the_connection() {
        for (head, part) in [("*16777216\r\n", ":1\r\n"), ("$536870912\r\n", "xxxx"), ("+", "xxxx")] {
            let (mut client, mut far) = connected(READ);
            let server = tokio::spawn(async move {
                let mut sent = 0;
                far.write_all(head.as_bytes()).await.unwrap();
                let parts = part.repeat(4096);
                while far.write_all(parts.as_bytes()).await.is_ok() {
                    sent += parts.len();
                }
                sent
            });
            let error = client.answer(&redis::cmd("GET")).await.unwrap_err();
            assert!(error.to_string().contains("longer than 256 KiB"), "{head:?}: {error}");
            assert!(client.replies.capacity() <= KEPT, "{head:?}: {} bytes", client.replies.capacity());
            drop(client);
            let sent = server.await.unwrap();
            assert!(sent <= LONGEST + 4 * READ, "{head:?}: {sent} bytes were read");
        }
    }

    #[tokio::test]
    async fn a_server_that_always_lags_behind_takes_bounded_memory() {
        let (mut client, mut far) = connected(READ);
        let mut get = redis::cmd("GET");
        get.arg(vec![b'x'; READ]);
        let mut part = vec![0; get.get_packed_command().len()];
        client.push(&get);
        for _ in 0..10 * KEPT / READ {
            client.push(&get);
            // One command fits less than once into the stream, so one is always left.
            let mut read = pin!(far.read_exact(&mut part));
            while futures::poll!(&mut read).is_pending() {
                assert!(poll_fn(|context| Poll::Ready(client.poll_write(context).is_pending())).await);
                // Without it, the budget of this task ends all progress.
                tokio::task::yield_now().await;
            }
        }
        let most = client.commands.capacity();
        assert!(most <= 4 * KEPT, "{most} bytes");
    }

    #[tokio::test]
    async fn what_is_not_a_reply_ends_the_connection() {
        let deep = "*1\r\n".repeat(200);
        for bytes in ["hello\r\n", "\r\n", ":x\r\n", "$3\r\nabcd\r\n", ">2\r\n+message\r\n+k\r\n", &deep] {
            let (mut client, mut far) = connected(READ);
            far.write_all(bytes.as_bytes()).await.unwrap();
            let error = client.answer(&redis::cmd("GET")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Parse, "{bytes:?}: {error}");
        }
    }

    #[tokio::test]
    async fn an_error_is_a_reply_and_a_part_of_a_reply() {
        let (mut client, mut far) = connected(READ);
        far.write_all(b"-NOSCRIPT No matching script.\r\n*2\r\n:1\r\n-OOM no\r\n").await.unwrap();
        let error = client.answer(&redis::cmd("EVALSHA")).await.unwrap().unwrap_err();
        assert_eq!(error.code(), Some("NOSCRIPT"));
        let Value::Array(parts) = client.answer(&redis::cmd("EVALSHA")).await.unwrap().unwrap() else { panic!() };
        assert!(matches!(&parts[..], [Value::Int(1), Value::ServerError(error)] if error.code() == "OOM"), "{parts:?}");
    }

    #[tokio::test]
    async fn a_late_reply_is_not_taken_for_another() {
        let (mut client, mut far) = connected(READ);
        let get = redis::cmd("GET");
        {
            // It is dropped before its reply arrives, as when it takes too long.
            let mut early = pin!(client.answer(&get));
            assert!(futures::poll!(&mut early).is_pending());
        }
        far.write_all(b"$4\r\nlate\r\n:1\r\n").await.unwrap();
        let refused = client.query::<Value>(&redis::cmd("INCR")).await.unwrap_err();
        assert!(refused.to_string().contains("an earlier command has no reply"), "{refused}");
    }

    #[tokio::test]
    async fn a_closed_connection_is_an_error_after_the_last_reply() {
        let (mut client, mut far) = connected(64);
        far.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        drop(far);
        let refused = client.query::<Value>(&redis::cmd("INFO")).await.unwrap_err();
        assert!(refused.to_string().contains("max number of clients"), "{refused}");
        let lost = poll_fn(|context| client.poll_reply(context)).await.unwrap_err();
        assert!(lost.is_connection_dropped(), "{lost}");
    }
}
