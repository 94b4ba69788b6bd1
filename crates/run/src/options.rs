//! The options of `run`, and what they mean.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;

use crate::deadline::KILL_BEFORE;
use crate::isolation::Choice;
use crate::servers::Servers;
use crate::{duration, signals};

/// Run a command while this process holds a lock on a majority of independent Redis masters, without Kubernetes.
///
/// The kernel kills the command before the lock expires, also when this program hangs or is stopped. With the isolation none, the
/// kernel kills only the command itself, and not the processes that it has started.
///
/// Exit codes: that of the command, or 128 and the number of the signal that ended it; 64 wrong arguments; 69 no majority of the
/// Redis servers; 75 the lock was not acquired; 76 the lock was lost and the command was stopped; 125 this program failed; 126 the
/// command cannot be executed; 127 there is no such command.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// The Redis servers.
    #[command(flatten)]
    pub servers: Servers,

    /// The lock: commands with the same namespace and name exclude each other
    #[arg(long, env = "REDISLEASE_RUN_LEASE", value_name = "NAMESPACE/NAME", value_parser = lease)]
    pub lease: Lease,

    /// How long the lock outlives this program when it dies. While it lives, it renews the lock. At most the longest lease
    #[arg(long, env = "REDISLEASE_RUN_TTL", value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub ttl: Duration,

    /// The longest ttl of any program on these servers, 200ms to 1h; the same for all of them. With one below 30s, set --ttl too
    #[arg(long, env = "REDISLEASE_RUN_LONGEST_LEASE", value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub longest_lease: Duration,

    /// How often the lock is renewed. Default: (ttl - grace - 1s) / 3
    #[arg(long, env = "REDISLEASE_RUN_RENEW_EVERY", value_name = "DURATION", value_parser = duration::parse)]
    pub renew_every: Option<Duration>,

    /// The longest time for one command on one Redis server
    #[arg(long, env = "REDISLEASE_RUN_COMMAND_TIMEOUT", value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
    pub command_timeout: Duration,

    /// The prefix of all keys on the Redis servers
    #[arg(long, env = "REDISLEASE_RUN_PREFIX", value_name = "PREFIX", default_value = "redislease")]
    pub prefix: String,

    /// Allow a single Redis server: its loss is then the loss of every lock
    #[arg(long, env = "REDISLEASE_RUN_SINGLE_NODE", value_parser = BoolishValueParser::new())]
    pub single_node: bool,

    /// Use the Redis servers of an operator of RedisLease, with its node names, prefix and longest lease
    #[arg(long, env = "REDISLEASE_RUN_BESIDE_OPERATOR", value_parser = BoolishValueParser::new())]
    pub beside_operator: bool,

    /// A name that others see as the holder. Default: host, process ID and a random word
    #[arg(long, env = "REDISLEASE_RUN_OWNER", value_name = "NAME", value_parser = owner)]
    pub owner: Option<String>,

    /// The certificates of the authorities that signed those of the Redis servers, in PEM
    #[arg(long, env = "REDISLEASE_RUN_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// The certificate of this program, in PEM
    #[arg(
        long,
        env = "REDISLEASE_RUN_TLS_CERTIFICATE",
        value_name = "FILE",
        requires = "tls_ca",
        requires = "tls_key"
    )]
    pub tls_certificate: Option<PathBuf>,

    /// The private key of this program, in PEM
    #[arg(long, env = "REDISLEASE_RUN_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,

    /// The name in the certificates of the Redis servers. Default: the host of each URL
    #[arg(long, env = "REDISLEASE_RUN_TLS_SERVER_NAME", value_name = "NAME", requires = "tls_ca")]
    pub tls_server_name: Option<String>,

    /// How long to wait for the lock: 0 (one attempt), a duration such as 30s, or forever
    #[arg(long, env = "REDISLEASE_RUN_WAIT", value_name = "DURATION", default_value = "forever", value_parser = duration::parse_wait)]
    pub wait: Duration,

    /// The longest pause between two attempts
    #[arg(long, env = "REDISLEASE_RUN_RETRY", value_name = "DURATION", default_value = "250ms", value_parser = duration::parse)]
    pub retry: Duration,

    /// Let nobody else get the lock before this time has passed since it was acquired, also if the command ends before. For tasks that
    /// several machines start at the same time of day, with --wait 0: the greatest difference between their clocks plus at least 5s. At
    /// most the longest lease
    #[arg(long, env = "REDISLEASE_RUN_HOLD_AT_LEAST", value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    pub hold_at_least: Duration,

    /// job: run the command once. service: after a loss, wait for the lock again
    #[arg(long, env = "REDISLEASE_RUN_MODE", value_name = "MODE", default_value = "job")]
    pub mode: Mode,

    /// The signal that asks the command to stop when the lock is lost
    #[arg(long, env = "REDISLEASE_RUN_SIGNAL", value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub signal: Signal,

    /// The time from that signal to SIGKILL. It begins early enough that SIGKILL is sent 1 s before the lock expires
    #[arg(long, env = "REDISLEASE_RUN_GRACE", value_name = "DURATION", default_value = "10s", value_parser = grace)]
    pub grace: Duration,

    /// A shell command that runs when the lock is acquired. The command starts when it has succeeded
    #[arg(long, env = "REDISLEASE_RUN_ON_ACQUIRE", value_name = "COMMAND")]
    pub on_acquire: Option<String>,

    /// A shell command that runs when the lock was lost and the command has ended
    #[arg(long, env = "REDISLEASE_RUN_ON_LOST", value_name = "COMMAND")]
    pub on_lost: Option<String>,

    /// The address and port of a small HTTP server: /active, /, /lease and /events
    #[arg(long, env = "REDISLEASE_RUN_LISTEN", value_name = "ADDRESS", value_parser = address)]
    pub listen: Option<SocketAddr>,

    /// What contains the processes of the command: auto, pid (a PID namespace) or none (a process group). auto takes the strongest
    /// that is allowed
    #[arg(long, env = "REDISLEASE_RUN_ISOLATE", value_name = "ISOLATION", default_value = "auto")]
    pub isolate: Choice,

    /// The exit code if the lock was not acquired; 0 makes that a success
    #[arg(short = 'E', long, env = "REDISLEASE_RUN_CONFLICT_EXIT_CODE", value_name = "CODE", default_value_t = crate::exit::NOT_ACQUIRED)]
    pub conflict_exit_code: u8,

    /// Print only errors and warnings, not who holds the lock and which isolation is used
    #[arg(short, long, env = "REDISLEASE_RUN_QUIET", value_parser = BoolishValueParser::new())]
    pub quiet: bool,

    /// A command without -- before it, or a part of a list of servers. No value is accepted
    #[arg(hide = true, num_args = 0.., value_name = "COMMAND", value_parser = without_dashes)]
    pub misplaced: Vec<String>,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The value of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Run the command once.
    Job,
    /// After a loss, wait for the lock again.
    Service,
}

/// The value of `--lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The part before the slash.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

fn lease(text: &str) -> Result<Lease, String> {
    match text.split_once('/') {
        _ if text.contains(char::is_control) => Err("the lease must not contain control characters".to_owned()),
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(Lease { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("the lease must be a namespace and a name, such as shop/nightly-report".to_owned()),
    }
}

/// Without a time to stop, the command would not be killed before its deadline.
fn grace(text: &str) -> Result<Duration, String> {
    Ok(duration::parse(text)?.max(KILL_BEFORE))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it must be an IP address and a port, such as 127.0.0.1:4040".to_owned())
}

fn owner(text: &str) -> Result<String, String> {
    if text.contains(char::is_control) {
        return Err("the name must not contain control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// An error would show a part of a list of servers, which can contain a password: it is reported without the text.
fn without_dashes(text: &str) -> Result<String, String> {
    if text.contains("://") || text.contains('@') {
        return Ok(text.to_owned());
    }
    Err(format!("write -- before the command, as in: -- {text}"))
}

impl std::fmt::Display for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the deadline file and the HTTP server name a time to stop at which the command is dead.
    #[test]
    fn a_grace_period_is_not_shorter_than_the_time_between_stop_signal_and_sigkill() {
        for (text, millis) in [("0", 50), ("49ms", 50), ("51ms", 51)] {
            assert_eq!(grace(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert!(grace("5").is_err());
    }

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        assert_eq!(lease("a/b/c"), Ok(Lease { namespace: "a".into(), name: "b/c".into() }));
        for text in ["", "a", "/a", "a/"] {
            assert!(lease(text).unwrap_err().contains("such as shop/nightly-report"), "{text}");
        }
        for text in ["a/b\n", "a\x1b[2J/b", "\u{85}/b"] {
            assert!(lease(text).unwrap_err().contains("control characters"), "{text:?}");
        }
    }
}
