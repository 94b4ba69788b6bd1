//! The command line: one binary with one module per subcommand.

mod crds;
mod doctor;
mod operator;
mod status;
mod values;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Operator(operator::Operator),
    Status(status::Status),
}

impl Cli {
    /// Runs the subcommand and returns its exit code.
    ///
    /// # Errors
    /// The subcommand's error message.
    pub fn run(self) -> Result<ExitCode, Box<dyn Error>> {
        match self.command {
            Command::Doctor(command) => return command.run(),
            Command::Crds(command) => command.run()?,
            Command::Operator(command) => command.run()?,
            Command::Status(command) => command.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

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
    fn every_flag_has_an_environment_variable() {
        for command in Cli::command().get_subcommands() {
            let flags = command.get_arguments().filter_map(|flag| Some((flag.get_long()?, flag.get_env())));
            for (name, env) in flags {
                let env = env.and_then(|env| env.to_str()).unwrap_or_default();
                assert!(env.starts_with("REDISLEASE_"), "{} --{name}: {env:?}", command.get_name());
            }
        }
    }

    /// The rows of the table of flags in the README, generated from the flags.
    fn rows(subcommand: &str) -> Vec<String> {
        let command = Cli::command();
        let flags = command.find_subcommand(subcommand).expect("the subcommand").get_arguments();
        flags
            .filter_map(|flag| {
                let (name, env) = (flag.get_long()?, flag.get_env()?.to_str()?);
                let default = match flag.get_default_values() {
                    [] => "-".to_owned(),
                    [value] if value.is_empty() => "empty".to_owned(),
                    [value, ..] => format!("`{}`", value.to_string_lossy()),
                };
                let help = flag.get_help()?;
                Some(format!("| `--{name}` | `{env}` | {default} | {help} |"))
            })
            .collect()
    }

    #[test]
    fn readme_lists_the_operator_flags() {
        let readme = include_str!("../../README.md");
        let listed: Vec<_> = readme.lines().filter(|line| line.starts_with("| `--")).collect();
        let rows = rows("operator");
        assert!(listed == rows, "the table in README.md should be\n{}", rows.join("\n"));
    }
}
