//! Mistakes in the annotations of pods and of leases: each is reported once, on its object. The leader on the quorum of a lease
//! reports those of the lease.
//!
//! A pod need not be a candidate: the annotation `redislease.io/lease` in a pod template creates no lease, and that is a mistake
//! to report. So the leader on the quorum `default` reports, as for a workload that names no quorum. Without a RedisQuorum of
//! this name, each replica reports, and the API server keeps one event for each text.

use std::collections::BTreeMap;

use super::effect::{Effect, PodName};
use crate::annotations::{Problem, default_quorum, problems_of_pod};
use crate::election::PodFacts;
use crate::index::Listing;
use crate::plan::Authority;

/// The pods with mistakes. Other pods use no memory here.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    /// By UID.
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) list: Listing<String>,
    /// Whether every RedisQuorum that existed at the start has been read: before, the leader is unknown.
    pub(super) quorums_read: bool,
    /// The authority of this process on the quorum `default`; `None`: there is no such quorum.
    authority: Option<Authority>,
}

#[derive(Debug)]
pub(super) struct Pod {
    namespace: String,
    name: String,
    /// Whether each problem was reported.
    problems: BTreeMap<Problem, bool>,
}

impl Mistakes {
    /// Takes the newest facts about a pod. Nobody corrects a pod that has ended or is being deleted.
    pub(super) fn seen(&mut self, facts: &PodFacts) {
        let ends = facts.finished || facts.deletion_grace.is_some();
        let problems = if ends { Vec::new() } else { problems_of_pod(&facts.annotations) };
        if problems.is_empty() {
            self.pods.remove(&facts.uid);
            return;
        }
        self.named(&facts.uid);
        let before = self.pods.remove(&facts.uid).map(|pod| pod.problems).unwrap_or_default();
        let reported = |problem: &Problem| before.get(problem).copied().unwrap_or_default();
        let problems = problems.into_iter().map(|problem| (reported(&problem), problem));
        let problems = problems.map(|(reported, problem)| (problem, reported)).collect();
        let (namespace, name) = (facts.namespace.clone(), facts.name.clone());
        self.pods.insert(facts.uid.clone(), Pod { namespace, name, problems });
    }

    /// The list in progress contains this pod.
    pub(super) fn named(&mut self, uid: &str) {
        self.list.contains([uid.to_owned()]);
    }

    /// The authority of this process over the leases of this quorum.
    pub(super) fn authority_is(&mut self, quorum: &str, authority: Authority) {
        if quorum == default_quorum() {
            self.authority = Some(authority);
        }
    }

    /// The mistake was not reported.
    pub(super) fn refused(&mut self, pod: &str, problem: &Problem) {
        if let Some(reported) = self.pods.get_mut(pod).and_then(|pod| pod.problems.get_mut(problem)) {
            *reported = false;
        }
    }

    /// Whether this process reports mistakes on pods now.
    pub(super) fn reports(&self) -> bool {
        self.quorums_read && self.authority.is_none_or(|authority| authority == Authority::Lead)
    }

    /// The list in progress lacks this namespace.
    pub(super) fn unlisted(&mut self, namespace: &str) {
        let kept = self.pods.iter().filter(|(_, pod)| *pod.namespace == *namespace);
        self.list.contains(kept.map(|(uid, _)| uid.clone()));
    }

    /// The list is complete: a pod that it does not contain was deleted without a last event.
    pub(super) fn list_ends(&mut self) {
        if let Some(list) = self.list.ends() {
            self.pods.retain(|uid, _| !list.lacks(uid));
        }
    }
}

impl Pod {
    /// The effects that report what was not reported.
    pub(super) fn report(&mut self, uid: &str) -> impl Iterator<Item = Effect> {
        let Self { namespace, name, problems } = self;
        problems.iter_mut().filter_map(move |(problem, reported)| {
            let pod = || PodName { namespace: namespace.clone(), name: name.clone(), uid: uid.to_owned() };
            (!std::mem::replace(reported, true)).then(|| Effect::ReportOnPod(pod(), problem.clone()))
        })
    }
}
