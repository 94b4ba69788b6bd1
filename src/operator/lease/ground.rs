//! What a lease stands on: the spec as it makes sense, the quorum, the candidates, and what is in the way.

use std::sync::Arc;

use kube::core::Selector;
use redislease_core::time::{Millis, Time};

use super::tenure::{Tenure, recorded};
use super::{Actor, selects};
use crate::api::conditions::LeaseReady;
use crate::api::validated::{Candidates, MAX_LEASE, Readiness};
use crate::api::{RedisLease, ValidLease, ValidQuorum};
use crate::clock;
use crate::election::PodFacts;
use crate::operator::quorums::{Found, OpenQuorum};

/// What the status names was taken on nodes that nobody knows.
pub(super) struct Block {
    /// The configuration it was taken under, and the one that stands under the quorum's name now.
    fingerprint: String,
    instead: String,
    until: Time,
}

impl Block {
    fn why(&self) -> String {
        format!(
            "the term that status names was taken on a quorum of another configuration ({} instead of {}), whose nodes cannot be asked: it is waited out for the longest lease there can be, one hour from when the operator first saw this, or until the quorum is again what it was",
            self.fingerprint, self.instead
        )
    }
}

/// The ground of one turn.
pub(super) struct Ground {
    /// The quorum the spec names now, if it can be spoken to.
    pub quorum: Option<(Arc<OpenQuorum>, ValidQuorum)>,
    /// The name of the quorum stands for another configuration than it did.
    pub replaced: bool,
    /// Which pods are candidates; `None` while that is not known.
    pub selector: Option<Selector>,
    /// What readiness means for them.
    pub readiness: Readiness,
    /// The term is to end and nobody to be elected.
    pub suspended: bool,
    /// The resource is being deleted, and something else keeps it from being gone.
    pub deleting: bool,
    /// Why no new term may begin.
    pub obstacle: Option<(LeaseReady, String)>,
    /// When the ground may have changed without an event.
    pub again_at: Option<Time>,
}

impl Ground {
    /// Whether a new term may begin.
    pub const fn may_begin(&self) -> bool {
        self.obstacle.is_none() && !self.deleting && self.quorum.is_some() && self.selector.is_some()
    }

    /// Whether the pod is among the candidates. While they are not known, none stops to be one.
    pub fn is_candidate(&self, pod: &PodFacts) -> bool {
        self.selector.as_ref().is_none_or(|selector| selects(selector, pod))
    }

    /// Whether the spec's quorum is another one than that of the tenure.
    pub fn replaces(&self, tenure: &Tenure) -> bool {
        match (&self.quorum, tenure.quorum()) {
            (Some((now, _)), Some(then)) => !Arc::ptr_eq(now, then),
            (None, Some(_)) => self.replaced,
            _ => false,
        }
    }
}

impl Actor {
    /// Dereferences and validates what needs no answer of the API server. The first thing that is wrong is the
    /// obstacle; nothing that is held ends for it.
    pub(super) fn ground(&mut self, lease: &RedisLease) -> Ground {
        let now = clock::now();
        let Found { quorum, obstacle: on_quorum, replaced } = self.house.quorums.find(&lease.spec.quorum_ref.name);
        let mut obstacle = match ValidLease::try_from(lease) {
            Ok(spec) => {
                let misfit = quorum.as_ref().and_then(|(_, valid)| spec.check_against(valid).err());
                // What is held goes on by the last spec that fitted.
                if misfit.is_none() || self.spec.is_none() {
                    self.spec = Some(spec);
                }
                misfit.map(|misfit| (LeaseReady::InvalidSpec, misfit.to_string()))
            }
            Err(invalid) => Some((LeaseReady::InvalidSpec, invalid.to_string())),
        };
        obstacle = obstacle.or(on_quorum);
        let mut again_at = None;
        if let Some((until, why)) = self.block(lease, quorum.as_ref(), now) {
            obstacle = obstacle.or(Some((LeaseReady::QuorumUnavailable, why)));
            again_at = Some(until);
        }
        let suspended = lease.spec.suspend;
        if suspended {
            let message = "spec.suspend is true: nobody is elected until it is false".to_owned();
            obstacle = Some((LeaseReady::Suspended, message));
        }
        let readiness = self.spec.as_ref().map_or(Readiness::Ignored, |spec| spec.readiness);
        let deleting = lease.metadata.deletion_timestamp.is_some();
        Ground { quorum, replaced, selector: None, readiness, suspended, deleting, obstacle, again_at }
    }

    /// Finds out who the candidates are.
    pub(super) async fn find_candidates(&self, ground: &mut Ground) {
        let now = clock::now();
        match self.spec.as_ref().map(|spec| &spec.candidates) {
            None => {}
            Some(Candidates::Selector(selector)) => ground.selector = Some(selector.clone()),
            Some(Candidates::Workload(workload)) => {
                match self.house.workloads.selector(&self.namespace, workload, now).await {
                    Ok(selector) => ground.selector = Some(selector),
                    Err(error) => {
                        let obstacle = (LeaseReady::InvalidReference, error.to_string());
                        ground.obstacle = ground.obstacle.take().or(Some(obstacle));
                        ground.again_at = super::earliest(ground.again_at, Some(now + Millis(5000)));
                    }
                }
            }
        }
    }

    /// A term that the status names was taken on a quorum of another configuration, whose nodes nobody knows any
    /// more: its keys cannot be asked for, only waited out, for the longest lease there can be. The wait is over at once
    /// when the quorum is again what it was.
    fn block(
        &mut self,
        lease: &RedisLease,
        quorum: Option<&(Arc<OpenQuorum>, ValidQuorum)>,
        now: Time,
    ) -> Option<(Time, String)> {
        let (open, _) = quorum?;
        if let Some(block) = self.blocked.as_ref().filter(|block| block.fingerprint != open.fingerprint) {
            return (now < block.until).then(|| (block.until, block.why()));
        }
        self.blocked = None;
        let recorded = recorded(lease)?;
        // A keeper without nodes has asked nobody.
        let asked = self.tenure.as_ref().filter(|tenure| tenure.quorum().is_some());
        let known = asked.is_some_and(|tenure| tenure.has_met(recorded.attempt));
        let then = lease.status.as_ref()?.quorum.as_ref().map(|quorum| quorum.fingerprint.clone());
        let fingerprint = then.filter(|then| !known && *then != open.fingerprint)?;
        let until = now + redislease_core::time::Drift::STANDARD.most(Millis::from(MAX_LEASE));
        let block = self.blocked.insert(Block { fingerprint, instead: open.fingerprint.clone(), until });
        Some((until, block.why()))
    }

    /// Whether what the status names may not be touched yet.
    pub(super) fn is_blocked(&self, now: Time) -> bool {
        self.blocked.as_ref().is_some_and(|block| now < block.until)
    }
}
