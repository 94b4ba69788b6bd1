//! Carries out the effects of a reconciler, and returns their outcomes.

use std::sync::Arc;

use redislease_core::lease::Standing;
use redislease_core::op::Attempt;
use redislease_plan::api::RedisLease;
use redislease_plan::api::names::PodRole;
use redislease_plan::election::Run;
use redislease_plan::engine::Subject;
use redislease_plan::plan::calls::{Key, Outcome, Request, RoleAnswer};
use redislease_plan::plan::{
    Authority, Command, Effect, PodChange, Priority, Read, RoleOutcome, RoleWrite, StatusOutcome, StatusWrite,
};
use redislease_plan::status::{NoticeReason, TermEnd};

use crate::api::objects;
use crate::api::objects::{Named, QUORUM};
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::event::Inside;
use crate::operator::calls::lease_name;
use crate::operator::writer::{Ticket, lease_of};
use crate::redis::clock::{Micros, SECOND};
use crate::world::World;

/// How many pods of one lease may be written at a time: eight, and the holder.
const ROLES_AT_ONCE: usize = 9;

/// How soon a loss must be counted, beside the delay of the engine.
const COUNTED_WITHIN: Micros = SECOND;

impl World {
    pub fn carry_out_plan(&mut self, process: usize, uid: u32, subject: &Subject, effect: Effect) {
        let Some(unit) = self.unit(process, uid) else { return };
        let place = unit.place;
        match effect {
            Effect::Open { .. } => {
                unit.views = None;
                unit.opening += 1;
                self.coverage.saw(Sight::Opened);
                self.send_order(process, uid, effect);
            }
            Effect::RaiseFloor(_) => {
                self.coverage.saw(Sight::FloorRaised);
                self.send_order(process, uid, effect);
            }
            Effect::Keeper(command) => self.instruct(process, uid, command),
            Effect::WriteStatus(write) => self.write_status(process, uid, subject.object.clone(), write),
            Effect::WithdrawStatus => self.withdraw(process, &Key::LeaseStatus(lease_name(place, uid).uid)),
            Effect::WriteRole(write) => self.write_role(process, uid, place, write),
            Effect::WithdrawRole { uid: object } => {
                let lease = lease_name(place, uid).uid;
                self.withdraw(process, &Key::Role(object.into(), lease));
            }
            Effect::Read(Read::Lease) if self.is(Bug::StartFromCachedStatus) => {
                let known = self.resource(process, uid);
                self.answer(process, uid, Outcome::Lease(Ok(known)));
            }
            Effect::Read(read) => {
                let lease = lease_name(place, uid);
                self.submit(process, Request::Read { lease, read }, Ticket::Lease(uid));
            }
            Effect::Probe => {
                self.processes[process].writer.calls.probe();
                self.dispatch(process);
            }
            Effect::Report(notice) => {
                self.check.reports(self.now, process, uid);
                if notice.reason == NoticeReason::LeaseLost {
                    self.coverage.saw(Sight::LossReported);
                }
            }
            Effect::Measure(redislease_plan::plan::Measure::Ended(end)) => self.count_end(process, uid, end),
            Effect::Measure(_) | Effect::Warn(_) => {}
        }
    }

    fn withdraw(&mut self, process: usize, key: &Key) {
        self.processes[process].writer.calls.withdraw(key);
        self.dispatch(process);
    }

    fn write_status(&mut self, process: usize, uid: u32, object: Option<Arc<RedisLease>>, mut write: Box<StatusWrite>) {
        if self.processes[process].writer.has(uid, None) {
            return self.check.fail(format!("two status writes of lease {uid} are under way in process {process}"));
        }
        let Some(object) = object else {
            return self.answer(process, uid, Outcome::LeaseStatus(StatusOutcome::Gone));
        };
        if self.is(Bug::LossNotWritten) && write.priority == Priority::End {
            return self.answer(process, uid, Outcome::LeaseStatus(StatusOutcome::Written(object)));
        }
        let priority = write.priority;
        if self.is(Bug::LevelSwapped) {
            write.priority = match priority {
                Priority::End => Priority::Counts,
                Priority::Counts => Priority::End,
                other => other,
            };
        }
        self.submit_write(process, uid, priority, Request::LeaseStatus { object, write, quorum: Some(QUORUM.into()) });
    }

    fn write_role(&mut self, process: usize, uid: u32, place: usize, mut write: RoleWrite) {
        self.plant_in_role(process, place, &mut write);
        if self.processes[process].writer.has(uid, Some(objects::number(&write.uid))) {
            return self.check.fail(format!("two role writes of one pod are under way: {write:?}"));
        }
        let (lease, priority) = (lease_name(place, uid), write.priority);
        let request = Request::Role { lease, write: Box::new(write), quorum: Some(QUORUM.into()) };
        self.submit_write(process, uid, priority, request);
        if self.processes[process].writer.roles_of(uid) > ROLES_AT_ONCE {
            self.check.fail(format!("more than {ROLES_AT_ONCE} role writes of lease {uid} are under way"));
        }
    }

    /// I5: a loss is counted, whether the API server answers or not.
    fn count_end(&mut self, process: usize, uid: u32, end: TermEnd) {
        self.coverage.saw(if end.is_loss() { Sight::LossCounted } else { Sight::EndCounted });
        let named = self.named(process, uid).map(|named| named.attempt);
        let Some(unit) = self.unit(process, uid) else { return };
        unit.checks.lost |= end.is_loss();
        let Some(attempt) = named else { return };
        unit.checks.counted.insert(attempt);
        // A list that shows an older state may name an earlier term once more.
        if unit.checks.last_counted.replace(attempt) == Some(attempt) {
            self.check.fail(format!("I5: process {process} counts the end of {attempt:?} twice"));
        }
    }

    /// I5: the machine of a lease has lost a term. It must be counted soon, whether the API server answers or not.
    pub fn loss_is_due(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        let delay = self.swarm.engine_delay.1 + COUNTED_WITHIN;
        self.later(process, delay, Inside::LossDue { serial, uid, attempt });
    }

    /// The status still names the lost term, this process decides, and it has not counted the loss. A process that meanwhile did not
    /// decide has another machine, which finds the loss by itself.
    pub fn loss_was_counted(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        if self.machine_of(process, uid).is_none_or(|machine| machine.serial != serial) {
            return;
        }
        // A process that was paused has its turns only now.
        let continued_at = self.processes[process].continued_at;
        if continued_at > 0 && self.now < continued_at + COUNTED_WITHIN {
            return self.loss_is_due(process, serial, uid, attempt);
        }
        let decides = self.authority(process) == Authority::Lead;
        let exists = self.resource(process, uid).is_some();
        let named = self.named(process, uid);
        // Another process may have recorded the end.
        let named = named.filter(|named| named.active != Some(false)).map(|named| named.attempt);
        let Some(unit) = self.unit(process, uid) else { return };
        let counted = unit.checks.counted.contains(&attempt);
        let awaited = unit.views.as_ref().is_some_and(|views| views.borrow().is_awaited());
        let busy = awaited || self.processes[process].work_due;
        if decides && exists && named == Some(attempt) && !counted && !busy {
            self.check.fail(format!("I5: process {process} lost {attempt:?} and has not counted it"));
        }
    }

    /// Sends a command to the keeper.
    fn instruct(&mut self, process: usize, uid: u32, command: Command) {
        self.coverage.saw(Sight::of_command(&command));
        if let (Command::Close, Some(unit)) = (&command, self.unit(process, uid)) {
            unit.views = None;
        }
        if matches!(&command, Command::End { term, proof: false } if self.is(Bug::UnpublishedForEver)
            && self.is_publishing(process, uid, term.attempt))
        {
            return;
        }
        let lost = self.unit(process, uid).is_some_and(|unit| unit.checks.lost);
        if lost && self.is(Bug::NeverContendsAgain) && matches!(command, Command::Want(_)) {
            return;
        }
        if let Command::End { term, proof: true } = &command {
            self.recovery.proof_seen(self.now, objects::pod_of(term));
        }
        self.send_order(process, uid, Effect::Keeper(command));
    }

    /// Commands keep their order.
    pub fn send_order(&mut self, process: usize, uid: u32, order: Effect) {
        let delay = self.rng.between(10, 200);
        let at = (self.now + delay).max(self.processes[process].last_command);
        self.processes[process].last_command = at;
        self.later(process, at - self.now, Inside::Order { uid, order: Box::new(order) });
    }

    fn is_publishing(&mut self, process: usize, uid: u32, attempt: Attempt) -> bool {
        self.machine_of(process, uid).is_some_and(|machine| match &machine.driver.view().standing {
            Standing::Publishing(term) => term.id.attempt == attempt,
            _ => false,
        })
    }

    /// The term that the newest version of the lease names which a turn has seen.
    fn named(&mut self, process: usize, uid: u32) -> Option<Named> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].engine.machine(id)?.lease.as_deref().and_then(objects::named)
    }

    /// The newest observed version of a lease, if its resource exists.
    pub fn resource(&mut self, process: usize, uid: u32) -> Option<Arc<RedisLease>> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].engine.index().lease(id)?.object.clone()
    }

    /// The outcome of a call of a lease.
    pub fn lease_outcome(&mut self, process: usize, uid: u32, mut outcome: Outcome) {
        match &mut outcome {
            Outcome::LeaseStatus(outcome) => {
                self.write_ended(process, uid, None, *outcome == StatusOutcome::Withdrawn);
                self.processes[process].writer.status_written(uid, outcome);
                self.coverage.saw(Sight::of_status(outcome));
                if let StatusOutcome::Written(lease) = outcome {
                    self.observed(process, objects::version(lease.metadata.resource_version.as_deref()));
                }
            }
            Outcome::Role(object, RoleAnswer { outcome, .. }) => {
                self.write_ended(process, uid, Some(objects::number(object)), *outcome == RoleOutcome::Withdrawn);
                self.coverage.saw(Sight::of_role(outcome));
                if self.is(Bug::NoBackOff) {
                    *outcome = RoleOutcome::Withdrawn;
                }
            }
            Outcome::Lease(_) => self.coverage.saw(Sight::LeaseRead),
            Outcome::Holder(..) => self.coverage.saw(Sight::HolderRead),
            Outcome::Startable(_) => self.coverage.saw(Sight::StartableRead),
            Outcome::Node(_, read) => {
                self.coverage.saw(Sight::NodeRead);
                if *read == Ok(true) {
                    self.coverage.saw(Sight::NodeIsProof);
                }
            }
            other => return self.check.fail(format!("{other:?} is no outcome for a lease")),
        }
        let uid = if self.is(Bug::AnswerToAnotherUnit) { self.newest_unit(process, uid) } else { uid };
        self.answer(process, uid, outcome);
    }

    /// The unit that was made last for the same lease.
    fn newest_unit(&self, process: usize, uid: u32) -> u32 {
        let units = self.processes[process].units.iter().map(|unit| unit.uid);
        units.filter(|unit| lease_of(*unit) == lease_of(uid)).max().unwrap_or(uid)
    }

    fn plant_in_role(&self, process: usize, place: usize, write: &mut RoleWrite) {
        let cluster = self.processes[process].cluster;
        let pod = self.apis[cluster].state.pods.get(&objects::number(&write.uid));
        let was_started = pod.is_some_and(|pod| objects::was_started(pod, place));
        if self.is(Bug::DeletedTooEarly) && was_started && write.role == Some(PodRole::Standby) {
            write.change = PodChange::Delete;
        }
        if self.is(Bug::StartNotFenced) && matches!(write.change, PodChange::Fence(_)) {
            write.change = PodChange::None;
        }
        if self.is(Bug::WithdrawnByObject) {
            write.marks.retain(|(mark, _)| !mark.starts_with("withdrawn."));
        }
        if self.is(Bug::WorkloadRunsOn) && write.change == PodChange::Run(Run::Replicas(0)) {
            write.change = PodChange::None;
        }
        if self.is(Bug::LostPodRuns) && write.change == PodChange::Delete {
            write.change = PodChange::None;
            write.role = Some(PodRole::Standby);
        }
    }
}
