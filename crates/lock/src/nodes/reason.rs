//! Why a request got no vote or a node does not vote: a fixed set, for metrics and conditions.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a request got no vote, or a node does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No reply in time.
    Timeout,
    /// No connection: refused, reset, unreachable, or the name is not known.
    Refused,
    /// TLS failed: a certificate is wrong or missing, or the server does not use TLS.
    Tls,
    /// The user or password is wrong, or its permissions do not allow a command.
    Auth,
    /// The server is a replica.
    ReadOnly,
    /// The server is loading its data from disk.
    Loading,
    /// The server runs a script of another client, or tens of thousands of requests are without a reply.
    Busy,
    /// The server's memory is full.
    Oom,
    /// The server cannot save to disk and refuses writes.
    Misconf,
    /// The server's script cache does not contain the scripts: it was flushed, or the server restarted.
    NoScript,
    /// The server is part of a Redis Cluster.
    Moved,
    /// The server has too many clients.
    MaxClients,
    /// The request reached the server after its deadline.
    Late,
    /// The node is not admitted, so it does not vote.
    NotAdmitted,
    /// An invalid reply: no script returns it.
    Protocol,
    /// A bug in this process: the task of the node panicked and was restarted.
    Internal,
}

impl Reason {
    /// Every reason, so that each can be counted from zero.
    pub const ALL: [Self; 16] = [
        Self::Timeout,
        Self::Refused,
        Self::Tls,
        Self::Auth,
        Self::ReadOnly,
        Self::Loading,
        Self::Busy,
        Self::Oom,
        Self::Misconf,
        Self::NoScript,
        Self::Moved,
        Self::MaxClients,
        Self::Late,
        Self::NotAdmitted,
        Self::Protocol,
        Self::Internal,
    ];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Tls => "tls",
            Self::Auth => "auth",
            Self::ReadOnly => "readonly",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::Oom => "oom",
            Self::Misconf => "misconf",
            Self::NoScript => "noscript",
            Self::Moved => "moved",
            Self::MaxClients => "maxclients",
            Self::Late => "late",
            Self::NotAdmitted => "not_admitted",
            Self::Protocol => "protocol",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How Redis 7.0 and Redis 7.2 or newer report that the user may not use a command or a key in a script.
const NOT_ALLOWED: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

impl From<&RedisError> for Reason {
    /// An unknown error is [`Reason::Protocol`]: a failure, never a success.
    fn from(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::Timeout;
        }
        // Redis has no error code for this, and the client library reports it as an error of the current operation.
        if error.detail().is_some_and(|detail| detail.contains("max number of clients")) {
            return Self::MaxClients;
        }
        if Self::is_of_rights(error) {
            return Self::Auth;
        }
        match error.kind() {
            ErrorKind::Io => Self::Refused,
            ErrorKind::AuthenticationFailed => Self::Auth,
            ErrorKind::Server(kind) => Self::from_server(kind),
            _ => Self::from_code(error.code().unwrap_or_default()),
        }
    }
}

impl Reason {
    /// Whether the user logged in and may not do this. Such an error in a script has a generic error code.
    pub(super) fn is_of_rights(error: &RedisError) -> bool {
        error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
            || error.detail().is_some_and(|detail| NOT_ALLOWED.iter().any(|text| detail.contains(text)))
    }

    fn from_server(kind: ServerErrorKind) -> Self {
        match kind {
            ServerErrorKind::NoPerm => Self::Auth,
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown => Self::ReadOnly,
            ServerErrorKind::BusyLoading => Self::Loading,
            ServerErrorKind::NoScript => Self::NoScript,
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::CrossSlot
            | ServerErrorKind::TryAgain => Self::Moved,
            _ => Self::Protocol,
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "NOAUTH" | "WRONGPASS" => Self::Auth,
            "BUSY" => Self::Busy,
            "OOM" => Self::Oom,
            "MISCONF" => Self::Misconf,
            _ => Self::Protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::failure::Failure;
    use std::io;

    /// The client library's error for a server's error line.
    fn answered(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn errors_of_servers() {
        for (line, reason) in [
            ("NOAUTH Authentication required.", Reason::Auth),
            ("WRONGPASS invalid username-password pair or user is disabled.", Reason::Auth),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Reason::Auth),
            ("ERR The user executing the script can't run this command or subcommand script: 3af6", Reason::Auth),
            ("ERR ACL failure in script: User app has no permissions to run the 'incr' command", Reason::Auth),
            ("READONLY You can't write against a read only replica.", Reason::ReadOnly),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Reason::ReadOnly),
            ("LOADING Redis is loading the dataset in memory", Reason::Loading),
            ("BUSY Redis is busy running a script.", Reason::Busy),
            ("OOM command not allowed when used memory > 'maxmemory'.", Reason::Oom),
            ("MISCONF Redis is configured to save RDB snapshots, but", Reason::Misconf),
            ("NOSCRIPT No matching script. Please use EVAL.", Reason::NoScript),
            ("MOVED 866 127.0.0.1:7001", Reason::Moved),
            ("CROSSSLOT Keys in request don't hash to the same slot", Reason::Moved),
            ("ERR max number of clients reached", Reason::MaxClients),
            ("ERR unknown command 'EVALSHA'", Reason::Protocol),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Reason::Protocol),
            ("GRANTED 7", Reason::Protocol),
        ] {
            assert_eq!(Reason::from(&answered(line)), reason, "{line}");
        }
    }

    #[test]
    fn a_missing_right_is_told_from_a_wrong_password() {
        let text = |line: &str| Failure::of("observe", &answered(line)).text;
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand script: 3af6",
        ] {
            assert!(text(line).ends_with("the commands and keys that docs/redis-checklist.md lists"), "{}", text(line));
        }
        assert!(text("WRONGPASS invalid username-password pair").ends_with("in the RedisQuorum's secret"));
    }

    #[test]
    fn errors_of_the_connection() {
        for (kind, reason) in [
            (io::ErrorKind::TimedOut, Reason::Timeout),
            (io::ErrorKind::ConnectionRefused, Reason::Refused),
            (io::ErrorKind::ConnectionReset, Reason::Refused),
            (io::ErrorKind::BrokenPipe, Reason::Refused),
        ] {
            assert_eq!(Reason::from(&RedisError::from(io::Error::from(kind))), reason, "{kind}");
        }
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "Password authentication failed"));
        assert_eq!(Reason::from(&wrong), Reason::Auth);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
