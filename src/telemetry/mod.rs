//! The log: one line per event, on standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

const DEFAULT_LEVEL: &str = "info,kube_client=off,kube_runtime=off";

/// Which filters are valid.
const LEVELS: &str =
    "(error, warn, info, debug, trace, off), or levels by module such as info,redislease_lock::nodes=debug";

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

impl LogOptions {
    /// Sets up the log of this process.
    ///
    /// # Errors
    /// If the filter is invalid, or if the log was set up before.
    pub(crate) fn start(&self) -> Result<(), String> {
        self.subscriber(std::io::stderr)?.try_init().map_err(|_| "the log is set up already".to_owned())
    }

    fn subscriber<W>(&self, writer: W) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, String>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        // An empty environment variable means the default.
        let level = if self.log_level.trim().is_empty() { DEFAULT_LEVEL } else { &self.log_level };
        let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
        // The log library would accept such a word as the name of a module, and then disable all other modules.
        if let Some(word) = level.split(',').map(str::trim).find(|word| !word.contains(['=', '[']) && !is_level(word)) {
            return Err(format!("--log-level {level:?}: {word:?} is not a level: use one {LEVELS}"));
        }
        let filter = EnvFilter::builder()
            .parse(level)
            .map_err(|error| format!("--log-level {level:?} is not a valid filter ({error}): use a level {LEVELS}"))?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        Ok(match self.log_format {
            LogFormat::Text => Box::new(log.with_ansi(false).finish()),
            LogFormat::Json => Box::new(log.json().flatten_event(true).finish()),
        })
    }
}

#[cfg(test)]
mod tests;
