//! The command line: one binary with one module per subcommand.

mod activations;
mod age;
mod client;
mod crds;
mod doctor;
mod handover;
mod operator;
mod output;
mod values;
mod why;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

pub use output::print_error;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Leader election for Kubernetes workloads on a quorum of independent Redis masters, with fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "redislease", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Crds(crds::Crds),
    Doctor(doctor::Doctor),
    Handover(handover::Handover),
    Operator(operator::Operator),
    Run(Box<redislease_run::RunOptions>),
    Why(why::Why),
}

/// The exit code for wrong arguments: `EX_USAGE` of sysexits.h.
const USAGE: i32 = 64;

/// The file name under which kubectl finds the binary as a plugin.
const PLUGIN: &str = "kubectl-redislease";

impl Cli {
    /// Parses a command line, whose first element is the path of the program. Prints help and errors itself and then exits.
    ///
    /// Under the file name `kubectl-redislease`, help and errors call the program `kubectl redislease`.
    pub fn of_command_line(line: impl IntoIterator<Item = OsString>) -> Self {
        Self::from_line(line).unwrap_or_else(|error| {
            // Help and the version are printed to standard output, errors to standard error.
            let _ = error.print();
            std::process::exit(if error.use_stderr() { USAGE } else { 0 })
        })
    }

    fn from_line(line: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let line: Vec<OsString> = line.into_iter().collect();
        let program = line.first().and_then(|path| Path::new(path).file_stem());
        let mut command = Self::command();
        if program == Some(OsStr::new(PLUGIN)) {
            command = command.name("kubectl redislease").bin_name("kubectl redislease");
        }
        let matches = command.try_get_matches_from_mut(line)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Runs the subcommand and returns its exit code.
    ///
    /// # Errors
    /// The subcommand's error message.
    pub fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        match self.command {
            Command::Doctor(command) => return command.run(),
            Command::Run(options) => return Ok(redislease_run::run(*options)),
            Command::Crds(command) => command.run()?,
            Command::Handover(command) => command.run()?,
            Command::Operator(command) => command.run()?,
            Command::Why(command) => command.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn misspelt_subcommand_gets_a_suggestion() {
        let error = Cli::try_parse_from(["redislease", "crd"]).expect_err("no such subcommand");
        let message = error.to_string();
        assert!(message.contains("'crd'"), "{message}");
        assert!(message.contains("'crds'"), "{message}");
    }

    #[test]
    fn help_names_the_kubectl_plugin_if_it_is_called_as_one() {
        let help = |program: &str| {
            let line = [program, "why", "--help"].map(OsString::from);
            Cli::from_line(line).expect_err("help is printed instead").to_string()
        };
        assert!(help("/usr/local/bin/kubectl-redislease").contains("Usage: kubectl redislease why "));
        assert!(help("/usr/local/bin/redislease").contains("Usage: redislease why "));
    }

    #[test]
    fn every_flag_has_an_environment_variable() {
        for command in Cli::command().get_subcommands() {
            let flags = command.get_arguments().filter_map(|flag| Some((flag.get_long()?, flag.get_env())));
            for (name, env) in flags {
                let env = env.and_then(|env| env.to_str()).unwrap_or_default();
                assert!(env.starts_with("REDISLEASE_"), "{} --{name}: {env:?}", command.get_name());
            }
        }
    }
}
