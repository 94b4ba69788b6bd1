//! What the doctor looks at.

use clap::{ArgAction, Args};

use crate::cli::activations::Activations;
use crate::cli::values;

#[derive(Clone, Debug, Default, Args)]
pub(super) struct Scope {
    /// The name of a RedisQuorum. Default: all RedisQuorums in the namespace
    pub quorum: Option<String>,

    /// The operator's namespace, with the RedisQuorums and their Secrets
    #[arg(short, long, env = "REDISLEASE_NAMESPACE", default_value = "redislease-system", value_name = "NAMESPACE", value_parser = values::namespace)]
    pub namespace: String,

    /// The namespaces that the operator watches, separated by commas. Default: all namespaces
    #[arg(long, env = "REDISLEASE_WATCH_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',', value_parser = values::namespace)]
    pub watch_namespaces: Vec<String>,

    /// Whether the operator serves annotated workloads, which needs more rights
    #[arg(long, env = "REDISLEASE_ANNOTATIONS", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub annotations: bool,

    #[command(flatten)]
    pub activations: Activations,

    /// The service account of the operator, whose rights are checked. This needs the right to create SubjectAccessReviews.
    /// Default: the identity that runs this command
    #[arg(long, env = "REDISLEASE_DOCTOR_SERVICE_ACCOUNT", value_name = "NAME")]
    pub service_account: Option<String>,
}
