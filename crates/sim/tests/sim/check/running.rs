//! What runs in true time: the processes of pods that the operator started, and the replicas of workloads.
//!
//! - R1: no two started pods of one lease run at once, nor its workload in two clusters.
//! - R2: one lease writes at most [`WRITES`] times a minute to one object.
//! - R3: a workload that runs is stopped only after a published term of its own, or after a refused attempt: see `check::refusals`.
//! - R4: a start is stored only if the status named its term after the version of the object that it replaces.
//! - R5: a workload that an operator started is stopped before the keys of its last term end.
//!
//! R1 is excused where `docs/guarantees.md` excuses it: a pod is counted until its grace period has passed, and until it is deleted by
//! force or its lease is deleted. A workload is counted if an operator started it or published a term for it, and its cluster must be able
//! to stop it: for the last two leases its API server answered, and a process ran that decides. The same excuses R5.
//! [`crate::chaos::orphans`] says when the pods of a workload count that was deleted.

use redislease_core::op::Token;
use redislease_plan::api::names::PodRole;
use redislease_plan::election::WorkloadFacts;
use redislease_plan::plan::{PodChange, RoleWrite};

use crate::api::calls::{LONGEST_WEBHOOK, place_of};
use crate::api::objects::{self, Named};
use crate::api::server::{Mode, Policy};
use crate::api::workloads::replicas;
use crate::chaos::fault::Fault;
use crate::chaos::orphans::consents_to;
use crate::check::coverage::Sight;
use crate::check::state::Of;
use crate::event::Event;
use crate::operator::state::{Life, Process};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

impl World {
    /// R4: a start is stored.
    pub fn start_is_stored(&mut self, of: Of, write: &RoleWrite) {
        let token = Token(objects::version(write.token.as_deref()));
        let lease = self.apis[of.0].state.leases[of.1].as_deref();
        let named = lease.and_then(objects::named).filter(|named| named.active != Some(false));
        let number = objects::number(&write.uid);
        let named = named.filter(|named| named.token == token);
        let is_inherited = named.is_some_and(|named| self.heir(of, named.pod) == number && named.pod != number);
        let is_named = is_inherited || named.is_some_and(|named| named.pod == number);
        let version = objects::version(write.version.as_deref());
        let was_named = self.running.named_until.get(&(of, token)).is_some_and(|until| *until > version);
        if !is_named && !was_named {
            let pod = &write.pod;
            self.check.fail(format!(
                "R4: {pod} of cluster {} is started in version {version} for {token:?}, which the status names no more",
                of.0
            ));
        }
        if let Some(uid) = lease.map(objects::uid_of) {
            self.running.started_for.insert(number, uid);
        }
        if is_inherited {
            self.coverage.saw(Sight::TermInherited);
        }
    }

    /// R4: the label `active` is stored for a term that a status has called active.
    pub fn label_is_stored(&mut self, of: Of, write: &RoleWrite) {
        let (token, pod) = (Token(objects::version(write.token.as_deref())), objects::number(&write.uid));
        if write.role == Some(PodRole::Active) && !self.running.named.contains(&(of, token, pod)) {
            let text = format!(
                "R4: {} of cluster {} is labelled active for {token:?}, a term of which no status said so",
                write.pod, of.0
            );
            self.check.fail(text);
        }
    }

    /// The token of a role is one that the status of the lease has shown.
    pub fn token_is_known(&mut self, of: Of, write: &RoleWrite) {
        let token = Token(objects::version(write.token.as_deref()));
        let newest = self.running.newest.get(&of).copied().unwrap_or_default();
        if token > newest {
            let text =
                format!("token: {} of cluster {} gets {token:?}, and the status has shown {newest:?}", write.pod, of.0);
            self.check.fail(text);
        }
    }

    /// R1: the kubelet starts the processes of a pod that an operator let start.
    pub fn pod_begins(&mut self, cluster: usize, pod: u32) {
        let Some(facts) = self.apis[cluster].state.pods.get(&pod) else { return };
        let Some(uid) = self.running.started_for.get(&pod).copied() else { return };
        // A Kubernetes node without power starts nothing.
        if facts.deletion_grace.is_some() || self.check.has_stopped(pod) {
            return;
        }
        let is_its = |lease: &redislease_plan::api::RedisLease| {
            objects::uid_of(lease) == uid && lease.metadata.deletion_timestamp.is_none()
        };
        let leases = &self.apis[cluster].state.leases;
        let Some(place) = leases.iter().position(|lease| lease.as_deref().is_some_and(is_its)) else { return };
        let now = self.now;
        let running = self.running.pods.entry((cluster, place)).or_default();
        // Without its label, a pod that is no candidate any more cannot be found. A list that does not show the lease removes it.
        let loses_label = self.swarm.has(Fault::StripsLabel) || self.swarm.has(Fault::Fight);
        let is_excused = loses_label || (self.swarm.stale_lists > 0 && self.swarm.has(Fault::Relabel));
        if let Some((other, _)) = running.iter().find(|(_, until)| !is_excused && now < **until) {
            let text =
                format!("R1: pod {pod} of cluster {cluster} starts for lease {place}, and pod {other} still runs");
            self.check.fail(text);
        }
        running.insert(pod, Micros::MAX);
    }

    /// The replicas of a workload are changed, by an operator `for_lease` or by somebody else: its processes follow.
    pub fn replicas_change(&mut self, of: Of, replicas: i32, for_lease: Option<usize>) {
        let workload = self.running.workloads.entry(of).or_default();
        workload.changes += 1;
        // Processes that an operator started count until they have ended.
        workload.lease = for_lease.and_then(|lease| if replicas > 0 { Some(lease) } else { workload.lease });
        let changes = workload.changes;
        let longest =
            if replicas > 0 { 3 * SECOND } else { self.specs[of.0][for_lease.unwrap_or(of.1)].grace * SECOND };
        let delay = self.rng.between(10 * MILLI, longest);
        self.after(delay, Event::Replicas { cluster: of.0, place: of.1, changes, run: replicas > 0 });
    }

    /// R1: a workload counts from the publication of a term for it, also if it ran before.
    pub fn term_is_published(&mut self, of: Of, before: Option<Named>, after: Option<Named>) {
        let is_new = |named: &Named| named.active == Some(true) && before.is_none_or(|was| was.token != named.token);
        let Some(workload) = self.apis[of.0].workload_of(of.1) else { return };
        let (number, runs) = (objects::number(&workload.uid), replicas(workload) > 0);
        let Some(after) = after.filter(|named| self.heir(of, named.pod) == number) else { return };
        if after.active != Some(false) {
            self.running.terms.insert((of.0, number));
        }
        if is_new(&after) && runs {
            self.running.workloads.entry(of).or_default().lease = Some(of.1);
        }
    }

    /// R1: the processes of a workload have started or ended.
    pub fn replicas_follow(&mut self, of: Of, changes: u32, run: bool) {
        let now = self.now;
        let Some(workload) = self.running.workloads.get_mut(&of).filter(|workload| workload.changes == changes) else {
            return;
        };
        workload.runs_since = run.then(|| workload.runs_since.unwrap_or(now));
        if !run {
            workload.lease = None;
        }
        let Some(lease) = workload.lease else { return };
        let others = (0..self.apis.len()).filter(|other| *other != of.0);
        if others.filter(|other| !self.is_excused((*other, lease))).count() > 0 {
            self.coverage.saw(Sight::R1Judged);
        }
        let mut elsewhere = self.running.workloads.iter().filter(|((cluster, _), _)| *cluster != of.0);
        let other = elsewhere.find(|(_, other)| other.lease == Some(lease) && other.runs_since.is_some());
        let Some((&(other, other_place), _)) = other else { return };
        let keys = self.swarm.keys[lease];
        let holds = |cluster: usize| {
            let mut live = self.check.live.iter().filter(|live| live.keys & keys != 0 && now < live.until);
            live.any(|live| self.processes[live.process].cluster == cluster)
        };
        // The cluster without the lease should have stopped its workload.
        let (late, place) = if holds(other) { of } else { (other, other_place) };
        // Without the consent, an operator may not stop it. Without the workload it cannot: the term must go on.
        let consents = self.apis[late].workload_of(place).is_none_or(|workload| consents_to(workload, lease));
        if consents && !self.is_excused((late, place)) {
            let text =
                format!("R1: the workload of lease {lease} runs in the clusters {} and {other}: {late} is late", of.0);
            self.check.fail(text);
        }
    }

    /// Whether this cluster may not have been able to stop a workload in time.
    pub fn is_excused(&self, (cluster, place): Of) -> bool {
        let api = &self.apis[cluster];
        let window = 2 * self.swarm.key_life() + 10 * SECOND;
        let disturbed_at = self.running.disturbed_at.get(&cluster);
        let hung_until = api.hangs_until.get(objects::namespace(place));
        (self.has_stopped(cluster) && !self.another_decides(cluster, None))
            || api.mode != Mode::Up
            || api.refuses_writes
            || api.policy.is_some_and(|(policy, _)| policy != Policy::RefusesStatuses)
            || disturbed_at.is_some_and(|at| self.now < at + window)
            || hung_until.is_some_and(|until| self.now < *until + LONGEST_WEBHOOK + window)
    }

    /// Whether a process of the cluster does not run, or does not reach its API server.
    fn has_stopped(&self, cluster: usize) -> bool {
        let mut of_cluster = self.processes.iter().filter(|process| process.cluster == cluster);
        of_cluster.any(|process| process.life != Life::Running || process.api_cut > 0)
    }

    /// Whether a process of the cluster, other than this one, decides about its leases and reaches its API server.
    fn another_decides(&self, cluster: usize, than: Option<usize>) -> bool {
        let decides = |(number, process): (usize, &Process)| {
            let able = process.cluster == cluster && process.life == Life::Running && process.api_cut == 0;
            able && Some(number) != than && self.authority(number).decides()
        };
        self.processes.iter().enumerate().any(decides)
    }

    /// A process stops or continues, or does not reach its API server, or does again: then nobody may decide for a while.
    pub fn process_disturbed(&mut self, process: usize) {
        let cluster = self.processes[process].cluster;
        if !self.another_decides(cluster, Some(process)) {
            self.running.disturbed(cluster, self.now);
        }
    }

    /// A fault begins or ends that may keep the operator of a cluster from writing.
    pub fn note_disturbance(&mut self, fault: Fault, process: usize) {
        let cluster = self.processes[process].cluster;
        let of_process = matches!(
            fault,
            Fault::Crash | Fault::Rollout | Fault::Freeze | Fault::Suspend | Fault::LoseTime | Fault::ApiCut
        );
        if of_process {
            return self.process_disturbed(process);
        }
        let disturbs = matches!(
            fault,
            Fault::ApiRefuses
                | Fault::ApiHangs
                | Fault::Webhook
                | Fault::Recreate
                | Fault::ChangeSpec
                | Fault::StripsLabel
                | Fault::Clamps
                | Fault::KeepsPods
                | Fault::KeepsReplicas
                | Fault::Fight
                | Fault::NoConsent
                | Fault::SharedWorkload
                | Fault::RestoreEtcd
        );
        if disturbs {
            let now = self.now;
            self.running.disturbed(cluster, now);
        }
    }

    /// R3 and R4 of a write to a workload that was stored.
    pub fn workload_written(
        &mut self,
        (process, of): (usize, Of),
        before: &WorkloadFacts,
        after: &WorkloadFacts,
        write: &RoleWrite,
    ) {
        let switches = matches!(write.change, PodChange::Run(_));
        // A write from before a restore of etcd meets a version that is used again.
        let is_listed = self.now >= self.check.listed_after.get(&of.0).copied().unwrap_or(0);
        if switches && is_listed && !consents_to(before, of.1) {
            self.check
                .fail(format!("consent: {} of cluster {} is switched and does not name the lease", write.pod, of.0));
        }
        if write.role == Some(PodRole::Active) {
            self.start_is_stored(of, write);
        } else if switches && replicas(before) > 0 && replicas(after) == 0 {
            self.stop_is_stored(process, of, before, write);
        } else if replicas(before) == 0 {
            self.stays_stopped(of, write);
        }
        if switches && before.run != after.run {
            self.replicas_change((of.0, place_of(&write.pod)), replicas(after), Some(of.1));
        }
    }

    /// R3 and R5: a workload that runs is stopped.
    fn stop_is_stored(&mut self, process: usize, of: Of, before: &WorkloadFacts, write: &RoleWrite) {
        let workload = objects::number(&write.uid);
        let runs_for = self.running.workloads.get(&(of.0, place_of(&write.pod))).and_then(|workload| workload.lease);
        let keys_end = self.check.last.get(&of).map_or(Micros::MAX, |last| last.until);
        let is_judged = runs_for == Some(of.1) && !self.is_excused(of);
        if is_judged {
            self.coverage.saw(Sight::R5Judged);
        }
        if is_judged && keys_end < self.now {
            let late = self.now - keys_end;
            let text = format!("R5: workload {workload} of cluster {} is stopped {late} µs after its keys ended", of.0);
            self.check.fail(text);
        }
        if !self.running.terms.contains(&(of.0, workload)) && !self.is_refused(process, of, before, write) {
            let text = format!("R3: workload {workload} of cluster {} is stopped, and no attempt was answered", of.0);
            self.check.fail(text);
        }
    }
}
