//! One world: true time, the queue of events, and the state that they change.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease_core::check::Mutant;
use redislease_core::marker::Membership;
use redislease_core::op::Attempt;
use redislease_plan::api::{RedisQuorumStatus, ValidQuorum};
use redislease_plan::plan::OpenQuorum;

use crate::api::objects::{self, LeaseSpec, QUORUM, START};
use crate::api::quorum::QuorumResource;
use crate::api::server::{ApiServer, Backup};
use crate::chaos::bug::Bug;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::{Swarm, of_place};
use crate::check::checker::Checker;
use crate::check::coverage::{Coverage, Sight};
use crate::check::state::{Programs, Ran, Recovery, Running};
use crate::check::trace::{Note, Trace};
use crate::event::{Event, Inside, ProgramStage, Stage};
use crate::operator::state::{Life, Process};
use crate::queue::Queue;
use crate::redis::clock::{Clock, Micros, SECOND, TRUE_RATE};
use crate::redis::link::Link;
use crate::redis::server::Server;

/// The start of every run, in microseconds of Unix time.
const UNIX: u64 = START as u64 * SECOND;

/// More events than this at one instant are a loop without an end.
const EVENTS_AT_ONE_INSTANT: u32 = 5000;
/// More effects than this of one event are a loop without an end.
pub const EFFECTS_OF_ONE_EVENT: u32 = 5000;

pub struct World {
    pub now: Micros,
    pub queue: Queue,
    /// How many events have happened at `now`.
    at_once: u32,
    /// How many effects were polled in this event.
    pub polled: u32,
    pub rng: Rng,
    pub swarm: Swarm,
    pub bugs: Vec<Bug>,
    pub membership: Membership,
    /// Per cluster.
    pub quorum_resources: Vec<QuorumResource>,
    pub servers: Vec<Server>,
    pub processes: Vec<Process>,
    pub links: Vec<Vec<Link>>,
    pub apis: Vec<ApiServer>,
    /// Per cluster: the last backup of its etcd.
    pub backups: Vec<Option<Backup>>,
    /// Per cluster and place: what the lease asks for.
    pub specs: Vec<Vec<LeaseSpec>>,
    pub check: Checker,
    pub running: Running,
    pub coverage: Coverage,
    pub trace: Trace,
    /// Whether faults are injected. When this ends, all faults are healed.
    pub chaos: bool,
    /// A heal of an earlier epoch is ignored.
    pub epoch: u32,
    next_uid: u32,
    pub recovery: Recovery,
    pub programs: Programs,
    /// The process that crashes, and the number of its effect before which it does.
    pub crash_before: Option<(usize, u64)>,
    /// The effects that this process has carried out.
    pub effects: u64,
    pub last_step: Vec<Micros>,
    /// When each node last got a ticket although no clock was set.
    pub wrong_tickets: Vec<Option<Micros>>,
    pub done: bool,
    /// Losses that must be counted, by process.
    pub lost: BTreeSet<(usize, Attempt)>,
    /// How many requests were given to wires.
    pub tickets: u64,
    pub ran: Ran,
}

impl World {
    pub fn new(mut swarm: Swarm, mut rng: Rng, bugs: &[Bug]) -> Self {
        swarm.calls = bugs.iter().fold(swarm.calls, |calls, bug| bug.calls(calls));
        let spec = objects::quorum_spec(swarm.quorum, swarm.longest, swarm.command_timeout);
        let quorum = objects::quorum(spec.clone(), (0, RedisQuorumStatus::default()));
        let fingerprint = ValidQuorum::try_from(&quorum).unwrap().fingerprint();
        let membership = Membership { generation: 1, fingerprint: fingerprint.as_str().into() };
        let open = Arc::new(OpenQuorum {
            id: 1,
            name: QUORUM.into(),
            fingerprint: fingerprint.as_str().into(),
            quorum: swarm.quorum,
            longest_lease: swarm.longest,
            command_timeout: swarm.command_timeout,
        });
        let servers = new_servers(&swarm, &mut rng, bugs, &membership);
        let processes = new_processes(&swarm, &mut rng, bugs);
        let links = vec![vec![Link::default(); servers.len()]; processes.len()];
        let specs = new_specs(&swarm, &mut rng);
        let mut check = Checker::default();
        check.published_only = swarm.clocks_behind;
        check.storms_pass = swarm.programs > 0 || bugs.iter().any(|&bug| bug != Bug::NoPace);
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            at_once: 0,
            polled: 0,
            rng,
            bugs: bugs.to_vec(),
            membership,
            quorum_resources: vec![QuorumResource { spec, open, no_secret: false }; swarm.clusters],
            last_step: vec![0; servers.len()],
            wrong_tickets: vec![None; servers.len()],
            servers,
            processes,
            links,
            backups: vec![None; swarm.clusters],
            apis: (0..swarm.clusters).map(|_| ApiServer::new(swarm.keys.len(), swarm.stale_lists > 0)).collect(),
            specs,
            check,
            running: Running::default(),
            coverage: Coverage::default(),
            trace: Trace::new(0),
            chaos: true,
            epoch: 0,
            next_uid: 1,
            recovery: Recovery::default(),
            programs: Programs::default(),
            crash_before: None,
            effects: 0,
            done: false,
            lost: BTreeSet::new(),
            tickets: 0,
            ran: Ran::default(),
            swarm,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        self.coverage.saw(Sight::of_nodes(self.swarm.quorum.size() as u8));
        for cluster in 0..self.apis.len() {
            for place in 0..self.swarm.keys.len() {
                self.create_lease(cluster, place);
                if self.specs[cluster][place].clustered {
                    self.create_workload(cluster, place);
                    continue;
                }
                for _ in 0..self.swarm.pods {
                    self.pod_comes(cluster, place);
                }
            }
        }
        if self.specs.windows(2).any(|clusters| clusters[0] != clusters[1]) {
            self.coverage.saw(Sight::TwoSpecsOfOneKey);
        }
        for process in 0..self.processes.len() {
            self.at(1000, Event::Start(process));
        }
        self.at(SECOND, Event::Snapshot);
        if self.swarm.faults.iter().any(|&(_, weight)| weight > 0) {
            self.inject_later();
        }
        let end =
            if self.swarm.programs > 0 { Event::Programs(ProgramStage::Heal) } else { Event::Recovery(Stage::Heal) };
        self.at(self.swarm.chaos, end);
    }

    pub fn new_uid(&mut self) -> u32 {
        self.next_uid += 1;
        self.next_uid - 1
    }

    pub fn is(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// The rule of the core that is broken.
    pub fn mutant(&self) -> Option<Mutant> {
        self.bugs.iter().find_map(|bug| bug.mutant())
    }

    pub fn at(&mut self, at: Micros, event: Event) {
        self.queue.push(at, event);
    }

    pub fn after(&mut self, delay: Micros, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Something happens in a process, if it still runs then.
    pub fn later(&mut self, process: usize, delay: Micros, event: Inside) {
        let Process { boot, life, .. } = self.processes[process];
        // It may have crashed just now.
        if life != Life::Down {
            self.after(delay, Event::Inside(process, boot, event));
        }
    }

    pub fn note(&mut self, note: Note<'_>) {
        self.trace.note(self.now, note);
    }

    pub fn run(&mut self) {
        while !self.done && self.check.broken.is_none() && self.queue.next().is_some() {
            self.next_event();
        }
    }

    fn next_event(&mut self) {
        let Some((at, event)) = self.queue.pop() else { return };
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        self.now = at;
        self.polled = 0;
        if self.at_once > EVENTS_AT_ONE_INSTANT {
            self.check.fail(format!("more than {EVENTS_AT_ONE_INSTANT} events at one instant: {event:?}"));
        }
        self.happen(event);
    }

    /// Runs until true time is `end`, for a scenario that then changes something.
    pub fn run_until(&mut self, end: Micros) {
        while self.check.broken.is_none() && self.queue.next().is_some_and(|at| at <= end) {
            self.next_event();
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        if let Event::Inside(process, boot, event) = event {
            let addressed = &mut self.processes[process];
            if addressed.boot != boot || addressed.life == Life::Down {
                return;
            }
            if addressed.life == Life::Frozen {
                addressed.history.inbox.push(event);
                return;
            }
            self.happen_to(process, event);
            self.schedule_wake(process);
            return;
        }
        match event {
            Event::Arrive(delivery) => self.arrive(delivery),
            Event::ApiArrive(call) => self.api_arrive(*call),
            Event::Start(process) => self.start(process),
            Event::Exit { process, boot } if self.processes[process].boot == boot => self.crash(process),
            Event::Resume { process, boot } => self.resume(process, boot),
            Event::Inject => self.inject_by_time(),
            Event::Heal { epoch, heal } if epoch == self.epoch => self.heal(&heal),
            Event::Pod { cluster, pod, step } => self.pod_step(cluster, pod, step),
            Event::PodComes { cluster, place } => self.pod_comes(cluster, place),
            Event::Fight { cluster, place, until } => self.fight(cluster, place, until),
            Event::Replicas { cluster, place, changes, run } => self.replicas_follow((cluster, place), changes, run),
            Event::Snapshot => {
                for server in self.servers.iter_mut().filter(|server| server.up) {
                    server.snapshot();
                }
                if self.chaos {
                    self.after(SECOND, Event::Snapshot);
                }
            }
            Event::Recovery(stage) => self.recovery_stage(stage),
            Event::Programs(stage) => self.programs_stage(stage),
            Event::Left { process, holder, since, life } => self.nothing_is_left_of(process, holder, since, life),
            _ => {}
        }
    }

    fn happen_to(&mut self, process: usize, event: Inside) {
        match event {
            Inside::Reply { to, id, answer } => self.reply(to, id, answer),
            Inside::Flush(to) => self.flush(to),
            Inside::Reset(to) => self.reset(to),
            Inside::Dial(to) => self.dial(to),
            Inside::Vote { serial, round, node, vote } => self.vote(process, serial, round, node, vote),
            Inside::ApiReply { id, answer } => self.api_reply(process, id, *answer),
            Inside::WatchOpen(kind) => self.open_watch(process, kind),
            Inside::WatchRenew => self.renew_watches(process),
            Inside::Watch(kind, step) => self.watched(process, kind, *step),
            Inside::WatchedWorkload { place } => self.workload_watched(process, place),
            Inside::Wake => self.wake(process),
            Inside::Work => self.work(process),
            Inside::Order { uid, order, views } => self.obey(process, uid, *order, views),
            Inside::Mail { uid } => self.mail(process, uid),
            Inside::QuorumRead => self.quorum_read(process),
            Inside::QuorumEdited => self.quorum_edited(process),
            Inside::LeaderTurn => self.leader_turn(process),
            Inside::CompareQuorum => self.compare_quorum(process),
            Inside::LossDue { serial, uid, attempt } => self.loss_was_counted(process, serial, uid, attempt),
            Inside::StopDue { uid, attempt, object } => self.stop_is_due(process, uid, attempt, object),
            Inside::Terminate => self.stop_gracefully(process),
            Inside::Program(step) => self.program_step(process, step),
        }
    }
}

fn new_servers(swarm: &Swarm, rng: &mut Rng, bugs: &[Bug], membership: &Membership) -> Vec<Server> {
    let new = |number| {
        let unix = UNIX + rng.between(0, 3 * SECOND);
        Server::new(number, Clock::new(unix, swarm.rate(rng)))
    };
    let mut servers: Vec<Server> = (0..swarm.quorum.size()).map(new).collect();
    for server in &mut servers {
        server.node.mutant = bugs.iter().find_map(|bug| bug.mutant());
        if swarm.installed {
            server.node.marker = Some(membership.marker(server.node.run_id.clone()));
            server.node.fence = Some(UNIX + if swarm.clocks_behind { 3600 * SECOND } else { 0 });
        }
    }
    servers
}

fn new_processes(swarm: &Swarm, rng: &mut Rng, bugs: &[Bug]) -> Vec<Process> {
    let new = |&cluster| {
        let clock = Clock::new(rng.between(SECOND, 1000 * SECOND), swarm.rate(rng));
        let wall = Clock::new(UNIX + rng.between(0, 3 * SECOND), TRUE_RATE);
        Process::new(cluster, [clock, wall], swarm, bugs)
    };
    swarm.processes.iter().map(new).collect()
}

/// The specs of the leases, by cluster and place.
fn new_specs(swarm: &Swarm, rng: &mut Rng) -> Vec<Vec<LeaseSpec>> {
    let mut spec = |place: usize| LeaseSpec {
        excludes: place == 0 && swarm.excludes,
        gated: of_place(swarm.gated, place),
        clustered: of_place(swarm.clustered, place),
        ..swarm.specs[rng.index(swarm.specs.len())].clone()
    };
    (0..swarm.clusters).map(|_| (0..swarm.keys.len()).map(&mut spec).collect()).collect()
}
