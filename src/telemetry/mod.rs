//! What the process logs, and how: to standard error, one line an event.

use std::fmt;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

const DEFAULT_LEVEL: &str = "info,kube_client=off";

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// The flags of the log, for every subcommand that runs on.
#[derive(Clone, Debug, Args)]
pub struct LogOptions {
    /// How a line of the log looks.
    #[arg(long, env = "REDISLEASE_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What is logged: a level (error, warn, info, debug, trace), or levels by module as in `info,redislease::nodes=debug`.
    #[arg(long, env = "REDISLEASE_LOG_LEVEL", default_value = DEFAULT_LEVEL, value_name = "FILTER")]
    pub log_level: String,
}

/// The log could not be set up.
#[derive(Debug)]
pub enum LogError {
    /// The filter cannot be read.
    Filter {
        /// What was given.
        given: String,
        /// What is wrong with it.
        error: tracing_subscriber::filter::ParseError,
    },
    /// A part of the filter is neither a level nor a module with its level: it would silence everything else.
    Word {
        /// What was given.
        given: String,
        /// The part.
        word: String,
    },
    /// The process has a log already.
    Twice,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter { given, error } => write!(
                f,
                "--log-level {given:?} is no filter ({error}): give a level (error, warn, info, debug, trace), \
                 or levels by module as in info,redislease::nodes=debug"
            ),
            Self::Word { given, word } => write!(
                f,
                "--log-level {given:?}: {word:?} is no level: give one (error, warn, info, debug, trace, off), \
                 or levels by module as in info,redislease::nodes=debug"
            ),
            Self::Twice => f.write_str("the log is set up twice"),
        }
    }
}

impl std::error::Error for LogError {}

impl LogOptions {
    /// Begins to log, for the rest of the process.
    ///
    /// # Errors
    /// When the filter cannot be read, or the process logs already.
    pub fn start(&self) -> Result<(), LogError> {
        self.subscriber(std::io::stderr)?.try_init().map_err(|_| LogError::Twice)
    }

    fn subscriber<W>(&self, writer: W) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        // A variable that is set to nothing is one that is not set.
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
