//! A workload that is created again while the lease of the first one stays.
//!
//! `kubectl delete --cascade=orphan` deletes a workload, and takes it from the owners of the lease that the operator has made for it. The
//! pods run on, and so does the term: the cluster holds it. The next workload of the same kind and name adopts the pods, so the term
//! is its own: it runs until the term ends, and is stopped then.
//!
//! If the lease has an earlier workload as its owner, that one was deleted without the option. The garbage collector deletes this lease
//! too, and nothing may start for it.

use crate::api::{RedisLease, names};
use crate::election::WorkloadFacts;
use crate::plan::Facts;
use crate::plan::inputs::Turn;

/// Whether the operator has made the lease for a workload of this kind and name.
pub fn is_made_for(lease: &RedisLease, workload: &WorkloadFacts) -> bool {
    let made_for = names::created_for(&lease.metadata).and_then(|title| title.split_once('/'));
    made_for == Some((workload.kind.as_str(), &workload.name))
}

/// The mark that the lease with this UID writes to a workload.
pub fn owner_of(lease_uid: &str, workload: &WorkloadFacts) -> String {
    format!("{lease_uid}.{}", workload.uid)
}

/// The workload to which a term of an earlier one of its name belongs.
pub fn heir<'a>(turn: &'a Turn<'_>) -> Option<&'a WorkloadFacts> {
    turn.facts.workload().filter(|workload| is_made_for(turn.lease, workload))
}

/// If the candidate is a workload, and the lease belongs to an earlier one of its name: why nothing starts, as a clause.
pub fn waits_for_deletion(facts: &Facts) -> Option<String> {
    let (lease, workload) = (facts.lease.as_ref()?, facts.workload()?);
    let mut owners = lease.metadata.owner_references.iter().flatten();
    let title = (workload.kind.as_str(), workload.name.as_str());
    let is_of_earlier = is_made_for(lease, workload)
        && owners.any(|owner| (owner.kind.as_str(), owner.name.as_str()) == title && owner.uid != workload.uid);
    is_of_earlier.then(|| {
        format!(
            "the RedisLease belongs to an earlier {} {}, which was deleted: no term begins until the garbage collector of Kubernetes \
             has deleted the RedisLease too, and the operator has created another one",
            title.0, title.1
        )
    })
}
