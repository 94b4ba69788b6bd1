//! What one process remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redislease_core::driver;
use redislease_core::driver::{Driver, Ids, Proposals, Turns};
use redislease_core::judge::Judge;
use redislease_core::marker::RunId;
use redislease_core::op::{Holder, Token};
use redislease_core::quorum::{Node, Quorum};
use redislease_core::seed::FenceReport;
use redislease_core::time::{Drift, Millis, Time};
use redislease_plan::engine::{self, Caller, Engine, Subject};
use redislease_plan::index::{Index, LeaseId};
use redislease_plan::plan::calls::{Calls, Limits, Request};
use redislease_plan::plan::{
    Allowed, Effect as Planned, Leadership, LeadershipEffect, News, OpenQuorum, PERMITS, QuorumFacts,
};

use crate::api::objects;
use crate::api::objects::{KEYS, Keys, NAMESPACE};
use crate::api::server::Stream;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::planted::Planted;
use crate::check::coverage::Sight;
use crate::check::pending::Writes;
use crate::check::state::{Checks, History, Seen};
use crate::event::{Inside, SharedViews};
use crate::programs::worker::Worker;
use crate::redis::clock::{Clock, Micros};
use crate::redis::link::{Conn, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Down,
    Running,
    Frozen,
}

/// An effect of a machine of the process.
pub enum Polled {
    /// The unit, and the number of the lease.
    Lease(u32, u64, driver::Effect),
    /// The unit.
    Planned(u32, Arc<Subject>, Planned),
    /// The unit.
    Call(u32, Caller, Request),
    Leader(LeadershipEffect),
}

pub struct Process {
    pub cluster: usize,
    pub boot: u32,
    pub life: Life,
    /// Counts suspend.
    pub clock: Clock,
    pub wall: Clock,
    /// Its state of each Redis node.
    pub peers: Vec<Peer>,
    /// Which of them vote.
    pub votes: Vec<bool>,
    pub judge: Judge,
    pub machines: Vec<Machine>,
    /// The turns of their drivers, and the numbers of their leases.
    pub turns: Turns,
    pub lease_ids: Ids,
    pub proposals: Proposals,
    /// The tasks of a program.
    pub workers: Vec<Worker>,
    pub units: Vec<Unit>,
    /// How many units each lease has had, by the number of its UID.
    pub earlier_units: BTreeMap<u32, u32>,
    pub engine: Engine<Planted>,
    /// Whether a time slice of the engine is scheduled.
    pub work_due: bool,
    /// The effect that was polled when the process was paused. It is carried out when the process continues.
    pub held_back: Option<Polled>,
    /// Whether every status was read once.
    pub floor_complete: bool,
    pub quorum: Arc<QuorumFacts>,
    pub calls: Calls<Ticket>,
    pub writes: Writes,
    /// `None`: every process decides as if it led.
    pub leader: Option<Leader>,
    pub streams: [Stream; 2],
    /// The events that arrived while it was paused.
    pub inbox: Vec<Inside>,
    pub floor: Token,
    /// How many faults cut it off from its API server.
    pub api_cut: u32,
    pub last_command: Micros,
    /// How many changes of workloads its watch has shown.
    pub saw_workloads: u32,
    pub wake_at: Option<Micros>,
    pub history: History,
}

impl Process {
    pub fn new(cluster: usize, quorum: Quorum, clock: Clock, wall: Clock, calls: Limits) -> Self {
        Self {
            cluster,
            boot: 0,
            life: Life::Down,
            clock,
            wall,
            peers: Vec::new(),
            votes: vec![false; quorum.size()],
            judge: Judge::new(quorum, Millis(0), Drift::STANDARD),
            machines: Vec::new(),
            turns: Turns::new(),
            lease_ids: Ids::default(),
            proposals: Proposals::default(),
            workers: Vec::new(),
            units: Vec::new(),
            earlier_units: BTreeMap::new(),
            engine: new_engine(cluster, PERMITS, &[]),
            work_due: false,
            held_back: None,
            floor_complete: false,
            quorum: Arc::default(),
            calls: Calls::new(calls),
            writes: Writes::default(),
            leader: None,
            streams: [Stream::default(); 2],
            inbox: Vec::new(),
            floor: Token(0),
            api_cut: 0,
            last_command: 0,
            saw_workloads: 0,
            wake_at: None,
            history: History::default(),
        }
    }
}

/// The machine of one lease, from `Open` to its end.
pub struct Machine {
    /// The number of the lease's UID.
    pub uid: u32,
    pub place: usize,
    /// Distinguishes it from all other machines of its process: the number of its lease.
    pub serial: u64,
    pub driver: Driver,
    /// Without a quorum no request can be sent.
    pub quorum: Option<Arc<OpenQuorum>>,
    pub keys: Vec<u8>,
    /// Those that its reader has not taken.
    pub views: SharedViews,
    pub seen: Seen,
    /// The holder of attempts that it repeats by itself: only a planted bug does so.
    pub desired: Option<Holder>,
}

impl Machine {
    /// The keys as bits.
    pub fn bits(&self) -> Keys {
        self.keys.iter().fold(0, |bits, key| bits | 1 << key)
    }

    /// Until when this process may treat the running term as held.
    pub fn stop_at(&self) -> Option<Time> {
        self.driver.view().standing.term().and_then(|term| term.stop_at)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.driver.next_deadline()
    }
}

impl Process {
    /// The machine of a lease. Those that were closed and wait for their last answers are nobody's.
    pub fn machine_of(&self, uid: u32) -> Option<&Machine> {
        self.machines.iter().rev().find(|machine| machine.uid == uid && !machine.driver.is_closing())
    }

    /// The views that the reader of a lease, or of the lock of the replicas, reads.
    fn views_of(&mut self, uid: u32) -> Option<&mut Option<SharedViews>> {
        match &mut self.leader {
            Some(leader) if uid == LOCK => Some(&mut leader.views),
            _ => self.units.iter_mut().find(|unit| unit.uid == uid).map(|unit| &mut unit.views),
        }
    }

    /// The reader of a lease reads these views from now on.
    pub fn read_from(&mut self, uid: u32, views: Option<SharedViews>) {
        if let Some(known) = self.views_of(uid) {
            *known = views;
        }
    }

    /// Takes what is new in the views of a lease.
    pub fn news(&mut self, uid: u32) -> News {
        let Some(Some(views)) = self.views_of(uid) else { return News::default() };
        let news = views.borrow_mut().take();
        if news.ended {
            self.read_from(uid, None);
        }
        news
    }
}

/// What the simulator keeps about one lease in one process.
pub struct Unit {
    pub id: LeaseId,
    /// The number of the lease's UID. If an old list lacks the lease, and it is seen again later, the index takes it for
    /// another lease. The unit of that has a greater number: [`lease_of`] is the same.
    pub uid: u32,
    pub place: usize,
    /// The views of its last machine, which may not be opened yet.
    pub views: Option<SharedViews>,
    pub checks: Checks,
}

/// An engine without facts.
pub fn new_engine(cluster: usize, permits: usize, bugs: &[Bug]) -> Engine<Planted> {
    let allowed = Allowed { scheduling_gate: true, scale: true, suspend: true };
    let cluster = Arc::new(objects::cluster(cluster));
    Engine::new(engine::Config { cluster, allowed, permits, machines: bugs.to_vec() }, Index::new(NAMESPACE))
}

/// The UID of the lock of the replicas, in place of that of a lease.
pub const LOCK: u32 = u32::MAX;

/// What one process knows of the election.
pub struct Leader {
    pub machine: Leadership,
    /// The leader by the newest event, read or answer: the resource version, and the instance.
    pub named: (u64, Option<String>),
    /// The views of the last machine of its lock.
    pub views: Option<SharedViews>,
    pub due: bool,
    /// Whether it waits for any answer of the API server.
    pub asks: bool,
}

/// The key of the lock on the Redis nodes.
pub const fn lock_key(cluster: usize) -> u8 {
    (KEYS - 1 - cluster) as u8
}

/// The name of a replica. Each start of it has another process name.
pub fn instance(process: usize) -> String {
    format!("operator-{process}")
}

/// The state of one node in a process.
pub struct Peer {
    pub wire: Wire,
    pub conn: Option<Conn>,
    /// Whether a connection was opened or has failed.
    pub tried: bool,
    pub gather: Option<Gather>,
    /// Where the counter with which it is being admitted came from.
    pub seeded_by: Option<Sight>,
    /// How often the statuses were to be read to seed its counter. Only the answer to the last request counts.
    pub tokens_asked: u64,
    /// The fault that set its clock, until the next answer of the node.
    pub stepped: Option<Fault>,
    /// Since when it is unknown whether its clock or that of the process jumped.
    pub doubted_at: Option<Micros>,
    pub run_id: Option<RunId>,
}

/// The fences that an admission waits for.
pub struct Gather {
    pub outstanding: BTreeSet<usize>,
    pub reports: Vec<(Node, FenceReport)>,
}

/// The caller of a call.
#[derive(Clone, Debug)]
pub enum Ticket {
    Engine(Caller),
    Leader,
    /// The admission of a node. `request` is [`Peer::tokens_asked`].
    Tokens {
        node: usize,
        request: u64,
    },
}
