//! The facts for one turn of a lease's reconciler: a snapshot, cheap to clone, that the caller creates for each turn.

use std::sync::Arc;

use redislease_core::quorum::Quorum;
use redislease_core::time::{Millis, Time};

use super::{Permitted, SpecFacts};
use crate::api::conditions::LeaseReady;
use crate::api::validated::WorkloadKind;
use crate::api::{RedisLease, ValidQuorum};
use crate::election::{Cluster, Electorate, PodFacts, Sighting, WorkloadFacts};

/// The identity of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Identity {
    /// The cluster of this process.
    pub cluster: Arc<Cluster>,
    pub namespace: Arc<str>,
    pub name: String,
    pub uid: String,
}

/// What this process may decide about the leases of a quorum.
///
/// Replicas of the operator elect a leader on each quorum. A replica that does not lead must not end the leader's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Authority {
    /// Another replica leads: this process runs no term and writes nothing. It drops a running term without a seal,
    /// because the leader has adopted it.
    #[default]
    Follow,
    /// This process does not lead and has observed no other leader: it renews its running terms and decides nothing. A
    /// term that passes its deadline becomes unconfirmed; it does not end.
    Renew,
    /// No replica can lead, because the quorum is lost, and `RedisQuorum.status.leader` still names this process: it ends
    /// terms, writes the status, and starts no term.
    End,
    /// This process leads: it decides everything.
    Lead,
}

impl Authority {
    /// Whether this process decides about running terms.
    pub const fn decides(self) -> bool {
        matches!(self, Self::End | Self::Lead)
    }
}

/// The authority of a process, and when it ends. A process that was paused has not noticed yet that its time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The authority as of the last turn of the election.
    pub authority: Authority,
    /// The end of [`Authority::End`]: the API server named this process one lock duration before, and may name another now.
    pub named_until: Option<Time>,
    /// How often this process has gained the right to decide.
    pub gains: u32,
}

impl Granted {
    /// The authority at `now`; see [`Granted::decides_until`].
    pub fn at(self, now: Time, lock_until: Option<Option<Time>>) -> Authority {
        if self.authority.decides() && now >= self.decides_until(lock_until) {
            Authority::Renew
        } else {
            self.authority
        }
    }

    /// Until when this process decides about leases. [`Authority::Lead`] ends at the time `lock_until` until which this process may use
    /// its lock: `None` if it depends on no lock, `Some(None)` if the lock is not held.
    pub fn decides_until(self, lock_until: Option<Option<Time>>) -> Time {
        let until = match self.authority {
            Authority::Lead => lock_until.unwrap_or(Some(Time(u64::MAX))),
            Authority::End => self.named_until,
            Authority::Follow | Authority::Renew => None,
        };
        until.unwrap_or(Time(0))
    }
}

/// The inputs of a turn, in addition to the reconciler's own state. By the default ones nothing may be decided.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The newest version of the resource, from the watch or from an answer to this process; `None` if it is deleted or
    /// was created again.
    pub lease: Option<Arc<RedisLease>>,
    /// Whether another resource with the lease's name exists, which then owns the labels on pods.
    pub has_successor: bool,
    /// The spec that the lease uses: the last one that was valid and fitted the quorum.
    pub spec: SpecFacts,
    /// The quorum that the spec names.
    pub quorum: Arc<QuorumFacts>,
    /// Who can be elected and who cannot, if that is known.
    pub candidates: CandidateFacts,
    /// Pods of the namespace that carry this lease's label or token and are not candidates.
    pub strays: Vec<Arc<PodFacts>>,
    /// Workloads of the namespace that carry this lease's label or annotations and are not its candidate.
    pub stray_workloads: Vec<Arc<WorkloadFacts>>,
    /// The pod that [`crate::plan::Machine::holder`] names.
    pub holder: PodKnowledge,
    /// Whether all pods have been listed once.
    pub pods_listed: bool,
    /// The authority of this process.
    pub authority: Authority,
    /// How often this process has gained the right to decide about the lease: several changes can happen between two turns.
    pub authority_gains: u32,
    /// The `stop_at` of the term that the keeper machine runs, as last reported: renewals change it without an
    /// [`crate::plan::Event::View`].
    pub stop_at: Option<Time>,
    /// When a call to the API server was last answered, on this process's clock.
    pub api_answered_at: Option<Time>,
    /// What the lease may do now without delaying others.
    pub permitted: Permitted,
    /// Which ways of activation the operator may use.
    pub allowed: Allowed,
    /// Unix time, for timestamps in the status.
    pub wall: jiff::Timestamp,
}

impl Facts {
    /// The candidates, if they are known.
    pub(super) const fn electorate(&self) -> Option<&Arc<Electorate>> {
        match &self.candidates {
            CandidateFacts::Known(electorate) => Some(electorate),
            CandidateFacts::Unknown | CandidateFacts::Unusable(..) => None,
        }
    }

    /// The workload that is the only candidate.
    pub(super) fn workload(&self) -> Option<&WorkloadFacts> {
        self.electorate()?.workload().map(AsRef::as_ref)
    }

    /// The pods that are known as candidates, and the strays.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<PodFacts>> {
        self.electorate().into_iter().flat_map(|electorate| electorate.pods()).chain(&self.strays)
    }
}

/// Which ways of activation the operator may use, according to its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// It may remove the scheduling gates of pods and delete such pods.
    pub scheduling_gate: bool,
    /// It may scale workloads.
    pub scale: bool,
    /// It may suspend workloads.
    pub suspend: bool,
}

impl Allowed {
    /// Whether the operator may write to workloads of this kind.
    pub const fn switches(self, kind: WorkloadKind) -> bool {
        match kind {
            WorkloadKind::CronJob => self.suspend,
            _ => self.scale,
        }
    }
}

/// What is known about one holder.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PodKnowledge {
    /// Neither an event nor a list has shown it. It may exist.
    #[default]
    Unseen,
    /// It exists.
    Here(Arc<Sighting>),
    /// It is a workload, which exists.
    Workload,
    /// It does not exist any more.
    Gone {
        /// Whether its last event proved that its processes have ended.
        stopped: bool,
    },
}

/// The candidates of a lease. Leases with the same selector share one electorate.
#[derive(Clone, Debug, Default)]
pub enum CandidateFacts {
    /// Not known yet: the workload was not read, or pods were not listed.
    #[default]
    Unknown,
    /// Why no candidate is known, as a reason and a sentence: the spec's reference cannot be used, or the workload could not
    /// be read.
    Unusable(LeaseReady, String),
    /// Known.
    Known(Arc<Electorate>),
}

/// The quorum that `spec.quorumRef` names.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the quorum")]
pub struct QuorumFacts {
    /// Whether every quorum that existed at the start has been read: before that, a missing quorum is not an error.
    pub read: bool,
    /// The quorum in its current configuration, if it is connected.
    pub open: Option<Arc<OpenQuorum>>,
    /// The spec of the resource, if it is valid.
    pub valid: Option<Arc<ValidQuorum>>,
    /// Why no new term may start on it: the reason and a sentence.
    pub obstacle: Option<(LeaseReady, String)>,
    /// The RedisQuorum does not allow the lease's namespace: a running term ends, and the tenant learns nothing about it.
    pub denied: bool,
    /// The RedisQuorum has another configuration than before; leases must first end on the old nodes.
    pub replaced: bool,
    /// The number of nodes that vote.
    pub up: usize,
    /// Whether a connection to every node succeeded or failed at least once.
    pub evaluated: bool,
    /// The message about a node whose marker names another configuration.
    pub mismatch: Option<String>,
}

/// The facts about a connected quorum that a lease needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct OpenQuorum {
    /// The number of this quorum in the process, never reused.
    pub id: u64,
    pub name: String,
    pub fingerprint: String,
    /// The number of nodes, and the majority of them.
    pub quorum: Quorum,
    /// The longest lease duration on it.
    pub longest_lease: Millis,
    /// The timeout of one request to a node.
    pub command_timeout: Millis,
}
