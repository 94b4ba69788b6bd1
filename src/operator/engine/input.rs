//! The inputs of the engine, and its interface to the other modules.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::op::Token;
use redislease_core::time::Time;
use redislease_plan::api::RedisLease;
use redislease_plan::election::PodFacts;
use redislease_plan::index::{LeaseId, NamespaceFacts, WorkloadChange, WorkloadFound, WorkloadKey};
use redislease_plan::plan::calls::{Outcome, RoleAnswer};
use redislease_plan::plan::{Allowed, Authority, Effect, Event, Identity, PermitUses, Reconciler, RoleWrite};

use super::mistakes::PodName;
use crate::operator::quorums::QuorumUpdate;
use crate::operator::slot::News;
use redislease_plan::annotations::Problem;

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// From the watch of leases.
    Lease(Watched<RedisLease>),
    /// From the watch of pods.
    Pod(Watched<PodFacts>),
    /// From the watch of namespaces.
    Namespace(Watched<NamespaceFacts>),
    /// The facts about a quorum have changed.
    Quorum(QuorumUpdate),
    /// Every RedisQuorum that existed at the start has been read.
    QuorumsRead,
    /// The [`Authority`] of this process over the leases of this quorum has changed.
    Authority(String),
    /// The answer to a request of a lease.
    Answer {
        /// The lease.
        lease: LeaseId,
        /// The incarnation of the lease's machine that sent the request.
        incarnation: u32,
        /// The answer.
        answer: Outcome,
    },
    /// The API server has answered a call, after [`Outside::await_answer`].
    ApiAnswered,
    /// The watch of the metadata of workloads has shown a change.
    WorkloadChanged(WorkloadChange),
    /// The result of reading a workload.
    Workload(WorkloadKey, WorkloadFound),
    /// The result of removing the role of a lease that does not exist.
    OrphanWritten {
        /// The pod's namespace.
        namespace: Arc<str>,
        /// The pod's UID.
        pod: String,
        /// The name of the lease.
        lease: String,
        /// The answer.
        answer: RoleAnswer,
    },
}

/// One event of a watch.
#[derive(Debug)]
pub enum Watched<K> {
    /// A list begins.
    ListBegins,
    /// The object exists.
    Seen(Box<K>),
    /// The object exists and cannot be read.
    Unreadable(Box<ObjectMeta>),
    /// The last event of an object.
    Deleted(Box<K>),
    /// The last event of an object that cannot be read.
    DeletedUnreadable(Box<ObjectMeta>),
    /// The list is complete.
    ListEnds,
}

impl<K> Watched<K> {
    /// The same event with facts about the object.
    pub fn map<F>(&self, facts: impl Fn(&K) -> F) -> Watched<F> {
        match self {
            Self::ListBegins => Watched::ListBegins,
            Self::Seen(object) => Watched::Seen(Box::new(facts(object))),
            Self::Unreadable(metadata) => Watched::Unreadable(metadata.clone()),
            Self::Deleted(object) => Watched::Deleted(Box::new(facts(object))),
            Self::DeletedUnreadable(metadata) => Watched::DeletedUnreadable(metadata.clone()),
            Self::ListEnds => Watched::ListEnds,
        }
    }
}

/// The lease that an effect applies to.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub id: LeaseId,
    pub incarnation: u32,
    pub namespace: &'a Arc<str>,
    pub name: &'a str,
    pub uid: &'a str,
    pub quorum: &'a str,
    /// The resource, if it exists.
    pub object: Option<&'a Arc<RedisLease>>,
}

/// The engine's interface to clocks, keepers, the writer and metrics. No method blocks.
pub trait Outside {
    /// Now.
    fn now(&self) -> Time;
    /// Unix time.
    fn wall(&self) -> jiff::Timestamp;
    /// When a call to the API server was last answered.
    fn api_answered_at(&self) -> Option<Time>;
    /// Asks for [`Input::ApiAnswered`] after the next answer of the API server.
    fn await_answer(&mut self);
    /// Records how many leases wait for a permit to acquire a term.
    fn attempts_wait(&mut self, leases: usize);
    /// The authority of this process over the leases of a quorum.
    fn authority(&self, quorum: &str) -> Authority;
    /// Takes what is new in the view of the lease's machine.
    fn news(&mut self, lease: LeaseId) -> News;
    /// Carries out one effect.
    fn carry_out(&mut self, lease: Subject<'_>, effect: Effect);
    /// Removes the metrics of a lease: its resource is deleted, or another replica leads and exports them.
    fn hide(&mut self, lease: LeaseId);
    /// Removes the lease and closes its machine.
    fn forget(&mut self, lease: LeaseId);
    /// Records the duration of a turn, and whether it panicked.
    fn turned(&mut self, took: Duration, panicked: bool);
    /// Reads a workload: answered by [`Input::Workload`].
    fn read_workload(&mut self, key: WorkloadKey);
    /// Writes the role of a lease that does not exist: answered by [`Input::OrphanWritten`].
    fn write_orphan(&mut self, namespace: &str, lease: &str, write: RoleWrite);
    /// Which ways of activation the operator may use.
    fn allowed(&self) -> Allowed;
    /// Reports a mistake on a lease.
    fn report_on_lease(&mut self, lease: Subject<'_>, problem: &Problem);
    /// Reports a mistake on a pod. Returns `false` if too many mistakes were reported on pods lately.
    fn report_on_pod(&mut self, pod: PodName<'_>, problem: &Problem) -> bool;
    /// Takes the connections of a quorum that was opened or replaced.
    fn quorum(&mut self, update: &QuorumUpdate);
    /// Raises the least token of this quorum to a token that a status on it shows.
    fn raise_floor(&mut self, quorum: &str, token: Token);
    /// All leases are listed, so the greatest token of each quorum is complete.
    fn floors_complete(&mut self);
}

/// The state machine that decides about one lease.
pub trait Machine {
    fn new(identity: Identity) -> Self;
    fn handle(&mut self, now: Time, event: Event);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn next_deadline(&self) -> Option<Time>;
    /// Name and UID of the holder's pod.
    fn holder(&self) -> Option<(String, String)>;
    fn awaits_api_answer(&self) -> bool;
    fn permit_uses(&self) -> PermitUses;
    fn is_finished(&self) -> bool;
}

impl Machine for Reconciler {
    fn new(identity: Identity) -> Self {
        Self::new(identity)
    }

    fn handle(&mut self, now: Time, event: Event) {
        self.handle(now, event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.poll_effect()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next_deadline()
    }

    fn holder(&self) -> Option<(String, String)> {
        self.holder()
    }

    fn awaits_api_answer(&self) -> bool {
        self.awaits_api_answer()
    }

    fn permit_uses(&self) -> PermitUses {
        self.permit_uses()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}
