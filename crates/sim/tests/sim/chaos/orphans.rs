//! The workload of a lease is deleted with `--cascade=orphan`, and its pods run on. Later a workload of the same name is created, whose
//! controller adopts them.
//!
//! The operator has made some leases for their workloads. It cannot stop the pods of a deleted workload, so the term of such a lease must
//! outlast the workload. Which pods count for R1 nevertheless, and which do not, `docs/annotations.md` says: not those of a lease that
//! somebody wrote, whose term ends at once, not those whose term is lost before a workload of the name exists again, and not those of a
//! workload that is deleted between the end of its term and its stop.

use redislease_core::op::Attempt;
use redislease_plan::api::{RedisLease, names};
use redislease_plan::election::WorkloadFacts;
use redislease_plan::plan::CandidateFacts;

use crate::api::objects;
use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::{Swarm, of_place};
use crate::check::coverage::Sight;
use crate::check::state::Of;
use crate::world::World;

/// The operator has made the lease for the workload with its name.
pub fn make_for_workload(lease: &mut RedisLease, place: usize) {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    let metadata = &mut lease.metadata;
    metadata.labels = Some([pair(names::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned())].into());
    let workload = format!("Deployment/{}", objects::lease_name(place));
    metadata.annotations = Some([pair(names::CREATED_FOR_ANNOTATION, workload)].into());
}

impl Swarm {
    /// Two clusters whose workloads are deleted while their pods run on.
    pub fn with_orphans(mut self, rng: &mut Rng) -> Self {
        if self.clocks_behind || self.keys.len() > u8::BITS as usize {
            return self;
        }
        self.processes = (0..self.processes.len().max(2)).map(|process| process % 2).collect();
        (self.clusters, self.gated, self.clustered, self.excludes) = (2, 0, 0b111, false);
        self.made = rng.pick(&[0, 0b010, 0b101, 0b111, 0b111]);
        // Most other faults excuse R1 for a while.
        self.faults.retain(|_| rng.percent(25));
        if rng.percent(75) {
            (self.api_loss, self.stale_lists) = (0, 0);
        }
        self.faults.push((Fault::Orphan, 10));
        self
    }
}

impl World {
    /// Whether the operator has made the lease at this place for its workload.
    pub fn is_made(&self, place: usize) -> bool {
        of_place(self.swarm.made, place)
    }

    /// The workload of this place is deleted, and its pods run on. Returns whether there was one.
    pub fn orphan_pods(&mut self, (cluster, place): Of) -> bool {
        let Some(workload) = self.apis[cluster].workload_of(place).cloned() else { return false };
        let (number, keys) = (objects::number(&workload.uid), self.swarm.keys[place]);
        let of_cluster = |process: usize| self.processes[process].cluster == cluster;
        let mut live = self.check.live.iter().filter(|live| live.keys == keys && self.now < live.until);
        // The keys outlast a term that a process has ended. The stop of the workload is on its way, and comes too late.
        let has_ended = |attempt: Attempt| self.running.ended.values().any(|ended| *ended == attempt);
        let holds = live.any(|live| of_cluster(live.process) && !has_ended(live.attempt));
        // Its lease and no other one runs it.
        let is_its = self.specs[cluster][place].workload.is_none() && consents_to(&workload, place);
        let of_workload = self.running.workloads.entry((cluster, place)).or_default();
        of_workload.deleted = Some(number);
        of_workload.lease = of_workload.lease.filter(|lease| *lease == place && holds && is_its);
        if !self.is_made(place) {
            self.nobody_stops((cluster, place));
        } else if self.running.workloads[&(cluster, place)].lease.is_some() {
            self.coverage.saw(Sight::PodsOrphaned);
        }
        self.apis[cluster].delete_workload(number);
        self.tell_workload(cluster, place);
        true
    }

    /// A workload of this name exists again. It adopts the pods that run, and keeps or stops them as its replicas say.
    pub fn recreate_workload(&mut self, (cluster, place): Of) {
        if self.specs[cluster][place].clustered && self.apis[cluster].workload_of(place).is_none() {
            self.create_workload(cluster, place);
        }
    }

    /// The pods of a workload that does not exist run on, as documented.
    pub fn nobody_stops(&mut self, of: Of) {
        if let Some(workload) = self.running.workloads.get_mut(&of) {
            workload.lease = None;
        }
    }

    /// A term is lost, and this process has not seen the workload that exists now, if there is one.
    pub fn orphans_lose(&mut self, process: usize, uid: u32) {
        let cluster = self.processes[process].cluster;
        let Some((id, place)) = self.unit(process, uid).map(|unit| (unit.id, unit.place)) else { return };
        let known = match self.processes[process].engine.machine(id).map(|machine| &machine.known.0) {
            Some(CandidateFacts::Known(electorate)) => electorate.workload().map(|workload| &workload.uid),
            _ => None,
        };
        let exists = self.apis[cluster].workload_of(place).map(|workload| &workload.uid);
        if self.is_made(place) && (exists.is_none() || exists != known) {
            self.nobody_stops((cluster, place));
        }
    }

    /// A process ends a term, and has not seen yet that the workload was deleted, which it could stop.
    pub fn end_races_with_deletion(&mut self, process: usize, uid: u32, place: usize) {
        let cluster = self.processes[process].cluster;
        if !self.specs[cluster][place].clustered || self.apis[cluster].workload_of(place).is_some() {
            return;
        }
        let Some(id) = self.unit(process, uid).map(|unit| unit.id) else { return };
        let machine = self.processes[process].engine.machine(id);
        if machine.is_some_and(|machine| matches!(machine.known.0, CandidateFacts::Known(_))) {
            self.nobody_stops((cluster, place));
        }
    }

    /// The number of the workload that a term of this one concerns now: if the lease was made for it, the next one of its name.
    pub fn heir(&self, (cluster, place): Of, number: u32) -> u32 {
        let heir = self.apis[cluster].workload_of(place).filter(|_| self.is_made(place));
        heir.map_or(number, |heir| objects::number(&heir.uid))
    }
}

/// Whether the workload names the lease of this place.
pub fn consents_to(workload: &WorkloadFacts, place: usize) -> bool {
    workload.annotations.get(names::ACTIVATED_BY_ANNOTATION) == Some(&objects::lease_name(place))
}
