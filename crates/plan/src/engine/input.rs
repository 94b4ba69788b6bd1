//! The inputs of the engine.

use std::sync::Arc;

use redislease_core::time::Time;

use super::refused::OrphanKey;
use crate::annotations::Problem;
use crate::api::RedisLease;
use crate::election::PodFacts;
use crate::index::{LeaseId, NamespaceFacts, Watched, WorkloadChange, WorkloadFound, WorkloadKey};
use crate::plan::calls::{Outcome, RoleAnswer};
use crate::plan::{Authority, News, QuorumFacts};

/// One thing that happened.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Input {
    /// From the watch of leases.
    Lease(Watched<RedisLease>),
    /// From the watch of pods.
    Pod(Watched<PodFacts>),
    /// From the watch of namespaces.
    Namespace(Watched<NamespaceFacts>),
    /// The facts about a quorum have changed.
    Quorum {
        name: String,
        /// `None` if there is no such resource.
        facts: Option<Arc<QuorumFacts>>,
        /// The authority of this process over its leases.
        authority: Authority,
    },
    /// Every RedisQuorum that existed at the start has been read.
    QuorumsRead,
    /// The authority of this process over the leases of this quorum has changed.
    Authority(String, Authority),
    /// The answer to a request of a lease.
    Answer {
        lease: LeaseId,
        /// The incarnation of the lease's machine that sent the request.
        incarnation: u32,
        answer: Outcome,
    },
    /// The API server has answered a call, after [`super::Effect::AwaitAnswer`].
    ApiAnswered,
    /// The watch of the metadata of workloads has shown a change.
    WorkloadChanged(WorkloadChange),
    /// The result of reading a workload.
    Workload(WorkloadKey, WorkloadFound),
    /// The result of removing the role of a lease that does not exist.
    OrphanWritten(OrphanKey, RoleAnswer),
    /// The keeper of a lease has a new view.
    Shown(LeaseId),
    /// A mistake on a pod was not reported, because too many were reported on pods lately.
    ReportRefused {
        /// The pod's UID.
        pod: String,
        problem: Problem,
    },
    /// A turn of a lease, or one of its effects, panicked.
    Panicked {
        lease: LeaseId,
        /// The message of the panic.
        message: String,
    },
    /// A deadline has passed.
    Wake,
}

/// What a turn of a lease uses beside the facts of the index.
#[derive(Debug)]
pub struct Surroundings {
    /// What is new in the views of the lease's keeper.
    pub news: News,
    /// The authority of this process over the leases of the quorum.
    pub authority: Authority,
    /// How often it has gained the right to decide about them.
    pub authority_gains: u32,
    /// When a call to the API server was last answered.
    pub api_answered_at: Option<Time>,
    /// Unix time.
    pub wall: jiff::Timestamp,
}
