//! Planted bugs: each simpler rule of order and fence, which the search must find. They are planted where the reconciler meets
//! its surroundings, so the reconciler that ships contains none of them.

use redislease_plan::api::names::{self, PodRole};
use redislease_plan::election::{Candidate, PodFacts};
use redislease_plan::plan::{PodChange, RoleWrite};

use crate::objects::{LEASE, ObjectShows};

listed! {
    /// A simpler rule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Planted {
        /// The read of the status before a start is answered from what the watch showed last.
        StartFromCachedStatus,
        /// A withdrawal changes nothing if the workload is already as it must be: its version does not move.
        WithdrawnByObject,
        /// A withdrawal is believed if the object shows the standby state: no write is sent.
        ObjectIsProof,
        /// A process that gains authority withdraws nothing before it starts something.
        TakeoverNotFenced,
        /// A withdrawal that is stored before the status says that the term has ended is not repeated after it.
        StatusEndNotFenced,
        /// The fence of a pod with a gate changes nothing.
        StartNotFenced,
        /// The next pod does not wait for the grace period of a started one that is being deleted.
        NextStartsTooEarly,
        /// A started pod is not known as one that may run.
        StartedPodUnknown,
        /// A workload that runs is stopped without an answer to an attempt.
        StoppedWithoutAnswer,
        /// A role write is accepted with any version.
        RolesWithoutVersion,
    }
}

impl Planted {
    /// Whether the write is answered as stored without being sent.
    pub fn swallows(self, write: &RoleWrite, shows: ObjectShows, is_first: bool, is_again: bool) -> bool {
        let withdraws = write.role == Some(PodRole::Standby) && write.workload.is_some();
        match self {
            Self::ObjectIsProof => withdraws && shows.is_standby,
            Self::TakeoverNotFenced => withdraws && shows.is_standby && is_first,
            Self::StatusEndNotFenced => withdraws && shows.is_standby && is_again,
            _ => false,
        }
    }

    /// Changes a write before it is sent.
    pub fn change(self, write: &mut RoleWrite) {
        match self {
            Self::WithdrawnByObject => write.marks.retain(|(mark, _)| !mark.starts_with("withdrawn.")),
            Self::StartNotFenced if matches!(write.change, PodChange::Fence(_)) => write.change = PodChange::None,
            _ => {}
        }
    }

    /// Changes what a process sees of an object.
    pub fn seen(self, candidate: Candidate) -> Candidate {
        let Candidate::Pod(pod) = &candidate else { return candidate };
        let mut pod = PodFacts::clone(pod);
        match self {
            Self::NextStartsTooEarly if pod.deletion_grace.is_some() => {
                (pod.stopped, pod.finished) = (true, true);
            }
            Self::StartedPodUnknown if pod.deletion_grace.is_some() => {
                pod.annotations.set(&names::started_annotation(LEASE), None);
            }
            _ => return candidate,
        }
        Candidate::Pod(pod.into())
    }
}
