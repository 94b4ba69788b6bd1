//! Drives the operator's engine: gives it inputs and turns, and carries out its effects.

use redislease_core::time::Time;
use redislease_plan::engine::{Effect, Input, Surroundings};
use redislease_plan::index::LeaseId;

use crate::api::objects;
use crate::api::objects::AGAIN;
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::state::Checks;
use crate::event::Inside;
use crate::operator::state::{LOCK, Life, Polled, Ticket, Unit};
use crate::redis::clock::MILLI;
use crate::world::World;

/// How many of a hundred turns end a time slice: other events may happen before the next turn.
const SLICE_ENDS: u64 = 30;
/// How many turns a time slice has at most.
const MOST_IN_SLICE: usize = 20;

impl World {
    pub fn unit(&mut self, process: usize, uid: u32) -> Option<&mut Unit> {
        self.processes[process].units.iter_mut().find(|unit| unit.uid == uid)
    }

    /// The number of the unit of a lease, which is made in its first turn.
    pub fn unit_of(&mut self, process: usize, id: LeaseId) -> Option<u32> {
        let operator = &mut self.processes[process];
        if let Some(unit) = operator.units.iter().find(|unit| unit.id == id) {
            return Some(unit.uid);
        }
        let entry = operator.engine.index().lease(id)?;
        let (number, place) = (objects::number(&entry.uid), objects::number(&entry.name) as usize);
        let earlier = operator.earlier_units.entry(number).or_default();
        let uid = number + *earlier * AGAIN;
        *earlier += 1;
        operator.units.push(Unit { id, uid, place, views: None, checks: Checks::default() });
        Some(uid)
    }

    /// Gives an input to the engine.
    pub fn tell_engine(&mut self, process: usize, input: Input) {
        if self.processes[process].life == Life::Down {
            return;
        }
        let now = Time(self.local(process));
        self.processes[process].engine.handle(now, input);
        self.drain_engine(process);
        self.work_later(process);
    }

    /// The reader is woken for a new view, which its next turn takes.
    pub fn mail(&mut self, process: usize, uid: u32) {
        if uid == LOCK {
            self.wake_leader(process);
        } else if let Some(lease) = self.unit(process, uid).map(|unit| unit.id) {
            self.tell_engine(process, Input::Shown(lease));
        }
    }

    /// Schedules a time slice of the engine, if a lease is due for a turn.
    fn work_later(&mut self, process: usize) {
        let operator = &mut self.processes[process];
        // After a crash, the next start has another engine.
        let has_work = operator.life != Life::Down && operator.engine.is_due();
        if has_work && !std::mem::replace(&mut operator.work_due, true) {
            let (low, high) = if self.chaos { self.swarm.engine_delay } else { (20, MILLI) };
            let delay = self.rng.between(low, high);
            self.later(process, delay, Inside::Work);
        }
    }

    /// A deadline of the engine may have passed: then its leases have their turns now.
    pub fn wake_engine(&mut self, process: usize, now: Time) {
        let operator = &self.processes[process];
        if operator.life == Life::Running && operator.engine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.tell_engine(process, Input::Wake);
            self.work(process);
        }
    }

    /// One time slice: gives turns to the leases that are due.
    pub fn work(&mut self, process: usize) {
        self.processes[process].work_due = false;
        for _ in 0..MOST_IN_SLICE {
            if !self.drain_engine(process) {
                break;
            }
            let now = Time(self.local(process));
            let Some(id) = self.processes[process].engine.next_due(now) else { break };
            self.turn(process, id);
            if self.chaos && self.rng.percent(SLICE_ENDS) {
                break;
            }
        }
        self.work_later(process);
    }

    fn turn(&mut self, process: usize, id: LeaseId) {
        let now = Time(self.local(process));
        let Some(uid) = self.unit_of(process, id) else { return };
        self.done |= self.check.turns(self.now, process, uid);
        let authority = self.authority(process);
        let operator = &mut self.processes[process];
        let news = operator.news(uid);
        if news.ended {
            self.coverage.saw(Sight::Retired);
        }
        let wall = operator.wall.micros(self.now);
        let surroundings = Surroundings {
            news,
            authority,
            api_answered_at: operator.calls.answered_at(),
            wall: jiff::Timestamp::from_microsecond(wall as i64).unwrap(),
        };
        operator.engine.turn(now, id, surroundings);
        self.saw_permits(process, id);
        self.drain_engine(process);
    }

    /// Carries out the effects of the engine. Returns whether the process still runs.
    pub fn drain_engine(&mut self, process: usize) -> bool {
        let (boot, mut again) = (self.processes[process].boot, None);
        while self.polls_on(process, boot, "the engine") {
            let poll = || self.processes[process].engine.poll_effect();
            let Some(effect) = again.take().or_else(poll) else { return true };
            let uid = effect.lease().and_then(|id| self.unit_of(process, id));
            again = uid.filter(|_| self.is(Bug::EffectRepeated)).map(|_| effect.clone());
            match (effect, uid) {
                (Effect::Lease(subject, planned), Some(uid)) => {
                    self.perform(process, Polled::Planned(uid, subject, planned));
                }
                (Effect::Call(caller, request), Some(uid)) => self.perform(process, Polled::Call(uid, caller, request)),
                (effect, _) => self.carry_out_other(process, effect),
            }
        }
        false
    }

    /// Carries out an effect that is not of the machine of a lease.
    fn carry_out_other(&mut self, process: usize, effect: Effect) {
        let operator = &mut self.processes[process];
        match effect {
            Effect::Lease(..)
            | Effect::Hide(_)
            | Effect::DoNotCount(_)
            | Effect::ReportOnLease(..)
            | Effect::ReportOnPod(..)
            | Effect::Implausible(_) => {}
            Effect::Forget(id) => {
                operator.units.retain(|unit| unit.id != id);
                self.coverage.saw(Sight::Finished);
            }
            Effect::AwaitAnswer => {
                operator.calls.await_answer();
                self.dispatch(process);
            }
            Effect::Call(caller, request) => self.submit(process, request, Ticket::Engine(caller)),
            Effect::RaiseFloor(_, token) => operator.floor = operator.floor.max(token),
            Effect::FloorsComplete => self.floor_complete(process),
        }
    }
}
