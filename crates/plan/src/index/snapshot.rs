//! What the index knows about one lease.

use std::sync::Arc;

use crate::api::RedisLease;
use crate::election::{PodFacts, WorkloadFacts};
use crate::plan::{CandidateFacts, PodKnowledge, QuorumFacts, SpecFacts};

/// The facts in the index for one turn of a lease.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The newest version of the resource; `None` if it is deleted.
    pub lease: Option<Arc<RedisLease>>,
    /// Whether another lease has the name now.
    pub has_successor: bool,
    /// The spec that the lease uses.
    pub spec: SpecFacts,
    /// The quorum that the lease names.
    pub quorum: Arc<QuorumFacts>,
    /// The pods that its selector matches.
    pub candidates: CandidateFacts,
    /// Pods that carry its label or token and are not candidates.
    pub strays: Vec<Arc<PodFacts>>,
    /// Workloads that carry its label or annotations and are not its candidate.
    pub stray_workloads: Vec<Arc<WorkloadFacts>>,
    /// The pod that [`Index::set_holder`](super::Index::set_holder) named.
    pub holder: PodKnowledge,
    /// Whether the pods have been listed once.
    pub pods_listed: bool,
}
