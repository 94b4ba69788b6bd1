//! The effects of reconcilers and the outcomes of their calls. A lease has one write of its status at a time, one of each role, and
//! few of its roles. An urgent status write does not wait behind one that only counts.

use redislease_core::time::Time;
use redislease_plan::index::LeaseId;
use redislease_plan::plan::calls::{Outcome, Request, RoleAnswer};
use redislease_plan::plan::{
    Command, Effect, LeadershipEffect, Measure, News, PermitUse, Priority, RoleOutcome, StatusOutcome,
};
use redislease_plan::status::NoticeReason;

use crate::api::calls::place_of;
use crate::api::objects;
use crate::check::coverage::Sight;
use crate::check::pending::Pending;
use crate::check::trace::{Brief, Note};
use crate::world::World;

/// How many pods of one lease may be written at a time: eight, and the holder.
const ROLES_AT_ONCE: usize = 9;

impl World {
    /// A lease has a turn, with what is new in its views.
    pub fn sees_turn(&mut self, process: usize, uid: u32, news: &News) {
        self.done |= self.check.turns(self.now, process, uid);
        if news.ended {
            self.coverage.saw(Sight::Retired);
        }
    }

    /// A reconciler asks for an effect.
    pub fn sees_plan(&mut self, process: usize, uid: u32, effect: &Effect) {
        self.note(Note::Planned { process, uid, effect: &Brief::of(effect) });
        match effect {
            Effect::Open { .. } => self.coverage.saw(Sight::Opened),
            Effect::RaiseFloor(_) => self.coverage.saw(Sight::FloorRaised),
            Effect::Keeper(command) => {
                self.coverage.saw(Sight::of_command(command));
                match command {
                    Command::End { term, proof: true } => self.recovery.proof_seen(self.now, objects::pod_of(term)),
                    Command::End { term, proof: false } => self.end_is_ordered(process, uid, term),
                    _ => {}
                }
            }
            Effect::Report(notice) => {
                self.check.reports(self.now, process, uid);
                if notice.reason == NoticeReason::LeaseLost {
                    self.coverage.saw(Sight::LossReported);
                }
            }
            Effect::Measure(Measure::Ended(end)) => self.count_end(process, uid, *end),
            _ => {}
        }
    }

    /// A reconciler asks for a call.
    pub fn sees_call(&mut self, process: usize, uid: u32, request: &Request) {
        self.note(Note::Planned { process, uid, effect: &Brief::of_call(request) });
        let (object, priority) = match request {
            Request::LeaseStatus { write, .. } => (None, write.priority),
            Request::Role { write, .. } => {
                self.stop_is_decided(process, uid, write);
                (Some(objects::number(&write.uid)), write.priority)
            }
            _ => return,
        };
        self.write_begins(process, (uid, object), priority, request.not_after());
    }

    fn write_begins(&mut self, process: usize, of: (u32, Option<u32>), priority: Priority, not_after: Option<Time>) {
        let writes = &mut self.processes[process].history.writes;
        if writes.pending.insert(of, Pending { not_after, priority, sent: false }).is_some() {
            self.check.fail(format!("two writes of {of:?} are under way in process {process}"));
        } else if writes.roles_of(of.0) > ROLES_AT_ONCE {
            self.check.fail(format!("more than {ROLES_AT_ONCE} role writes of lease {} are under way", of.0));
        }
    }

    /// The election of a replica asks for an effect.
    pub fn sees_leadership(&mut self, process: usize, effect: &LeadershipEffect) {
        match effect {
            LeadershipEffect::Keeper(Command::End { .. }) => self.coverage.saw(Sight::LeadershipReleased),
            LeadershipEffect::Authority(authority) => {
                self.note(Note::Authority { process, authority: *authority });
                self.coverage.saw(Sight::of_authority(*authority));
            }
            _ => {}
        }
    }

    /// I8b: counts a call. R2 counts those that write roles.
    fn count_call(&mut self, process: usize, request: &Request) {
        let (place, kind) = match request {
            Request::LeaseStatus { object, .. } => {
                (place_of(object.metadata.name.as_deref().unwrap_or_default()), "status writes")
            }
            Request::Read { lease, .. } => (place_of(&lease.name), "reads"),
            Request::Workload((_, workload)) => (place_of(&workload.name), "reads of the workload"),
            Request::QuorumStatus(_) => (0, "status writes of the quorum"),
            _ => return,
        };
        let of = (self.processes[process].cluster, place);
        // Each object that may be written is read before.
        let bound = if kind == "reads" { 2 * self.swarm.call_bound() } else { self.swarm.call_bound() };
        self.check.calls(self.now, of, kind, bound);
    }

    /// A call is sent.
    pub fn sees_request(&mut self, process: usize, request: &Request) {
        self.count_call(process, request);
        let late = match request {
            Request::Role { lease, write, quorum: Some(_) } => {
                let (lease, object) = (objects::number(&lease.uid), objects::number(&write.uid));
                let by = (process, self.processes[process].boot, lease);
                self.running.role_write(&mut self.check, self.now, by, object);
                self.processes[process].history.writes.sent(lease, Some(object))
            }
            Request::LeaseStatus { object, .. } => {
                self.processes[process].history.writes.sent(objects::uid_of(object), None)
            }
            _ => None,
        };
        if let Some(uid) = late {
            self.check.fail(format!("order: the urgent status write of lease {uid} waits, and {request} is written"));
        }
    }

    /// A call of a lease has an outcome.
    pub fn sees_outcome(&mut self, process: usize, lease: LeaseId, outcome: &Outcome) {
        self.coverage.saw_outcome(outcome);
        let Some(uid) = self.unit_of(process, lease) else { return };
        match outcome {
            Outcome::LeaseStatus(outcome) => {
                self.write_ended(process, uid, None, *outcome == StatusOutcome::Withdrawn);
                self.processes[process].history.writes.status_written(uid, outcome);
                if let StatusOutcome::Written(lease) = outcome {
                    self.observed(process, objects::version(lease.metadata.resource_version.as_deref()));
                }
            }
            Outcome::Role(object, RoleAnswer { outcome, .. }) => {
                self.write_ended(process, uid, Some(objects::number(object)), *outcome == RoleOutcome::Withdrawn);
            }
            Outcome::Lease(_) | Outcome::Holder(..) | Outcome::Startable(_) | Outcome::Node(..) => {}
            other => self.check.fail(format!("{other:?} is no outcome for a lease")),
        }
    }

    fn write_ended(&mut self, process: usize, uid: u32, object: Option<u32>, withdrawn: bool) {
        let now = Time(self.local(process));
        if self.processes[process].history.writes.has_outcome(now, uid, object) && withdrawn {
            self.coverage.saw(Sight::WriteExpired);
        }
    }

    /// A lease has had a turn.
    pub fn saw_permits(&mut self, process: usize, id: LeaseId) {
        let Some(machine) = self.processes[process].engine.machine(id) else { return };
        let uses = machine.uses;
        if uses.attempt == PermitUse::Waits {
            self.coverage.saw(Sight::AttemptWaited);
        }
        if uses.end == PermitUse::Waits || uses.other == PermitUse::Waits {
            self.coverage.saw(Sight::StatusWaited);
        }
    }
}
