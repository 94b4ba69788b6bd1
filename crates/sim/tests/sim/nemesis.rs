//! Carries the faults out and heals them again.

use redislease_core::lease::Standing;

use crate::api::{Mode, Pod, PodState};
use crate::clock::{MILLI, Micros, SECOND};
use crate::fault::{Fault, Phase};
use crate::keeper::pod_of;
use crate::net::Address;
use crate::process::Life;
use crate::publish::Push;
use crate::server::Memory;
use crate::trace::Note;
use crate::world::{Event, World};

/// What ends a fault.
#[derive(Clone, Debug)]
pub enum Heal {
    Server(usize, Memory),
    Continue(usize),
    CutTo(usize, usize),
    CutFrom(usize, usize),
    Api(usize),
    ApiCut(usize),
    Suspension(usize, usize),
    Recreate(usize, usize),
}

/// The effect at which a fault strikes.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub process: usize,
    pub uid: u32,
    pub node: Option<usize>,
}

impl World {
    /// Notes a fault against everything that the leases it can touch are doing.
    pub fn hit(&mut self, fault: Fault, process: Option<usize>) {
        let touched = |at: usize| process.is_none_or(|process| process == at);
        let running = self.processes.iter().enumerate().filter(|(at, of)| touched(*at) && of.life == Life::Running);
        let phases: Vec<Phase> =
            running.flat_map(|(_, process)| process.owners.iter().flat_map(crate::keeper::Owner::phases)).collect();
        for phase in phases {
            self.coverage.hit(fault, phase);
        }
    }

    pub fn strike_later(&mut self) {
        let delay = self.rng.between(MILLI, 2 * self.swarm.gap);
        self.after(delay, Event::Strike);
    }

    pub fn strike_by_time(&mut self) {
        if self.chaos {
            self.strike_later();
            let fault = self.rng.weighted(&self.swarm.faults.clone());
            self.strike(fault, None);
        }
    }

    /// How long a fault lasts: from a blink to longer than a lease.
    fn while_it_lasts(&mut self) -> Micros {
        let ttl = self.swarm.lease.ttl.0;
        let longest = self.rng.pick(&[50, 300, 1000, ttl / 3, ttl, 3 * ttl]);
        self.rng.between(1, longest) * MILLI
    }

    fn heal_later(&mut self, heal: Heal) {
        let (delay, epoch) = (self.while_it_lasts(), self.epoch);
        self.after(delay, Event::Heal { epoch, heal });
    }

    /// One fault; at an effect it befalls the process and the lease whose effect it is.
    pub fn strike(&mut self, fault: Fault, at: Option<Spot>) {
        let process = at.map_or_else(|| self.rng.index(self.processes.len()), |spot| spot.process);
        let near = at.and_then(|spot| spot.node).filter(|_| self.rng.percent(50));
        let node = near.unwrap_or_else(|| self.rng.index(self.servers.len()));
        let cluster = self.processes[process].cluster;
        let scope = match fault {
            Fault::Crash
            | Fault::Freeze
            | Fault::Suspend
            | Fault::Isolate
            | Fault::ApiCut
            | Fault::CutTo
            | Fault::CutFrom => Some(process),
            _ => None,
        };
        self.hit(fault, scope);
        self.note(Note::Fault(fault, process, node));
        match fault {
            Fault::Crash if self.processes[process].life != Life::Down => {
                self.crash(process);
                let delay = self.while_it_lasts();
                self.after(delay, Event::Start(process));
            }
            Fault::Freeze | Fault::Suspend if self.processes[process].life == Life::Running => {
                self.freeze(process, fault == Fault::Suspend);
                let (delay, boot) = (self.while_it_lasts(), self.processes[process].boot);
                self.after(delay, Event::Resume { process, boot });
            }
            Fault::RestartFull => self.stop_server(node, Memory::Full),
            Fault::RestartOlder => self.stop_server(node, Memory::Older),
            Fault::RestartEmpty => self.stop_server(node, Memory::Empty),
            Fault::Promote => self.stop_server(node, Memory::Latest),
            Fault::LoseAll => (0..self.servers.len()).for_each(|node| self.stop_server(node, Memory::Empty)),
            Fault::Flush if self.servers[node].up && !self.servers[node].stalled => self.servers[node].flush(),
            Fault::Stall if self.servers[node].up => {
                self.servers[node].stalled = true;
                self.heal_later(Heal::Continue(node));
            }
            Fault::CutTo => self.cut(process, node, true, false),
            Fault::CutFrom => self.cut(process, node, false, true),
            Fault::Isolate => (0..self.servers.len()).for_each(|node| self.cut(process, node, true, true)),
            Fault::Step => self.step_clock(node),
            Fault::ApiKilled | Fault::ApiHangs if self.apis[cluster].mode == Mode::Up => {
                self.apis[cluster].mode = if fault == Fault::ApiKilled { Mode::Killed } else { Mode::Hanging };
                self.heal_later(Heal::Api(cluster));
            }
            Fault::ApiCut => {
                self.processes[process].api_cut += 1;
                self.heal_later(Heal::ApiCut(process));
            }
            Fault::DeletePod | Fault::KillPod => {
                if let Some(pod) = self.victim(cluster, at) {
                    self.remove_pod(cluster, pod, fault == Fault::KillPod);
                }
            }
            Fault::SuspendLease => {
                let place = self.rng.index(self.swarm.keys.len());
                self.suspend_lease(cluster, place, true);
                self.heal_later(Heal::Suspension(cluster, place));
            }
            Fault::Recreate => {
                let place = self.rng.index(self.swarm.keys.len());
                self.delete_resource(cluster, place);
                self.heal_later(Heal::Recreate(cluster, place));
            }
            _ => {}
        }
    }

    pub fn heal(&mut self, heal: &Heal) {
        match *heal {
            Heal::Server(node, memory) => self.start_server(node, memory),
            Heal::Continue(node) => self.continue_server(node),
            Heal::CutTo(process, node) => self.links[process][node].cut_to -= 1,
            Heal::CutFrom(process, node) => self.links[process][node].cut_from -= 1,
            Heal::Api(cluster) => self.restore_api(cluster),
            Heal::ApiCut(process) => self.processes[process].api_cut -= 1,
            Heal::Suspension(cluster, place) => self.suspend_lease(cluster, place, false),
            Heal::Recreate(cluster, place) => self.create_resource(cluster, place),
        }
    }

    fn cut(&mut self, process: usize, node: usize, to: bool, from: bool) {
        let link = &mut self.links[process][node];
        link.cut_to += u32::from(to);
        link.cut_from += u32::from(from);
        if to {
            self.heal_later(Heal::CutTo(process, node));
        }
        if from {
            self.heal_later(Heal::CutFrom(process, node));
        }
    }

    fn stop_server(&mut self, node: usize, memory: Memory) {
        if !self.servers[node].up {
            return;
        }
        self.servers[node].stop();
        let host_lives = self.rng.percent(70);
        for process in 0..self.processes.len() {
            let boot = self.processes[process].boot;
            let peer = self.processes[process].peers.get(node).and_then(|peer| peer.conn.as_ref());
            if let Some(conn) = peer.filter(|_| host_lives) {
                self.after(200, Event::Reset(Address { process, boot, node, conn: conn.number }));
            }
        }
        self.heal_later(Heal::Server(node, memory));
    }

    pub fn start_server(&mut self, node: usize, memory: Memory) {
        if !self.servers[node].up {
            let word = self.rng.index(8);
            self.servers[node].start(memory, word);
            self.note(Note::Healed("server", node));
        }
    }

    /// It runs what queued up while it was stopped, in order.
    pub fn continue_server(&mut self, node: usize) {
        self.servers[node].stalled = false;
        for delivery in std::mem::take(&mut self.servers[node].backlog) {
            self.execute(delivery);
        }
        self.note(Note::Healed("stalled server", node));
    }

    /// Only where every process knows the clock from before, and seldom enough for each step to be seen by all.
    fn step_clock(&mut self, node: usize) {
        let known = |peer: &crate::process::Peer| peer.watch.offset().is_some();
        let aware =
            |process: &crate::process::Process| process.life == Life::Running && process.peers.iter().all(known);
        let seen_by_all = self.processes.iter().all(aware);
        let rested = self.last_step.iter().all(|&last| self.now >= last + 100 * SECOND);
        if seen_by_all && rested {
            let by = self.rng.between(5, 20) as i64 * SECOND as i64;
            let by = if self.rng.percent(50) { by } else { -by };
            // One server is set by hand, or all follow a time server that went astray.
            let all = self.rng.percent(40);
            for node in (0..self.servers.len()).filter(|&other| all || other == node) {
                self.last_step[node] = self.now;
                self.servers[node].clock.step(self.now, by);
            }
        }
    }

    pub fn restore_api(&mut self, cluster: usize) {
        self.apis[cluster].mode = Mode::Up;
        for call in std::mem::take(&mut self.apis[cluster].hanging) {
            // It works them off beside what comes in: some of them after younger ones, some never.
            if self.rng.percent(70) {
                let delay = self.rng.pick(&[1, 100, 3000]) * MILLI;
                self.after(delay, Event::ApiArrive(call));
            }
        }
    }

    /// Who is deleted: preferably the holder of the lease in question.
    fn victim(&mut self, cluster: usize, at: Option<Spot>) -> Option<u32> {
        let holder = at.and_then(|spot| self.owner(spot.process, spot.uid)).and_then(|owner| {
            match &owner.lease.view().standing {
                Standing::Held(term) | Standing::Publishing(term) => Some(pod_of(&term.id)),
                _ => None,
            }
        });
        let statuses = self.apis[cluster].world.resources.iter().flatten();
        let named: Vec<u32> = statuses.filter_map(|resource| resource.term.as_ref().map(pod_of)).collect();
        let pods: Vec<u32> = self.apis[cluster].world.pods.keys().copied().collect();
        let any = self.rng.percent(30) || holder.is_none() && named.is_empty();
        let pod = if any {
            (!pods.is_empty()).then(|| self.rng.pick(&pods))
        } else {
            holder.or_else(|| Some(self.rng.pick(&named)))
        };
        let running =
            |pod: &u32| self.apis[cluster].world.pods.get(pod).is_some_and(|pod| pod.state == PodState::Running);
        pod.filter(running)
    }

    /// With `force` the object goes at once and the process behind it runs on.
    pub fn remove_pod(&mut self, cluster: usize, pod: u32, force: bool) {
        if force {
            self.note(Note::Pod(pod, "is deleted by force"));
            return self.pod_leaves(cluster, pod);
        }
        self.note(Note::Pod(pod, "is being deleted"));
        self.set_pod(cluster, pod, PodState::Deleting);
        let stops_after = if self.chaos { self.rng.pick(&[10, 500, 4000, 20_000]) } else { 500 };
        self.after(stops_after * MILLI, Event::PodStops { cluster, pod });
    }

    fn set_pod(&mut self, cluster: usize, pod: u32, state: PodState) {
        let version = self.apis[cluster].next_version();
        let Some(found) = self.apis[cluster].world.pods.get_mut(&pod) else { return };
        found.state = state;
        let push = Push::Pod(pod, version, Some(*found));
        self.tell(cluster, &push);
    }

    pub fn pod_stops(&mut self, cluster: usize, pod: u32) {
        self.check.pod_stopped(self.now, pod);
        self.note(Note::Pod(pod, "has stopped"));
        self.set_pod(cluster, pod, PodState::Stopped);
        self.after(100 * MILLI, Event::PodLeaves { cluster, pod });
    }

    pub fn pod_leaves(&mut self, cluster: usize, pod: u32) {
        let Some(gone) = self.apis[cluster].world.pods.remove(&pod) else { return };
        let version = self.apis[cluster].next_version();
        self.tell(cluster, &Push::Pod(pod, version, None));
        let delay = self.rng.pick(&[10, 500, 3000]) * MILLI;
        self.after(delay, Event::PodComes { cluster, resource: gone.resource });
    }

    pub fn pod_comes(&mut self, cluster: usize, resource: usize) {
        let uid = self.new_uid();
        let version = self.apis[cluster].next_version();
        let pod = Pod { resource, state: PodState::Running };
        self.apis[cluster].world.pods.insert(uid, pod);
        self.tell(cluster, &Push::Pod(uid, version, Some(pod)));
    }

    pub fn suspend_lease(&mut self, cluster: usize, place: usize, suspend: bool) {
        let version = self.apis[cluster].next_version();
        if let Some(resource) = &mut self.apis[cluster].world.resources[place] {
            (resource.suspend, resource.version) = (suspend, version);
            self.tell_resource(cluster, place);
        }
    }

    pub fn delete_resource(&mut self, cluster: usize, place: usize) {
        self.apis[cluster].next_version();
        self.apis[cluster].world.resources[place] = None;
        self.tell_resource(cluster, place);
    }

    pub fn create_resource(&mut self, cluster: usize, place: usize) {
        if self.apis[cluster].world.resources[place].is_none() {
            let uid = self.new_uid();
            self.apis[cluster].create(place, uid);
            self.tell_resource(cluster, place);
        }
    }
}
