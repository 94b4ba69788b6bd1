//! The status of a lease, written on transitions only, and the events that go with it.
//!
//! A publication is such a write. It names the resource version that was read, so two operators cannot both publish,
//! and nobody is told of a term before the API server has it. A write without an answer counts as written until a read
//! says otherwise.

use std::sync::Arc;

use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use redislease_core::lease::{Publication, Standing, TermView, View};
use redislease_core::time::{Millis, Time};

use super::tenure::{Tenure, recorded};
use super::{Actor, Ground};
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::{RedisLease, RedisLeaseStatus};
use crate::clock;
use crate::election::Electorate;
use crate::metrics::lease::{HandoverKind, Shown};
use crate::metrics::operator::WriteKind;
use crate::operator::kube_api::{self, CallError, call};
use crate::operator::quorums;
use crate::status::{Composed, Inputs, Obstacle, QuorumOutlook, compose};

/// Between two writes of a status that say nothing but how many may be elected: many leases may look at the same pods,
/// and one of these may flap.
const COUNTS: Millis = Millis(5000);

impl Actor {
    /// Writes the status if it is to change.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when somebody else wrote meanwhile: decide anew. Others: later.
    pub(super) async fn show(
        &mut self,
        lease: &Arc<RedisLease>,
        ground: &Ground,
        electorate: &Electorate,
    ) -> Result<(), CallError> {
        self.paced_until = None;
        let lease = if self.in_doubt {
            let read = self.read().await?;
            self.answered = read.clone().or(self.answered.take());
            read
        } else {
            Some(lease.clone())
        };
        self.in_doubt = false;
        if let Some((before, composed)) = self.untold.take()
            && lease.as_ref().is_some_and(|lease| lease.status.as_ref() == Some(&composed.status))
        {
            // It was written after all.
            self.tell(&before, composed);
        }
        let view = self.tenure.as_ref().map(Tenure::view);
        let publishing = view.as_ref().and_then(publishing);
        let Some(lease) = lease else {
            // Gone, or another resource: nothing of ours is written there, and the watch will say so.
            if let Some(term) = publishing {
                self.published(term, Publication::Superseded);
            }
            return Ok(());
        };
        let told = |term: &TermView| self.tenure.as_ref().is_some_and(|tenure| tenure.was_told_to_end(term.id.attempt));
        if publishing.is_some_and(told) {
            return Ok(());
        }
        if let Some(term) = publishing
            && let Some(outcome) = judge(&lease, &self.uid, term)
        {
            self.published(term, outcome);
            return Ok(());
        }
        let composed = self.compose(&lease, ground, electorate, view.as_ref());
        if lease.status.as_ref() == Some(&composed.status) {
            return Ok(());
        }
        let now = clock::now();
        let due = self.pace.due(&composed.status);
        let active =
            lease.status.as_ref().is_some_and(|status| status.says(ConditionType::Active, ConditionStatus::True));
        // A doubt is answered at once by who is certain; and it is seldom enough to be said at once.
        let answers = match view.as_ref().map(|view| &view.standing) {
            Some(Standing::Held(_)) => !active,
            Some(Standing::Uncertain(_)) => active,
            _ => false,
        };
        let only_counts =
            lease.status.as_ref().is_some_and(|stored| without_counts(stored) == without_counts(&composed.status));
        let counted = self.counted_at.filter(|_| only_counts).map_or(Time(0), |at| at + COUNTS);
        let due = if answers { counted } else { due.max(counted) };
        if now < due {
            self.paced_until = Some(due);
            return Ok(());
        }
        self.counted_at = if only_counts { Some(now) } else { self.counted_at };
        if publishing.and_then(|term| term.stop_at).is_some_and(|stop_at| clock::now() >= stop_at) {
            // Too late to tell anybody: the keeper gives it up.
            return Ok(());
        }
        let written = self.write(&lease, &composed).await;
        let outcome = match &written {
            Ok(_) => Some(Publication::Written),
            Err(CallError::Unanswered(_)) => Some(Publication::Unknown),
            Err(CallError::NotFound) => Some(Publication::Superseded),
            Err(CallError::Conflict | CallError::Refused(_)) => None,
        };
        if let (Some(term), Some(outcome)) = (publishing, outcome) {
            self.published(term, outcome);
        }
        match written {
            Ok(answered) => {
                self.pace.wrote(now, &composed.status);
                self.left_to_others = None;
                self.weigh_doubt(&answered);
                self.answered = Some(Arc::new(answered));
                self.tell(&lease, composed);
                Ok(())
            }
            Err(CallError::NotFound) => Ok(()),
            Err(error) => {
                self.in_doubt = true;
                self.untold = matches!(error, CallError::Unanswered(_)).then_some((lease, composed));
                Err(error)
            }
        }
    }

    fn published(&self, term: &TermView, outcome: Publication) {
        if let Some(tenure) = &self.tenure {
            tenure.published(term.id.attempt, outcome);
        }
    }

    pub(super) fn compose(
        &self,
        lease: &RedisLease,
        ground: &Ground,
        electorate: &Electorate,
        view: Option<&View>,
    ) -> Composed {
        let none = RedisLeaseStatus::default();
        let open = self.tenure.as_ref().and_then(Tenure::quorum).map(AsRef::as_ref);
        let open = open.or_else(|| ground.quorum.as_ref().map(|(open, _)| open.as_ref()));
        let statuses = open.map(|open| open.nodes.watch().borrow().clone()).unwrap_or_default();
        let listed = self.house.pods.listed() && ground.selector.is_some();
        compose(&Inputs {
            previous: lease.status.as_ref().unwrap_or(&none),
            generation: lease.metadata.generation,
            now: jiff::Timestamp::now(),
            cluster: &self.house.cluster,
            namespace: &self.namespace,
            lease: &self.name,
            view,
            observed_terms: &self.witness,
            expired: false,
            withheld: self.is_blocked(clock::now()),
            obstacle: ground.obstacle.as_ref().map(|(reason, message)| Obstacle { reason: *reason, message }),
            electorate: Some(electorate).filter(|_| listed),
            quorum: open.filter(|_| quorums::evaluated(&statuses)).map(|open| QuorumOutlook {
                name: &open.name,
                fingerprint: &open.fingerprint,
                up: quorums::up(&statuses),
                majority: open.nodes.quorum().majority(),
                mismatch: quorums::mismatch(&statuses),
            }),
            leaderless: self.unheld_since.map(|since| clock::now().since(since).into()),
        })
    }

    async fn write(&self, lease: &RedisLease, composed: &Composed) -> Result<RedisLease, CallError> {
        let mut next = lease.clone();
        next.status = Some(composed.status.clone());
        next.metadata.managed_fields = None;
        let leases: Api<RedisLease> = Api::namespaced(self.house.client.clone(), &self.namespace);
        let written = call(leases.replace_status(&self.name, &PostParams::default(), &next)).await;
        self.house.metrics.wrote(WriteKind::LeaseStatus, kube_api::result(&written));
        written
    }

    /// What the API server holds now; `None` when the resource is gone or another one.
    pub(super) async fn read(&self) -> Result<Option<Arc<RedisLease>>, CallError> {
        let leases: Api<RedisLease> = Api::namespaced(self.house.client.clone(), &self.namespace);
        match call(leases.get(&self.name)).await {
            Ok(lease) => Ok((lease.uid().as_deref() == Some(&self.uid)).then(|| Arc::new(lease))),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Metrics do not wait for the API server: what is lost is counted and shown at once, and once.
    pub(super) fn count(&mut self, lease: &RedisLease, composed: &Composed) {
        let before = lease.status.as_ref().and_then(|status| status.attempt.clone());
        if let Some(end) = composed.ended
            && self.counted != before
        {
            self.series.ended(end.as_str());
            self.counted = before;
        }
        // A term that no status names yet is nobody's: who held before has ended, and who comes next waits to be told.
        let none = RedisLeaseStatus::default();
        let stored = lease.status.as_ref().unwrap_or(&none);
        let status = if composed.began { stored } else { &composed.status };
        let active = !composed.began && status.says(ConditionType::Active, ConditionStatus::True);
        let holder = status.holder.as_ref().filter(|_| !composed.began);
        let candidates = status.candidates.as_ref().map_or([0, 0], |candidates| {
            [i64::from(candidates.eligible), i64::from(candidates.total - candidates.eligible)]
        });
        self.series.show(&Shown {
            active,
            held: active || (!composed.began && status.says(ConditionType::Ready, ConditionStatus::True)),
            waiting: self.unheld_since.is_some(),
            holder: holder.map(|holder| {
                [holder.cluster.as_str(), holder.pod.as_str(), holder.node.as_deref().unwrap_or_default()]
            }),
            token: status.fencing_token.unwrap_or(0),
            candidates,
            conditions: status.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str())).collect(),
        });
    }

    fn tell(&self, lease: &RedisLease, composed: Composed) {
        let had_a_term = lease.status.as_ref().is_some_and(|status| status.fencing_token.is_some());
        if let (true, true, Some(since)) = (composed.began, had_a_term, self.unheld_since) {
            let kind = if self.proven { HandoverKind::Graceful } else { HandoverKind::Failover };
            self.house.lease_metrics.handover(kind, clock::now().since(since).into());
        }
        for notice in composed.events {
            tracing::info!(
                lease = %format!("{}/{}", self.namespace, self.name),
                reason = notice.reason.as_str(),
                "{}",
                notice.note
            );
            self.house.reporter.report(notice, lease.object_ref(&()));
        }
    }
}

/// A status without what every Ready pod changes: it is written when it has changed, but not for each of them.
fn without_counts(status: &RedisLeaseStatus) -> RedisLeaseStatus {
    let mut status = RedisLeaseStatus { candidates: None, ..status.clone() };
    status.conditions.retain(|condition| condition.type_ != ConditionType::CandidatesAvailable.as_str());
    status
}

const fn publishing(view: &View) -> Option<&TermView> {
    match &view.standing {
        Standing::Publishing(term) => Some(term),
        _ => None,
    }
}

/// Whether the status already decides about a publication.
fn judge(lease: &RedisLease, uid: &str, term: &TermView) -> Option<Publication> {
    if lease.uid().as_deref() != Some(uid) {
        return Some(Publication::Superseded);
    }
    let token = lease.status.as_ref().and_then(|status| status.fencing_token).unwrap_or(0);
    let named = recorded(lease).filter(|named| named.attempt == term.id.attempt);
    if named.is_some() {
        Some(Publication::Written)
    } else if u64::try_from(token).is_ok_and(|token| token >= term.id.token.0) {
        Some(Publication::Superseded)
    } else {
        None
    }
}
