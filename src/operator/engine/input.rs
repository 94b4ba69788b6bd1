//! What the engine is told, and what it needs beside it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::op::Token;
use redislease_core::time::Time;

use crate::api::RedisLease;
use crate::election::PodFacts;
use crate::operator::index::{LeaseId, WorkloadKey, WorkloadRead};
use crate::operator::quorums::QuorumUpdate;
use crate::operator::slot::News;
use crate::operator::writer::{PodFound, RoleAnswer};
use crate::plan::{Authority, Effect, Event, Identity, Reconciler, RoleWrite, StatusOutcome};

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// From the watch of leases.
    Lease(Watched<RedisLease>),
    /// From the watch of pods.
    Pod(Watched<PodFacts>),
    /// What leases know of a quorum has changed.
    Quorum(QuorumUpdate),
    /// Every quorum that existed at the start is known.
    QuorumsRead,
    /// What this process may decide about the leases of this quorum has changed.
    Authority(String),
    /// An answer to what a lease asked for.
    Answer {
        /// The lease.
        lease: LeaseId,
        /// Which of its machines asked.
        incarnation: u32,
        /// The answer.
        answer: Answer,
    },
    /// The API server has answered a call, as [`Outside::await_answer`] asked to be told.
    ApiAnswered,
    /// What the read of a workload found.
    Workload(WorkloadKey, WorkloadRead),
    /// What became of removing the role of a lease that does not exist.
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

/// An answer to what a lease asked for.
#[derive(Debug)]
pub enum Answer {
    /// To a status write.
    Status(StatusOutcome),
    /// To a read of the lease.
    Lease(Result<Option<Arc<RedisLease>>, String>),
    /// To a read of the pod with this UID.
    Holder(String, Result<PodFound, String>),
    /// Whether the Kubernetes node is off on which the pod with this UID ran.
    Node(String, Result<bool, String>),
    /// To a role write on the pod with this UID.
    Role(String, RoleAnswer),
}

/// A lease to whose effects something is done.
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

/// Everything around the engine: clocks, keepers, the writer, metrics. Nothing here waits.
pub trait Outside {
    /// Now.
    fn now(&self) -> Time;
    /// Unix time.
    fn wall(&self) -> jiff::Timestamp;
    /// When a call to the API server was last answered.
    fn api_answered_at(&self) -> Option<Time>;
    /// Asks for [`Input::ApiAnswered`] after the next answer of the API server.
    fn await_answer(&mut self);
    /// What this process may decide now about the leases of a quorum.
    fn authority(&self, quorum: &str) -> Authority;
    /// Takes what the machine of a lease shows.
    fn news(&mut self, lease: LeaseId) -> News;
    /// Carries out one effect.
    fn carry_out(&mut self, lease: Subject<'_>, effect: Effect);
    /// The series of a lease vanish: its resource is gone, or another replica leads and exports them.
    fn hide(&mut self, lease: LeaseId);
    /// The lease is forgotten; its machine is closed.
    fn forget(&mut self, lease: LeaseId);
    /// A turn took so long, and panicked or not.
    fn turned(&mut self, took: Duration, panicked: bool);
    /// Reads a workload: answered by [`Input::Workload`].
    fn read_workload(&mut self, key: WorkloadKey);
    /// Writes the role of a lease that does not exist: answered by [`Input::OrphanWritten`].
    fn write_orphan(&mut self, namespace: &str, lease: &str, write: RoleWrite);
    /// Takes the connections of a quorum that was opened or replaced.
    fn quorum(&mut self, update: &QuorumUpdate);
    /// A status on this quorum has shown this token.
    fn raise_floor(&mut self, quorum: &str, token: Token);
    /// All leases were listed: the greatest token of each quorum is known.
    fn floors_complete(&mut self);
}

/// What decides about one lease.
pub trait Machine {
    fn new(identity: Identity) -> Self;
    fn handle(&mut self, now: Time, event: Event);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn next_deadline(&self) -> Option<Time>;
    /// Name and UID of the holder's pod.
    fn holder(&self) -> Option<(String, String)>;
    fn awaits_api_answer(&self) -> bool;
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

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}
