//! Injects faults and heals them.

use redislease_core::lease::Standing;

use crate::api::objects;
use crate::api::server::Mode;
use crate::chaos::fault::{Fault, Phase, Spot};
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::event::{Event, Heal, Inside};
use crate::operator::state::{Life, Machine, Peer, Process};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::redis::link::Address;
use crate::redis::server::Memory;
use crate::world::World;

impl World {
    /// The phases of the leases that a fault can affect: those of one process, or all.
    pub fn phases(&self, process: Option<usize>) -> Vec<Phase> {
        let touched = |at: usize| process.is_none_or(|process| process == at);
        let running = self.processes.iter().enumerate().filter(|(at, of)| touched(*at) && of.life == Life::Running);
        running.flat_map(|(_, process)| process.machines.iter().flat_map(Machine::phases)).collect()
    }

    /// Records that a fault took place and was observed just now.
    pub fn hit(&mut self, fault: Fault, process: Option<usize>) {
        if self.chaos {
            let phases = self.phases(process);
            self.coverage.hit_all(fault, &phases);
        }
    }

    /// The same for the processes of one cluster.
    pub fn hit_cluster(&mut self, fault: Fault, cluster: usize) {
        for process in 0..self.processes.len() {
            if self.processes[process].cluster == cluster {
                self.hit(fault, Some(process));
            }
        }
    }

    pub fn inject_later(&mut self) {
        let delay = self.rng.between(MILLI, 2 * self.swarm.gap);
        self.after(delay, Event::Inject);
    }

    pub fn inject_by_time(&mut self) {
        if self.chaos {
            self.inject_later();
            let fault = self.rng.weighted(&self.swarm.faults.clone());
            self.inject(fault, None);
        }
    }

    /// How long a fault lasts: from milliseconds to longer than a lease.
    pub fn while_it_lasts(&mut self) -> Micros {
        let ttl = self.swarm.ttl();
        let longest = self.rng.pick(&[50, 300, 1000, ttl / 3, ttl, 3 * ttl]);
        self.rng.between(1, longest) * MILLI
    }

    pub fn heal_later(&mut self, heal: Heal) {
        let (delay, epoch) = (self.while_it_lasts(), self.epoch);
        self.after(delay, Event::Heal { epoch, heal });
    }

    /// Injects one fault; at an effect it affects the process and the lease of that effect.
    pub fn inject(&mut self, fault: Fault, at: Option<Spot>) {
        let process = at.map_or_else(|| self.rng.index(self.processes.len()), |spot| spot.process);
        let near = at.and_then(|spot| spot.node).filter(|_| self.rng.percent(50));
        let node = near.unwrap_or_else(|| self.rng.index(self.servers.len()));
        let cluster = self.processes[process].cluster;
        self.note(Note::Fault(fault, process, node));
        self.note_disturbance(fault, process);
        match fault {
            Fault::Crash if self.processes[process].life != Life::Down => {
                self.hit(fault, Some(process));
                self.crash(process);
                let delay = self.while_it_lasts();
                self.after(delay, Event::Start(process));
            }
            Fault::Rollout if self.processes[process].life == Life::Running => {
                if !std::mem::replace(&mut self.processes[process].history.stops, true) {
                    self.hit(fault, Some(process));
                }
                self.later(process, 0, Inside::Terminate);
                let delay = SECOND + self.while_it_lasts();
                self.after(delay, Event::Start(process));
            }
            Fault::Freeze | Fault::Suspend if self.processes[process].life == Life::Running => {
                let delay = self.while_it_lasts();
                self.pause(process, delay, fault == Fault::Suspend);
            }
            Fault::LoseTime if self.processes[process].life == Life::Running => self.stop_clock(process),
            Fault::Reset => {
                let peer = self.processes[process].peers.get(node);
                let is_ready = |peer: &Peer| peer.conn.as_ref().is_some_and(|conn| conn.ready);
                if peer.is_some_and(|peer| is_ready(peer) && peer.wire.oldest().is_some()) {
                    self.hit(fault, Some(process));
                    let to = self.address(process, node);
                    self.later(process, 0, Inside::Reset(to));
                }
            }
            Fault::CutTo => {
                self.links[process][node].cut_to += 1;
                self.heal_later(Heal::CutTo(process, node));
            }
            Fault::CutFrom => {
                self.links[process][node].cut_from += 1;
                self.heal_later(Heal::CutFrom(process, node));
            }
            Fault::Isolate => {
                self.links[process].iter_mut().for_each(|link| link.isolated += 1);
                self.heal_later(Heal::Isolate(process));
            }
            Fault::ApiCut => {
                self.processes[process].api_cut += 1;
                self.heal_later(Heal::ApiCut(process));
            }
            _ => self.harm_server(node, cluster, fault, at),
        }
    }

    fn harm_server(&mut self, node: usize, cluster: usize, fault: Fault, at: Option<Spot>) {
        match fault {
            Fault::RestartFull => self.stop_server(node, Memory::Full, fault),
            Fault::RestartOlder => self.stop_server(node, Memory::Older, fault),
            Fault::RestartEmpty => self.stop_server(node, Memory::Empty, fault),
            Fault::Promote => self.stop_server(node, Memory::Latest, fault),
            Fault::LoseAll => {
                (0..self.servers.len()).for_each(|node| self.stop_server(node, Memory::Empty, fault));
            }
            Fault::Flush if self.servers[node].up && !self.servers[node].stalled => {
                let server = &mut self.servers[node];
                if if self.rng.percent(30) { server.lose_fence() } else { server.flush() } {
                    self.hit(fault, None);
                }
            }
            Fault::FlushScripts => self.servers[node].has_scripts = false,
            Fault::Stall if self.servers[node].up => {
                self.servers[node].stalled = true;
                self.heal_later(Heal::Continue(node));
            }
            Fault::Step => {
                let by = self.rng.between(5, 20) * SECOND;
                self.step_clocks(node, by, fault, 100 * SECOND);
            }
            Fault::SmallStep => {
                let by = self.rng.between(3, 100) * MILLI;
                self.step_clocks(node, by, fault, 3 * self.swarm.key_life());
            }
            Fault::ApiRefuses | Fault::ApiHangs => self.take_api_away(cluster, fault == Fault::ApiHangs),
            Fault::Webhook => {
                self.apis[cluster].refuses_writes = true;
                self.heal_later(Heal::Webhook(cluster));
            }
            Fault::NoSecret | Fault::NotAllowed | Fault::LongTimeout => self.harm_quorum(cluster, fault),
            _ => self.harm_object(cluster, fault, at),
        }
    }

    /// A fault of an object counts only if the object has changed.
    fn harm_object(&mut self, cluster: usize, fault: Fault, at: Option<Spot>) {
        let changes = match fault {
            Fault::SuspendLease | Fault::Handover | Fault::ChangeSpec | Fault::Recreate => {
                self.harm_lease(cluster, fault)
            }
            Fault::DeletePod | Fault::KillPod | Fault::NodeOff | Fault::Unready | Fault::Relabel => {
                self.victim(cluster, at).is_some_and(|pod| self.harm_pod(cluster, pod, fault))
            }
            Fault::StripsLabel
            | Fault::Clamps
            | Fault::KeepsPods
            | Fault::KeepsReplicas
            | Fault::RefusesStatuses
            | Fault::Fight
            | Fault::NoConsent
            | Fault::SharedWorkload
            | Fault::WebhookHangs
            | Fault::RestoreEtcd
            | Fault::Orphan => self.meddle(cluster, fault),
            _ => false,
        };
        if changes {
            self.hit_cluster(fault, cluster);
        }
    }

    pub fn heal(&mut self, heal: &Heal) {
        match *heal {
            Heal::Webhook(cluster)
            | Heal::Mutation(cluster)
            | Heal::Policy(cluster)
            | Heal::Consent(cluster, _)
            | Heal::Workload(cluster, _)
            | Heal::Restored(cluster) => {
                self.running.disturbed(cluster, self.now);
            }
            Heal::ApiCut(process) => self.process_disturbed(process),
            _ => {}
        }
        match *heal {
            Heal::Server(node, memory, fault) => self.start_server(node, memory, fault),
            Heal::Continue(node) => self.continue_server(node),
            Heal::CutTo(process, node) => self.links[process][node].cut_to -= 1,
            Heal::CutFrom(process, node) => self.links[process][node].cut_from -= 1,
            Heal::Isolate(process) => self.links[process].iter_mut().for_each(|link| link.isolated -= 1),
            Heal::Api(cluster) => self.restore_api(cluster),
            Heal::ApiCut(process) => self.processes[process].api_cut -= 1,
            Heal::Webhook(cluster) => self.apis[cluster].refuses_writes = false,
            Heal::Ready(cluster, pod) => self.change_pod(cluster, pod, |pod| pod.ready = pod.node.is_some()),
            Heal::Suspension(cluster, place) => self.suspend_lease(cluster, place, false),
            Heal::Recreate(cluster, place) => self.recreate_lease(cluster, place),
            Heal::Mutation(cluster) => self.apis[cluster].mutation = None,
            Heal::Policy(cluster) => self.apis[cluster].policy = None,
            Heal::Quorum(cluster, fault) => drop(self.edit_quorum(cluster, fault, false)),
            Heal::Consent(cluster, place) => _ = self.set_consent(cluster, place, Some(place)),
            Heal::Workload(cluster, place) => self.name_own_workload(cluster, place),
            Heal::Restored(cluster) => self.serve_restored(cluster),
            Heal::Orphaned(cluster, place) => self.recreate_workload((cluster, place)),
        }
    }

    pub fn stop_server(&mut self, node: usize, memory: Memory, fault: Fault) {
        if !self.servers[node].up {
            return;
        }
        let incarnation = self.servers[node].incarnation;
        self.servers[node].stop();
        let host_lives = self.rng.percent(70);
        let mut connected = false;
        for process in 0..self.processes.len() {
            let boot = self.processes[process].boot;
            let peer = self.processes[process].peers.get(node).and_then(|peer| peer.conn.as_ref());
            connected |= peer.is_some_and(|conn| conn.incarnation == incarnation);
            if let Some(conn) = peer.filter(|_| host_lives) {
                let to = Address { process, boot, node, conn: conn.number };
                self.later(process, 200, Inside::Reset(to));
            }
        }
        if connected && memory == Memory::Full {
            self.hit(fault, None);
        }
        self.heal_later(Heal::Server(node, memory, fault));
    }

    /// A server starts. A loss of data takes place only if the server had data.
    pub fn start_server(&mut self, node: usize, memory: Memory, fault: Fault) {
        if self.servers[node].up {
            return;
        }
        let word = self.rng.index(8);
        if self.servers[node].start(memory, word) {
            self.hit(fault, None);
        }
        self.note(Note::Healed("server", node));
    }

    /// A stalled server executes its backlog, in order.
    pub fn continue_server(&mut self, node: usize) {
        self.servers[node].stalled = false;
        for delivery in std::mem::take(&mut self.servers[node].backlog) {
            self.execute(delivery);
        }
        self.note(Note::Healed("stalled server", node));
    }

    /// Sets the clock of one server, or of all that follow one time server. Only if every process has observed the clock
    /// before, and so rarely that every process can observe each step.
    fn step_clocks(&mut self, node: usize, by: Micros, fault: Fault, rest: Micros) {
        let nodes = self.swarm.quorum.nodes();
        let known = |process: &Process| nodes.clone().all(|node| process.judge.offset(node).is_some());
        let aware = |process: &Process| process.life == Life::Running && known(process);
        let seen_by_all = self.processes.iter().all(aware);
        let rested = self.last_step.iter().all(|&last| last == 0 || self.now >= last + rest);
        if !seen_by_all || !rested {
            return;
        }
        let by = if self.rng.percent(50) { by as i64 } else { -(by as i64) };
        let all = fault == Fault::Step && self.rng.percent(40);
        for node in (0..self.servers.len()).filter(|&other| all || other == node) {
            self.last_step[node] = self.now;
            self.servers[node].clock.step(self.now, by);
            for process in &mut self.processes {
                process.peers[node].seen.stepped = Some(fault);
            }
        }
    }

    /// The first answer of a node after its clock was set: the step is detected, or too small to be detected.
    pub fn step_answered(&mut self, process: usize, node: usize, seen: bool) {
        let Some(fault) = self.processes[process].peers[node].seen.stepped.take() else { return };
        self.hit(fault, Some(process));
        if fault == Fault::SmallStep {
            self.coverage.saw(if seen { Sight::SmallStepSeen } else { Sight::SmallStepTolerated });
        }
    }

    fn take_api_away(&mut self, cluster: usize, hangs: bool) {
        if self.apis[cluster].mode != Mode::Up {
            return;
        }
        self.set_api(cluster, if hangs { Mode::Hanging } else { Mode::Refusing });
        self.heal_later(Heal::Api(cluster));
    }

    pub fn set_api(&mut self, cluster: usize, mode: Mode) {
        match mode {
            Mode::Up => return self.restore_api(cluster),
            Mode::Refusing => self.close_watches(cluster),
            Mode::Hanging => {}
        }
        self.apis[cluster].mode = mode;
    }

    pub fn restore_api(&mut self, cluster: usize) {
        self.apis[cluster].mode = Mode::Up;
        self.running.disturbed(cluster, self.now);
        for call in std::mem::take(&mut self.apis[cluster].hanging) {
            // It executes them together with new calls: some after newer ones, some never.
            if self.rng.percent(70) {
                let delay = self.rng.pick(&[1, 100, 3000]) * MILLI;
                self.after(delay, Event::ApiArrive(Box::new(call)));
            }
        }
    }

    /// The pod that the fault affects: preferably the holder of the lease.
    fn victim(&mut self, cluster: usize, at: Option<Spot>) -> Option<u32> {
        let holder = at.and_then(|spot| self.processes[spot.process].machine_of(spot.uid)).and_then(|machine| {
            match &machine.driver.view().standing {
                Standing::Held(term) | Standing::Publishing(term) => Some(objects::pod_of(&term.id)),
                _ => None,
            }
        });
        let state = &self.apis[cluster].state;
        let named = state.leases.iter().flatten().filter_map(|lease| objects::named(lease)).map(|named| named.pod);
        let named: Vec<u32> = named.collect();
        let pods: Vec<u32> = state.pods.keys().copied().collect();
        let any = self.rng.percent(30) || holder.is_none() && named.is_empty();
        let pod = if any {
            (!pods.is_empty()).then(|| self.rng.pick(&pods))
        } else {
            holder.or_else(|| Some(self.rng.pick(&named)))
        };
        let alive = |pod: &u32| {
            let pod = self.apis[cluster].state.pods.get(pod);
            pod.is_some_and(|pod| pod.deletion_grace.is_none() && !pod.finished)
        };
        pod.filter(alive)
    }
}
