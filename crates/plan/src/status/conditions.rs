//! Builds the conditions of a resource. A condition's `lastTransitionTime` changes only when its status changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{ConditionReason, ConditionType};
use crate::status::{Notice, NoticeReason};

/// The previous conditions of one resource, and the new ones as far as they are set.
#[derive(Debug)]
pub(super) struct Conditions<'a> {
    previous: &'a [Condition],
    next: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl<'a> Conditions<'a> {
    pub fn new(previous: &'a [Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self { previous, next: Vec::new(), generation, now }
    }

    pub fn previous(&self, type_: ConditionType) -> Option<&'a Condition> {
        self.previous.iter().find(|condition| condition.type_ == type_.as_str())
    }

    pub fn had_reason<R: ConditionReason>(&self, reason: R) -> bool {
        self.previous(R::TYPE).is_some_and(|condition| condition.reason == reason.as_str())
    }

    pub fn has_reason<R: ConditionReason>(&self, reason: R) -> bool {
        self.next.iter().any(|condition| condition.type_ == R::TYPE.as_str() && condition.reason == reason.as_str())
    }

    pub fn set<R: ConditionReason>(&mut self, reason: R, message: impl Into<String>) {
        let (type_, status) = (R::TYPE.as_str(), reason.status().as_str());
        let unchanged = self.previous(R::TYPE).filter(|before| before.status == status);
        self.next.push(Condition {
            last_transition_time: unchanged.map_or(Time(self.now), |before| before.last_transition_time.clone()),
            message: message.into(),
            observed_generation: self.generation,
            reason: reason.as_str().into(),
            status: status.into(),
            type_: type_.into(),
        });
    }

    /// Copies the previous condition. Returns whether there is one.
    pub fn keep(&mut self, type_: ConditionType) -> bool {
        let kept = self.previous(type_).map(|before| Condition {
            observed_generation: self.generation.or(before.observed_generation),
            ..before.clone()
        });
        let exists = kept.is_some();
        self.next.extend(kept);
        exists
    }

    /// The event for a new condition with this reason, if its reason or its message has changed.
    pub fn notice(&self, type_: ConditionType, reason: NoticeReason) -> Option<Notice> {
        let is_it = |one: &&Condition| one.type_ == type_.as_str() && one.reason == reason.as_str();
        let after = self.next.iter().find(is_it)?;
        let is_same = |before: &Condition| before.reason == after.reason && before.message == after.message;
        let is_new = !self.previous(type_).is_some_and(is_same);
        is_new.then(|| Notice { reason, note: after.message.clone(), on_pods: Vec::new() })
    }

    /// The new conditions in the order of their types, followed by conditions that other writers have added.
    pub fn finish(mut self) -> Vec<Condition> {
        let position = |type_: &str| ConditionType::ALL.iter().position(|known| known.as_str() == type_);
        self.next.sort_by_key(|condition| position(&condition.type_));
        let added_by_others = self.previous.iter().filter(|condition| position(&condition.type_).is_none());
        self.next.extend(added_by_others.cloned());
        self.next
    }
}
