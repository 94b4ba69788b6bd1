//! Connects to a server: TCP, TLS, login.

use std::io;
use std::time::Duration;

use futures::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ErrorKind, RedisError, Value};
use redislease_core::time::{Millis, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::Address;
use super::client::{Client, Stream};
use super::failure::{Failure, bounded};
use super::{Credentials, Reason, Tls, tls};
use crate::clock;

/// Connects and logs in within `timeout`.
pub(super) async fn connect(
    address: &Address,
    tls: Option<&Tls>,
    credentials: Option<&Credentials>,
    timeout: Millis,
) -> Result<Client, Failure> {
    let deadline = clock::now() + timeout;
    let tcp = bounded(timeout, "cannot connect", async { Ok(tcp(address, timeout).await?) }).await?;
    let Some(tls) = tls else {
        return log_in(tcp, credentials, deadline, timeout).await.map_err(Failure::hint_at_tls);
    };
    match clock::within(deadline.since(clock::now()), tls.start(address, tcp)).await {
        Ok(started) => log_in(started?, credentials, deadline, timeout).await,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            // Redis without TLS waits for the end of what it takes for a line.
            if clock::within(timeout, answers_without_tls(address, timeout)).await.is_ok_and(|answers| answers) {
                return Err(tls::not_tls());
            }
            Err(Failure {
                reason: Reason::Timeout,
                text: format!("no answer to the TLS handshake within {} ms", timeout.0),
            })
        }
        Err(error) => Err(Failure { reason: Reason::Refused, text: format!("cannot connect: {error}") }),
    }
}

/// Whether a server answers a command that was sent without TLS and without a login.
async fn answers_without_tls(address: &Address, timeout: Millis) -> bool {
    let answer = async {
        let mut stream = tcp(address, timeout).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    matches!(answer.await, Ok(b'+' | b'-'))
}

/// Connects to the address of the host that answers first.
pub(super) async fn tcp(address: &Address, timeout: Millis) -> io::Result<TcpStream> {
    let found: Vec<_> = tokio::net::lookup_host((address.host(), address.port())).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
    }
    let (stream, _) = select_ok(found.into_iter().map(|address| Box::pin(TcpStream::connect(address)))).await?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from(timeout).max(Duration::from_secs(1))))?;
    Ok(stream)
}

async fn log_in(
    stream: impl Stream + 'static,
    credentials: Option<&Credentials>,
    deadline: Time,
    timeout: Millis,
) -> Result<Client, Failure> {
    let mut client = Client::new(stream);
    // Nothing is sent before the login, so a server with too many clients can answer with that error.
    let Some(Credentials { username, password }) = credentials else { return Ok(client) };
    let mut login = redis::cmd("AUTH");
    login.arg(username).arg(password);
    match clock::within(deadline.since(clock::now()), client.answer(&login)).await {
        Ok(Ok(Ok(Value::Okay))) => Ok(client),
        Ok(Ok(Ok(_))) => Err(Failure::protocol("cannot connect: the reply to AUTH is not OK")),
        // The server answers so to whatever comes first, and closes the connection.
        Ok(Ok(Err(error))) if Reason::from(&error) == Reason::MaxClients || error.code() == Some(PROTECTED) => {
            Err(Failure::of("cannot connect", &error))
        }
        Ok(Ok(Err(error))) if has_no_password(&error) => Err(Failure::no_password()),
        // The text of the server's error may name the user.
        Ok(Ok(Err(_))) => Err(Failure::of("cannot connect", &AUTHENTICATION.into())),
        Ok(Err(error)) => Err(Failure::of("cannot connect", &error)),
        Err(error) => Err(Failure::unanswered("cannot connect", timeout, &error)),
    }
}

/// A server in protected mode refuses clients of other machines.
const PROTECTED: &str = "DENIED";

/// Whether the error is the answer to AUTH of a server whose default user needs no password: since Redis 6, and before.
fn has_no_password(error: &RedisError) -> bool {
    let answers = ["without any password configured", "no password is set"];
    error.detail().is_some_and(|detail| answers.iter().any(|answer| detail.contains(answer)))
}

const AUTHENTICATION: (ErrorKind, &str) = (ErrorKind::AuthenticationFailed, "Password authentication failed");
