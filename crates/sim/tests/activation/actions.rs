//! What can happen next, and what it changes.

use redislease_plan::plan::Authority;

use crate::keeper::{Keys, Stand, Turn};
use crate::objects;
use crate::process::{Input, Out};
use crate::tables::Call;
use crate::world::{Explorer, Flight, World};

/// Deadlines later than this do not matter.
pub const HORIZON: u64 = 60_000;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The API server executes a call, and answers.
    Execute(Flight),
    /// A call is not answered. It may be executed later.
    Unanswered(Flight),
    /// A call that its process has withdrawn is not sent.
    NotSent(Flight),
    /// A watch shows a process the newest lease.
    SeesLease(usize),
    /// Something happens to the keeper of a process.
    Keeper(usize, Turn),
    /// The authority of a process changes.
    Authority(usize, Authority),
    /// The keys of the last term end.
    KeysEnd,
    /// The processes of a pod that was asked to stop have ended.
    PodEnds(usize, usize),
    /// Time passes until then.
    Time(u64),
}

impl Explorer {
    /// Everything that can happen next.
    pub fn actions(&mut self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let oldest = world.flights.iter().filter(|flight| !flight.is_late).map(|flight| flight.age).max();
        for flight in &world.flights {
            if oldest.is_none_or(|age| age < self.setup.slow || (flight.age == age && !flight.is_late)) {
                actions.push(Action::Execute(*flight));
            }
            let is_write = !matches!(self.tables.calls.get(flight.call), Call::ReadLease);
            if !flight.is_late && is_write && world.left.unanswered > 0 {
                actions.push(Action::Unanswered(*flight));
            }
            if flight.is_withdrawn && !flight.is_late {
                actions.push(Action::NotSent(*flight));
            }
        }
        for process in [0, 1] {
            self.of_process(world, process, &mut actions);
        }
        let is_believed =
            world.processes.iter().any(|process| self.tables.processes.get(*process).keeper.stand.believes().is_some());
        if world.lock.keys != Keys::Free && !is_believed {
            actions.push(Action::KeysEnd);
        }
        for (place, _) in world.sides[0].objects.iter().enumerate().take(self.places()) {
            let shows = self.tables.object_shows(world.sides[0].objects[place]);
            if shows.is_deleted && shows.runs {
                actions.push(Action::PodEnds(0, place));
            }
        }
        let deadlines = world.processes.iter().filter_map(|process| self.tables.processes.get(*process).deadline());
        let next = deadlines.filter(|at| *at > world.now && *at < world.now + HORIZON).min();
        if let Some(at) = next.filter(|_| world.left.time > 0) {
            actions.push(Action::Time(at));
        }
        actions
    }

    fn of_process(&self, world: &World, process: usize, actions: &mut Vec<Action>) {
        let state = self.tables.processes.get(world.processes[process]);
        let side = &world.sides[self.side_of(process)];
        if state.authority == Authority::Follow && world.left.authority == 0 {
            // It never acts again.
            return;
        }
        if state.lease != side.lease {
            actions.push(Action::SeesLease(process));
        }
        let (keeper, lock, doubts) = (&state.keeper, world.lock, world.left.doubts > 0);
        let mut turns = |turn: Turn, can: bool| {
            if can {
                actions.push(Action::Keeper(process, turn));
            }
        };
        let more = lock.last < self.setup.terms;
        match keeper.stand {
            Stand::Idle => turns(Turn::MayTry, !keeper.may_try && keeper.is_open && lock.keys == Keys::Free && more),
            Stand::Acquiring => match lock.keys {
                Keys::Free if more => turns(Turn::Granted(lock.last + 1), true),
                Keys::Free => turns(Turn::Failed, true),
                Keys::Alive | Keys::Sealed => turns(Turn::Refused(lock.last, lock.cluster), true),
            },
            Stand::Publishing(_) => turns(Turn::Lost, true),
            Stand::Held(term) => {
                turns(Turn::Lost, true);
                turns(Turn::Missed, !lock.keeps(term));
                turns(Turn::Doubted, doubts);
            }
            Stand::Adopting(term) => {
                turns(Turn::Confirmed, lock.keeps(term));
                turns(Turn::Missed, !lock.keeps(term));
                turns(Turn::Overdue, doubts);
            }
            Stand::Uncertain(term) => {
                turns(Turn::Confirmed, lock.keeps(term));
                turns(Turn::Missed, !lock.keeps(term));
                turns(Turn::NeverConfirmed, keeper.is_shown && !keeper.unconfirms);
            }
        }
        if world.left.authority > 0 {
            use Authority::{End, Follow, Lead, Renew};
            let to: &[Authority] = match state.authority {
                Lead | End | Renew if self.setup.is_orderly => &[],
                Lead | End => &[Renew, Follow],
                Renew => &[Lead, Follow],
                Follow => &[Lead],
            };
            actions.extend(to.iter().map(|to| Action::Authority(process, *to)));
        }
    }

    /// The state after an action, or the rule that it breaks.
    pub fn apply(&mut self, world: &World, action: Action) -> Result<World, String> {
        let mut next = world.clone();
        match action {
            Action::Execute(flight) => self.execute(&mut next, flight)?,
            Action::Unanswered(flight) => self.unanswered(&mut next, flight)?,
            Action::NotSent(flight) => {
                next.flights.retain(|one| *one != flight);
                let input = match self.tables.calls.get(flight.call) {
                    Call::Role(place, _) => Input::RoleWithdrawn(*place),
                    Call::Status(_) | Call::ReadLease => Input::StatusWithdrawn,
                };
                self.input(&mut next, usize::from(flight.owner), input)?;
            }
            Action::SeesLease(process) => {
                let lease = next.sides[self.side_of(process)].lease;
                self.input(&mut next, process, Input::LeaseSeen(lease))?;
            }
            Action::Keeper(process, turn) => self.keeper(&mut next, process, turn)?,
            Action::Authority(process, to) => {
                next.left.authority -= 1;
                if self.setup.is_orderly {
                    self.input(&mut next, 1 - process, Input::Authority(Authority::Follow))?;
                }
                self.input(&mut next, process, Input::Authority(to))?;
            }
            Action::KeysEnd => next.lock.keys = Keys::Free,
            Action::PodEnds(side, place) => self.pod_ends(&mut next, side, place),
            Action::Time(at) => {
                next.left.time -= 1;
                next.now = at;
                for process in [0, 1] {
                    self.input(&mut next, process, Input::Time(at))?;
                }
            }
        }
        self.tidy(&mut next)?;
        Ok(next)
    }

    fn keeper(&mut self, world: &mut World, process: usize, turn: Turn) -> Result<(), String> {
        let side = self.side_of(process);
        match turn {
            Turn::Granted(token) => {
                world.lock.last = token;
                world.lock.cluster = u8::try_from(side).unwrap();
                world.lock.keys = Keys::Alive;
                world.sides[side].had_term = true;
            }
            Turn::Refused(_, cluster) => world.sides[side].was_refused |= usize::from(cluster) != side,
            Turn::Doubted | Turn::Overdue => world.left.doubts -= 1,
            _ => {}
        }
        self.input(world, process, Input::Keeper(turn))
    }

    /// What a step of a process causes outside of it.
    pub fn follow(&mut self, world: &mut World, process: usize, out: Out) -> Result<(), String> {
        let owner = u8::try_from(process).unwrap();
        match out {
            Out::Call(call) => {
                world.flights.push(Flight { owner, call, is_late: false, is_withdrawn: false, age: 0 });
            }
            Out::WithdrawStatus => self.withdraw(world, owner, |call| matches!(call, Call::Status(_))),
            Out::WithdrawRole(place) => {
                self.withdraw(world, owner, |call| matches!(call, Call::Role(of, _) if *of == place));
            }
            Out::End(term, proof) => world.lock.end(term, proof),
            Out::Spins => return Err("a process comes to no end without an input".into()),
        }
        Ok(())
    }

    fn withdraw(&self, world: &mut World, owner: u8, is_it: impl Fn(&Call) -> bool) {
        let is_its =
            |flight: &Flight| flight.owner == owner && !flight.is_late && is_it(self.tables.calls.get(flight.call));
        for flight in world.flights.iter_mut().filter(|flight| is_its(flight)) {
            flight.is_withdrawn = true;
        }
    }

    fn unanswered(&mut self, world: &mut World, flight: Flight) -> Result<(), String> {
        world.left.unanswered -= 1;
        for one in world.flights.iter_mut().filter(|one| **one == flight) {
            *one = Flight { is_late: true, is_withdrawn: false, age: 0, ..flight };
        }
        let input = match self.tables.calls.get(flight.call) {
            Call::Role(place, _) => Input::RoleUnanswered(*place),
            Call::Status(_) | Call::ReadLease => Input::StatusUnanswered,
        };
        self.input(world, usize::from(flight.owner), input)
    }

    /// The API server executes a call.
    fn execute(&mut self, world: &mut World, flight: Flight) -> Result<(), String> {
        world.flights.retain(|one| *one != flight);
        for other in world.flights.iter_mut().filter(|other| !other.is_late && !flight.is_late) {
            other.age += 1;
        }
        let process = usize::from(flight.owner);
        let side = self.side_of(process);
        let input = match self.tables.calls.get(flight.call).clone() {
            Call::ReadLease => Input::LeaseRead(world.sides[side].lease),
            Call::Status(write) => match objects::with_status(self.tables.lease_of(world.sides[side].lease), &write) {
                None => Input::StatusConflict,
                Some(written) => {
                    let lease = self.tables.lease(written.into());
                    self.status_is_stored(world, side, lease);
                    Input::StatusStored(lease)
                }
            },
            Call::Role(place, write) => {
                let before = world.sides[side].objects[place];
                let written = objects::with_role(self.tables.object_of(before), &write).or_else(|| {
                    let any = self.shared.bug == Some(crate::planted::Planted::RolesWithoutVersion);
                    let version = self.tables.object_of(before).object().resource_version.clone();
                    let write = redislease_plan::plan::RoleWrite { version, ..write.clone() };
                    any.then(|| objects::with_role(self.tables.object_of(before), &write)).flatten()
                });
                match written {
                    None => {
                        self.seen.fenced |= flight.is_late;
                        Input::RoleConflict(place, before)
                    }
                    Some(written) => {
                        let object = self.tables.object(written);
                        self.role_is_stored(world, (side, place), object, &write, flight.is_late)?;
                        Input::RoleStored(place, object)
                    }
                }
            }
        };
        if flight.is_late { Ok(()) } else { self.input(world, process, input) }
    }

    fn pod_ends(&mut self, world: &mut World, side: usize, place: usize) {
        let pod = self.tables.object_of(world.sides[side].objects[place]).clone();
        if let redislease_plan::election::Candidate::Pod(pod) = pod {
            let ended = redislease_plan::election::Candidate::Pod(objects::ended(&pod).into());
            let object = self.tables.object(ended);
            self.object_changes(world, (side, place), object);
        }
    }
}
