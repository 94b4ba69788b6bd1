//! Which pods, or which workload, are the candidates of a lease.

use std::sync::Arc;

use kube::core::Selector;
use redislease_core::time::Time;

use super::ids::LeaseId;
use super::namespace::Namespace;
use super::pods::Pods;
use super::selectors::GroupId;
use super::workloads::{Known, Workloads};
use crate::api::ValidLease;
use crate::api::conditions::LeaseReady;
use crate::api::validated::Candidates;
use crate::election::{Electorate, Eligibility};
use crate::plan::calls::WorkloadKey;
use crate::plan::{CandidateFacts, PodKnowledge};

/// How a lease selects its candidates.
#[derive(Clone, Debug, PartialEq)]
enum Candidacy {
    Selector(Selector),
    Workload(WorkloadKey),
    /// The workload itself is the only candidate.
    Itself(WorkloadKey),
}

impl Candidacy {
    fn workload(&self) -> Option<&WorkloadKey> {
        match self {
            Self::Workload(key) | Self::Itself(key) => Some(key),
            Self::Selector(_) => None,
        }
    }
}

/// The candidates that one lease selects, and under what it is indexed for them.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// From the spec in use.
    candidacy: Option<Candidacy>,
    eligibility: Eligibility,
    /// The workload under which the lease is indexed.
    joined: Option<WorkloadKey>,
    group: Option<GroupId>,
}

impl Selection {
    /// Takes the spec in use. Returns whether it selects other candidates than before.
    pub fn follow(&mut self, spec: Option<&ValidLease>, namespace: &Arc<str>) -> bool {
        let eligibility = spec.map(Eligibility::from).unwrap_or_default();
        let candidacy = spec.map(|spec| match &spec.candidates {
            Candidates::Selector(selector) => Candidacy::Selector(selector.clone()),
            Candidates::Workload(workload) if spec.cluster.is_some() => {
                Candidacy::Itself((namespace.clone(), workload.clone()))
            }
            Candidates::Workload(workload) => Candidacy::Workload((namespace.clone(), workload.clone())),
        });
        let changed = self.candidacy != candidacy || self.eligibility != eligibility;
        (self.candidacy, self.eligibility) = (candidacy, eligibility);
        changed
    }

    /// Indexes the lease under the candidates that it selects now.
    pub fn join(&mut self, id: LeaseId, pods: &mut Namespace, workloads: &mut Workloads, now: Time) {
        if let Some(key) = self.joined.take() {
            workloads.leave(&key, id);
        }
        self.joined = self.candidacy.as_ref().and_then(Candidacy::workload).cloned();
        if let Some(key) = &self.joined {
            workloads.join(key, id, self.itself().is_some(), now);
        }
        self.regroup(id, pods, workloads);
    }

    /// Moves the lease to the group of the pods that its selector matches now.
    pub fn regroup(&mut self, id: LeaseId, pods: &mut Namespace, workloads: &Workloads) {
        let selector = match &self.candidacy {
            None | Some(Candidacy::Itself(_)) => None,
            Some(Candidacy::Selector(selector)) => Some(selector),
            Some(Candidacy::Workload(key)) => match workloads.known(key) {
                Known::Selector(selector) => Some(selector),
                Known::Nothing | Known::Unusable(..) => None,
            },
        };
        if let Some(group) = self.group.take() {
            pods.leave(id, group);
        }
        self.group = selector.map(|selector| pods.join(id, selector, self.eligibility.clone()));
    }

    pub fn leave(&mut self, id: LeaseId, pods: &mut Namespace, workloads: &mut Workloads) {
        if let Some(group) = self.group.take() {
            pods.leave(id, group);
        }
        if let Some(key) = self.joined.take() {
            workloads.leave(&key, id);
        }
    }

    /// The workload that itself is the only candidate.
    pub const fn itself(&self) -> Option<&WorkloadKey> {
        match &self.candidacy {
            Some(Candidacy::Itself(key)) => Some(key),
            _ => None,
        }
    }

    /// The workload whose pods are the candidates, if it has none.
    pub fn without_pods(&self, pods: &Namespace) -> Option<&WorkloadKey> {
        match (&self.candidacy, self.group) {
            (Some(Candidacy::Workload(key)), Some(group)) if pods.has_no_members(group) => Some(key),
            _ => None,
        }
    }

    /// The candidates, and the group of the pods that the selector matches; `None` while they are unknown.
    pub fn candidates(
        &self,
        pods: &mut Namespace,
        workloads: &Workloads,
        pods_listed: bool,
    ) -> (CandidateFacts, Option<GroupId>) {
        let workload = self.candidacy.as_ref().and_then(Candidacy::workload);
        let unknown = match workload.map(|key| workloads.known(key)) {
            Some(Known::Unusable(reason, message)) => CandidateFacts::Unusable(*reason, message.clone()),
            Some(Known::Nothing | Known::Selector(_)) | None => CandidateFacts::Unknown,
        };
        if let Some(key) = self.itself() {
            let workload = workloads.object(key);
            if let Some(workload) = workload.filter(|_| pods_listed && workloads.was_read(key)) {
                return (CandidateFacts::Known(Arc::new(Electorate::of_workload(workload.clone()))), None);
            }
            // If it does not exist or cannot be read, there is a message. What its selector lacks is no matter.
            let is_selector = matches!(unknown, CandidateFacts::Unusable(LeaseReady::InvalidReference, _));
            return (if workload.is_some() && is_selector { CandidateFacts::Unknown } else { unknown }, None);
        }
        let group = self.group.filter(|_| pods_listed);
        let electorate = group.and_then(|group| pods.electorate(group));
        (electorate.map_or(unknown, CandidateFacts::Known), group)
    }

    /// What is known about the holder with this UID.
    pub fn holder(&self, (namespace, uid): (&str, &str), pods: &Pods, workloads: &Workloads) -> PodKnowledge {
        let Some(key) = self.itself() else { return pods.find(namespace, uid) };
        match workloads.object(key) {
            Some(workload) if workload.uid == uid => PodKnowledge::Workload,
            _ => match pods.find(namespace, uid) {
                // Another workload has the name, or none.
                PodKnowledge::Unseen if pods.listed && workloads.was_read(key) => PodKnowledge::Gone { stopped: false },
                known => known,
            },
        }
    }
}
