//! The input of an explanation: the objects that were read.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_plan::api::lease_status::Holder;
use redislease_plan::api::{
    ConditionReason, ConditionStatus, ConditionType, InvalidSpec, RedisLease, RedisLeaseStatus,
};
use redislease_plan::api::{RedisQuorum, ValidLease};
use redislease_plan::election::{Electorate, Eligibility, PodFacts, PodObject};

/// The objects that were read. An `Err` is a clause that says why something could not be read.
#[derive(Debug)]
pub(super) struct Facts {
    pub lease: RedisLease,
    pub spec: Result<ValidLease, InvalidSpec>,
    pub candidates: Result<Vec<PodObject>, String>,
    pub holder: HolderPod,
    pub quorum: Result<RedisQuorum, String>,
    pub quorum_namespace: String,
    pub now: Timestamp,
}

/// The pod that the status names as the holder.
#[derive(Debug)]
pub(super) enum HolderPod {
    /// The status names none, or the pod could not be read.
    Unknown,
    /// It exists, and is a candidate or not.
    Here { pod: Box<PodObject>, candidate: bool },
    /// It does not exist any more.
    Gone,
}

/// What the status says about the current term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TermState<'a> {
    /// The operator has not written a status.
    NoStatus,
    /// This pod holds the lease.
    Held(&'a Holder),
    /// It is not confirmed yet that this pod still holds the lease.
    Unconfirmed(&'a Holder),
    /// This pod has lost the lease and must stop; its keys may still exist.
    Ending(&'a Holder),
    /// A pod of another cluster holds the lease, and nothing else keeps this cluster from it.
    HeldByPeer,
    /// No pod of this cluster holds the lease.
    Unheld,
}

impl Facts {
    pub fn status(&self) -> Option<&RedisLeaseStatus> {
        self.lease.status.as_ref()
    }

    pub fn condition(&self, type_: ConditionType) -> Option<&Condition> {
        self.status()?.condition(type_)
    }

    /// Whether the lease's condition has this reason.
    pub fn has_reason<R: ConditionReason>(&self, reason: R) -> bool {
        self.condition(R::TYPE).is_some_and(|condition| condition.reason == reason.as_str())
    }

    pub fn message(&self, type_: ConditionType) -> &str {
        self.condition(type_).map_or("", |condition| &condition.message)
    }

    /// Whether another cluster holds the lease, also if this cluster could not acquire it anyway.
    pub fn is_held_by_peer(&self) -> bool {
        self.status().is_some_and(RedisLeaseStatus::says_held_by_peer)
    }

    pub fn state(&self) -> TermState<'_> {
        let Some(status) = self.status().filter(|status| status.condition(ConditionType::Ready).is_some()) else {
            return TermState::NoStatus;
        };
        match &status.holder {
            Some(holder) if status.says(ConditionType::Active, ConditionStatus::True) => TermState::Held(holder),
            Some(holder) if status.says(ConditionType::Active, ConditionStatus::False) => TermState::Ending(holder),
            Some(holder) => TermState::Unconfirmed(holder),
            None if status.says(ConditionType::Ready, ConditionStatus::True) => TermState::HeldByPeer,
            None => TermState::Unheld,
        }
    }

    /// The candidates as the operator ranks them; `None` if they could not be read.
    pub fn electorate(&self) -> Option<Electorate> {
        let pods = self.candidates.as_ref().ok()?.iter().map(|pod| Arc::new(PodFacts::from(pod)));
        let unknown = Eligibility { requires_ready: true, gated: None };
        Some(Electorate::of(pods, &self.spec.as_ref().map_or(unknown, Eligibility::from)))
    }
}
