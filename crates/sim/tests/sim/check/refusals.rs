//! R3: a workload that has had no term is stopped only if enough nodes to prevent a majority refused an attempt of its lease with one term
//! of another holder, whose keys still lasted when the stop was decided, and after the workload had given its consent.

use redislease_core::op::{Stage, Vote};
use redislease_core::quorum::Node;
use redislease_plan::api::names;
use redislease_plan::election::{HolderName, Run, WorkloadFacts};
use redislease_plan::plan::{PodChange, RoleWrite};

use crate::api::calls::place_of;
use crate::api::objects::{self, lease_of};
use crate::check::state::{Consent, Of, Refused};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// A process may not see that the consent was away for a shorter time: it reads a workload at most once a second, and the answer takes
/// time.
const UNSEEN: Micros = 3 * SECOND;

impl World {
    /// A node answered an attempt of a lease.
    pub fn attempt_answered(&mut self, process: usize, (uid, place): (u32, usize), node: Node, vote: &Vote) {
        let Vote::Refused { by, ttl_left } = vote else { return };
        let of = (process, self.processes[process].boot, lease_of(uid), node);
        let ours = objects::cluster(self.processes[process].cluster).uid;
        let lease = (objects::namespace(place), objects::lease_name(place));
        let is_other =
            |name: &HolderName| name.cluster.uid != ours || (&*name.namespace, &name.lease) != (lease.0, &lease.1);
        if by.stage == Stage::Term && by.metadata.parse().is_ok_and(|name| is_other(&name)) {
            // The clocks of the process and of the node may differ in their rates.
            let until = self.now + (ttl_left.0 * 1030 / 1000 + 10) * MILLI;
            self.running.refusals.answers.insert(of, Refused { by: by.attempt, at: self.now, until });
        } else {
            self.running.refusals.answers.remove(&of);
        }
    }

    /// A process decides to stop a workload.
    pub fn stop_is_decided(&mut self, process: usize, uid: u32, write: &RoleWrite) {
        if write.change != PodChange::Run(Run::Replicas(0)) || write.dry_run {
            return;
        }
        let (boot, lease, now) = (self.processes[process].boot, lease_of(uid), self.now);
        let of_lease = (process, boot, lease, Node(0))..=(process, boot, lease, Node(u8::MAX));
        let refusals = &mut self.running.refusals;
        let last: Vec<&Refused> =
            refusals.answers.range(of_lease).map(|(_, one)| one).filter(|one| now <= one.until).collect();
        let since = last.iter().filter_map(|term| {
            let mut at: Vec<Micros> = last.iter().filter(|one| one.by == term.by).map(|one| one.at).collect();
            at.sort_unstable_by(|a, b| b.cmp(a));
            at.get(self.swarm.quorum.blocking() - 1).copied()
        });
        let since = since.max();
        refusals.known_since.insert((process, objects::number(&write.uid)), since);
    }

    /// Whether a stop that is stored was allowed: by refused attempts, or because the workload carries the mark that it got when it was
    /// stopped, by an earlier one or before the lease saw it.
    pub fn is_refused(&mut self, process: usize, of: Of, before: &WorkloadFacts, write: &RoleWrite) -> bool {
        let mark = self.mark_of(of, write);
        let refusals = &mut self.running.refusals;
        let known_since = refusals.known_since.get(&(process, objects::number(&write.uid))).copied().flatten();
        let consent = refusals.consents.get(&((of.0, place_of(&write.pod)), of.1));
        let consents_since = consent.map_or(0, |consent| consent.since);
        let is_marked = before.annotations.get(&names::owner_annotation(&objects::lease_name(of.1))) == Some(&mark);
        if known_since.is_some_and(|since| since >= consents_since) {
            refusals.stopped.insert(mark);
            return true;
        }
        // After a restore of etcd, a process may remember a mark that the workload has lost.
        let may_remember = self.check.listed_after.contains_key(&of.0);
        (is_marked || may_remember) && refusals.stopped.contains(&mark)
    }

    /// A write left a stopped workload stopped.
    pub fn stays_stopped(&mut self, of: Of, write: &RoleWrite) {
        let mark = self.mark_of(of, write);
        self.running.refusals.stopped.insert(mark);
    }

    /// The mark that a lease leaves on a workload.
    fn mark_of(&self, of: Of, write: &RoleWrite) -> String {
        let lease = self.apis[of.0].state.leases[of.1].as_deref().map_or(0, objects::uid_of);
        format!("{}.{}", objects::lease_uid(lease), write.uid)
    }

    /// A workload was created, which names this lease.
    pub fn consent_begins(&mut self, of: Of, to: usize) {
        self.running.refusals.consents.retain(|(workload, _), _| *workload != of);
        self.consent_changes(of, Some(to));
    }

    /// A workload names this lease from now on, or none.
    pub fn consent_changes(&mut self, of: Of, to: Option<usize>) {
        let (now, consents) = (self.now, &mut self.running.refusals.consents);
        for (_, consent) in consents.iter_mut().filter(|((workload, _), _)| *workload == of) {
            consent.until.get_or_insert(now);
        }
        if let Some(lease) = to {
            let consent = consents.entry((of, lease)).or_insert(Consent { since: now, until: None });
            if consent.until.is_some_and(|until| now >= until + UNSEEN) {
                consent.since = now;
            }
            consent.until = None;
        }
    }
}
