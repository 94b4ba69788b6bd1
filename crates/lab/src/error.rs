//! Errors of the lab. Each message says what happened and, where possible, what to do.

use std::{fmt, path::PathBuf, process::ExitStatus, time::Duration};

/// The result of the functions of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a server or tool that a test or the demo uses.
#[derive(thiserror::Error)]
pub enum Error {
    /// A tool has not been built or installed yet.
    #[error("{tool} is missing (looked for {}): run `make tools`", path.display())]
    MissingTool {
        /// Name of the binary.
        tool: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// An operation of the operating system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was attempted, in words that complete "cannot ...".
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A server exited by itself.
    #[error("{process} ended with {status}; its last lines:\n{log}")]
    Exited {
        /// Name of the server.
        process: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// A server runs, but did not reach the expected state in time.
    #[error(
        "{process} is not ready after {} s ({last}); its last lines:\n{log}",
        waited.as_secs()
    )]
    NotReady {
        /// Name of the server.
        process: String,
        /// How long the caller waited.
        waited: Duration,
        /// The last answer that was not the expected one.
        last: String,
        /// The end of its log.
        log: String,
    },
    /// The installation has no proxies, so no connection can be cut.
    #[error("the operators are not connected through proxies: set InstallationOptions::proxied")]
    NoProxies,
    /// The process has no machine of its own, so no suspend of it can be simulated.
    #[error("{process} cannot be suspended: set InstallationOptions::suspendable, or use Process::on_machine")]
    NotSuspendable {
        /// Name of the server.
        process: String,
    },
    /// The server does not run, so it can receive no request and no signal.
    #[error("{process} is not running: start it first")]
    NotRunning {
        /// Name of the server.
        process: String,
    },
    /// A Redis server answered with an error, or not at all.
    #[error("redis at {address}: {command}: {message}")]
    Redis {
        /// Host and port.
        address: String,
        /// The command's name.
        command: String,
        /// The server's or the system's answer.
        message: String,
    },
    /// A command line tool failed.
    #[error("`{command}` ended with {status}: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// An HTTP request failed: another status code than expected, or no answer.
    #[error("GET {url}: {message}")]
    Answer {
        /// The path that was requested.
        url: String,
        /// The answer, or why there is none.
        message: String,
    },
    /// A call of the API server failed.
    #[error("cannot {doing}: {message}")]
    Call {
        /// What was attempted, in words that complete "cannot ...".
        doing: String,
        /// The refusal, or why there is no answer.
        message: String,
    },
    /// A condition was not met in time.
    #[error("not within {} s: {what}; last seen: {last}\n{context}", waited.as_secs())]
    NotInTime {
        /// The condition, in words that follow "not within 10 s".
        what: String,
        /// How long the caller waited.
        waited: Duration,
        /// What was observed last.
        last: String,
        /// The last lines of the operators' logs.
        context: String,
    },
    /// The paths of Unix sockets in this folder would be longer than the kernel allows.
    #[error("{} is {excess} bytes too long for Unix sockets: set TMPDIR to a shorter folder", folder.display())]
    LongFolder {
        /// The temporary folder.
        folder: PathBuf,
        /// By how many bytes.
        excess: usize,
    },
    /// A key or certificate could not be created.
    #[error("cannot create the certificates of the control plane: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// For the error of a test, which is printed with `Debug`: shows the message with its line breaks.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For a condition that is not met yet: why.
impl From<Error> for String {
    fn from(error: Error) -> Self {
        error.to_string()
    }
}

impl Error {
    /// Creates an [`Error::Io`] in `map_err`. `doing` completes the sentence "cannot ...".
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// A step that took longer than `waited`; `last` is what was seen then.
    pub(crate) fn not_in_time(what: impl Into<String>, waited: Duration, last: impl Into<String>) -> Self {
        Self::NotInTime { what: what.into(), waited, last: last.into(), context: String::new() }
    }

    /// Whether the log says that another process took the port before the server could bind it.
    pub(crate) fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Exited { log, .. } if log.to_lowercase().contains("address already in use"))
    }
}
