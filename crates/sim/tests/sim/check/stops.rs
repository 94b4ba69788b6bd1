//! R6: a request ends a term only after the API server accepted the dry run of the stop of what runs for it.
//!
//! A request is `spec.suspend`, a handover, or a quorum that does not allow the namespace any more. What runs is the started pod that
//! holds the term, or the workload that holds it, has replicas and names the lease. It counts if the facts of the last turn show it so,
//! or do not show it: a process cannot know of a start that its watch has not shown.
//!
//! The process that ends the term must have sent this dry run itself since its start and its last end without proof of a term of this
//! object. A policy may come into force after the answer, so it may have refused such a stop for at most [`RACE`] at the end of the term, or
//! since a pause of the process.
//!
//! The end of a term whose status says that it has ended is repeated without a test: its keys are sealed once more. What runs for it
//! then was started by somebody else, or an etcd that was restored shows it.
//!
//! R5: what runs for a term that a process has ended or lost is stopped before the keys of the term end, and neither the status nor a
//! label shows the term any more. `check::running` says what excuses it.

use redislease_core::lease::TermId;
use redislease_core::op::Attempt;
use redislease_plan::api::RedisLease;
use redislease_plan::election::{Candidate, EndCause, PodFacts, WorkloadFacts};
use redislease_plan::plan::{CandidateFacts, PodKnowledge, RoleWrite};
use redislease_plan::status::TermEnd;

use crate::api::objects::{self, lease_of};
use crate::api::server::{ApiCall, Policy, Verdict};
use crate::api::workloads::replicas;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::orphans::consents_to;
use crate::check::coverage::Sight;
use crate::check::state::Of;
use crate::event::Inside;
use crate::redis::clock::{Micros, SECOND};
use crate::world::World;

/// How long after a policy came into force a term may end because of an earlier answer.
const RACE: Micros = 10 * SECOND;

/// Whether the pod was started for the lease of this place, and nothing stops it.
fn pod_runs(pod: &PodFacts, place: usize) -> bool {
    objects::was_started(pod, place) && pod.deletion_grace.is_none() && !pod.finished
}

/// Whether the workload runs and lets the lease of this place stop it.
fn workload_runs(workload: &WorkloadFacts, place: usize) -> bool {
    consents_to(workload, place) && replicas(workload) > 0
}

impl World {
    /// An API server has answered the dry run of a stop. Returns its answer.
    pub fn stop_is_tested(
        &mut self,
        call: &ApiCall,
        write: &RoleWrite,
        mut verdict: Verdict,
        answer: Option<&Candidate>,
    ) -> Verdict {
        if verdict == Verdict::Refused && self.is(Bug::RefusedStopAccepted) {
            verdict = Verdict::Written;
        }
        let stops = match answer {
            Some(Candidate::Workload(workload)) => replicas(workload) == 0,
            Some(Candidate::Pod(_)) | None => true,
        };
        if verdict == Verdict::Written && stops {
            self.coverage.saw(Sight::StopTested);
            self.running.tested.insert((call.process, call.boot, objects::number(&write.uid)));
        } else if self.apis[self.processes[call.process].cluster].policy.is_some() {
            self.coverage.saw(Sight::StopKept);
        }
        verdict
    }

    /// A process ends a term without a proof that its holder has stopped.
    pub fn end_is_ordered(&mut self, process: usize, uid: u32, term: &TermId) {
        let Some(place) = self.unit(process, uid).map(|unit| unit.place) else { return };
        let object = self.heir((self.processes[process].cluster, place), objects::pod_of(term));
        self.end_races_with_deletion(process, uid, place);
        let runs = self.runs(process, place, object) && self.may_know(process, uid, place, object);
        let named = self.named(process, uid);
        let has_ended = named.is_some_and(|named| named.attempt == term.attempt && named.active == Some(false));
        self.running.ended.insert(object, term.attempt);
        self.stop_will_be_due(process, uid, term);
        let was_tested = self.running.tested.remove(&(process, self.processes[process].boot, object));
        let problem = if was_tested { self.kept_since(process, place) } else { Some("was not tested".to_owned()) };
        if let Some(unit) = self.unit(process, uid) {
            unit.checks.ended_while_running = (runs && !has_ended).then_some((term.attempt, problem));
        }
    }

    /// The term of a workload has ended. If the spec names another one now, this one runs on and counts no longer.
    pub fn workload_is_left(&mut self, (cluster, place): (usize, usize), attempt: Attempt, end: TermEnd) {
        let leaves = end == TermEnd::Decided(EndCause::NoLongerCandidate)
            && self.specs[cluster][place].workload.is_some_and(|of_spec| of_spec != place);
        let left = self.running.ended.iter().find(|(_, ended)| leaves && **ended == attempt).map(|(object, _)| *object);
        for (&of, workload) in &mut self.running.workloads {
            let object = self.apis[of.0].workload_of(of.1).map(|workload| objects::number(&workload.uid));
            if left.is_some() && object == left {
                workload.lease = None;
            }
        }
    }

    /// R6: the term has ended for this reason, while something ran for it.
    pub fn end_has_reason(&mut self, attempt: Attempt, end: TermEnd, problem: Option<String>) {
        let TermEnd::Decided(EndCause::Suspended | EndCause::HandoverRequested | EndCause::NamespaceNotAllowed) = end
        else {
            return;
        };
        match problem {
            None => self.coverage.saw(Sight::EndedAfterTest),
            Some(problem) => {
                self.check
                    .fail(format!("R6: {attempt:?} ended because of {end:?}, and the stop of what runs {problem}"));
            }
        }
    }

    /// R5: a process has ended or lost a term: what runs for it must stop before its keys end.
    pub fn stop_will_be_due(&mut self, process: usize, uid: u32, term: &TermId) {
        let Some(place) = self.unit(process, uid).map(|unit| unit.place) else { return };
        let of = (self.processes[process].cluster, place);
        let object = self.heir(of, objects::pod_of(term));
        let of_term = self.check.live.iter().filter(|live| live.attempt == term.attempt);
        let budget = (self.specs[of.0][of.1].grace + 1) * SECOND;
        let delay = of_term.map(|live| live.until.saturating_sub(self.now)).max().unwrap_or(0).max(budget);
        self.later(process, delay, Inside::StopDue { uid, attempt: term.attempt, object });
    }

    /// R5: the keys of a term end that this process has ended or lost. If it has lost its authority since then, another one may not know
    /// why.
    pub fn stop_is_due(&mut self, process: usize, uid: u32, attempt: Attempt, object: u32) {
        let cluster = self.processes[process].cluster;
        let is_its =
            |lease: &RedisLease| objects::uid_of(lease) == lease_of(uid) && lease.metadata.deletion_timestamp.is_none();
        let leases = &self.apis[cluster].state.leases;
        let Some(place) = leases.iter().position(|lease| lease.as_deref().is_some_and(is_its)) else { return };
        // It may have adopted the term again.
        let machine = self.processes[process].machine_of(uid);
        let goes_on = machine.is_some_and(|machine| machine.believed() == Some(attempt));
        let of = (cluster, place);
        if goes_on || !self.authority(process).decides() || self.is_excused(of) {
            return;
        }
        self.coverage.saw(Sight::StopJudged);
        let may_know = self.may_know(process, uid, place, object);
        if let Some(shown) = self.still_shown(process, of, attempt, object, may_know) {
            self.check.fail(format!("R5: {shown} after the keys of {attempt:?} of lease {uid}, which ended"));
        }
    }

    /// What still shows an ended term of this pod or workload, unless it has a new one.
    fn still_shown(&self, process: usize, of: Of, attempt: Attempt, object: u32, may_know: bool) -> Option<String> {
        let api = &self.apis[of.0];
        let named = api.named(of.1).filter(|named| named.active != Some(false));
        let is_named = named.is_some_and(|named| named.attempt == attempt);
        let is_refused = self.swarm.has(Fault::RefusesStatuses) || api.has_policy(Policy::RefusesStatuses);
        if is_named && !is_refused {
            return Some("the status calls the term active".to_owned());
        }
        if !is_named && named.is_some_and(|named| self.heir(of, named.pod) == object) {
            return None;
        }
        if api.active_pods(of.1).any(|pod| pod == object) {
            return Some(format!("pod {object} carries the label active"));
        }
        // Somebody else may have scaled the workload since.
        let workload = (of.0, self.specs[of.0][of.1].workload.unwrap_or(of.1));
        let is_ours = self.running.workloads.get(&workload).is_some_and(|workload| workload.lease == Some(of.1));
        let runs = may_know && self.runs(process, of.1, object) && (is_ours || !self.specs[of.0][of.1].clustered);
        runs.then(|| format!("pod or workload {object} runs on"))
    }

    /// Whether this pod or workload runs for the lease of this place, as the API server shows it.
    pub fn runs(&self, process: usize, place: usize, object: u32) -> bool {
        let cluster = self.processes[process].cluster;
        let (api, spec) = (&self.apis[cluster], &self.specs[cluster][place]);
        if !spec.clustered {
            return spec.gated && api.state.pods.get(&object).is_some_and(|pod| pod_runs(pod, place));
        }
        let of_spec = objects::lease_name(spec.workload.unwrap_or(place));
        let workload = api.workloads.get(&object).filter(|workload| workload.name == of_spec);
        workload.is_some_and(|workload| workload_runs(workload, place))
    }

    /// Whether the last turn of the lease has not seen that the pod or workload does not run.
    fn may_know(&mut self, process: usize, uid: u32, place: usize, object: u32) -> bool {
        let Some(id) = self.unit(process, uid).map(|unit| unit.id) else { return false };
        let Some(machine) = self.processes[process].engine.machine(id) else { return false };
        let (candidates, holder) = &machine.known;
        match (candidates, holder) {
            (CandidateFacts::Known(electorate), _) if electorate.workload().is_some() => {
                let of_term = electorate.workload().filter(|workload| objects::number(&workload.uid) == object);
                of_term.is_some_and(|workload| workload_runs(workload, place))
            }
            (_, PodKnowledge::Here(holder)) => pod_runs(&holder.facts, place),
            (_, PodKnowledge::Gone { .. }) => false,
            (_, PodKnowledge::Unseen | PodKnowledge::Workload) => true,
        }
    }

    /// That a policy has refused this stop for so long that no answer from before it may count.
    fn kept_since(&self, process: usize, place: usize) -> Option<String> {
        let operator = &self.processes[process];
        let (policy, since) = self.apis[operator.cluster].policy?;
        let races = self.now < since + RACE || operator.history.continued_at > since;
        let applies = match policy {
            Policy::RefusesDeletions => !self.specs[operator.cluster][place].clustered,
            Policy::RefusesReplicas | Policy::RestoresReplicas => self.specs[operator.cluster][place].clustered,
            Policy::RefusesStatuses => false,
        };
        (applies && !races).then(|| format!("is refused since {since} µs"))
    }
}
