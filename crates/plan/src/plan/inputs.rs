//! Resolves the inputs of one turn: the quorum, the candidates, and why no new term may start.

use std::sync::Arc;

use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::Reconciler;
use super::facts::{CandidateFacts, Facts, OpenQuorum};
use super::keeper_link::KeeperLink;
use super::recorded::Recorded;
use super::workload::Missing;
use crate::api::RedisLease;
use crate::api::conditions::LeaseReady;
use crate::api::validated::MAX_LEASE;
use crate::election::Electorate;
use crate::status::Obstacle;

/// The tolerated difference between the wall clocks of two processes when a wait is continued after a restart.
const WALL_CLOCK_MARGIN: Millis = Millis(10_000);

/// The wait for a term whose quorum was replaced by another configuration while no operator ran.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The configuration on which it was acquired.
    fingerprint: String,
    until: Time,
}

/// The resolved inputs of one turn.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact about the resource")]
pub(super) struct Inputs {
    /// The quorum that the spec names, if it can be used.
    pub quorum: Option<Arc<OpenQuorum>>,
    /// Whether the RedisQuorum does not allow the lease's namespace.
    pub denied: bool,
    /// Whether the RedisQuorum has another configuration than before.
    pub replaced: bool,
    /// The candidates; `None` while they are unknown.
    pub electorate: Option<Arc<Electorate>>,
    /// `spec.suspend`.
    pub suspended: bool,
    /// The resource is being deleted.
    pub deleting: bool,
    /// Whether the term in the status must not be touched yet.
    pub blocked: bool,
    /// Whether the candidate is a workload that does not let the lease start and stop it.
    pub refused: bool,
    /// Whether the operator has no right to write to the workload.
    pub forbidden: bool,
    /// The workload names the lease, and its annotations ask for another activation.
    pub differs: bool,
    /// Why no new term may start.
    pub obstacle: Option<(LeaseReady, String)>,
}

impl Inputs {
    /// Whether a new term may start.
    pub const fn may_begin(&self) -> bool {
        self.obstacle.is_none() && !self.deleting && self.quorum.is_some() && self.electorate.is_some()
    }

    /// Whether the pod is a candidate. While candidates are unknown, every pod counts as one.
    pub fn is_candidate(&self, pod_uid: &str) -> bool {
        self.electorate.as_ref().is_none_or(|electorate| electorate.contains(pod_uid))
    }

    /// Whether the keeper uses another quorum than the spec names now.
    pub fn replaces(&self, link: &KeeperLink) -> bool {
        match (&self.quorum, &link.quorum) {
            (Some(now), Some(then)) => now.id != then.id,
            (None, Some(_)) => self.replaced,
            _ => false,
        }
    }
}

impl Reconciler {
    /// Resolves the inputs. The first problem is the obstacle; it ends no term.
    pub(super) fn resolve(&mut self, now: Time, lease: &RedisLease, facts: &Facts) -> Inputs {
        // Without a term to end, a quorum that the namespace may not use is like one that does not exist.
        let denied = facts.quorum.denied;
        let has_term = self.link.as_ref().is_some_and(|link| !link.is_idle()) || Recorded::of(lease).is_some();
        let quorum = facts.quorum.open.clone().filter(|_| !denied || has_term);
        self.spec.clone_from(&facts.spec);
        let mut obstacle = self.spec.problem.clone().map(|problem| (LeaseReady::InvalidSpec, problem));
        obstacle = obstacle.or_else(|| self.activation_obstacle(facts));
        let refusal = self.missing_consent(facts);
        let refused = matches!(refusal, Some(Missing::Name(_)));
        let differs = matches!(refusal, Some(Missing::Way(_)));
        let forbidden = self.forbidden_write(now);
        let is_forbidden = forbidden.is_some();
        obstacle = obstacle.or_else(|| {
            let (Missing::Name(why) | Missing::Way(why)) = refusal?;
            Some((LeaseReady::NotPermitted, why))
        });
        obstacle = obstacle.or_else(|| Some((LeaseReady::Forbidden, forbidden?)));
        obstacle = obstacle.or_else(|| facts.quorum.obstacle.clone());
        self.follow_handover(now, lease);
        let block = self.update_block(now, lease, facts, quorum.as_deref());
        if let Some(message) = &block {
            obstacle = obstacle.or_else(|| Some((LeaseReady::QuorumUnavailable, message.clone())));
        }
        let electorate = match &facts.candidates {
            CandidateFacts::Known(electorate) => Some(electorate.clone()),
            CandidateFacts::Unknown => None,
            CandidateFacts::Unusable(reason, message) => {
                obstacle = obstacle.or_else(|| Some((*reason, message.clone())));
                None
            }
        };
        if self.contention.is_cooling_down(now) {
            let Obstacle { reason, message } = Obstacle::NOT_PUBLISHED;
            obstacle = obstacle.or_else(|| Some((reason, message.to_owned())));
        }
        let yields = self.handover.as_ref().and_then(|handover| handover.obstacle());
        obstacle = obstacle.or_else(|| yields.map(|message| (LeaseReady::Unheld, message)));
        let suspended = lease.spec.suspend;
        if suspended {
            let message = "spec.suspend is true: no pod is elected until it is false.".to_owned();
            obstacle = Some((LeaseReady::Suspended, message));
        }
        Inputs {
            quorum,
            denied,
            replaced: facts.quorum.replaced,
            electorate,
            suspended,
            deleting: lease.metadata.deletion_timestamp.is_some(),
            blocked: block.is_some(),
            refused,
            forbidden: is_forbidden,
            differs,
            obstacle,
        }
    }

    /// The term in the status was acquired on a quorum with another configuration, whose nodes are unknown to this
    /// process. It waits for the longest lease duration that the API allows, until the keys have certainly expired. The
    /// wait ends at once if the quorum gets its earlier configuration back. Returns the message during the wait.
    fn update_block(
        &mut self,
        now: Time,
        lease: &RedisLease,
        facts: &Facts,
        quorum: Option<&OpenQuorum>,
    ) -> Option<String> {
        let quorum = quorum?;
        if self.block.as_ref().is_none_or(|block| block.fingerprint == quorum.fingerprint) {
            self.block = self.new_block(now, lease, facts, quorum);
        }
        let block = self.block.clone().filter(|block| now < block.until)?;
        self.wake_at(block.until);
        Some(format!(
            "The term that the status names was taken on a quorum of another configuration ({} instead of {}), whose \
             nodes are not known. The operator waits one hour, the longest lease, from when it first saw this, or until \
             the quorum has its old configuration again.",
            block.fingerprint, quorum.fingerprint
        ))
    }

    fn new_block(&self, now: Time, lease: &RedisLease, facts: &Facts, quorum: &OpenQuorum) -> Option<Block> {
        let recorded = Recorded::of(lease)?;
        if self.link.as_ref().is_some_and(|link| link.quorum.is_some() && link.knows(recorded.attempt)) {
            return None;
        }
        let status = lease.status.as_ref()?;
        let fingerprint = status.quorum.as_ref().map(|quorum| quorum.fingerprint.clone())?;
        if fingerprint == quorum.fingerprint {
            return None;
        }
        let wait = Drift::STANDARD.most(Millis::from(MAX_LEASE));
        let waited = waited_before(lease, recorded.attempt, facts.wall);
        Some(Block { fingerprint, until: now + wait.saturating_sub(waited) })
    }
}

/// How long an earlier process has certainly waited for this term: it recorded the end in the status when it began to
/// wait.
fn waited_before(lease: &RedisLease, attempt: Attempt, wall: jiff::Timestamp) -> Millis {
    let Some(status) = lease.status.as_ref() else { return Millis::ZERO };
    let named = status.attempt.as_ref().and_then(|text| text.parse().ok()) == Some(attempt);
    let end = status.history.first().filter(|past| named && Some(past.fencing_token) == status.fencing_token);
    let since = end.and_then(|past| u64::try_from(wall.duration_since(past.end_time.0).as_millis()).ok());
    since.map_or(Millis::ZERO, |since| Millis(since).saturating_sub(WALL_CLOCK_MARGIN))
}
