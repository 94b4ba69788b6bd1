//! The planted bugs that change what an operator does: its calls and their outcomes, and the commands to its keeper.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::driver::{Command, Fresh};
use redislease_core::lease::{Input as LeaseInput, Standing};
use redislease_core::marker::RunId;
use redislease_core::op::{Attempt, Token};
use redislease_core::seed::Fences;
use redislease_core::time::Time;
use redislease_plan::api::names::{self, PodRole};
use redislease_plan::election::Run;
use redislease_plan::engine::Caller;
use redislease_plan::plan::calls::{Outcome, Request, RoleAnswer};
use redislease_plan::plan::{Authority, PodChange, Priority, Read, RoleOutcome, RoleWrite, StatusOutcome, StatusWrite};

use crate::api::calls::place_of;
use crate::api::objects::{self, lease_of};
use crate::chaos::bug::Bug;
use crate::world::World;

impl World {
    /// Changes a call of a lease. Returns `None` if it is not made.
    pub fn plant_in_call(
        &mut self,
        process: usize,
        uid: u32,
        caller: &Caller,
        mut request: Request,
    ) -> Option<Request> {
        let answer = match &mut request {
            Request::LeaseStatus { object, write, .. } if self.plant_in_status(process, write) => {
                Outcome::LeaseStatus(StatusOutcome::Written(object.clone()))
            }
            Request::LeaseStatus { object, write, .. } if self.is(Bug::DoubtStays) => {
                let is_in_doubt = objects::named(object).is_some_and(|named| named.active.is_none());
                let status = Arc::make_mut(&mut write.status);
                let active = status.conditions.iter_mut().find(|one| one.type_ == "Active" && one.status == "True");
                if let Some(active) = active.filter(|_| is_in_doubt) {
                    "Unknown".clone_into(&mut active.status);
                }
                return Some(request);
            }
            Request::LeaseStatus { write, .. } if self.is(Bug::LevelSwapped) => {
                write.priority = match write.priority {
                    Priority::End => Priority::Counts,
                    Priority::Counts => Priority::End,
                    other => other,
                };
                return Some(request);
            }
            Request::Role { write, .. } if self.is(Bug::StopNotTested) && write.dry_run => {
                let accepted = RoleAnswer { outcome: RoleOutcome::Written(None), found: None };
                Outcome::Role(write.uid.clone(), accepted)
            }
            Request::Role { lease, write, .. } => {
                self.plant_in_role(process, place_of(&lease.name), write);
                return Some(request);
            }
            Request::Read { read: Read::Lease, .. } if self.is(Bug::StartFromCachedStatus) => {
                Outcome::Lease(Ok(self.resource(process, uid)))
            }
            _ => return Some(request),
        };
        self.engine_outcome(process, caller.clone(), answer);
        None
    }

    /// Whether the status is not written.
    fn plant_in_status(&self, process: usize, write: &StatusWrite) -> bool {
        let ends = write.priority == Priority::End;
        let without_quorum = self.is(Bug::LossNotWrittenWithoutQuorum) && self.authority(process) == Authority::End;
        ends && (self.is(Bug::LossNotWritten) || without_quorum)
    }

    /// Whether the keeper does not get the command.
    pub fn ignores(&mut self, process: usize, uid: u32, command: &Command) -> bool {
        match command {
            Command::End { term, proof: false } if self.is(Bug::UnpublishedForEver) => {
                let machine = self.processes[process].machine_of(uid).map(|machine| &machine.driver.view().standing);
                matches!(machine, Some(Standing::Publishing(publishing)) if publishing.id.attempt == term.attempt)
            }
            Command::ReadKeys => self.is(Bug::KeysNotRead),
            Command::Want(_) if self.is(Bug::NeverContendsAgain) => {
                self.unit(process, uid).is_some_and(|unit| unit.checks.lost)
            }
            _ => false,
        }
    }

    /// Changes an outcome, and who gets it.
    pub fn plant_in_outcome(&self, process: usize, caller: &mut Caller, outcome: &mut Outcome) {
        match (caller, outcome) {
            (Caller::Lease(..), Outcome::Role(_, answer)) if self.is(Bug::NoBackOff) => {
                answer.outcome = RoleOutcome::Withdrawn;
            }
            (Caller::Lease(id, _), _) if self.is(Bug::AnswerToAnotherUnit) => {
                // The unit that was made last for the same lease.
                let units = &self.processes[process].units;
                let of = units.iter().find(|unit| unit.id == *id).map(|unit| lease_of(unit.uid));
                let newest = units.iter().filter(|unit| Some(lease_of(unit.uid)) == of).max_by_key(|unit| unit.uid);
                *id = newest.map_or(*id, |unit| unit.id);
            }
            (Caller::Workload(_), Outcome::Workload(found)) if self.is(Bug::ConsentIgnored) => {
                for facts in found.object.iter_mut().map(Arc::make_mut) {
                    let lease = facts.name.clone();
                    facts.annotations.set(names::ACTIVATED_BY_ANNOTATION, Some(&lease));
                }
            }
            _ => {}
        }
    }

    /// The run id of a connection.
    pub fn plant_run_id(&self, process: usize, node: usize, run_id: RunId) -> RunId {
        let known = self.processes[process].peers[node].run_id.clone();
        known.filter(|_| self.is(Bug::CachedRunId)).unwrap_or(run_id)
    }

    /// What the counter of a node is computed from.
    pub fn plant_in_fences(&self, mut fences: Option<Fences>) -> Option<Fences> {
        if self.is(Bug::SeedFromReadableFences)
            && let Some(Fences { target, others, floor, own_clock }) = &mut fences
        {
            (*floor, *own_clock, target.clock) = (Token(0), 0, 0);
            for report in others {
                report.clock = 0;
            }
        }
        fences
    }

    fn plant_in_role(&self, process: usize, place: usize, write: &mut RoleWrite) {
        let cluster = self.processes[process].cluster;
        let pod = self.apis[cluster].state.pods.get(&objects::number(&write.uid));
        if let Some(token) = pod.and_then(|pod| objects::role_of(pod, place).1)
            && self.is(Bug::TokenKept)
            && write.role == Some(PodRole::Active)
        {
            write.token = Some(token.clone());
        }
        let was_started = pod.is_some_and(|pod| objects::was_started(pod, place));
        if self.is(Bug::DeletedTooEarly) && was_started && write.role == Some(PodRole::Standby) {
            write.change = PodChange::Delete;
        }
        if self.is(Bug::WorkloadRunsOn) && write.change == PodChange::Run(Run::Replicas(0)) {
            write.change = PodChange::None;
        }
        let named = self.apis[cluster].named(place).filter(|named| named.active != Some(false));
        let is_named = named.is_some_and(|named| named.pod == objects::number(&write.uid));
        let is_kept = self.is(Bug::LostPodRuns) || (self.is(Bug::EndMustBeShown) && is_named && !write.dry_run);
        if is_kept && write.change == PodChange::Delete {
            write.change = PodChange::None;
            write.role = Some(PodRole::Standby);
        }
    }

    /// The holder for whom the keeper repeats attempts.
    pub fn plant_wish(&mut self, process: usize, serial: u64, command: &Command) {
        let repeats = self.is(Bug::KeeperWantsAgain);
        let Some(machine) = self.machine(process, serial) else { return };
        match command {
            Command::Want(holder) if repeats => machine.seen.desired = Some(holder.clone()),
            Command::Forget | Command::Retire | Command::End { .. } => machine.seen.desired = None,
            _ => {}
        }
    }

    /// The old rule, planted: the keeper repeats the last request for an attempt by itself.
    pub fn want_again(&mut self, process: usize, serial: u64, now: Time) {
        let floor = self.processes[process].floor;
        let Some(machine) = self.machine(process, serial) else { return };
        let Some(holder) = machine.seen.desired.clone().filter(|_| !machine.driver.is_taken()) else { return };
        if machine.driver.lease_mut().is_taken_for(&holder) {
            return;
        }
        let (attempt, entropy) = (Attempt(self.rng.wide()), Entropy(self.rng.word()));
        if let Some(machine) = self.machine(process, serial) {
            let fresh = Fresh { attempt, floor, entropy, jumped_at: None, proposal: None };
            machine.driver.lease_mut().handle(now, LeaseInput::Command(Command::Want(holder), Some(fresh)));
        }
        self.drain(process, serial);
    }
}
