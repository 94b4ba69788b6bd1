//! The whole world: two processes, the clusters with their objects, the calls that are under way, the lock, and what the checks
//! remember.

use std::sync::Arc;

use redislease_plan::plan::Authority;

use crate::keeper::{Keys, Lock};
use crate::objects::{self, Kind};
use crate::planted::Planted;
use crate::process::{Input, Process};
use crate::step::{Shared, step};
use crate::tables::Tables;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub name: &'static str,
    pub kind: Kind,
    /// Two clusters with one process each share the lock; otherwise one cluster has both processes.
    pub is_shared: bool,
    /// Whether a process that gains authority takes it from the other one, which notices it.
    pub is_orderly: bool,
    /// The most terms.
    pub terms: u8,
    /// How many other calls can be executed before a call that is answered.
    pub slow: u8,
    pub accidents: Accidents,
}

/// How many of each accident can still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accidents {
    /// Writes that are not answered, and are executed at any later time or never.
    pub unanswered: u8,
    /// Changes of the authority of a process.
    pub authority: u8,
    /// Processes that cannot confirm their term for a while.
    pub doubts: u8,
    /// Steps of the clock to the next deadline of a process.
    pub time: u8,
}

/// The state of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Side {
    pub lease: u32,
    pub objects: [u32; 2],
    /// The tokens that the status has named since the present version of each object was stored, one bit each.
    pub named_since: [u16; 2],
    /// The latest token whose withdrawal is done: a process that decides is at rest, and nothing is started.
    pub done: u8,
    /// The latest token for which something was started.
    pub started: u8,
    /// When each pod was asked to stop.
    pub deleted_at: [u64; 2],
    /// Whether a process of the cluster has had a term.
    pub had_term: bool,
    /// Whether another cluster has refused an attempt.
    pub was_refused: bool,
}

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    pub owner: u8,
    pub call: u32,
    /// Its process does not wait for it any more.
    pub is_late: bool,
    /// Its process does not want it any more. It may not be sent yet.
    pub is_withdrawn: bool,
    /// How many other calls were executed since it was sent.
    pub age: u8,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub processes: [u32; 2],
    pub sides: [Side; 2],
    pub flights: Vec<Flight>,
    pub lock: Lock,
    pub left: Accidents,
    pub now: u64,
}

/// The setup and everything that was computed.
pub struct Explorer {
    pub setup: Setup,
    pub shared: Shared,
    pub tables: Tables,
    /// What was seen at least once.
    pub seen: Seen,
    /// A process that never acts again.
    pub retired: u32,
}

/// What must be possible, or the exploration shows nothing.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent sight")]
pub struct Seen {
    /// Something was started.
    pub start: bool,
    /// A start was stored that was not answered.
    pub late_start: bool,
    /// A late start found a later version.
    pub fenced: bool,
    /// A withdrawal was done.
    pub done: bool,
    /// Something was started for a second term.
    pub second_term: bool,
    /// Two processes of one cluster decided at once, or two clusters wanted the lock.
    pub rivals: bool,
    /// The greatest versions of a lease and of an object.
    pub versions: [u64; 2],
}

impl Explorer {
    pub fn new(setup: Setup, bug: Option<Planted>) -> Self {
        Self {
            setup,
            shared: Shared::new(setup.kind, bug),
            tables: Tables::default(),
            seen: Seen::default(),
            retired: 0,
        }
    }

    /// The cluster of a process.
    pub const fn side_of(&self, process: usize) -> usize {
        if self.setup.is_shared { process } else { 0 }
    }

    /// How many objects each cluster has.
    pub const fn places(&self) -> usize {
        match self.setup.kind {
            Kind::Workload(_) => 1,
            Kind::Pods => 2,
        }
    }

    /// The first state: each process has had its first turn.
    pub fn first(&mut self) -> Result<World, String> {
        let lease = self.tables.lease(Arc::new(objects::lease(self.setup.kind)));
        let all = objects::startable(self.setup.kind);
        let all: Vec<u32> = all.into_iter().map(|one| self.tables.object(one)).collect();
        let objects = [all[0], *all.last().unwrap()];
        let second = if self.setup.is_shared { Authority::Lead } else { Authority::Follow };
        let processes = [(0, Authority::Lead), (1, second)].map(|(process, authority)| {
            let process = Process::new(self.side_of(process), authority, lease, all.clone());
            self.tables.processes.number(process)
        });
        self.retired = {
            let process = Process::new(0, Authority::Follow, lease, all.clone());
            self.tables.processes.number(process)
        };
        let side = Side { lease, objects, ..Side::default() };
        let now = self.tables.processes.get(processes[0]).now;
        let lock = Lock { last: 0, cluster: 0, keys: Keys::Free };
        let left = self.setup.accidents;
        let mut world = World { processes, sides: [side; 2], flights: Vec::new(), lock, left, now };
        for process in [0, 1] {
            self.input(&mut world, process, Input::Starts)?;
        }
        Ok(world)
    }

    /// A process takes an input.
    pub fn input(&mut self, world: &mut World, process: usize, input: Input) -> Result<(), String> {
        let step = step(&self.shared, &mut self.tables, world.processes[process], input);
        world.processes[process] = step.next;
        for out in &step.out {
            self.follow(world, process, *out)?;
        }
        Ok(())
    }
}
