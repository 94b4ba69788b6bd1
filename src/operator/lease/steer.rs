//! Who should hold, and what the keeper is told.

use std::time::Duration;

use redislease_core::lease::{Publication, Standing, TermId, View};
use redislease_core::op::Token;
use redislease_core::time::{Millis, Time};

use super::ground::Ground;
use super::tenure::{self, Tenure};
use super::{Actor, earliest, holder_of};
use crate::api::RedisLease;
use crate::api::validated::Readiness;
use crate::clock;
use crate::election::{Electorate, EndCause, HolderName, HolderPod, PodFacts, Situation, Step, decide};
use crate::operator::pods::Known;

/// The keeper does what it is told at once, if the machine lets it.
const KEEPER_ANSWERS: Duration = Duration::from_millis(50);

/// A term that the API server did not take is left to others for two leases, and for no longer than this.
const LEFT_TO_OTHERS: Millis = Millis(60_000);

impl Actor {
    /// Decides and tells the keeper.
    pub(super) async fn plan(&mut self, lease: &RedisLease, ground: &Ground, electorate: &Electorate) -> Option<Time> {
        let mut fresh = false;
        let mut unanswered = false;
        loop {
            let view = self.tenure.as_ref()?.view();
            let holder_name = holder_of(&view);
            let known = holder_name.as_ref().map_or(Known::Unseen, |holder| self.known(holder));
            if known == Known::Unseen
                && !fresh
                && self.house.pods.listed()
                && let Some(holder) = &holder_name
            {
                // Never seen is not gone: another operator may have elected a pod that our watch has yet to show.
                fresh = self.look_at(holder).await;
                if fresh {
                    continue;
                }
                unanswered = true;
            }
            let sighting = match &known {
                Known::Here(sighting) => Some(sighting.as_ref()),
                Known::Unseen | Known::Gone { .. } => None,
            };
            let holder = match (&known, sighting) {
                (Known::Gone { stopped }, _) => HolderPod::Gone { stopped: *stopped },
                (_, Some(sighting)) => HolderPod::Here { sighting, candidate: ground.is_candidate(&sighting.facts) },
                _ => HolderPod::Unseen,
            };
            let (untaken, asked_again_at) = self.is_untaken(&view).await;
            let spec = self.spec.as_ref();
            let decision = decide(&Situation {
                now: clock::now(),
                view: &view,
                holder,
                electorate,
                readiness: spec.map_or(Readiness::Ignored, |spec| spec.readiness),
                grace_period: spec.map_or_else(Default::default, |spec| spec.grace_period),
                may_begin: ground.may_begin() && self.house.pods.listed() && self.left_to_others.is_none(),
                revoked: self.revoked(lease, ground, &view, untaken),
                fresh,
            });
            let mut again_at = [decision.again_at, self.left_to_others, asked_again_at].into_iter().flatten().min();
            match decision.step {
                Step::Keep => {}
                Step::LookAgain => {
                    let seen = holder_name.as_ref();
                    fresh = match seen {
                        Some(holder) => self.look_at(holder).await,
                        None => false,
                    };
                    if !fresh {
                        // The API server is away: what only time says waits for it.
                        return Some(clock::now() + Millis(1000));
                    }
                    continue;
                }
                Step::Want(pod) => {
                    let holder = self.name_of(pod);
                    self.tenure.as_mut()?.want(&holder);
                }
                Step::Forget => self.tenure.as_mut()?.forget(),
                Step::End { term, proof, cause } => {
                    self.end(term, proof, cause);
                    if proof && self.has_ended().await {
                        // The keys are free: the next holder is chosen before anything is written.
                        continue;
                    }
                }
            }
            if let (Known::Gone { stopped: false }, Some(holder)) = (&known, &holder_name) {
                // It was told to end before this, which may take an answer of the API server.
                if self.node_is_off(lease, holder).await {
                    continue;
                }
                again_at = earliest(again_at, self.node_asked_again_at);
            }
            let look_again = unanswered.then(|| clock::now() + Millis(1000));
            return earliest(again_at, look_again);
        }
    }

    fn end(&mut self, term: TermId, proof: bool, cause: EndCause) {
        let told = self.tenure.as_ref().is_some_and(|tenure| tenure.was_told_to_end(term.attempt));
        if cause == EndCause::NotPublished && !told {
            let lease = format!("{}/{}", self.namespace, self.name);
            tracing::error!(%lease, token = %term.token, "a term is given up: the API server did not take it for one lease");
            let ttl = self.tenure.as_ref().map_or(Millis(0), Tenure::ttl);
            self.left_to_others = Some(clock::now() + (ttl + ttl).min(LEFT_TO_OTHERS));
        }
        self.witness.record_decision(term.attempt, cause, proof);
        self.proven = proof;
        if let Some(tenure) = &mut self.tenure {
            tenure.end(term, proof);
        }
    }

    /// Waits a moment for the keeper to have ended a term.
    async fn has_ended(&mut self) -> bool {
        let Some(tenure) = &mut self.tenure else { return false };
        let moved = tokio::time::timeout(KEEPER_ANSWERS, tenure.moved()).await.is_ok();
        if moved {
            tenure.follow();
        }
        moved && tenure.is_idle()
    }

    /// Whether the running term is to be given up because the API server does not take it, and when to ask again. Its
    /// keys keep others from the lease, and nobody may act on it; so they get their turn after one lease.
    ///
    /// Time alone decides nothing: a write without an answer may have been taken.
    async fn is_untaken(&mut self, view: &View) -> (bool, Option<Time>) {
        let now = clock::now();
        self.left_to_others = self.left_to_others.filter(|until| now < *until);
        let told = |attempt| self.tenure.as_ref().is_some_and(|tenure| tenure.was_told_to_end(attempt));
        let attempt = match &view.standing {
            Standing::Publishing(term) if !told(term.id.attempt) => term.id.attempt,
            _ => {
                self.publishing = None;
                return (false, None);
            }
        };
        let ttl = self.tenure.as_ref().map_or(Millis(0), Tenure::ttl);
        let ends_at = self.publishing.filter(|(waits, _)| *waits == attempt).map_or(now + ttl, |(_, at)| at);
        self.publishing = Some((attempt, ends_at));
        if now < ends_at {
            return (false, Some(ends_at));
        }
        let read = self.read().await;
        let again_at = clock::now() + Millis(1000);
        self.publishing = Some((attempt, again_at));
        match read {
            Ok(Some(lease)) if tenure::recorded(&lease).is_some_and(|named| named.attempt == attempt) => {
                if let Some(tenure) = &self.tenure {
                    tenure.published(attempt, Publication::Written);
                }
                self.answered = Some(lease);
                (false, Some(again_at))
            }
            Ok(_) => (true, None),
            Err(_) => (false, Some(again_at)),
        }
    }

    /// Why a running term is to end whatever its holder does.
    fn revoked(&self, lease: &RedisLease, ground: &Ground, view: &View, untaken: bool) -> Option<EndCause> {
        if lease.metadata.deletion_timestamp.is_some() {
            return Some(EndCause::Deleted);
        }
        if ground.suspended {
            return Some(EndCause::Suspended);
        }
        if self.tenure.as_ref().is_some_and(|tenure| ground.replaces(tenure)) {
            return Some(EndCause::QuorumChanged);
        }
        if untaken {
            return Some(EndCause::NotPublished);
        }
        let running = view.standing.term()?;
        let named = tenure::recorded(lease);
        let ours = named.as_ref().is_some_and(|named| named.attempt == running.id.attempt);
        let ended = ours && named.is_some_and(|named| !named.active);
        let shown = lease.status.as_ref().and_then(|status| status.fencing_token);
        let shown = Token(shown.and_then(|token| u64::try_from(token).ok()).unwrap_or(0));
        // A token like ours without our name: somebody has cleared what we hold.
        let passed = !matches!(view.standing, Standing::Publishing(_)) && !ours && shown >= running.id.token;
        (ended || passed).then_some(EndCause::EndedElsewhere)
    }

    fn name_of(&self, pod: &PodFacts) -> HolderName {
        HolderName {
            cluster: self.house.cluster.clone(),
            namespace: self.namespace.clone(),
            lease: self.name.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
        }
    }
}
