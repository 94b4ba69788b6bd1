//! The connection of the client library to a server: TCP, TLS, login.

use std::io;
use std::time::Duration;

use futures::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use redislease_core::time::{Millis, Time};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Address, Failure, bounded};
use super::{Credentials, Reason, Tls, pipe, tls};
use crate::clock;

/// A connection to a server on which the login succeeded. Dropping it closes the socket.
pub(super) struct Client {
    /// Sends commands.
    pub connection: MultiplexedConnection,
    /// Moves bytes between the connection and the socket.
    _driver: AbortOnDropHandle<()>,
}

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
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    credentials: Option<&Credentials>,
    deadline: Time,
    timeout: Millis,
) -> Result<Client, Failure> {
    // Without a library name nothing is sent before the login, so a server with too many clients can answer with that
    // error.
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(Credentials { username, password }) = credentials {
        login = login.set_password(password);
        if let Some(username) = username {
            login = login.set_username(username);
        }
    }
    // The library's timeouts do not advance while the system is suspended, so this timeout wraps them.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(pipe::ROOM);
    let opening = MultiplexedConnection::new_with_config(&login, stream, config);
    match clock::within(deadline.since(clock::now()), opening).await {
        Ok(Ok((connection, driver))) => {
            Ok(Client { connection, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) })
        }
        Ok(Err(error)) => Err(Failure::of("cannot connect", &error)),
        Err(error) => Err(Failure::unanswered("cannot connect", timeout, &error)),
    }
}
