//! What one process remembers.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::driver::{Driver, Ids, Proposals, Turns};
use redislease_core::judge::Judge;
use redislease_core::marker::RunId;
use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::FenceReport;
use redislease_core::time::{Drift, Time};
use redislease_plan::api::quorum::NodeState;
use redislease_plan::engine::{self, Caller, Engine};
use redislease_plan::index::{Index, LeaseId};
use redislease_plan::plan::calls::Calls;
use redislease_plan::plan::{Allowed, News, OpenQuorum, QuorumReconciler};

use crate::api::objects;
use crate::api::objects::NAMESPACE;
use crate::api::server::Stream;
use crate::chaos::bug::Bug;
use crate::chaos::planted::Planted;
use crate::chaos::swarm::Swarm;
use crate::check::state::{Checks, History, Seen, SeenNode};
use crate::event::SharedViews;
use crate::programs::worker::Worker;
use crate::redis::clock::{Clock, Micros};
use crate::redis::link::{Conn, Wire};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Down,
    Running,
    Frozen,
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
    /// Which of them are shown as voting.
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
    /// The views of the last machine of each unit and of the lock, which may not be opened yet.
    pub views: BTreeMap<u32, SharedViews>,
    /// How many units each lease has had, by the number of its UID.
    pub earlier_units: BTreeMap<u32, u32>,
    pub engine: Engine<Planted>,
    /// Whether a time slice of the engine is scheduled.
    pub work_due: bool,
    /// Whether every status was read once.
    pub floor_complete: bool,
    /// From its start on. Without an election, every process decides as if it led.
    pub quorum: Option<QuorumReconciler>,
    /// Whether a turn of the election is scheduled.
    pub leader_due: bool,
    pub calls: Calls<Ticket>,
    pub streams: [Stream; 2],
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
    pub fn new(cluster: usize, [clock, wall]: [Clock; 2], swarm: &Swarm, bugs: &[Bug]) -> Self {
        let mutant = bugs.iter().find_map(|bug| bug.mutant());
        let config = engine::Config {
            cluster: Arc::new(objects::cluster(cluster)),
            allowed: Allowed { scheduling_gate: true, scale: true, suspend: true },
            permits: swarm.permits,
            machines: bugs.to_vec(),
        };
        Self {
            cluster,
            boot: 0,
            life: Life::Down,
            clock,
            wall,
            peers: Vec::new(),
            votes: vec![false; swarm.quorum.size()],
            judge: Judge::new(swarm.quorum, swarm.longest, Drift::STANDARD).with_mutant(mutant),
            machines: Vec::new(),
            turns: Turns::new(),
            lease_ids: Ids::default(),
            proposals: Proposals::default(),
            workers: Vec::new(),
            units: Vec::new(),
            views: BTreeMap::new(),
            earlier_units: BTreeMap::new(),
            engine: Engine::new(config, Index::new(NAMESPACE)),
            work_due: false,
            floor_complete: false,
            quorum: None,
            leader_due: false,
            calls: Calls::new(swarm.calls),
            streams: [Stream::default(); 2],
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
}

impl Machine {
    /// Until when this process may treat the running term as held.
    pub fn stop_at(&self) -> Option<Time> {
        self.driver.view().standing.term().and_then(|term| term.stop_at)
    }
}

impl Process {
    /// The machine of a lease. Those that were closed and wait for their last answers are nobody's.
    pub fn machine_of(&self, uid: u32) -> Option<&Machine> {
        self.machines.iter().rev().find(|machine| machine.uid == uid && !machine.driver.is_closing())
    }

    /// Takes what is new in the views of a lease, or of the lock of the replicas.
    pub fn news(&mut self, uid: u32) -> News {
        let news = self.views.get(&uid).map(|views| views.borrow_mut().take()).unwrap_or_default();
        if news.ended {
            self.views.remove(&uid);
        }
        news
    }

    /// When the election needs a turn, or the status of the quorum must be compared.
    pub fn quorum_due(&self) -> Option<Time> {
        self.quorum.as_ref()?.deadlines(true, true).into_iter().flatten().min()
    }

    pub fn raise_floor(&mut self, token: Token) {
        self.floor = self.floor.max(token);
    }
}

/// What the simulator keeps about one lease in one process.
pub struct Unit {
    pub id: LeaseId,
    /// The number of the lease's UID. If an old list lacks the lease, and it is seen again later, the index takes it for
    /// another lease. The unit of that has a greater number: [`lease_of`] is the same.
    pub uid: u32,
    pub place: usize,
    pub checks: Checks,
}

/// The UID of the lock of the replicas, in place of that of a lease.
pub const LOCK: u32 = u32::MAX;

/// The state of one node in a process.
pub struct Peer {
    pub wire: Wire,
    pub conn: Option<Conn>,
    /// Its state in the status, and whether a connection has failed.
    pub shown: (NodeState, bool),
    /// The answers of the nodes that were asked for their fences, to seed its counter.
    pub gather: Option<BTreeMap<Node, Option<FenceReport>>>,
    /// How often the statuses were to be read to seed its counter. Only the answer to the last request counts.
    pub tokens_asked: u64,
    pub run_id: Option<RunId>,
    pub seen: SeenNode,
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
