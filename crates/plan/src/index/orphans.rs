//! Pods and workloads that carry marks of leases that do not exist or could not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::leases::Leases;
use super::pods::Pods;
use super::workloads::Workloads;
use crate::election::Candidate;

/// A pod or workload that carries a role or a token of a lease that does not exist, or cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Orphan {
    /// The pod or workload.
    pub object: Candidate,
    /// The name of the lease.
    pub lease: String,
    /// Whether the lease exists and could not be read.
    pub unreadable: bool,
}

/// The names of all leases of which pods or workloads carry a mark that nobody removes.
pub(super) fn names<'a>(pods: &'a Pods, workloads: &'a Workloads) -> BTreeSet<(&'a Arc<str>, &'a str)> {
    let of_pods = pods.namespaces().flat_map(|(namespace, pods)| pods.orphans().map(move |lease| (namespace, lease)));
    of_pods.chain(workloads.markers()).collect()
}

/// Those of one lease. A lease that is being finalized removes its own marks.
pub(super) fn of(
    (namespace, lease): (&Arc<str>, &str),
    pods: &Pods,
    workloads: &Workloads,
    leases: &Leases,
) -> Vec<Orphan> {
    let pods = pods.namespace(namespace);
    if pods.is_some_and(|pods| pods.names.contains_key(lease)) {
        return Vec::new();
    }
    let unreadable = leases.unreadable.contains(&(namespace.clone(), lease.to_owned()));
    let of_pods = pods.map(|pods| pods.strays(lease, None)).unwrap_or_default().into_iter().map(Candidate::Pod);
    let of_workloads = workloads.strays(namespace, lease, None).into_iter().map(Candidate::Workload);
    let orphan = |object| Orphan { object, lease: lease.to_owned(), unreadable };
    of_pods.chain(of_workloads).map(orphan).collect()
}
