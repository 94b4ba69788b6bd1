//! Pods and workloads that carry marks of leases that do not exist or could not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Index;
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

impl Index {
    /// Pods and workloads that carry a mark of a lease that does not exist or could not be read.
    pub fn orphans(&self) -> Vec<Orphan> {
        let of_pods =
            self.pods.namespaces().flat_map(|(namespace, pods)| pods.orphans().map(move |lease| (namespace, lease)));
        let names: BTreeSet<(&Arc<str>, &str)> = of_pods.chain(self.workloads.markers()).collect();
        names.into_iter().flat_map(|(namespace, lease)| self.orphans_of(namespace, lease)).collect()
    }

    /// Those of this lease. A lease that is being finalized removes its own marks.
    pub fn orphans_of(&self, namespace: &Arc<str>, lease: &str) -> Vec<Orphan> {
        let pods = self.pods.namespace(namespace);
        if pods.is_some_and(|pods| pods.names.contains_key(lease)) {
            return Vec::new();
        }
        let unreadable = self.leases.unreadable.contains(&(namespace.clone(), lease.to_owned()));
        let of_pods = pods.map(|pods| pods.strays(lease, None)).unwrap_or_default().into_iter().map(Candidate::Pod);
        let of_workloads = self.workloads.strays(namespace, lease, None).into_iter().map(Candidate::Workload);
        let orphan = |object| Orphan { object, lease: lease.to_owned(), unreadable };
        of_pods.chain(of_workloads).map(orphan).collect()
    }

    /// The mark that this object still carries for a lease that does not exist or could not be read.
    pub fn orphan(&self, namespace: &Arc<str>, lease: &str, uid: &str) -> Option<Orphan> {
        let pods = self.pods.namespace(namespace);
        if pods.is_some_and(|pods| pods.names.contains_key(lease)) {
            return None;
        }
        let of_pods = pods.and_then(|pods| pods.stray(lease, uid)).map(Candidate::Pod);
        let object = of_pods.or_else(|| {
            let mut workloads = self.workloads.strays(namespace, lease, None).into_iter();
            workloads.find(|workload| workload.uid == uid).map(Candidate::Workload)
        })?;
        let unreadable = self.leases.unreadable.contains(&(namespace.clone(), lease.to_owned()));
        Some(Orphan { object, lease: lease.to_owned(), unreadable })
    }
}
