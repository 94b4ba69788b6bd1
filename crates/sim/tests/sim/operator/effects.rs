//! Carries out the effects of a reconciler, and returns their outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease::api::RedisLease;
use redislease::api::names::PodRole;
use redislease::api::validated::WorkloadKind;
use redislease::election::{Candidate, Run};
use redislease::index::Asked;
use redislease::plan::{
    Authority, Command, Effect, Event as Input, PodChange, Priority, Read, RoleOutcome, RoleWrite, StatusOutcome,
    StatusWrite,
};
use redislease::status::{NoticeReason, TermEnd};
use redislease_core::lease::Standing;
use redislease_core::op::Attempt;
use redislease_core::time::Time;

use crate::api::calls::Reply;
use crate::api::objects::{self, NAMESPACE};
use crate::api::server::Verdict;
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::operator::engine::lease_of;
use crate::operator::leader::LOCK;
use crate::operator::writer::{Answered, Job, Key};
use crate::redis::clock::{Micros, SECOND};
use crate::world::{Event, World};

/// How many pods of one lease may be written at a time: eight, and the holder.
const ROLES_AT_ONCE: usize = 9;

/// How soon a loss must be counted, beside the delay of the engine.
const COUNTED_WITHIN: Micros = SECOND;

/// The state by which the effects of one lease are checked.
#[derive(Default)]
pub struct Checks {
    /// The newest version of the lease that was observed.
    pub lease: Option<Arc<RedisLease>>,
    /// Whether it has counted the loss of a term.
    pub lost: bool,
    /// The terms whose end was counted.
    pub counted: BTreeSet<Attempt>,
    last_counted: Option<Attempt>,
}

impl World {
    pub fn carry_out_plan(&mut self, process: usize, uid: u32, effect: Effect) {
        let Some(unit) = self.unit(process, uid) else { return };
        let place = unit.place;
        match effect {
            Effect::Keeper(command) => self.instruct(process, uid, command),
            Effect::WriteStatus(write) => self.write_status(process, uid, place, write),
            Effect::WithdrawStatus => self.withdraw(process, &Key::Status(uid)),
            Effect::WriteRole(mut write) => {
                self.plant_in_role(process, place, &mut write);
                let key = Key::Role { lease: uid, pod: objects::number(&write.uid) };
                if self.processes[process].writer.has(&key) {
                    return self.check.fail(format!("two role writes of one pod are under way: {write:?}"));
                }
                self.submit(process, Job::Role { place, uid, write: Box::new(write) });
                if self.processes[process].writer.roles_of(uid) > ROLES_AT_ONCE {
                    self.check.fail(format!("more than {ROLES_AT_ONCE} role writes of lease {uid} are under way"));
                }
            }
            Effect::WithdrawRole { uid: pod } => {
                self.withdraw(process, &Key::Role { lease: uid, pod: objects::number(&pod) });
            }
            Effect::Read(Read::Lease) if self.is(Bug::StartFromCachedStatus) => {
                let known = self.resource(process, uid);
                self.answer(process, uid, Input::LeaseRead(Ok(known)));
            }
            Effect::Read(read) => self.submit(process, Job::Read { place, uid, read }),
            Effect::Probe => self.ask_for_an_answer(process, uid),
            Effect::Report(notice) => {
                self.check.reports(self.now, process, uid);
                if notice.reason == NoticeReason::LeaseLost {
                    self.coverage.saw(Sight::LossReported);
                }
            }
            Effect::Measure(redislease::plan::Measure::Ended(end)) => self.count_end(process, uid, end),
            Effect::Measure(_) | Effect::Warn(_) => {}
        }
    }

    fn write_status(&mut self, process: usize, uid: u32, place: usize, write: Box<StatusWrite>) {
        if self.processes[process].writer.has(&Key::Status(uid)) {
            return self.check.fail(format!("two status writes of lease {uid} are under way in process {process}"));
        }
        if self.is(Bug::LossNotWritten)
            && write.priority == Priority::End
            && let Some(lease) = self.resource(process, uid)
        {
            return self.answer(process, uid, Input::StatusWritten(StatusOutcome::Written(lease)));
        }
        self.submit(process, Job::Status { place, uid, write });
    }

    /// I5: a loss is counted, whether the API server answers or not.
    fn count_end(&mut self, process: usize, uid: u32, end: TermEnd) {
        self.coverage.saw(if end.is_loss() { Sight::LossCounted } else { Sight::EndCounted });
        let Some(unit) = self.unit(process, uid) else { return };
        unit.checks.lost |= end.is_loss();
        let named = unit.checks.lease.as_deref().and_then(objects::named).map(|named| named.attempt);
        let Some(attempt) = named else { return };
        unit.checks.counted.insert(attempt);
        // A list that shows an older state may name an earlier term once more.
        if unit.checks.last_counted.replace(attempt) == Some(attempt) {
            self.check.fail(format!("I5: process {process} counts the end of {attempt:?} twice"));
        }
    }

    /// I5: the machine of a lease has lost a term. It must be counted soon, whether the API server answers or not.
    pub fn loss_is_due(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        let boot = self.processes[process].boot;
        let delay = self.swarm.engine_delay.1 + COUNTED_WITHIN;
        self.after(delay, Event::LossDue { process, boot, serial, uid, attempt });
    }

    /// The status still names the lost term, this process decides, and it has not counted the loss. A process that meanwhile did not
    /// decide has another machine, which finds the loss by itself.
    pub fn loss_was_counted(&mut self, process: usize, serial: u64, uid: u32, attempt: Attempt) {
        if self.machine_of(process, uid).is_none_or(|machine| machine.serial != serial) {
            return;
        }
        let decides = self.authority(process) == Authority::Lead;
        let exists = self.resource(process, uid).is_some();
        let Some(unit) = self.unit(process, uid) else { return };
        let named = unit.checks.lease.as_deref().and_then(objects::named);
        // Another process may have recorded the end.
        let named = named.filter(|named| named.active != Some(false)).map(|named| named.attempt);
        let counted = unit.checks.counted.contains(&attempt);
        let due = unit.due;
        let busy = due || self.machine_of(process, uid).is_some_and(|machine| machine.mail_due);
        if decides && exists && named == Some(attempt) && !counted && !busy {
            self.check.fail(format!("I5: process {process} lost {attempt:?} and has not counted it"));
        }
    }

    /// Sends a command to the keeper.
    fn instruct(&mut self, process: usize, uid: u32, command: Command) {
        self.coverage.saw(Sight::of_command(&command));
        if let (Command::Open { .. }, Some(unit)) = (&command, self.unit(process, uid)) {
            unit.opening += 1;
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
        self.send_command(process, uid, command);
    }

    /// Commands keep their order.
    pub fn send_command(&mut self, process: usize, uid: u32, command: Command) {
        let delay = self.rng.between(10, 200);
        let boot = self.processes[process].boot;
        let at = (self.now + delay).max(self.processes[process].last_command);
        self.processes[process].last_command = at;
        self.at(at, Event::Command { process, boot, uid, command: Box::new(command) });
    }

    fn is_publishing(&mut self, process: usize, uid: u32, attempt: Attempt) -> bool {
        self.machine_of(process, uid).is_some_and(|machine| match &machine.lease.view().standing {
            Standing::Publishing(term) => term.id.attempt == attempt,
            _ => false,
        })
    }

    /// A job was not sent: its deadline had passed, or it was withdrawn or replaced.
    pub fn withdrawn(&mut self, process: usize, job: &Job) {
        self.processes[process].writer.has_outcome(&job.key());
        match job {
            Job::Status { uid, .. } => {
                self.coverage.saw(Sight::StatusWithdrawn);
                self.answer(process, *uid, Input::StatusWritten(StatusOutcome::Withdrawn));
            }
            Job::Role { uid, write, .. } => {
                self.role_written(process, *uid, write.uid.clone(), RoleOutcome::Withdrawn);
            }
            Job::Read { uid, read: Read::Lease, .. } => {
                *self.processes[process].writer.joined.entry(*uid).or_default() += 1;
            }
            Job::ReadPod { .. }
            | Job::Read { .. }
            | Job::ReadWorkload(_)
            | Job::ReadQuorum
            | Job::ReadTokens { .. }
            | Job::Claim { .. } => {}
        }
    }

    pub fn api_reply(&mut self, process: usize, id: u64, reply: Reply) {
        let Some(answered) = self.call_done(process, id, &reply) else { return };
        if !reply.is_missing() {
            self.processes[process].api_answered_at = Some(Time(self.local(process)));
            for uid in std::mem::take(&mut self.processes[process].writer.asking) {
                if uid == LOCK {
                    self.wake_leader(process);
                } else {
                    self.wake_unit(process, uid);
                }
            }
        }
        if let Answered::Done(job, asked) = answered {
            self.processes[process].writer.has_outcome(&job.key());
            self.take_reply(process, job, asked, reply);
        }
        self.dispatch(process);
    }

    fn take_reply(&mut self, process: usize, job: Job, asked: Asked, reply: Reply) {
        match (job, reply) {
            (Job::Status { uid, .. }, reply) => self.status_reply(process, uid, reply),
            (Job::Role { uid, place, write }, Reply::Role(Verdict::Written, pod)) => {
                let altered = pod.as_ref().and_then(|pod| write.altered_in(&objects::lease_name(place), pod.object()));
                if let Some(pod) = pod {
                    let after = pod.object().resource_version.as_ref();
                    self.processes[process].writer.wrote_pod(&write.uid, write.version.as_ref(), after);
                    self.learn_object(process, asked, pod);
                }
                let outcome = altered.map_or(RoleOutcome::Written, |altered| RoleOutcome::Altered(Box::new(altered)));
                self.role_written(process, uid, write.uid.clone(), outcome);
            }
            (Job::Role { uid, write, .. }, Reply::Role(Verdict::Refused, _)) => {
                self.role_written(process, uid, write.uid.clone(), RoleOutcome::Refused("a webhook".into()));
            }
            (Job::Role { uid, write, .. }, _) => {
                self.role_written(process, uid, write.uid.clone(), RoleOutcome::Unanswered("no answer".into()));
            }
            (Job::ReadPod { uid, write }, Reply::Pod(pod)) => {
                let outcome = match pod {
                    Some(pod) if *pod.object().resource_version == write.version => {
                        RoleOutcome::Refused("as it was".into())
                    }
                    Some(pod) => {
                        self.learn_object(process, asked, pod);
                        RoleOutcome::Conflict
                    }
                    None => {
                        self.object_missing(process, &write.uid, write.workload);
                        RoleOutcome::Gone
                    }
                };
                self.role_written(process, uid, write.uid.clone(), outcome);
            }
            (Job::ReadPod { uid, write }, _) => {
                self.role_written(process, uid, write.uid.clone(), RoleOutcome::Conflict);
            }
            (Job::Read { uid, read, .. }, reply) => self.read_reply(process, uid, &read, asked, reply),
            (job @ (Job::ReadQuorum | Job::Claim { .. }), reply) => self.leader_reply(process, &job, reply),
            (Job::ReadWorkload(key), reply) => self.workload_reply(process, &key, reply),
            (Job::ReadTokens { node, request }, Reply::Tokens(token)) => {
                self.tokens_read(process, node, request, token);
            }
            (job @ Job::ReadTokens { .. }, reply) => {
                self.check.fail(format!("{reply:?} is no answer to {job:?}"));
            }
        }
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

    fn status_reply(&mut self, process: usize, uid: u32, reply: Reply) {
        let outcome = match reply {
            Reply::Status(Verdict::Written, Some(lease)) => StatusOutcome::Written(lease),
            Reply::Status(Verdict::Gone, _) | Reply::Status(Verdict::Written, None) => StatusOutcome::Gone,
            Reply::Status(Verdict::Conflict, _) => StatusOutcome::Conflict,
            Reply::Status(Verdict::Refused, _) => StatusOutcome::Refused("a webhook, or a rule of the schema".into()),
            _ => StatusOutcome::Unanswered("no answer".into()),
        };
        self.coverage.saw(Sight::of_status(&outcome));
        if let StatusOutcome::Written(lease) = &outcome {
            self.learn_lease(process, uid, lease);
        }
        self.answer(process, uid, Input::StatusWritten(outcome));
    }

    fn read_reply(&mut self, process: usize, uid: u32, read: &Read, asked: Asked, reply: Reply) {
        let input = match (read, reply) {
            (Read::Lease, Reply::Lease(lease)) => {
                let ours = lease.filter(|lease| objects::uid_of(lease) == lease_of(uid));
                if let Some(lease) = &ours {
                    self.learn_lease(process, uid, lease);
                }
                Input::LeaseRead(Ok(ours))
            }
            (Read::Holder { uid, workload, .. }, Reply::Pod(pod)) => {
                match pod {
                    Some(pod) => self.learn_object(process, asked, pod),
                    None => self.object_missing(process, uid, *workload),
                }
                Input::HolderRead { answered: true }
            }
            (Read::Startable, Reply::Pods(pods)) => {
                let now = Time(self.local(process));
                let answered = self.processes[process].index.pods_answered(asked, pods, now);
                self.wake_marked(process);
                Input::StartableRead { answered }
            }
            (Read::Node { uid, .. }, Reply::Node(off)) => {
                if off {
                    self.coverage.saw(Sight::NodeIsProof);
                    self.pod_missing(process, uid, true);
                }
                Input::NodeRead { answered: true }
            }
            (read, reply) => return self.check.fail(format!("{reply:?} is no answer to {read:?}")),
        };
        self.coverage.saw(Sight::of_read(read));
        let joined = if *read == Read::Lease { self.processes[process].writer.joined.remove(&uid) } else { None };
        for _ in 0..joined.unwrap_or_default() {
            self.answer(process, uid, input.clone());
        }
        self.answer(process, uid, input);
    }

    fn role_written(&mut self, process: usize, uid: u32, pod: String, outcome: RoleOutcome) {
        self.coverage.saw(Sight::of_role(&outcome));
        let outcome = if self.is(Bug::NoBackOff) { RoleOutcome::Withdrawn } else { outcome };
        self.answer(process, uid, Input::RoleWritten { uid: pod, outcome });
    }

    fn learn_lease(&mut self, process: usize, uid: u32, lease: &Arc<RedisLease>) {
        let now = Time(self.local(process));
        let Some(id) = self.unit(process, uid).map(|unit| unit.id) else { return };
        self.observed(process, objects::version(lease.metadata.resource_version.as_deref()));
        self.processes[process].index.lease_answered(id, lease.clone(), now);
        self.wake_marked(process);
    }

    fn learn_object(&mut self, process: usize, asked: Asked, found: Candidate) {
        let now = Time(self.local(process));
        self.observed(process, objects::version(found.object().resource_version.as_deref()));
        self.processes[process].index.answered(asked, found, now);
        self.wake_marked(process);
    }

    fn object_missing(&mut self, process: usize, uid: &str, workload: Option<WorkloadKind>) {
        let now = Time(self.local(process));
        self.processes[process].index.answered_missing(NAMESPACE, uid, workload, now);
        self.wake_marked(process);
    }

    fn pod_missing(&mut self, process: usize, uid: &str, stopped: bool) {
        let now = Time(self.local(process));
        self.processes[process].index.pod_missing(NAMESPACE, uid, stopped, now);
        self.wake_marked(process);
    }
}
