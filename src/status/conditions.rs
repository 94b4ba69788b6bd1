//! Conditions that move only when they change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{ConditionReason, ConditionType};

/// The conditions of one resource, before and after.
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

    /// The condition as the API server holds it.
    pub fn previous(&self, type_: ConditionType) -> Option<&'a Condition> {
        self.previous.iter().find(|condition| condition.type_ == type_.as_str())
    }

    /// Whether the API server holds the condition with this reason.
    pub fn was<R: ConditionReason>(&self, reason: R) -> bool {
        self.previous(R::TYPE).is_some_and(|condition| condition.reason == reason.as_str())
    }

    /// The reason that was set.
    pub fn is<R: ConditionReason>(&self, reason: R) -> bool {
        self.next.iter().any(|condition| condition.type_ == R::TYPE.as_str() && condition.reason == reason.as_str())
    }

    pub fn set<R: ConditionReason>(&mut self, reason: R, message: impl Into<String>) {
        let (type_, status) = (R::TYPE.as_str(), reason.status().as_str());
        let before = self.previous(R::TYPE).filter(|before| before.status == status);
        self.next.push(Condition {
            last_transition_time: before.map_or(Time(self.now), |before| before.last_transition_time.clone()),
            message: message.into(),
            observed_generation: self.generation,
            reason: reason.as_str().into(),
            status: status.into(),
            type_: type_.into(),
        });
    }

    /// Leaves the condition as it is. Whether there is one.
    pub fn keep(&mut self, type_: ConditionType) -> bool {
        let kept = self.previous(type_).map(|before| Condition {
            observed_generation: self.generation.or(before.observed_generation),
            ..before.clone()
        });
        let is = kept.is_some();
        self.next.extend(kept);
        is
    }

    /// Whether the condition was set to another reason, or to other words, than it had.
    pub fn news(&self, type_: ConditionType) -> Option<News<'_>> {
        let after = self.next.iter().find(|condition| condition.type_ == type_.as_str())?;
        let before = self.previous(type_);
        Some(News {
            reason: &after.reason,
            message: &after.message,
            another_reason: before.is_none_or(|before| before.reason != after.reason),
            another_message: before.is_none_or(|before| before.message != after.message),
        })
    }

    /// All, in the order of their types; what others have added stays behind them.
    pub fn finish(mut self) -> Vec<Condition> {
        let place = |type_: &str| ConditionType::ALL.iter().position(|known| known.as_str() == type_);
        self.next.sort_by_key(|condition| place(&condition.type_));
        let foreign = self.previous.iter().filter(|condition| place(&condition.type_).is_none());
        self.next.extend(foreign.cloned());
        self.next
    }
}

/// What is new about a condition.
pub(super) struct News<'a> {
    pub reason: &'a str,
    pub message: &'a str,
    pub another_reason: bool,
    pub another_message: bool,
}
