//! The rules that every state must keep.
//!
//! - R1: a pod is started only when no other started pod can run.
//! - R2: two processes do not rewrite an object for ever: no version is greater than [`MOST`].
//! - R3: a workload that runs is stopped only after a term of its cluster, or after an attempt that another cluster refused.
//! - R4: a start is stored only if the status named its term after the version that it replaces was stored.
//! - Order: after something was started for a term, nothing is started for an earlier one.
//! - Fence: when a process that decides is at rest, the status names no term, and the objects show the standby state, the withdrawal
//!   is done. From then on nothing is started for a term until then.

use redislease_plan::api::names::PodRole;
use redislease_plan::plan::{Authority, PodChange, RoleWrite};

use crate::actions::HORIZON;
use crate::keeper::Stand;
use crate::objects::{GRACE, Kind};
use crate::process::Input;
use crate::tables::Call;
use crate::world::{Explorer, World};

/// R2: the greatest version that a lease or an object can reach.
pub const MOST: u64 = 40;

impl Explorer {
    /// A status is stored.
    pub fn status_is_stored(&mut self, world: &mut World, side: usize, lease: u32) {
        world.sides[side].lease = lease;
        let shows = self.tables.lease_shows(lease);
        if let Some(named) = shows.named {
            for since in &mut world.sides[side].named_since {
                *since |= 1 << named;
            }
        }
        self.seen.versions[0] = self.seen.versions[0].max(shows.version);
    }

    /// An object has another version.
    pub fn object_changes(&mut self, world: &mut World, (side, place): (usize, usize), object: u32) {
        let named = self.tables.lease_shows(world.sides[side].lease).named;
        world.sides[side].objects[place] = object;
        if self.places() == 1 {
            world.sides[side].objects[1] = object;
        }
        world.sides[side].named_since[place] = named.map_or(0, |named| 1 << named);
        let version = self.tables.object_shows(object).version;
        self.seen.versions[1] = self.seen.versions[1].max(version);
    }

    /// Every process sees the objects at once, so a direct list shows nothing new. If it saw them later, it would write to versions that
    /// are stored no more, which conflicts; and before it starts a pod, it writes to every other one that it takes for gated.
    pub fn show_objects(&mut self, world: &mut World) -> Result<(), String> {
        for process in [0, 1] {
            for place in 0..self.places() {
                let object = world.sides[self.side_of(process)].objects[place];
                let number = world.processes[process];
                if number != self.retired && self.tables.processes.get(number).objects[place] != object {
                    self.input(world, process, Input::ObjectSeen(place, object))?;
                }
            }
        }
        Ok(())
    }

    /// A role write is stored.
    pub fn role_is_stored(
        &mut self,
        world: &mut World,
        (side, place): (usize, usize),
        object: u32,
        write: &RoleWrite,
        is_late: bool,
    ) -> Result<(), String> {
        let before = world.sides[side].objects[place];
        if before == object {
            return Ok(());
        }
        let (was, is) = (self.tables.object_shows(before), self.tables.object_shows(object));
        let starts =
            write.change == PodChange::Start || (write.workload.is_some() && write.role == Some(PodRole::Active));
        if starts {
            self.start_is_stored(world, (side, place), write)?;
            self.seen.start = true;
            self.seen.late_start |= is_late;
        }
        let of = &world.sides[side];
        if write.workload.is_some() && was.runs && !is.runs && !of.had_term && !of.was_refused {
            return Err("R3: a workload that runs is stopped, and no attempt was answered".into());
        }
        if is.is_deleted && !was.is_deleted {
            world.sides[side].deleted_at[place] = world.now;
        }
        self.object_changes(world, (side, place), object);
        Ok(())
    }

    fn start_is_stored(
        &mut self,
        world: &mut World,
        (side, place): (usize, usize),
        write: &RoleWrite,
    ) -> Result<(), String> {
        let token: u8 = write.token.as_ref().and_then(|token| token.parse().ok()).unwrap_or(0);
        let of = &world.sides[side];
        if of.named_since[place] & 1 << token == 0 {
            return Err(format!("R4: a start for the term {token} is stored, which the status has not named since"));
        }
        if token <= of.done {
            return Err(format!("Fence: a start for the term {token} is stored after the withdrawal was done"));
        }
        if token < of.started {
            return Err(format!("Order: a start for the term {token} is stored after one for the term {}", of.started));
        }
        if self.setup.kind == Kind::Pods {
            let other = self.tables.object_shows(of.objects[1 - place]);
            let grace = u64::try_from(GRACE.as_millis()).unwrap();
            let must_have_stopped = other.is_deleted && world.now >= of.deleted_at[1 - place] + grace;
            if other.runs && !must_have_stopped {
                return Err("R1: a pod is started, and the other one may still run".into());
            }
        }
        self.seen.second_term |= of.started > 0 && token > of.started;
        world.sides[side].started = token;
        Ok(())
    }

    /// Brings the state into its only form, and checks what concerns the whole of it.
    pub fn tidy(&mut self, world: &mut World) -> Result<(), String> {
        self.show_objects(world)?;
        // A late write that names an earlier version has no effect any more.
        world.flights.retain(|flight| {
            let side = &world.sides[if self.setup.is_shared { usize::from(flight.owner) } else { 0 }];
            !flight.is_late
                || match self.tables.calls.get(flight.call) {
                    Call::ReadLease => false,
                    Call::Status(write) => write.version == self.tables.lease_of(side.lease).metadata.resource_version,
                    Call::Role(place, write) => {
                        let object = self.tables.object_of(side.objects[*place]);
                        let stands = write.version == *object.object().resource_version;
                        self.seen.fenced |= !stands;
                        stands || self.shared.bug == Some(crate::planted::Planted::RolesWithoutVersion)
                    }
                }
        });
        world.flights.sort_unstable();
        if self.seen.versions.iter().any(|version| *version > MOST) {
            return Err(format!("R2: a version is greater than {MOST}: two processes rewrite an object for ever"));
        }
        self.retire(world);
        let decides = |process: &u32| self.tables.processes.get(*process).authority == Authority::Lead;
        self.seen.rivals |= world.processes.iter().all(decides);
        for process in [0, 1] {
            self.withdrawal_is_done(world, process);
        }
        Ok(())
    }

    /// A process that never acts again is like any other such process.
    fn retire(&mut self, world: &mut World) {
        if world.left.authority > 0 {
            return;
        }
        for process in [0, 1] {
            let state = self.tables.processes.get(world.processes[process]);
            let waits = world.flights.iter().any(|flight| usize::from(flight.owner) == process && !flight.is_late);
            if state.authority == Authority::Follow && !waits {
                world.processes[process] = self.retired;
            }
        }
    }

    fn withdrawal_is_done(&mut self, world: &mut World, process: usize) {
        let number = self.side_of(process);
        let side = &world.sides[number];
        let shows = self.tables.lease_shows(side.lease);
        let is_standby = (0..self.places()).all(|place| self.tables.object_shows(side.objects[place]).is_standby);
        let waits = world.flights.iter().any(|flight| usize::from(flight.owner) == process && !flight.is_late);
        let state = self.tables.processes.get(world.processes[process]);
        let knows = state.lease == side.lease && state.objects[..] == side.objects[..self.places()];
        let is_quiet = state.deadline().is_none_or(|at| at >= world.now + HORIZON);
        let is_at_rest = state.authority == Authority::Lead && state.keeper.stand == Stand::Idle && is_quiet && !waits;
        if is_at_rest && knows && is_standby && shows.named.is_none() && shows.latest > 0 {
            world.sides[number].done = u8::try_from(shows.latest).unwrap();
            self.seen.done = true;
        }
    }
}
