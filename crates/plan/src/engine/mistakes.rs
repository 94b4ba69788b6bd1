//! Mistakes in the annotations of pods and of leases: each is reported once, on its object. The leader on the quorum of a lease
//! reports those of the lease.
//!
//! A pod need not be a candidate: the annotation `redislease.io/lease` in a pod template creates no lease, and that is a mistake
//! to report. So the leader on the quorum `default` reports, as for a workload that names no quorum. Without a RedisQuorum of
//! this name, each replica reports, and the API server keeps one event for each text.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, PodName};
use crate::annotations::{Problem, default_quorum, problems_of_pod};
use crate::election::PodFacts;
use crate::plan::Authority;

/// What was reported about pods.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    /// By the UID of the pod: those of its mistakes that were reported. Pods without any use no memory here.
    pub(super) reported: BTreeMap<String, BTreeSet<Problem>>,
    /// Whether every RedisQuorum that existed at the start has been read: before, the leader is unknown.
    pub(super) quorums_read: bool,
    /// The authority of this process on the quorum `default`; `None`: there is no such quorum.
    authority: Option<Authority>,
}

impl Mistakes {
    /// Checks the newest facts about a pod. Returns the reports that are due. Nobody corrects a pod that has ended or is being deleted.
    pub(super) fn check(&mut self, pod: &PodFacts) -> Vec<Effect> {
        let before = self.reported.remove(&pod.uid).unwrap_or_default();
        self.check_again(pod, &before)
    }

    /// Checks all pods again, and forgets others.
    pub(super) fn check_all<'a>(&mut self, pods: impl Iterator<Item = &'a PodFacts>) -> Vec<Effect> {
        let before = std::mem::take(&mut self.reported);
        let none = BTreeSet::new();
        pods.flat_map(|pod| self.check_again(pod, before.get(&pod.uid).unwrap_or(&none))).collect()
    }

    /// Checks a pod of which these mistakes were reported.
    fn check_again(&mut self, pod: &PodFacts, before: &BTreeSet<Problem>) -> Vec<Effect> {
        let ends = pod.finished || pod.deletion_grace.is_some();
        let mut problems = if ends { Vec::new() } else { problems_of_pod(&pod.annotations) };
        let reports = self.quorums_read && self.authority.is_none_or(|authority| authority == Authority::Lead);
        problems.retain(|problem| reports || before.contains(problem));
        let name = || PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() };
        let new = problems.iter().filter(|problem| !before.contains(problem));
        let effects = new.map(|problem| Effect::ReportOnPod(name(), problem.clone())).collect();
        if !problems.is_empty() {
            self.reported.insert(pod.uid.clone(), problems.into_iter().collect());
        }
        effects
    }

    /// The authority of this process over the leases of this quorum.
    pub(super) fn authority_is(&mut self, quorum: &str, authority: Authority) {
        if quorum == default_quorum() {
            self.authority = Some(authority);
        }
    }

    /// The mistake was not reported.
    pub(super) fn refused(&mut self, pod: &str, problem: &Problem) {
        if let Some(reported) = self.reported.get_mut(pod) {
            reported.remove(problem);
        }
    }
}
