//! Drives the operator's engine: gives it inputs and turns, carries out its effects, and returns the outcomes of its calls.

use redislease_core::time::Time;
use redislease_plan::engine::{Caller, Effect, Input, Subject, Surroundings};
use redislease_plan::index::LeaseId;
use redislease_plan::plan::Effect as Planned;
use redislease_plan::plan::calls::{Key, Outcome};

use crate::api::objects::{self, AGAIN};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::check::coverage::Sight;
use crate::check::state::Checks;
use crate::event::Inside;
use crate::operator::state::{LOCK, Life, Ticket, Unit};
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
        operator.units.push(Unit { id, uid, place, checks: Checks::default() });
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
        let (authority, authority_gains) = (self.authority(process), self.granted(process).0.gains);
        let news = self.processes[process].news(uid);
        self.sees_turn(process, uid, &news);
        let operator = &mut self.processes[process];
        let wall = jiff::Timestamp::from_microsecond(operator.wall.micros(self.now) as i64).unwrap();
        let api_answered_at = operator.calls.answered_at();
        operator.engine.turn(now, id, Surroundings { news, authority, authority_gains, api_answered_at, wall });
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
            match uid {
                Some(uid) if matches!(effect, Effect::Lease(..) | Effect::Call(..)) => {
                    self.perform(process, Polled::Engine(uid, effect));
                }
                _ if self.crashes_before_effect(process) => {}
                _ => self.carry_out_other(process, effect),
            }
        }
        false
    }

    /// Carries out an effect of the machine of a lease.
    pub fn carry_out_engine(&mut self, process: usize, uid: u32, effect: Effect) {
        match effect {
            Effect::Lease(subject, planned) => self.carry_out_plan(process, uid, &subject, planned),
            Effect::Call(caller, request) => {
                self.sees_call(process, uid, &request);
                if let Some(request) = self.plant_in_call(process, uid, &caller, request) {
                    self.submit(process, request, Ticket::Engine(caller));
                }
            }
            effect => self.carry_out_other(process, effect),
        }
    }

    fn carry_out_plan(&mut self, process: usize, uid: u32, subject: &Subject, effect: Planned) {
        self.sees_plan(process, uid, &effect);
        let lease = subject.lease_name().uid;
        match effect {
            Planned::Keeper(command) if self.ignores(process, uid, &command) => {}
            Planned::Open { .. } | Planned::RaiseFloor(_) | Planned::Keeper(_) => self.send_order(process, uid, effect),
            Planned::WithdrawStatus => self.withdraw(process, &Key::LeaseStatus(lease)),
            Planned::WithdrawRole { uid } => self.withdraw(process, &Key::Role(uid.into(), lease)),
            Planned::Probe => self.probe(process),
            _ => {}
        }
    }

    fn carry_out_other(&mut self, process: usize, effect: Effect) {
        let operator = &mut self.processes[process];
        match effect {
            Effect::Forget(id) => {
                operator.units.retain(|unit| unit.id != id);
                self.coverage.saw(Sight::Finished);
            }
            Effect::AwaitAnswer => {
                operator.calls.await_answer();
                self.dispatch(process);
            }
            Effect::Call(caller, request) => self.submit(process, request, Ticket::Engine(caller)),
            Effect::RaiseFloor(_, token) => operator.raise_floor(token),
            Effect::FloorsComplete => self.floor_complete(process),
            // Logs, metrics and events.
            _ => {}
        }
    }

    /// The outcome of a call of the engine.
    pub fn engine_outcome(&mut self, process: usize, mut caller: Caller, mut outcome: Outcome) {
        if let Caller::Lease(id, _) = &caller {
            self.sees_outcome(process, *id, &outcome);
        }
        self.plant_in_outcome(process, &mut caller, &mut outcome);
        match caller.input(outcome) {
            Some(input) => self.tell_engine(process, input),
            None => self.check.fail("an outcome is of another kind than its call".into()),
        }
    }
}
