//! What one process remembers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use redislease_core::admission::Admission;
use redislease_core::driver;
use redislease_core::driver::{Driver, Ids, Turns};
use redislease_core::judge::Judge;
use redislease_core::lease::{Config, Round};
use redislease_core::lock::Lock;
use redislease_core::marker::RunId;
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::quorum::Quorum;
use redislease_core::seed::FenceReport;
use redislease_core::time::{Drift, Millis, Time};
use redislease_plan::engine::{self, Engine, Subject};
use redislease_plan::index::{Index, LeaseId};
use redislease_plan::plan::{
    Allowed, Effect as Planned, Leadership, LeadershipEffect, OpenQuorum, PERMITS, QuorumFacts, Views,
};

use super::planted::Planted;
use crate::api::objects;
use crate::api::objects::{KEYS, Keys, NAMESPACE};
use crate::api::server::Stream;
use crate::chaos::bug::Bug;
use crate::chaos::fault::{Fault, Phase};
use crate::check::coverage::Sight;
use crate::event::Inside;
use crate::operator::writer::Writer;
use crate::redis::clock::{Clock, Micros};
use crate::redis::link::Conn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Down,
    Running,
    Frozen,
}

/// What happens to a process before an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeEffect {
    Continue,
    Crashed,
    Paused,
}

/// An effect of a machine of the process.
pub enum Polled {
    /// The unit, and the number of the lease.
    Lease(u32, u64, driver::Effect),
    /// The unit.
    Planned(u32, Arc<Subject>, Planned),
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
    /// When its clock stood still, and for how long.
    pub losses: Vec<(Time, Micros)>,
    /// Whether a node was in doubt for one longest lease.
    pub waited_out_a_doubt: bool,
    /// While its clock stands still: what it shows, and since when.
    pub losing: Option<(u64, Micros)>,
    pub machines: Vec<Machine>,
    /// The turns of their drivers, and the numbers of their leases.
    pub turns: Turns,
    pub lease_ids: Ids,
    /// The tasks of a program.
    pub workers: Vec<Worker>,
    /// When it last continued after a pause.
    pub continued_at: Micros,
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
    /// The newest version of any object that it has observed.
    pub newest: u64,
    pub quorum: Arc<QuorumFacts>,
    pub writer: Writer,
    /// `None`: every process decides as if it led.
    pub leader: Option<Leader>,
    pub streams: [Stream; 2],
    /// The events that arrived while it was paused.
    pub inbox: Vec<Inside>,
    /// It was asked to stop gracefully.
    pub stops: bool,
    /// The fault that paused it, and the phases of its leases at that time.
    pub stopped_by: Option<(Fault, Vec<Phase>)>,
    pub floor: Token,
    /// How many faults cut it off from its API server.
    pub api_cut: u32,
    pub last_command: Micros,
    /// How many changes of workloads its watch has shown.
    pub saw_workloads: u32,
    pub wake_at: Option<Micros>,
}

impl Process {
    pub fn new(cluster: usize, quorum: Quorum, clock: Clock, wall: Clock, calls_at_once: usize) -> Self {
        Self {
            cluster,
            boot: 0,
            life: Life::Down,
            clock,
            wall,
            peers: Vec::new(),
            votes: vec![false; quorum.size()],
            judge: Judge::new(quorum, Millis(0), Drift::STANDARD),
            losses: Vec::new(),
            waited_out_a_doubt: false,
            losing: None,
            machines: Vec::new(),
            turns: Turns::new(),
            lease_ids: Ids::default(),
            workers: Vec::new(),
            continued_at: 0,
            units: Vec::new(),
            earlier_units: BTreeMap::new(),
            engine: new_engine(cluster, PERMITS, &[]),
            work_due: false,
            held_back: None,
            floor_complete: false,
            newest: 0,
            quorum: Arc::default(),
            writer: Writer::new(calls_at_once),
            leader: None,
            streams: [Stream::default(); 2],
            inbox: Vec::new(),
            stops: false,
            stopped_by: None,
            floor: Token(0),
            api_cut: 0,
            last_command: 0,
            saw_workloads: 0,
            wake_at: None,
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
}

/// What the checks know about one machine.
#[derive(Default)]
pub struct Seen {
    /// Whether the checker knows until when the view is valid.
    pub is_reported: bool,
    /// Whether effects of an earlier input are still to be carried out.
    pub behind: bool,
    /// A term that has ended, until a view shows it.
    pub ended: Option<Attempt>,
    pub began: Option<Attempt>,
    pub confirming: bool,
    pub renewing: bool,
    pub releasing: u32,
    /// The rounds whose requests were sent.
    pub rounds: Vec<Round>,
    /// Renewals without a failure, since something disturbed them.
    pub steady: u32,
    /// The last term that was given up because nodes did not hold it.
    pub missed: Option<Attempt>,
}

/// The views of one keeper machine, for its reader.
pub type SharedViews = Rc<RefCell<Views>>;

/// What the simulator keeps about one lease in one process.
pub struct Unit {
    pub id: LeaseId,
    /// The number of the lease's UID. If an old list lacks the lease, and it is seen again later, the index takes it for
    /// another lease. The unit of that has a greater number: [`lease_of`] is the same.
    pub uid: u32,
    pub place: usize,
    /// The views of its keeper. `None` until its machine is opened.
    pub views: Option<SharedViews>,
    /// How many machines are still to be opened: views of an earlier one are ignored.
    pub opening: u32,
    pub checks: Checks,
}

/// An engine without facts.
pub fn new_engine(cluster: usize, permits: usize, bugs: &[Bug]) -> Engine<Planted> {
    let allowed = Allowed { scheduling_gate: true, scale: true, suspend: true };
    let cluster = Arc::new(objects::cluster(cluster));
    Engine::new(engine::Config { cluster, allowed, permits, machines: bugs.to_vec() }, Index::new(NAMESPACE))
}

/// The state by which the effects of one lease are checked.
#[derive(Default)]
pub struct Checks {
    /// Whether it has counted the loss of a term.
    pub lost: bool,
    /// The terms whose end was counted.
    pub counted: BTreeSet<Attempt>,
    pub last_counted: Option<Attempt>,
}

/// The UID of the lock of the replicas, in place of that of a lease.
pub const LOCK: u32 = u32::MAX;

/// What one process knows of the election.
pub struct Leader {
    pub machine: Leadership,
    /// The leader by the newest event, read or answer: the resource version, and the instance.
    pub named: (u64, Option<String>),
    /// The views of its lock. `None` until its machine is opened.
    pub views: Option<SharedViews>,
    pub due: bool,
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
    pub admission: Admission,
    pub conn: Option<Conn>,
    /// Whether a connection was opened or has failed.
    pub tried: bool,
    pub gather: Option<Gather>,
    /// Where its last counter came from.
    pub seeded_by: Sight,
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
    pub target: Option<FenceReport>,
    pub others: Vec<FenceReport>,
}

/// The effect before which a fault is injected.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub process: usize,
    pub uid: u32,
    pub node: Option<usize>,
}

/// One request of a task, and the lock that comes from it.
pub struct Worker {
    /// The number of the task in its program.
    pub task: u32,
    /// The number of its lease.
    pub serial: u64,
    pub keys: Keys,
    pub lock: Lock,
    pub config: Config,
    /// True time.
    pub asked_at: Micros,
    pub taken: Option<Taken>,
    /// A write was refused: the program has stopped its work.
    pub knows_loss: bool,
    pub wake_at: Option<Micros>,
}

/// When a program got its lock.
#[derive(Clone, Copy)]
pub struct Taken {
    /// True time.
    pub at: Micros,
    /// On the clock of the process.
    pub local: u64,
    pub attempt: Attempt,
}
