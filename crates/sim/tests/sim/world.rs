//! One world: true time, a queue of what happens next, and everybody it happens to.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use redislease_core::lease::Round;
use redislease_core::marker::Membership;
use redislease_core::op::Vote;
use redislease_core::quorum::Node;

use crate::api::{Api, Ask};
use crate::bug::Bug;
use crate::check::Checker;
use crate::clock::{Clock, Micros, SECOND, TRUE_RATE};
use crate::coverage::Coverage;
use crate::nemesis::Heal;
use crate::net::{Address, Link, Request};
use crate::process::{Life, Process};
use crate::publish::{ApiAnswer, Push};
use crate::quiet::Stage;
use crate::rng::Rng;
use crate::server::{Answer, Server};
use crate::swarm::Swarm;
use crate::trace::{Note, Trace};

/// 2026-11-21, in microseconds of Unix time.
const UNIX: u64 = 1_795_238_400_000_000;

/// A request on its way to, or queued in, a server.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub from: Address,
    pub incarnation: u32,
    pub id: u64,
    pub request: Request,
    pub repeat: bool,
}

/// A request to an API server.
#[derive(Clone, Debug)]
pub struct ApiCall {
    pub process: usize,
    pub boot: u32,
    pub id: u64,
    pub ask: Ask,
}

/// What happens at one instant. What is addressed to a process names its boot: another one never sees it.
#[derive(Clone, Debug)]
pub enum Event {
    Arrive(Delivery),
    Reply { to: Address, id: u64, answer: Answer, clock: u64 },
    Overdue(Address),
    Reset(Address),
    Dial(Address),
    Vote { process: usize, boot: u32, uid: u32, round: Round, node: Node, vote: Vote },
    Wake { process: usize, boot: u32 },
    Poll { process: usize, boot: u32 },
    Push { process: usize, boot: u32, push: Push },
    ApiArrive(ApiCall),
    ApiReply { process: usize, boot: u32, id: u64, answer: ApiAnswer },
    Start(usize),
    Resume { process: usize, boot: u32 },
    Strike,
    Heal { epoch: u32, heal: Heal },
    PodStops { cluster: usize, pod: u32 },
    PodLeaves { cluster: usize, pod: u32 },
    PodComes { cluster: usize, resource: usize },
    Snapshot,
    Quiet(Stage),
    Scene(crate::crash_points::Scene),
}

impl Event {
    /// The process that has to be awake for it.
    const fn process(&self) -> Option<(usize, u32)> {
        match self {
            Self::Reply { to, .. } | Self::Overdue(to) | Self::Reset(to) | Self::Dial(to) => {
                Some((to.process, to.boot))
            }
            Self::Vote { process, boot, .. }
            | Self::Wake { process, boot }
            | Self::Poll { process, boot }
            | Self::Push { process, boot, .. }
            | Self::ApiReply { process, boot, .. } => Some((*process, *boot)),
            _ => None,
        }
    }
}

struct Entry {
    at: Micros,
    seq: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

pub struct World {
    pub now: Micros,
    queue: BinaryHeap<Reverse<Entry>>,
    seq: u64,
    pub rng: Rng,
    pub swarm: Swarm,
    pub bug: Option<Bug>,
    pub membership: Membership,
    pub servers: Vec<Server>,
    pub processes: Vec<Process>,
    pub links: Vec<Vec<Link>>,
    pub apis: Vec<Api>,
    pub check: Checker,
    pub coverage: Coverage,
    pub trace: Trace,
    /// Faults come; when it ends, everything is healed.
    pub chaos: bool,
    /// A heal of an earlier epoch is over already.
    pub epoch: u32,
    pub next_uid: u32,
    pub quiet: crate::quiet::Quiet,
    /// Effects carried out by process 0, and the one before which it dies.
    pub effects: u64,
    pub crash_before: Option<u64>,
    pub last_step: Vec<Micros>,
    pub done: bool,
}

impl World {
    pub fn new(swarm: Swarm, mut rng: Rng, bug: Option<Bug>) -> Self {
        let membership = Membership { generation: 1, fingerprint: "f00d".into() };
        let mut servers: Vec<Server> = (0..usize::from(swarm.nodes))
            .map(|number| {
                let unix = UNIX + rng.between(0, 3 * SECOND);
                Server::new(number, Clock::new(unix, swarm.rate(&mut rng)))
            })
            .collect();
        for server in &mut servers {
            server.node.mutant = bug.and_then(Bug::mutant);
            if swarm.installed {
                server.node.marker = Some(membership.marker(server.node.run_id.clone()));
                server.node.fence = UNIX + if swarm.clocks_behind { 3600 * SECOND } else { 0 };
            }
        }
        let processes: Vec<Process> = swarm
            .processes
            .iter()
            .map(|&cluster| {
                let clock = Clock::new(rng.below(1000 * SECOND), swarm.rate(&mut rng));
                Process::new(cluster, clock, Clock::new(UNIX + rng.between(0, 3 * SECOND), TRUE_RATE))
            })
            .collect();
        let links = vec![vec![Link::default(); servers.len()]; processes.len()];
        let apis = (0..swarm.clusters).map(|_| Api::new(swarm.keys.len())).collect();
        let mut check = Checker::default();
        check.published_only = swarm.clocks_behind;
        check.storms_pass = bug.is_some_and(|bug| bug != Bug::NoPace);
        let last_step = vec![0; servers.len()];
        let mut world = Self {
            now: 0,
            queue: BinaryHeap::new(),
            seq: 0,
            rng,
            swarm,
            bug,
            membership,
            servers,
            processes,
            links,
            apis,
            check,
            coverage: Coverage::default(),
            trace: Trace::default(),
            chaos: true,
            epoch: 0,
            next_uid: 1,
            quiet: crate::quiet::Quiet::default(),
            effects: 0,
            crash_before: None,
            last_step,
            done: false,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for cluster in 0..self.apis.len() {
            for resource in 0..self.swarm.keys.len() {
                let uid = self.new_uid();
                self.apis[cluster].create(resource, uid);
                for _ in 0..self.swarm.pods {
                    self.at(0, Event::PodComes { cluster, resource });
                }
            }
        }
        for process in 0..self.processes.len() {
            self.at(1000, Event::Start(process));
        }
        self.at(SECOND, Event::Snapshot);
        if self.swarm.faults.iter().any(|&(_, weight)| weight > 0) {
            self.strike_later();
        }
        self.at(self.swarm.chaos, Event::Quiet(Stage::Heal));
    }

    pub fn new_uid(&mut self) -> u32 {
        self.next_uid += 1;
        self.next_uid - 1
    }

    pub fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub fn at(&mut self, at: Micros, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse(Entry { at, seq: self.seq, event }));
    }

    pub fn after(&mut self, delay: Micros, event: Event) {
        self.at(self.now + delay, event);
    }

    pub fn note(&mut self, note: Note) {
        self.trace.note(self.now, note);
    }

    pub fn run(&mut self) {
        while !self.done && self.check.broken.is_none() {
            let Some(Reverse(entry)) = self.queue.pop() else { return };
            self.now = entry.at;
            self.happen(entry.event);
        }
    }

    fn happen(&mut self, event: Event) {
        if let Some((process, boot)) = event.process() {
            let addressed = &mut self.processes[process];
            if addressed.boot != boot || addressed.life == Life::Down {
                return;
            }
            if addressed.life == Life::Frozen {
                addressed.inbox.push(event);
                return;
            }
            self.happen_to(process, event);
            self.schedule_wake(process);
            return;
        }
        match event {
            Event::Arrive(delivery) => self.arrive(delivery),
            Event::ApiArrive(call) => self.api_arrive(call),
            Event::Start(process) => self.start(process),
            Event::Resume { process, boot } => self.resume(process, boot),
            Event::Strike => self.strike_by_time(),
            Event::Heal { epoch, heal } if epoch == self.epoch => self.heal(&heal),
            Event::PodStops { cluster, pod } => self.pod_stops(cluster, pod),
            Event::PodLeaves { cluster, pod } => self.pod_leaves(cluster, pod),
            Event::PodComes { cluster, resource } => self.pod_comes(cluster, resource),
            Event::Snapshot => {
                for server in self.servers.iter_mut().filter(|server| server.up) {
                    server.snapshot();
                }
                if self.chaos {
                    self.after(SECOND, Event::Snapshot);
                }
            }
            Event::Quiet(stage) => self.quiet_stage(stage),
            Event::Scene(scene) => self.scene(scene),
            _ => {}
        }
    }

    fn happen_to(&mut self, process: usize, event: Event) {
        match event {
            Event::Reply { to, id, answer, clock } => self.reply(to, id, answer, clock),
            Event::Overdue(to) => self.overdue(to),
            Event::Reset(to) => self.reset(to),
            Event::Dial(to) => self.dial(to),
            Event::Vote { uid, round, node, vote, .. } => self.vote(process, uid, round, node, vote),
            Event::Wake { .. } => self.wake(process),
            Event::Poll { .. } => self.poll(process),
            Event::Push { push, .. } => self.pushed(process, push),
            Event::ApiReply { id, answer, .. } => self.api_reply(process, id, answer),
            _ => {}
        }
    }
}
