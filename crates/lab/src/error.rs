//! What can go wrong when servers are started for a test, each with what to do about it.

use std::{fmt, path::PathBuf, process::ExitStatus, time::Duration};

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server did not do what the test or the demo asked of it.
#[derive(thiserror::Error)]
pub enum Error {
    /// A tool has not been built or installed yet.
    #[error("{tool} is missing (looked for {}): run `make tools`", path.display())]
    MissingTool {
        /// Name of the binary.
        tool: &'static str,
        /// Where it would be.
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
    /// A server ended by itself.
    #[error("{process} ended with {status}; its last lines:\n{log}")]
    Exited {
        /// Name of the server.
        process: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// A server runs but did not reach the expected state in time.
    #[error(
        "{process} is not ready after {} s ({last}); its last lines:\n{log}",
        waited.as_secs()
    )]
    NotReady {
        /// Name of the server.
        process: String,
        /// How long it was waited for.
        waited: Duration,
        /// The last answer that was not the expected one.
        last: String,
        /// The end of its log.
        log: String,
    },
    /// The server is not running, so it cannot be asked or signalled.
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
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A server answered over HTTP with something else than what was asked for, or not at all.
    #[error("GET {url}: {message}")]
    Answer {
        /// What was asked for.
        url: String,
        /// The answer, or why there is none.
        message: String,
    },
    /// Something that was waited for did not come true.
    #[error("not within {} s: {what}; last seen: {last}\n{context}", waited.as_secs())]
    NotInTime {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// What was seen instead.
        last: String,
        /// The ends of the operators' logs.
        context: String,
    },
    /// Unix sockets in this folder would have longer names than the kernel takes.
    #[error("{} is {excess} bytes too long for Unix sockets: set TMPDIR to a shorter folder", folder.display())]
    LongFolder {
        /// The temporary folder.
        folder: PathBuf,
        /// By how many bytes.
        excess: usize,
    },
    /// A key or certificate could not be made.
    #[error("cannot make the control plane's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// A test that fails with an error shows it like this: as the sentence, with the lines of a log as lines.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err`: the operation that failed, in words that complete "cannot ...".
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// Whether the log says that a port was taken between the probe and the bind.
    pub(crate) fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Exited { log, .. } if log.to_lowercase().contains("address already in use"))
    }
}
