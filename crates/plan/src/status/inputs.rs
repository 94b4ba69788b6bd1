//! What the status of a lease is composed of.

use std::time::Duration;

use jiff::Timestamp;
use redislease_core::lease::View;

use crate::api::RedisLeaseStatus;
use crate::api::conditions::LeaseReady;
use crate::api::lease_status::{HandoverState, QuorumIdentity};
use crate::election::{Cluster, Electorate, HandoverRequest};
use crate::status::ObservedTerms;

/// The input of [`compose`](crate::status::compose).
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct Inputs<'a> {
    /// The status that the API server has.
    pub previous: &'a RedisLeaseStatus,
    pub generation: Option<i64>,
    pub now: Timestamp,
    /// This cluster.
    pub cluster: &'a Cluster,
    pub namespace: &'a str,
    pub lease: &'a str,
    /// The lease as the lock layer of this process sees it; `None` if the lock layer could not open it.
    pub view: Option<&'a View>,
    /// The terms that this process has observed.
    pub observed_terms: &'a ObservedTerms,
    /// Whether the keys of the term in status are on nodes that cannot be reached, and the operator waits until they have expired.
    pub withheld: bool,
    /// Whether an attempt or a read will show who holds the keys.
    pub reads_keys: bool,
    /// Why no new term can begin.
    pub obstacle: Option<Obstacle<'a>>,
    /// The candidates; `None` until pods are listed.
    pub electorate: Option<&'a Electorate>,
    /// Why there cannot be any candidate: one sentence about the reference to the workload.
    pub no_candidates: Option<&'a str>,
    /// The quorum of the lease; `None` until each of its nodes was reached or timed out.
    pub quorum: Option<QuorumOutlook<'a>>,
    /// The quorum with the keys of the term that this process holds.
    pub term_quorum: Option<QuorumIdentity>,
    /// Whether this process cannot use the quorum of the lease and is not connected to it.
    pub is_quorum_unused: bool,
    /// How long no pod held the lease before the running term, for the event. It is more precise than the timestamps in status,
    /// which are whole seconds. `None` if another cluster held it.
    pub leaderless: Option<Duration>,
    /// Why the holder can change when one replica of the operator fails.
    pub takeover_risk: Option<&'a str>,
    /// Why the elected pod is not started yet.
    pub start: Option<&'a str>,
    /// Why a stop of the holder may not stop all of it, as a sentence.
    pub stop_risk: Option<&'a str>,
    /// Why the API server has not stored what starts the holder.
    pub refused: Option<&'a str>,
    /// What runs without a term, because it cannot be stopped, as a sentence.
    pub runs_on: Option<&'a str>,
    /// The requested handover whose result the status does not show yet.
    pub handover: Option<HandoverOutlook<'a>>,
}

/// Why no new term can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle<'a> {
    /// Suspended, `InvalidReference`, `InvalidSpec`, `QuorumUnavailable`, Unheld or Starting. `QuorumUnavailable` and Unheld are
    /// shown only if no pod of this cluster holds the lease. While a pod holds it, Starting is only added to the message.
    pub reason: LeaseReady,
    /// One sentence. It must not change unless the situation changes.
    pub message: &'a str,
}

impl Obstacle<'static> {
    /// The operator makes no attempt for a while because the API server did not accept its last term.
    pub const NOT_PUBLISHED: Self = Self {
        reason: LeaseReady::Unheld,
        message: "No pod holds the lease. The API server did not accept the last term, so the operator makes no attempt until the \
                  keys of that term have ended and other clusters have had time to acquire the lease.",
    };
}

impl Obstacle<'_> {
    pub(super) fn is_shown_while_held(&self) -> bool {
        !matches!(self.reason, LeaseReady::QuorumUnavailable | LeaseReady::Unheld | LeaseReady::Starting)
    }
}

/// The facts about the quorum that the status of a lease shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub struct QuorumOutlook<'a> {
    pub name: &'a str,
    /// The number of nodes that vote.
    pub up: usize,
    /// The number of nodes that must vote.
    pub majority: usize,
    /// The message about a node whose marker names another configuration.
    pub mismatch: Option<&'a str>,
}

/// A requested handover as this process handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverOutlook<'a> {
    /// What the annotation asks for.
    pub request: &'a HandoverRequest,
    /// What became of it.
    pub progress: HandoverProgress<'a>,
}

/// What became of a requested handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum HandoverProgress<'a> {
    /// The term of the pod `from` is ended for it.
    Running { from: &'a str },
    /// It is over, and the next holder does not matter.
    Over { state: HandoverState, from: Option<&'a str>, message: &'a str },
}
