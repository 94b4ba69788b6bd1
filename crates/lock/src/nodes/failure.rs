//! Why a connection to a node failed.

use std::fmt;
use std::future::Future;
use std::io;

use redis::{ErrorKind, RedisError, RedisResult};
use redislease_core::time::Millis;

use super::Reason;
use super::brief::brief;
use crate::clock;

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub reason: Reason,
    /// A sentence that follows the node's name. It says what to do, if something can be done.
    pub text: String,
}

impl Failure {
    pub(super) fn protocol(text: impl fmt::Display) -> Self {
        Self { reason: Reason::Protocol, text: brief(text.to_string()) }
    }

    /// The operating system provides no random numbers.
    pub(super) fn system(error: &io::Error) -> Self {
        Self { reason: Reason::Internal, text: format!("the operating system provides no random numbers: {error}") }
    }

    /// The server expects no login.
    pub(super) fn no_password() -> Self {
        let text = "cannot connect: the server has no password: set `requirepass` on it, or remove `spec.auth` from the RedisQuorum";
        Self { reason: Reason::Auth, text: text.to_owned() }
    }

    pub(super) fn timeout(limit: Millis) -> Self {
        Self { reason: Reason::Timeout, text: format!("no answer within {} ms", limit.0) }
    }

    /// A server on a TLS port closes a connection without TLS. Adds what to do in this case.
    pub(super) fn hint_at_tls(mut self) -> Self {
        if self.reason == Reason::Refused {
            self.text += "; if the server uses TLS on this port, set `spec.tls` in the RedisQuorum";
        }
        self
    }

    /// [`clock::within`] returned `error` after `limit`.
    pub(super) fn unanswered(doing: &str, limit: Millis, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            return Self { reason: Reason::Timeout, text: format!("{doing}: no answer within {} ms", limit.0) };
        }
        Self { reason: Reason::Refused, text: format!("{doing}: {error}") }
    }

    pub(super) fn of(doing: &str, error: &RedisError) -> Self {
        let reason = Reason::from(error);
        let what_to_do = match reason {
            Reason::Auth if Reason::is_of_rights(error) => format!("; {RIGHTS}"),
            Reason::Auth => "; set the user name and password in the RedisQuorum's secret".to_owned(),
            _ if error.kind() == ErrorKind::Parse => "; check that a Redis server listens on this address".to_owned(),
            _ => String::new(),
        };
        Self { reason, text: format!("{doing}: {}{what_to_do}", brief(error.to_string())) }
    }

    /// If the server permanently refuses requests: what it refuses, and what to do.
    pub(super) fn refusal(error: &RedisError) -> Option<Self> {
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
    pub(super) fn refused_command(command: &str, error: &str) -> Self {
        let error = error.split(" script: ").next().unwrap_or(error);
        let error = brief(error.to_owned());
        let text = format!("the server refuses the command {command} ({error}): {REFUSING}; {RIGHTS}");
        Self { reason: Reason::Auth, text }
    }
}

/// The effect of a refusal on leases.
const REFUSING: &str =
    "no new lease or lock gets its vote; those that it holds are extended as far as the server allows";
/// The fix for a refused command.
const RIGHTS: &str = "grant the user the commands and keys that docs/redis-checklist.md lists";

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
