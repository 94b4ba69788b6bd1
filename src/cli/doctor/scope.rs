//! What the doctor looks at.

use redislease_plan::plan::Allowed;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// The operator's namespace.
    pub namespace: String,
    /// The namespaces of leases; none means all.
    pub watched: Vec<String>,
    /// Whether annotated workloads get leases.
    pub annotations: bool,
    /// Which ways of activation the operator may use.
    pub allowed: Allowed,
    /// The only quorum to look at.
    pub quorum: Option<String>,
    /// The service account whose rights are checked; `None` for those of this process.
    pub service_account: Option<String>,
}
