//! Examines a server for `redislease doctor`: everything about it that can keep a node from voting.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, InfoDict, Value};
use redislease_core::time::Millis;
use rustls::pki_types::CertificateDer;

use super::address::Address;
use super::client::Client;
use super::failure::{Failure, bounded};
use super::info;
use super::script::{self, Script};
use super::{Credentials, Keyspace, Misconfiguration, Tls, transport};
use crate::clock;

/// A server to examine.
#[derive(Clone, Debug)]
pub struct Probe {
    /// `host:port`; an IPv6 address in brackets.
    pub address: String,
    /// User and password; `None` for a server without a password.
    pub credentials: Option<Credentials>,
    /// TLS; `None` for a connection without TLS.
    pub tls: Option<Tls>,
    /// The prefix of every key.
    pub key_prefix: String,
    /// The cluster and the quorum whose leading replica is looked for.
    pub leader_of: Option<(String, String)>,
    /// The timeout of each request.
    pub timeout: Millis,
}

/// The state that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `redis_version`, or the version of Valkey.
    pub version: String,
    /// The server process.
    pub run_id: String,
    /// Everything that prevents it from voting, with a sentence that says what to do.
    pub misconfigurations: Vec<(Misconfiguration, String)>,
    /// The commands that it refuses, each with its error.
    pub refused: Vec<(String, String)>,
    /// The number of connected replicas.
    pub replicas: u64,
    /// The memory in use and the limit, in bytes; a limit of 0 is none.
    pub memory: (u64, u64),
    /// Whether its last attempt to save its data succeeded.
    pub saves: bool,
    /// Its wall clock minus that of this process, in milliseconds; `None` if it refuses TIME.
    pub clock_offset_ms: Option<i64>,
    /// Whether it has the lock of the leading replica that was looked for; `None` if that is not known.
    pub has_leader: Option<bool>,
}

impl Probe {
    /// Connects and examines the server.
    ///
    /// # Errors
    /// [`Failure`] if there is no connection, or the server refuses INFO.
    pub async fn run(&self) -> Result<Server, Failure> {
        let address = Address::parse(&self.address)
            .ok_or_else(|| Failure::protocol(format!("address `{}` is not `host:port`", self.address)))?;
        let (tls, credentials) = (self.tls.as_ref(), self.credentials.as_ref());
        let mut connection = transport::connect(&address, tls, credentials, self.timeout).await?;
        let text = bounded(self.timeout, "INFO", connection.query::<String>(&redis::cmd("INFO"))).await;
        let text = text.map_err(|failure| if tls.is_some() { failure } else { failure.hint_at_tls() })?;
        let fields = InfoDict::new(&text);
        let field = |name: &str| fields.get::<String>(name).unwrap_or_default();
        let number = |name: &str| fields.get::<u64>(name).unwrap_or_default();
        let misconfigurations = info::misconfigurations(&text).map_err(Failure::protocol)?;
        let usable = |(why, _): &(Misconfiguration, String)| *why == Misconfiguration::Eviction;
        let mut server = Server {
            version: info::version(&text).map_err(Failure::protocol)?,
            run_id: field("run_id"),
            refused: Vec::new(),
            replicas: number("connected_slaves"),
            memory: (number("used_memory"), number("maxmemory")),
            saves: field("rdb_last_bgsave_status") != "err" && field("aof_last_write_status") != "err",
            clock_offset_ms: None,
            has_leader: None,
            misconfigurations,
        };
        // Other servers refuse commands because of their role.
        if server.misconfigurations.iter().all(usable) {
            for (name, command) in commands(&Keyspace::new(&self.key_prefix)) {
                if let Some(error) = self.refusal(&command, &mut connection).await? {
                    server.refused.push((name.to_owned(), error));
                }
            }
        }
        server.clock_offset_ms = self.clock_offset(&mut connection).await?;
        server.has_leader = self.has_leader(&mut connection).await?;
        Ok(server)
    }

    async fn has_leader(&self, connection: &mut Client) -> Result<Option<bool>, Failure> {
        let Some((cluster, quorum)) = &self.leader_of else { return Ok(None) };
        let mut command = redis::cmd("PTTL");
        command.arg(Keyspace::new(&self.key_prefix).leader(cluster, quorum));
        let answered = bounded(self.timeout, "PTTL", connection.answer(&command)).await?;
        let left = answered.ok().and_then(|value| redis::from_redis_value::<i64>(value).ok());
        Ok(left.map(|left| left > 0))
    }

    /// The server's error for a command; `None` if it executed the command.
    async fn refusal(&self, command: &Cmd, connection: &mut Client) -> Result<Option<String>, Failure> {
        let answered = bounded(self.timeout, "a command", connection.answer(command)).await?;
        Ok(answered.and_then(Value::extract_error).err().map(|error| error.to_string()))
    }

    /// `None` if the server refuses TIME.
    async fn clock_offset(&self, connection: &mut Client) -> Result<Option<i64>, Failure> {
        let before = wall();
        let answered = bounded(self.timeout, "TIME", connection.answer(&redis::cmd("TIME"))).await?;
        let middle = (before + wall()) / 2;
        let time = answered.ok().and_then(|value| redis::from_redis_value::<(u64, u64)>(value).ok());
        let Some((seconds, micros)) = time else { return Ok(None) };
        let Some(node) = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros)) else {
            return Ok(None);
        };
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Ok(Some(millis(node) - millis(middle)))
    }
}

impl Tls {
    /// Connects to `host:port` and returns the certificates that the server shows, its own first, in DER.
    ///
    /// # Errors
    /// [`Failure`] if there is no TLS connection within `timeout`.
    pub async fn server_chain(&self, address: &str, timeout: Millis) -> Result<Vec<CertificateDer<'static>>, Failure> {
        let address = Address::parse(address).ok_or_else(|| Failure::protocol("the address is not `host:port`"))?;
        let tcp = bounded(timeout, "cannot connect", async { Ok(transport::tcp(&address, timeout).await?) }).await?;
        let started = clock::within(timeout, self.start(&address, tcp)).await;
        let stream = started.map_err(|error| Failure::unanswered("cannot connect", timeout, &error))??;
        Ok(stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec())
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Every command that connections and scripts use, on a key that expires by itself.
fn commands(keyspace: &Keyspace) -> Vec<(&'static str, Cmd)> {
    let key = keyspace.check();
    let on_key = |name: &'static str, rest: &[&str]| {
        let mut command = redis::cmd(name);
        command.arg(key).arg(rest);
        (name, command)
    };
    vec![
        ("PING", redis::cmd("PING")),
        ("TIME", redis::cmd("TIME")),
        on_key("SET", &["0", "PX", "1000"]),
        on_key("GET", &[]),
        on_key("MGET", &[]),
        on_key("PEXPIRE", &["2000", "GT"]),
        on_key("PTTL", &[]),
        on_key("DEL", &[]),
        ("SCRIPT LOAD", Script::Check.load()),
        ("EVALSHA", script::check(keyspace)),
    ]
}
