//! Opens a connection to a node: TCP, login, INFO, scripts.

use redis::{Cmd, RedisResult, Value};
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::time::Millis;
use redislease_core::wire::replies;

use super::access::{Accepted, Access};
use super::address::Address;
use super::client::Client;
use super::failure::{Failure, bounded};
use super::info::Info;
use super::script::{self, Script};
use super::transport;
use super::{Keyspace, Misconfiguration, Reason};

/// A connection to an identified server.
pub(super) struct Opened {
    pub client: Client,
    pub info: Info,
    /// The name of the server process in markers.
    pub run_id: RunId,
    /// The script commands that the server refuses.
    pub refusal: Option<Failure>,
    /// Why the current password or certificate does not serve, if the connection uses an earlier one.
    pub refused: Option<Failure>,
    pub accepted: Accepted,
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
        let (mut client, accepted, refused) = self.log_in().await?;
        let connection = &mut client;
        // The run ID is read first on every connection: with a run ID from an older connection, the marker that a
        // restarted server restored would be accepted.
        let info = self.call("INFO", &redis::cmd("INFO"), connection).await;
        let has_tls = self.access.has_tls();
        let info = info.map_err(|failure| match &refused {
            // Without a login, the server says only that it wants one.
            Some(refused) if failure.reason == Reason::Auth && refused.reason == Reason::Auth => refused.clone(),
            _ if has_tls => failure,
            _ => failure.hint_at_tls(),
        })?;
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
        Ok(Opened { client, info, run_id, refusal, refused, accepted })
    }

    /// Tests on a connection of its own whether the server accepts the current certificates and credentials. Returns them.
    pub async fn try_current(self) -> Result<Accepted, Failure> {
        let (tls, credentials) = (self.access.tls().next().flatten(), self.access.credentials().next().flatten());
        let mut client = transport::connect(&self.address, tls, credentials, self.timeout).await?;
        // Without a login, only the answer to a command says that the server wants one.
        self.call("INFO", &redis::cmd("INFO"), &mut client).await?;
        Ok(Accepted { credentials: credentials.cloned(), tls: tls.cloned() })
    }

    /// Connects with the current certificates and credentials, or with the previous ones if the server does not accept
    /// the current ones. Returns those that it accepts, and the failure of the current ones.
    async fn log_in(&self) -> Result<(Client, Accepted, Option<Failure>), Failure> {
        let mut first = None;
        for tls in self.access.tls() {
            for credentials in self.access.credentials() {
                let failure = match transport::connect(&self.address, tls, credentials, self.timeout).await {
                    Ok(client) => {
                        let accepted = Accepted { credentials: credentials.cloned(), tls: tls.cloned() };
                        return Ok((client, accepted, first));
                    }
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
                let reply = replies::read_check(script::value(value, &mut Vec::new())).map_err(Failure::protocol)?;
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
