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

/// Whether the candidate is a workload, and the lease belongs to an earlier one of its name.
pub fn is_of_earlier(facts: &Facts) -> bool {
    let (Some(lease), Some(workload)) = (&facts.lease, facts.workload()) else { return false };
    let mut owners = lease.metadata.owner_references.iter().flatten();
    let title = (workload.kind.as_str(), workload.name.as_str());
    is_made_for(lease, workload)
        && owners.any(|owner| (owner.kind.as_str(), owner.name.as_str()) == title && owner.uid != workload.uid)
}
