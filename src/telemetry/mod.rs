//! The log: one line per event, on standard error.

use std::fmt;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

const DEFAULT_LEVEL: &str = "info,kube_client=off";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// The flags for the log, for long-running subcommands.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogOptions {
    /// The format of log lines: text or json
    #[arg(long, env = "REDISLEASE_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// The log filter: a level (error, warn, info, debug, trace, off), or levels by module such as `info,redislease_lock::nodes=debug`
    #[arg(long, env = "REDISLEASE_LOG_LEVEL", default_value = DEFAULT_LEVEL, value_name = "FILTER")]
    pub(crate) log_level: String,
}

/// Why the log could not be set up.
#[derive(Debug)]
pub(crate) enum LogError {
    /// The filter cannot be parsed.
    Filter {
        /// The filter.
        given: String,
        /// The parse error.
        error: tracing_subscriber::filter::ParseError,
    },
    /// A part of the filter is neither a level nor a module with a level. The log library would accept it as the name of a module,
    /// and then disable all other modules.
    Word {
        /// The filter.
        given: String,
        /// The invalid part.
        word: String,
    },
    /// The log was set up before.
    Twice,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter { given, error } => write!(
                f,
                "--log-level {given:?} is not a valid filter ({error}): use a level (error, warn, info, debug, trace, off), \
                 or levels by module such as info,redislease_lock::nodes=debug"
            ),
            Self::Word { given, word } => write!(
                f,
                "--log-level {given:?}: {word:?} is not a level: use one (error, warn, info, debug, trace, off), \
                 or levels by module such as info,redislease_lock::nodes=debug"
            ),
            Self::Twice => f.write_str("the log is set up already"),
        }
    }
}

impl std::error::Error for LogError {}

impl LogOptions {
    /// Sets up the log of this process.
    ///
    /// # Errors
    /// If the filter is invalid, or if the log was set up before.
    pub(crate) fn start(&self) -> Result<(), LogError> {
        self.subscriber(std::io::stderr)?.try_init().map_err(|_| LogError::Twice)
    }

    fn subscriber<W>(&self, writer: W) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        // An empty environment variable means the default.
        let level = if self.log_level.trim().is_empty() { DEFAULT_LEVEL } else { &self.log_level };
        let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
        if let Some(word) = level.split(',').map(str::trim).find(|word| !word.contains(['=', '[']) && !is_level(word)) {
            return Err(LogError::Word { given: level.to_owned(), word: word.to_owned() });
        }
        let filter = EnvFilter::builder()
            .parse(level)
            .map_err(|error| LogError::Filter { given: self.log_level.clone(), error })?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        Ok(match self.log_format {
            LogFormat::Text => Box::new(log.with_ansi(false).finish()),
            LogFormat::Json => Box::new(log.json().flatten_event(true).finish()),
        })
    }
}

#[cfg(test)]
mod tests;
