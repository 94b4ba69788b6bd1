//! What one lease's reconciler is given to decide on: a snapshot, cheap to clone, that the caller takes anew for each
//! turn.

use std::sync::Arc;

use redislease_core::quorum::Quorum;
use redislease_core::time::{Millis, Time};

use crate::api::conditions::LeaseReady;
use crate::api::{RedisLease, ValidQuorum};
use crate::election::{Electorate, PodFacts, Sighting};

/// How much of a lease this process may decide.
///
/// Replicas of the operator elect a leader on each quorum. Whoever does not lead must not end what the leader keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Authority {
    /// Another replica leads: this process runs no term, and writes nothing. A term that it still runs is dropped
    /// without a seal, since the leader has adopted it.
    #[default]
    Follow,
    /// This process does not lead and has seen nobody else lead: it renews the terms that it runs and decides nothing.
    /// A deadline makes a term unconfirmed, it does not end it.
    Renew,
    /// Nobody can lead, because the quorum is lost, and `RedisQuorum.status.leader` still names this process: it ends
    /// and shows the terms that the statuses name, and begins none.
    End,
    /// This process leads: it decides everything.
    Lead,
}

/// Everything a turn depends on beside what the reconciler remembers.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The resource as last seen, by the watch or by the answer to a read or write of ours, whichever is newer; `None` when
    /// it is gone, or another resource stands under its name.
    pub lease: Option<Arc<RedisLease>>,
    /// Another resource stands under the lease's name: pods' labels are that one's.
    pub has_successor: bool,
    /// The quorum that the spec names.
    pub quorum: Arc<QuorumFacts>,
    /// The candidates.
    pub candidates: CandidateFacts,
    /// Pods of the namespace that carry this lease's label or token and are no candidates.
    pub strays: Vec<Arc<PodFacts>>,
    /// The pod that [`crate::plan::Reconciler::holder`] names.
    pub holder: PodKnowledge,
    /// Whether all pods have been listed once.
    pub pods_listed: bool,
    /// What this process may decide.
    pub authority: Authority,
    /// Until when the process may believe in the term that the keeper's machine runs, as last shown: renewals move it
    /// without an [`crate::plan::Event::View`].
    pub stop_at: Option<Time>,
    /// When a call to the API server was last answered, on this process's clock.
    pub api_answered_at: Option<Time>,
    /// Unix time, for what people read.
    pub wall: jiff::Timestamp,
}

/// What is known about one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PodKnowledge {
    /// No event and no list has shown it, which does not mean that it does not exist.
    #[default]
    Unseen,
    /// It exists.
    Here(Arc<Sighting>),
    /// It does not exist any more.
    Gone {
        /// Whether its last event proved that its processes have ended.
        stopped: bool,
    },
}

/// The candidates of a lease. Leases with one selector share one electorate.
#[derive(Clone, Debug)]
pub enum CandidateFacts {
    /// Not known yet: the workload was not read, or pods were not listed.
    Unknown,
    /// The spec's reference leads to nothing usable: the reason and a sentence.
    Unusable(LeaseReady, String),
    /// Known.
    Known(Arc<Electorate>),
}

/// The quorum that stands under the name in `spec.quorumRef`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuorumFacts {
    /// Whether every quorum that existed at the start has been read: before, a missing one says nothing.
    pub read: bool,
    /// The quorum as it is configured now, if it can be spoken to.
    pub open: Option<Arc<OpenQuorum>>,
    /// The spec of the resource, if it is valid.
    pub valid: Option<Arc<ValidQuorum>>,
    /// Why no new term may begin on it: the reason and a sentence.
    pub obstacle: Option<(LeaseReady, String)>,
    /// The name stands for another configuration than before, whose leases must end on the old nodes first.
    pub replaced: bool,
    /// How many nodes vote.
    pub up: usize,
    /// Whether every node was reached, or tried in vain, at least once.
    pub evaluated: bool,
    /// What is wrong with a node's marker.
    pub mismatch: Option<String>,
}

/// A quorum with its connections, as a lease must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuorum {
    /// Tells it from every other quorum that this process opened.
    pub id: u64,
    /// The name of the `RedisQuorum`.
    pub name: String,
    /// The fingerprint of its configuration.
    pub fingerprint: String,
    /// How many nodes there are, and what a majority of them is.
    pub quorum: Quorum,
    /// The longest lease anybody may hold on it.
    pub longest_lease: Millis,
    /// How long one request to a node may take.
    pub command_timeout: Millis,
}
