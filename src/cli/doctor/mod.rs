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

use clap::{ArgAction, Args, ValueEnum};

use crate::cli::activations::Activations;
use crate::cli::client::{self, Outcome};
use crate::cli::{output, values};
use scope::Scope;

/// Check the cluster, the rights of the operator and the Redis nodes, and say what to do about each fault.
///
/// It connects to the Redis nodes as the operator does, so it needs access to them and the right to read the RedisQuorums and
/// their Secrets. On each node, it tries the commands that leases need on a key that expires within 2 s.
///
/// Exit codes: 0 no problem, 1 problems, 2 no problem was found but something could not be checked, 64 wrong arguments.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The name of a RedisQuorum. Default: all RedisQuorums in the namespace
    quorum: Option<String>,

    /// The operator's namespace, with the RedisQuorums and their Secrets
    #[arg(short, long, env = "REDISLEASE_NAMESPACE", default_value = "redislease-system", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: String,

    /// The namespaces that the operator watches, separated by commas. Default: all namespaces
    #[arg(long, env = "REDISLEASE_WATCH_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',', value_parser = values::namespace)]
    watch_namespaces: Vec<String>,

    /// Whether the operator serves annotated workloads, which needs more rights
    #[arg(long, env = "REDISLEASE_ANNOTATIONS", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    annotations: bool,

    #[command(flatten)]
    activations: Activations,

    /// The service account of the operator, whose rights are checked. This needs the right to create SubjectAccessReviews.
    /// Default: the identity that runs this command
    #[arg(long, env = "REDISLEASE_DOCTOR_SERVICE_ACCOUNT", value_name = "NAME")]
    service_account: Option<String>,

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
        let scope = Scope {
            namespace: self.namespace,
            watched: self.watch_namespaces.into_iter().filter(|namespace| !namespace.is_empty()).collect(),
            annotations: self.annotations,
            allowed: self.activations.into(),
            quorum: self.quorum,
            service_account: self.service_account,
        };
        let facts = client::run(async { Ok(collect::collect(&scope).await) })?;
        let findings = judge::judge(&facts);
        output::print(|out| match self.output {
            Output::Table => finding::print_table(&findings, out),
            Output::Json => output::json(&findings, out),
        })?;
        Ok(finding::exit_code(&findings).into())
    }
}
