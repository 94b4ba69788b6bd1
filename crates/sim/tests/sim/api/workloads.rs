//! Workloads that are candidates themselves: one Deployment for each lease with granularity Cluster.

use std::sync::Arc;

use redislease_plan::api::names::{self, PodRole};
use redislease_plan::api::validated::{Workload, WorkloadKind};
use redislease_plan::election::{Run, WorkloadFacts};
use redislease_plan::engine::Input;
use redislease_plan::plan::{PodChange, RoleWrite};

use crate::api::objects::{self, RUNNING};
use crate::api::server::{ApiServer, Mode, Mutation, Policy, Verdict};
use crate::chaos::bug::Bug;
use crate::event::Inside;
use crate::operator::state::{Life, Process};
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

/// How many replicas a workload has.
pub const fn replicas(facts: &WorkloadFacts) -> i32 {
    match facts.run {
        Run::Replicas(replicas) => replicas,
        Run::Suspended(_) => 0,
    }
}

impl ApiServer {
    /// The workload of the lease at this place.
    pub fn workload_of(&self, place: usize) -> Option<&Arc<WorkloadFacts>> {
        let name = objects::lease_name(place);
        self.workloads.values().find(|workload| workload.name == name)
    }

    fn put_workload(&mut self, number: u32, mut facts: WorkloadFacts) {
        facts.resource_version = Some(self.next_version().to_string());
        self.workloads.insert(number, Arc::new(facts));
    }

    pub fn delete_workload(&mut self, number: u32) {
        self.next_version();
        self.workloads.remove(&number);
    }

    /// Writes the role of a workload, and switches it. Returns the workload that the answer shows.
    pub fn write_workload(
        &mut self,
        place: usize,
        write: &RoleWrite,
        checked: bool,
    ) -> (Verdict, Option<Arc<WorkloadFacts>>) {
        let number = objects::number(&write.uid);
        let Some(found) = self.workloads.get(&number).cloned() else { return (Verdict::Gone, None) };
        if found.name != write.pod {
            return (Verdict::Gone, Some(found));
        }
        if checked && write.version.is_some() && write.version != found.resource_version {
            return (Verdict::Conflict, Some(found));
        }
        if self.refuses_writes {
            return (Verdict::Refused, Some(found));
        }
        let mut facts = WorkloadFacts::clone(&found);
        let strips = self.mutation == Some(Mutation::StripsLabel);
        objects::store_role(place, write, strips, &mut facts.labels, &mut facts.annotations);
        if let PodChange::Run(run) = write.change {
            facts.run = match (run, self.mutation) {
                (Run::Replicas(replicas), Some(Mutation::Clamps)) => Run::Replicas(replicas.min(1)),
                _ => run,
            };
        }
        if facts.run != found.run && self.has_policy(Policy::RefusesReplicas) {
            return (Verdict::Refused, Some(found));
        }
        if self.has_policy(Policy::RestoresReplicas) {
            facts.run = found.run;
        }
        if write.dry_run {
            return (Verdict::Written, Some(Arc::new(facts)));
        }
        if facts != *found {
            self.writes.role += 1;
            self.put_workload(number, facts);
        }
        (Verdict::Written, self.workloads.get(&number).cloned())
    }
}

impl World {
    pub fn create_workload(&mut self, cluster: usize, place: usize) {
        let number = self.new_uid();
        let replicas = self.rng.pick(&[0, RUNNING]);
        self.apis[cluster].put_workload(number, objects::deployment(number, place, replicas));
        self.consent_begins((cluster, place), place);
        let adopts = self.is_made(place).then(|| self.running.inherit((cluster, place), number)).flatten();
        self.replicas_change((cluster, place), replicas, adopts.filter(|_| replicas > 0));
        self.tell_workload(cluster, place);
    }

    /// Somebody else scales the workload of this place.
    pub fn set_replicas(&mut self, cluster: usize, place: usize, replicas: i32) {
        if self.change_workload(cluster, place, |workload| workload.run = Run::Replicas(replicas)) {
            self.replicas_change((cluster, place), replicas, None);
        }
    }

    /// Changes the workload of this place. Returns whether it is different now.
    pub fn change_workload(&mut self, cluster: usize, place: usize, change: impl FnOnce(&mut WorkloadFacts)) -> bool {
        let Some(workload) = self.apis[cluster].workload_of(place).cloned() else { return false };
        let mut facts = WorkloadFacts::clone(&workload);
        change(&mut facts);
        if facts == *workload {
            return false;
        }
        self.apis[cluster].put_workload(objects::number(&workload.uid), facts);
        self.tell_workload(cluster, place);
        true
    }

    /// The watch of workloads shows a change to every process of the cluster.
    pub fn tell_workload(&mut self, cluster: usize, place: usize) {
        for process in 0..self.processes.len() {
            let Process { cluster: of, life, .. } = &self.processes[process];
            if *of == cluster && *life != Life::Down {
                let lag = if self.chaos { self.swarm.watch_lag } else { 5 * MILLI };
                let delay = self.rng.between(MILLI, lag);
                self.later(process, delay, Inside::WatchedWorkload { place });
            }
        }
    }

    /// The watch shows that a workload has changed. A watch that is cut off shows it later.
    pub fn workload_watched(&mut self, process: usize, place: usize) {
        let watching = &self.processes[process];
        if watching.api_cut > 0 || self.apis[watching.cluster].mode != Mode::Up {
            return self.later(process, SECOND, Inside::WatchedWorkload { place });
        }
        if self.is(Bug::WorkloadIsStale) && self.processes[process].saw_workloads >= 2 {
            return;
        }
        let cluster = watching.cluster;
        self.processes[process].saw_workloads += 1;
        let workload = Workload { kind: WorkloadKind::Deployment, name: objects::lease_name(place) };
        let facts = self.apis[cluster].workload_of(place);
        let marked_by = facts.map(|facts| facts.marked_by().map(str::to_owned).collect()).unwrap_or_default();
        self.tell_engine(process, Input::WorkloadChanged(((objects::namespace(place).into(), workload), marked_by)));
    }

    /// What is wrong with the workload of the lease at this place.
    pub fn misplaced_workload(&self, cluster: usize, place: usize) -> Option<String> {
        let api = &self.apis[cluster];
        let lease = api.state.leases[place].as_deref()?;
        let workload = api.workload_of(place)?;
        let named = objects::named(lease);
        if named.is_some_and(|named| named.active.is_none()) {
            // The term is not confirmed: the workload stays as it is.
            return None;
        }
        let holds = named.is_some_and(|named| named.active == Some(true));
        let owner = names::owner_annotation(&objects::lease_name(place));
        let uid = lease.metadata.uid.as_deref().unwrap_or_default();
        let marked_by = workload.annotations.get(&owner).and_then(|owner| owner.split_once('.'));
        if !holds && marked_by.is_none_or(|(lease, _)| lease != uid) {
            // It was never started for this lease, and nothing is known about another holder.
            return None;
        }
        let role = if holds { PodRole::Active } else { PodRole::Standby };
        let run = Run::Replicas(if holds { RUNNING } else { 0 });
        let label = workload.labels.get(&names::role_label(&objects::lease_name(place)));
        let is_right = workload.run == run && label.is_some_and(|label| label == role.as_str());
        (!is_right).then(|| format!("{} is {:?} {label:?}, must be {run:?}", workload.name, workload.run))
    }
}
