//! What the last turn of a [`Story`] requests.

use super::*;
use crate::api::validated::WorkloadKind;

impl Story {
    pub fn status_write(&self) -> Option<StatusWrite> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::WriteStatus(write) => Some((**write).clone()),
            _ => None,
        })
    }

    pub fn status_to_write(&self) -> Arc<RedisLeaseStatus> {
        self.status_write().expect("a status is to be written").status
    }

    /// The condition `Ready` of the status that is to be written.
    pub fn ready(&self) -> Condition {
        self.status_to_write().condition(ConditionType::Ready).unwrap().clone()
    }

    /// This condition in the status that is to be written, or else in the one on the API server.
    pub fn shown(&self, condition: ConditionType) -> Condition {
        let write = self.status_write();
        let status = write.as_ref().map_or_else(|| self.status(), |write| &write.status);
        status.condition(condition).unwrap().clone()
    }

    /// The pods that are written, with their labels.
    pub fn roles(&self) -> Vec<(String, Option<PodRole>)> {
        self.role_writes().into_iter().map(|write| (write.pod, write.role)).collect()
    }

    pub fn role_writes(&self) -> Vec<RoleWrite> {
        let of = |effect: &Effect| match effect {
            Effect::WriteRole(write) => Some(write.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    /// The event of this reason that the last turn reports.
    pub fn reported(&self, reason: NoticeReason) -> Notice {
        self.reports(reason).into_iter().next().unwrap_or_else(|| panic!("{:?}", self.effects))
    }

    /// The events of this reason that the last turn reports.
    pub fn reports(&self, reason: NoticeReason) -> Vec<Notice> {
        let of = |effect: &Effect| match effect {
            Effect::Report(notice) if notice.reason == reason => Some(notice.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    /// How many writes of the last turn correct what others have changed. All of them are to objects of this kind.
    pub fn corrected(&self, kind: Option<WorkloadKind>) -> usize {
        let of = |effect: &Effect| match effect {
            Effect::Measure(Measure::Corrected { kind }) => Some(*kind),
            _ => None,
        };
        let kinds: Vec<_> = self.effects.iter().filter_map(of).collect();
        assert!(kinds.iter().all(|found| *found == kind), "{kinds:?} instead of {kind:?}");
        kinds.len()
    }

    /// Whether the metrics count the time as one without a holder, if the last turn updates them.
    pub fn is_unheld(&self) -> Option<bool> {
        let of = |effect: &Effect| match effect {
            Effect::Measure(Measure::Shown(shown)) => Some(shown.waiting),
            _ => None,
        };
        self.effects.iter().rev().find_map(of)
    }

    /// Whether the metrics show the lease as held, if the last turn updates them.
    pub fn is_held(&self) -> Option<bool> {
        let of = |effect: &Effect| match effect {
            Effect::Measure(Measure::Shown(shown)) => Some(shown.held),
            _ => None,
        };
        self.effects.iter().rev().find_map(of)
    }

    pub fn ends_a_term(&self) -> bool {
        self.commands().iter().any(|command| matches!(command, Command::End { .. }))
    }

    pub fn commands(&self) -> Vec<Command> {
        let of = |effect: &Effect| match effect {
            Effect::Keeper(command) => Some(command.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    /// Whether a machine is started.
    pub fn opens(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Open { .. }))
    }

    pub fn wanted(&self) -> Option<String> {
        self.commands().into_iter().find_map(|command| match command {
            Command::Want(holder) => holder.0.parse().ok().map(|name: crate::election::HolderName| name.pod),
            _ => None,
        })
    }

    pub fn wants(&self, effect: &Effect) -> bool {
        self.effects.contains(effect)
    }
}
