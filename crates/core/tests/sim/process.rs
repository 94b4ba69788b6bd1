//! One operator process: its clock, its connections, the admission of its nodes, and how it dies and stands still.

use std::collections::{BTreeMap, BTreeSet};

use redislease_core::admission::{self, Admission};
use redislease_core::clock::ClockWatch;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::Token;
use redislease_core::seed::{Allegiance, FenceReport, seed};
use redislease_core::time::{Drift, Time};

use crate::api::Listing;
use crate::bug::Bug;
use crate::clock::{Clock, Micros};
use crate::coverage::Sight;
use crate::keeper::Owner;
use crate::net::{Address, Conn, Purpose, Request};
use crate::publish::Flight;
use crate::trace::Note;
use crate::world::{Event, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Down,
    Running,
    Frozen,
}

/// What a process knows of one node.
pub struct Peer {
    pub admission: Admission,
    pub watch: ClockWatch,
    pub conn: Option<Conn>,
    /// The node's newest TIME in milliseconds, and when it was received.
    pub newest: Option<(u64, u64)>,
    pub gather: Option<Gather>,
    run_id: Option<RunId>,
}

/// The fences that an admission waits for.
pub struct Gather {
    outstanding: BTreeSet<usize>,
    target: Option<FenceReport>,
    others: Vec<FenceReport>,
}

/// What a process knows of its API server.
#[derive(Default)]
pub struct Cache {
    pub world: Listing,
    pub synced: bool,
    pub reachable: bool,
    /// Pods that were seen stopped, in whatever event.
    pub proofs: BTreeSet<u32>,
}

pub struct Process {
    pub cluster: usize,
    pub boot: u32,
    pub life: Life,
    /// Counts suspend.
    pub clock: Clock,
    pub wall: Clock,
    pub peers: Vec<Peer>,
    pub owners: Vec<Owner>,
    pub cache: Cache,
    pub flights: BTreeMap<u64, Flight>,
    /// What came while it stood still.
    pub inbox: Vec<Event>,
    pub floor: Token,
    pub api_cut: u32,
    pub last_push: Micros,
    wake_at: Option<Micros>,
    ids: u64,
}

impl Process {
    pub fn new(cluster: usize, clock: Clock, wall: Clock) -> Self {
        Self {
            cluster,
            boot: 0,
            life: Life::Down,
            clock,
            wall,
            peers: Vec::new(),
            owners: Vec::new(),
            cache: Cache::default(),
            flights: BTreeMap::new(),
            inbox: Vec::new(),
            floor: Token(0),
            api_cut: 0,
            last_push: 0,
            wake_at: None,
            ids: 0,
        }
    }
}

impl World {
    /// Milliseconds on the clock of a process.
    pub fn local(&self, process: usize) -> u64 {
        self.processes[process].clock.millis(self.now)
    }

    pub fn new_id(&mut self, process: usize) -> u64 {
        self.processes[process].ids += 1;
        self.processes[process].ids
    }

    pub fn start(&mut self, process: usize) {
        if self.processes[process].life != Life::Down {
            return;
        }
        let config = admission::Config {
            membership: self.membership.clone(),
            longest_lease: self.swarm.longest,
            drift: Drift::STANDARD,
            heartbeat: self.swarm.heartbeat,
        };
        let mutant = self.bug.and_then(Bug::mutant);
        let fresh = |_| Peer {
            admission: Admission::new(config.clone()).with_mutant(mutant),
            watch: ClockWatch::default(),
            conn: None,
            newest: None,
            gather: None,
            run_id: None,
        };
        let nodes = self.servers.len();
        let starting = &mut self.processes[process];
        starting.life = Life::Running;
        starting.peers = (0..nodes).map(fresh).collect();
        let boot = starting.boot;
        for node in 0..nodes {
            self.after(1, Event::Dial(Address { process, boot, node, conn: 0 }));
        }
        self.after(1, Event::Poll { process, boot });
    }

    /// Dies between two effects. What it sent goes on travelling; what others believe because of it goes on too.
    pub fn crash(&mut self, process: usize) {
        let crashed = &mut self.processes[process];
        crashed.boot += 1;
        crashed.life = Life::Down;
        crashed.peers.clear();
        crashed.owners.clear();
        crashed.inbox.clear();
        crashed.flights.clear();
        crashed.cache = Cache::default();
        crashed.floor = Token(0);
        crashed.wake_at = None;
    }

    /// Stands still. With `suspend`, a clock that does not count suspend would stand still too.
    pub fn freeze(&mut self, process: usize, suspend: bool) {
        self.processes[process].life = Life::Frozen;
        if suspend && self.is(Bug::MonotonicClock) {
            let now = self.now;
            self.processes[process].clock.set_rate(now, 0);
            for claim in self.check.live.iter_mut().filter(|claim| claim.process == process) {
                claim.until = Micros::MAX;
            }
        }
    }

    pub fn resume(&mut self, process: usize, boot: u32) {
        if self.processes[process].life != Life::Frozen || self.processes[process].boot != boot {
            return;
        }
        self.processes[process].life = Life::Running;
        if self.processes[process].clock.rate() == 0 {
            let (now, rate) = (self.now, self.swarm.rate(&mut self.rng));
            self.processes[process].clock.set_rate(now, rate);
            let clock = self.processes[process].clock;
            for claim in self.check.live.iter_mut().filter(|claim| claim.process == process) {
                claim.until = clock.when(claim.valid_until);
            }
        }
        for event in std::mem::take(&mut self.processes[process].inbox) {
            self.after(0, event);
        }
        self.processes[process].wake_at = None;
        self.after(0, Event::Wake { process, boot });
        self.processes[process].wake_at = Some(self.now);
    }

    /// The earliest deadline of all machines becomes the next wake.
    pub fn schedule_wake(&mut self, process: usize) {
        let sleeper = &self.processes[process];
        if sleeper.life != Life::Running {
            return;
        }
        let leases = sleeper.owners.iter().filter_map(|owner| owner.lease.next_deadline());
        let nodes = sleeper.peers.iter().filter_map(|peer| peer.admission.next_deadline());
        let Some(deadline) = leases.chain(nodes).min() else { return };
        let at = sleeper.clock.when(deadline.0).max(self.now);
        if sleeper.wake_at.is_none_or(|earlier| at < earlier) {
            let boot = sleeper.boot;
            self.processes[process].wake_at = Some(at);
            self.at(at, Event::Wake { process, boot });
        }
    }

    pub fn wake(&mut self, process: usize) {
        if self.processes[process].wake_at != Some(self.now) {
            return;
        }
        self.processes[process].wake_at = None;
        let now = Time(self.local(process));
        for node in 0..self.processes[process].peers.len() {
            if self.processes[process].peers[node].admission.next_deadline().is_some_and(|deadline| deadline <= now) {
                self.admission(process, node, admission::Input::Wake);
            }
        }
        self.wake_leases(process, now);
        self.nothing_spins(process, now);
    }

    /// A machine that was woken moves its deadline: otherwise a driver that sleeps until then never sleeps.
    fn nothing_spins(&mut self, process: usize, now: Time) {
        let woken = &self.processes[process];
        if woken.life != Life::Running {
            return;
        }
        let late = |deadline: &Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let lease = woken.owners.iter().find(|owner| late(&owner.lease.next_deadline()));
        let node = woken.peers.iter().find(|peer| late(&peer.admission.next_deadline()));
        let machine = lease.map(|owner| format!("{:?}", owner.lease));
        if let Some(machine) = machine.or_else(|| node.map(|peer| format!("{:?}", peer.admission))) {
            self.check.fail(format!("woken at {} it asks to be woken in the past: {machine}", now.0));
        }
    }

    pub fn connected(&mut self, process: usize, node: usize, run_id: RunId) {
        let cached = self.is(Bug::CachedRunId);
        let peer = &mut self.processes[process].peers[node];
        let run_id = peer.run_id.clone().filter(|_| cached).unwrap_or(run_id);
        peer.run_id = Some(run_id.clone());
        if let Some(conn) = &mut peer.conn {
            conn.ready = true;
        }
        self.admission(process, node, admission::Input::Connected(run_id));
    }

    pub fn admission(&mut self, process: usize, node: usize, input: admission::Input) {
        let (now, nonce) = (Time(self.local(process)), self.rng.wide());
        let Some(peer) = self.processes[process].peers.get_mut(node) else { return };
        let waited = matches!(peer.admission.standing(), admission::Standing::Seeding(_));
        peer.admission.handle(now, nonce, input);
        while let Some(effect) = self.processes[process].peers[node].admission.poll_effect() {
            match effect {
                admission::Effect::Observe { run_id, nonce, stepped } => {
                    self.post_marker(process, node, Request::Observe { run_id, nonce, stepped });
                }
                admission::Effect::Admit { ticket, marker, seed } => {
                    self.post_marker(process, node, Request::Admit { ticket, marker, seed });
                }
                admission::Effect::ReadFences => self.gather(process, node),
                admission::Effect::Changed(standing) => {
                    match standing {
                        admission::Standing::Admitted if waited => self.coverage.saw(Sight::ReAdmitted),
                        admission::Standing::Seeding(Some(_)) => self.coverage.saw(Sight::SeedingRefused),
                        _ => {}
                    }
                    self.note(Note::Node { process, node, standing });
                }
            }
        }
    }

    fn post_marker(&mut self, process: usize, node: usize, request: Request) {
        if self.processes[process].peers[node].conn.is_some() {
            let give_up = self.local(process) + self.swarm.lease.command_timeout.0;
            self.post(process, node, request, Purpose::Marker, give_up);
        }
    }

    /// Asks every node for its fence, on behalf of the admission of `target`.
    fn gather(&mut self, process: usize, target: usize) {
        let peers = &self.processes[process].peers;
        let ready = |node: &usize| peers[*node].conn.as_ref().is_some_and(|conn| conn.ready);
        let asked: BTreeSet<usize> = (0..peers.len()).filter(ready).collect();
        self.processes[process].peers[target].gather =
            Some(Gather { outstanding: asked.clone(), target: None, others: Vec::new() });
        let give_up = self.local(process) + self.swarm.lease.command_timeout.0;
        for node in asked {
            self.post(process, node, Request::Fence, Purpose::Fence(target), give_up);
        }
    }

    /// One node said what it remembers, or nothing.
    pub fn fence_read(
        &mut self,
        process: usize,
        target: usize,
        node: usize,
        said: Option<(Option<Marker>, Token, u64)>,
    ) {
        let from_fences = self.is(Bug::SeedFromReadableFences);
        let own_clock = self.processes[process].wall.micros(self.now);
        let (quorum, floor) = (self.swarm.lease.quorum, self.processes[process].floor);
        let current = self.processes[process].peers[node].admission.marker();
        let Some(gather) = &mut self.processes[process].peers[target].gather else { return };
        if !gather.outstanding.remove(&node) {
            return;
        }
        if let Some((marker, fence, clock)) = said {
            let ours = marker.is_some() && marker == current;
            let allegiance = if ours { Allegiance::Ours } else { Allegiance::Nobody };
            let report = FenceReport { allegiance, fence, clock };
            if node == target {
                gather.target = Some(report);
            } else {
                gather.others.push(report);
            }
        }
        if !gather.outstanding.is_empty() {
            return;
        }
        let Some(Gather { target: Some(report), others, .. }) = self.processes[process].peers[target].gather.take()
        else {
            return;
        };
        let remembering = others.iter().filter(|report| report.allegiance == Allegiance::Ours).count();
        let by_others = remembering >= quorum.majority();
        let seeded = if from_fences {
            Ok(others.iter().map(|other| other.fence).chain([report.fence]).max().unwrap_or(Token(0)))
        } else {
            seed(quorum, report, &others, floor, own_clock)
        };
        if seeded.is_ok() {
            self.coverage.saw(if by_others { Sight::SeededByOthers } else { Sight::SeededByClocks });
        }
        self.admission(process, target, admission::Input::Seed(seeded));
    }

    /// I8: what one process may send one node within five seconds. A heartbeat a second and the steps of an
    /// admission; for each lease it still minds, three commands per round of renewal (extend and the two halves of a
    /// join), and the tries and their releases, which the back-off spaces.
    pub fn command_bound(&self, process: usize) -> u64 {
        let rounds = 5000 / self.swarm.lease.retry_pace().0 + 1;
        40 + self.processes[process].owners.len() as u64 * (3 * rounds + 60)
    }
}
