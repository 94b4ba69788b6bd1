//! `--redis` and `--redis-file`, which exclude each other.

use std::env;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

// Without a doc comment, which would be that of the whole program.
#[derive(Debug, Args)]
struct Given {
    /// The URLs of 3 or 5 independent Redis masters, separated by commas: redis://host:port or rediss://host:port, each with a name
    /// before it if wanted, as in a=redis://host:port. Other processes see the command line: keep passwords in --redis-file
    // `--help` would show the passwords in the variable.
    #[arg(
        long,
        env = "REDISLEASE_RUN_REDIS",
        hide_env_values = true,
        value_name = "URLS",
        required_unless_present = "redis_file"
    )]
    redis: Vec<String>,

    /// A file with one URL a line, such as redis://user:password@host:port. Lines that begin with # are ignored
    #[arg(long, env = "REDISLEASE_RUN_REDIS_FILE", value_name = "FILE")]
    redis_file: Option<PathBuf>,
}

/// Where the Redis servers are named. If both are set, that is an error of the user.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The values of `--redis`.
    pub redis: Vec<String>,
    /// The value of `--redis-file`.
    pub redis_file: Option<PathBuf>,
}

impl Args for Servers {
    fn augment_args(command: Command) -> Command {
        Given::augment_args(command).mut_arg("redis", without_empty).mut_arg("redis_file", without_empty)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// An empty variable counts as not set.
fn without_empty(arg: Arg) -> Arg {
    let is_empty = arg.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
    if is_empty { arg.env(None::<&str>) } else { arg }
}

impl FromArgMatches for Servers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let (urls, file) = (is_flag("redis"), is_flag("redis_file"));
        let Given { mut redis, mut redis_file } = Given::from_arg_matches(matches)?;
        // A flag takes the place of a variable, also of that of the other flag.
        if urls && !file {
            redis_file = None;
        } else if file && !urls {
            redis.clear();
        }
        Ok(Self { redis, redis_file })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
