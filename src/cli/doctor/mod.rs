//! `redislease doctor`: checks everything that leases depend on, and says what to do about each fault.
//!
//! | module | concept |
//! |---|---|
//! | [`certificates`] | how long certificates are still valid (pure) |
//! | [`collect`] | reads the facts from the API server and the Redis nodes |
//! | [`facts`] | the facts |
//! | [`leases`] | reads the leases |
//! | [`rights`] | the rights that the operator needs |
//! | [`judge`] | turns facts into findings (pure) |
//! | [`finding`] | findings, the exit code and the output |

mod certificates;
mod collect;
mod facts;
mod finding;
mod judge;
mod leases;
mod rights;
mod scope;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::cli::client::{self, Outcome};
use crate::cli::output;
use scope::Scope;

/// Check the cluster, the rights of the operator and the Redis nodes, and say what to do about each fault.
///
/// It connects to the Redis nodes as the operator does, so it needs access to them and the right to read the RedisQuorums and
/// their Secrets. On each node, it tries the commands that leases need on a key that expires within 2 s.
///
/// Exit codes: 0 no problem, 1 problems, 2 no problem was found but something could not be checked, 64 wrong arguments.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    scope: Scope,

    /// The output format
    #[arg(short, long, env = "REDISLEASE_DOCTOR_OUTPUT", value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line per check
    #[default]
    Table,
    /// A JSON list
    Json,
}

impl Doctor {
    /// Returns the exit code, also if the reader of the output has closed the pipe.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn run(self) -> Outcome<ExitCode> {
        let facts = client::run(async { Ok(collect::collect(&self.scope).await) })?;
        let findings = judge::judge(&facts);
        output::print(|out| match self.output {
            Output::Table => finding::print_table(&findings, out),
            Output::Json => output::json(&findings, out),
        })?;
        Ok(finding::exit_code(&findings).into())
    }
}
