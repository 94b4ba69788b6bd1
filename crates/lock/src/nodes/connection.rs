//! Opens a connection to a node: TCP, login, INFO, scripts.

use std::fmt;
use std::future::Future;
use std::io;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::time::Millis;

use super::access::Access;
use super::brief::brief;
use super::client::Client;
use super::info::Info;
use super::script::{self, Script};
use super::transport;
use super::{Keyspace, Misconfiguration, Reason};
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

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
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

    /// A server on a TLS port closes a connection without TLS. Adds what to do in this case.
    pub fn hint_at_tls(mut self) -> Self {
        if self.reason == Reason::Refused {
            self.text += "; if the server uses TLS on this port, set `spec.tls` in the RedisQuorum";
        }
        self
    }

    /// [`clock::within`] returned `error` after `limit`.
    pub fn unanswered(doing: &str, limit: Millis, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            return Self { reason: Reason::Timeout, text: format!("{doing}: no answer within {} ms", limit.0) };
        }
        Self { reason: Reason::Refused, text: format!("{doing}: {error}") }
    }

    pub fn of(doing: &str, error: &RedisError) -> Self {
        let reason = Reason::from(error);
        let what_to_do = match reason {
            Reason::Auth => {
                "; set the user name and password in the RedisQuorum's secret, and check the user's permissions on the server"
            }
            _ if error.kind() == ErrorKind::Parse => "; check that a Redis server listens on this address",
            _ => "",
        };
        Self { reason, text: format!("{doing}: {}{what_to_do}", brief(error.to_string())) }
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
        let error = brief(error.to_string());
        Some(Self { reason, text: format!("the server refuses scripts ({error}): {REFUSING}; {what_to_do}") })
    }

    /// The server refused one command of the scripts.
    pub fn refused_command(command: &str, error: &str) -> Self {
        let error = error.split(" script: ").next().unwrap_or(error);
        let error = brief(error.to_owned());
        let text = format!("the server refuses the command {command} ({error}): {REFUSING}; {RIGHTS}");
        Self { reason: Reason::Auth, text }
    }
}

/// The effect of a refusal on leases.
const REFUSING: &str =
    "the node takes part in no new term; terms that it holds are extended as far as the server allows";
/// The fix for a refused command.
const RIGHTS: &str = "grant the quorum's user the commands and keys that docs/redis-checklist.md lists";

/// A connection to an identified server.
pub(super) struct Opened {
    pub client: Client,
    pub info: Info,
    /// The name of the server process in markers.
    pub run_id: RunId,
    /// The script commands that the server refuses.
    pub refusal: Option<Failure>,
}

/// The parameters for opening a connection to one node.
pub(super) struct Opening {
    pub address: Address,
    pub access: Access,
    pub timeout: Millis,
    pub keyspace: Keyspace,
    pub membership: Membership,
    /// The nonce of a wait ticket.
    pub nonce: u128,
}

impl Opening {
    /// Connects, logs in, reads INFO, loads the scripts and tries their commands.
    pub async fn open(self) -> Result<Opened, Failure> {
        let mut client = self.log_in().await?;
        let connection = &mut client;
        // The run ID is read first on every connection: with a run ID from an older connection, the marker that a
        // restarted server restored would be accepted.
        let info = self.call("INFO", &redis::cmd("INFO"), connection).await;
        let has_tls = self.access.has_tls();
        let info = info.map_err(|failure| if has_tls { failure } else { failure.hint_at_tls() })?;
        let info: String = redis::from_redis_value(info).map_err(Failure::protocol)?;
        let info = Info::parse(&info).map_err(Failure::protocol)?;
        let marker = self.answer("GET", redis::cmd("GET").arg(self.keyspace.marker()), connection).await?;
        // A value that is not a marker names no process, nor does a server that refuses GET.
        let marker =
            marker.ok().and_then(|value| redis::from_redis_value::<String>(value).ok()?.parse::<Marker>().ok());
        let run_id = info.process.name(marker.as_ref());
        let mut refusal = None;
        match &info.misconfiguration {
            None => {
                let loads: Vec<Cmd> = Script::ALL.iter().map(|script| script.load()).collect();
                for loaded in bounded(self.timeout, "SCRIPT LOAD", connection.answers(&loads)).await? {
                    loaded.map_err(|error| Failure::of("SCRIPT LOAD", &error))?;
                }
                refusal = self.check(connection).await?;
            }
            Some((Misconfiguration::Eviction, _)) => self.retract(&run_id, marker, connection).await,
            Some(_) => {}
        }
        Ok(Opened { client, info, run_id, refusal })
    }

    /// Connects with the current certificates and credentials, or with the previous ones if the server does not accept
    /// the current ones. Returns the failure of the current ones.
    async fn log_in(&self) -> Result<Client, Failure> {
        let mut first = None;
        for tls in self.access.tls() {
            for credentials in self.access.credentials() {
                let failure = match transport::connect(&self.address, tls, credentials, self.timeout).await {
                    Ok(client) => return Ok(client),
                    Err(failure) => failure,
                };
                let reason = failure.reason;
                let first = first.get_or_insert(failure);
                match reason {
                    // The server may not have the new password yet, or no longer the old one.
                    Reason::Auth => {}
                    Reason::Tls => break,
                    _ => return Err(first.clone()),
                }
            }
        }
        first.map_or_else(|| Err(Failure::protocol("no way to connect")), Err)
    }

    async fn call(&self, doing: &str, command: &Cmd, connection: &mut Client) -> Result<Value, Failure> {
        bounded(self.timeout, doing, connection.query(command)).await
    }

    /// The server's answer, which may be an error.
    async fn answer(&self, doing: &str, command: &Cmd, connection: &mut Client) -> Result<RedisResult<Value>, Failure> {
        bounded(self.timeout, doing, connection.answer(command)).await
    }

    /// Tries every command of the scripts. A refusal does not fail the connection: the server may hold terms that can be
    /// extended.
    async fn check(&self, connection: &mut Client) -> Result<Option<Failure>, Failure> {
        match self.answer("check", &script::check(&self.keyspace), connection).await? {
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
    async fn retract(&self, run_id: &RunId, marker: Option<Marker>, connection: &mut Client) {
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

pub(super) async fn bounded<T>(
    timeout: Millis,
    doing: &str,
    work: impl Future<Output = RedisResult<T>>,
) -> Result<T, Failure> {
    match clock::within(timeout, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Failure::of(doing, &error)),
        Err(error) => Err(Failure::unanswered(doing, timeout, &error)),
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
}
