//! Opens a connection to a node: TCP, login, INFO, scripts.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisResult, Value,
};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::time::Millis;

use super::info::Info;
use super::script::{self, Script};
use super::{Credentials, Keyspace, Misconfiguration, Reason, pipe};
use crate::clock;

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `host:port`, an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let plain = !host.is_empty() && !host.contains(['/', '@', ' ']) && (bare.is_some() || !host.contains(':'));
        Some(Self { host: host.to_owned(), port: port.parse().ok().filter(|port| *port > 0)? }).filter(|_| plain)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The current credentials and the previous ones. `None` logs in without a password.
#[derive(Clone, Debug)]
pub(super) struct Secrets {
    current: Option<Credentials>,
    previous: Vec<Option<Credentials>>,
}

impl Secrets {
    pub fn new(current: Option<Credentials>) -> Self {
        Self { current, previous: Vec::new() }
    }

    /// Sets the credentials. Returns whether they changed.
    pub fn replace(&mut self, credentials: Option<Credentials>) -> bool {
        let changed = self.current != credentials;
        if changed {
            self.previous = vec![std::mem::replace(&mut self.current, credentials)];
        }
        changed
    }
}

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub reason: Reason,
    /// A sentence that follows the node's name.
    pub text: String,
}

impl Failure {
    pub fn protocol(text: impl fmt::Display) -> Self {
        Self { reason: Reason::Protocol, text: text.to_string() }
    }

    /// The operating system provides no random numbers.
    pub fn system(error: &io::Error) -> Self {
        Self { reason: Reason::Internal, text: format!("the operating system provides no random numbers: {error}") }
    }

    pub fn timeout(limit: Millis) -> Self {
        Self { reason: Reason::Timeout, text: format!("no answer within {} ms", limit.0) }
    }

    pub fn of(doing: &str, error: &RedisError) -> Self {
        let reason = Reason::from(error);
        let what_to_do = match reason {
            Reason::Auth => {
                "; set the user name and password in the RedisQuorum's secret, and check the user's permissions on the server"
            }
            _ => "",
        };
        Self { reason, text: format!("{doing}: {error}{what_to_do}") }
    }

    /// If the server permanently refuses requests: what it refuses, and what to do.
    pub fn refusal(error: &RedisError) -> Option<Self> {
        let reason = Reason::from(error);
        let what_to_do = match reason {
            Reason::Auth => RIGHTS,
            Reason::Oom => "free memory or increase `maxmemory`",
            Reason::Misconf => "fix saving to disk, or set `stop-writes-on-bgsave-error no`",
            _ => return None,
        };
        Some(Self { reason, text: format!("the server refuses scripts ({error}): {REFUSING}; {what_to_do}") })
    }

    /// The server refused one command of the scripts.
    pub fn refused_command(command: &str, error: &str) -> Self {
        let error = error.split(" script: ").next().unwrap_or(error);
        let text = format!("the server refuses the command {command} ({error}): {REFUSING}; {RIGHTS}");
        Self { reason: Reason::Auth, text }
    }
}

/// The effect of a refusal on leases.
const REFUSING: &str =
    "the node takes part in no new term; terms that it holds are extended as far as the server allows";
/// The fix for a refused command.
const RIGHTS: &str = "grant the quorum's user the commands and keys that the README lists";

/// A connection to an identified server.
pub(super) struct Opened {
    pub connection: MultiplexedConnection,
    pub info: Info,
    /// The name of the server process in markers.
    pub run_id: RunId,
    /// The script commands that the server refuses.
    pub refusal: Option<Failure>,
}

/// The parameters for opening a connection to one node.
pub(super) struct Opening {
    pub address: Address,
    pub secrets: Secrets,
    pub timeout: Millis,
    pub keyspace: Keyspace,
    pub membership: Membership,
    /// The nonce of a wait ticket.
    pub nonce: u128,
}

impl Opening {
    /// Connects, logs in, reads INFO, loads the scripts and tries their commands.
    pub async fn open(self) -> Result<Opened, Failure> {
        let mut connection = self.log_in().await?;
        // The run ID is read first on every connection: with a run ID from an older connection, the marker that a
        // restarted server restored would be accepted.
        let info = self.call("INFO", &redis::cmd("INFO"), &mut connection).await?;
        let info: String = redis::from_redis_value(info).map_err(Failure::protocol)?;
        let info = Info::parse(&info).map_err(Failure::protocol)?;
        let marker = self.call("GET", redis::cmd("GET").arg(self.keyspace.marker()), &mut connection).await;
        // A value that is not a marker names no process.
        let marker =
            marker.ok().and_then(|value| redis::from_redis_value::<String>(value).ok()?.parse::<Marker>().ok());
        let run_id = info.process.name(marker.as_ref());
        let mut refusal = None;
        match &info.misconfiguration {
            None => {
                for script in Script::ALL {
                    self.call("SCRIPT LOAD", &script.load(), &mut connection).await?;
                }
                refusal = self.check(&mut connection).await?;
            }
            Some((Misconfiguration::Eviction, _)) => self.retract(&run_id, marker, &mut connection).await,
            Some(_) => {}
        }
        Ok(Opened { connection, info, run_id, refusal })
    }

    async fn log_in(&self) -> Result<MultiplexedConnection, Failure> {
        let first = connect(&self.address, self.secrets.current.as_ref(), self.timeout).await;
        match (first, self.secrets.previous.first()) {
            (Err(failure), Some(previous)) if failure.reason == Reason::Auth => {
                connect(&self.address, previous.as_ref(), self.timeout).await.map_err(|_| failure)
            }
            (connected, _) => connected,
        }
    }

    async fn call(&self, doing: &str, command: &Cmd, connection: &mut MultiplexedConnection) -> Result<Value, Failure> {
        bounded(self.timeout, doing, command.query_async(connection)).await
    }

    /// Tries every command of the scripts. A refusal does not fail the connection: the server may hold terms that can be
    /// extended.
    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<Option<Failure>, Failure> {
        let checking = script::check(&self.keyspace);
        let checked =
            bounded(self.timeout, "check", async { Ok(checking.query_async::<Value>(connection).await) }).await?;
        match checked {
            Ok(value) => {
                let reply = script::read_check(value).map_err(Failure::protocol)?;
                Ok(reply.answer.map(|(command, error)| Failure::refused_command(&command, &error)))
            }
            Err(error) => match Failure::refusal(&error) {
                Some(refusal) => Ok(Some(refusal)),
                None => Err(Failure::of("check", &error)),
            },
        }
    }

    /// On a server that may drop keys, replaces the marker by a wait ticket. The next operator process finds the ticket
    /// even if this process is gone and the server is reconfigured before then.
    async fn retract(&self, run_id: &RunId, marker: Option<Marker>, connection: &mut MultiplexedConnection) {
        let Some(marker) = marker.filter(|marker| *marker == self.membership.marker(run_id.clone())) else { return };
        let observe = script::observe(&self.keyspace, run_id, self.nonce, Some(&marker));
        for command in [Script::Observe.load(), observe] {
            if let Err(failure) = self.call("observe", &command, connection).await {
                tracing::debug!(address = %self.address, "cannot replace the marker of a server that may drop keys: {}", failure.text);
                return;
            }
        }
    }
}

async fn connect(
    address: &Address,
    credentials: Option<&Credentials>,
    timeout: Millis,
) -> Result<MultiplexedConnection, Failure> {
    // Without a library name nothing is sent before the login, so a server with too many clients can answer with that
    // error.
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(Credentials { username, password }) = credentials {
        login = login.set_password(password);
        if let Some(username) = username {
            login = login.set_username(username);
        }
    }
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(Duration::from(timeout).max(Duration::from_secs(1)));
    let connecting = async {
        let target = ConnectionAddr::Tcp(address.host.clone(), address.port).into_connection_info()?;
        let client = Client::open(target.set_redis_settings(login).set_tcp_settings(tcp))?;
        // The library's timeouts do not advance while the system is suspended, so this timeout wraps them.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(pipe::ROOM);
        client.get_multiplexed_async_connection_with_config(&config).await
    };
    bounded(timeout, "cannot connect", connecting).await
}

async fn bounded<T>(timeout: Millis, doing: &str, work: impl Future<Output = RedisResult<T>>) -> Result<T, Failure> {
    match clock::within(timeout, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Failure::of(doing, &error)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(Failure { reason: Reason::Timeout, text: format!("{doing}: no answer within {} ms", timeout.0) })
        }
        Err(error) => Err(Failure { reason: Reason::Refused, text: format!("{doing}: {error}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, port) in
            [("redis-0:6379", "redis-0", 6379), ("10.0.0.1:1", "10.0.0.1", 1), ("[::1]:6379", "::1", 6379)]
        {
            assert_eq!(Address::parse(text), Some(Address { host: host.into(), port }), "{text}");
        }
        for text in
            ["", "redis", "redis:", ":6379", "redis:0", "redis:70000", "::1:6379", "a/b:1", "u@h:1", "redis://h:1"]
        {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_credentials_before_the_last_change_are_kept() {
        let password = |password: &str| Some(Credentials { username: None, password: password.into() });
        let mut secrets = Secrets::new(password("one"));
        assert!(!secrets.replace(password("one")));
        assert_eq!(secrets.previous, []);
        assert!(secrets.replace(password("two")));
        assert_eq!((secrets.current, secrets.previous), (password("two"), vec![password("one")]));
    }

    #[test]
    fn no_password_in_debug_output() {
        let secrets = Secrets::new(Some(Credentials { username: Some("app".into()), password: "hunter2".into() }));
        let shown = format!("{secrets:?}");
        assert!(shown.contains("app") && !shown.contains("hunter2"), "{shown}");
    }
}
