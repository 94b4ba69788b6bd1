//! One operator process: start and wake.

use redislease_core::time::Time;

use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::event::Inside;
use crate::operator::state::Life;
use crate::redis::clock::MILLI;
use crate::redis::link::Address;
use crate::world::World;

impl World {
    /// Milliseconds on the clock of a process.
    pub fn local(&self, process: usize) -> u64 {
        self.processes[process].clock.millis(self.now)
    }

    pub fn start(&mut self, process: usize) {
        if self.processes[process].life != Life::Down {
            return;
        }
        self.process_disturbed(process);
        let (peers, quorum) = (self.new_peers(), Some(self.new_quorum(process)));
        let starting = &mut self.processes[process];
        (starting.life, starting.peers, starting.quorum) = (Life::Running, peers, quorum);
        let boot = starting.boot;
        for node in 0..self.servers.len() {
            self.later(process, 1, Inside::Dial(Address { process, boot, node, conn: 0 }));
        }
        if self.swarm.programs > 0 {
            return self.start_program(process);
        }
        self.start_watches(process);
        let delay = self.rng.between(1, 20) * MILLI;
        self.later(process, delay, Inside::QuorumRead);
        if self.swarm.elects {
            self.later(process, delay, Inside::CompareQuorum);
        }
    }

    /// The earliest deadline of all machines becomes the next wake.
    pub fn schedule_wake(&mut self, process: usize) {
        let sleeper = &self.processes[process];
        if sleeper.life != Life::Running {
            return;
        }
        let leases = sleeper.machines.iter().filter_map(|machine| machine.driver.next_deadline());
        let nodes = sleeper.peers.iter().filter_map(|peer| peer.wire.next_deadline());
        let engine = sleeper.engine.next_deadline();
        let engine = if self.is(Bug::TimerEndsAtOnce) { engine.map(|_| Time(0)) } else { engine };
        let clocks = sleeper.judge.next_deadline(self.swarm.command_timeout);
        // An election that is due has its turn soon.
        let leader = sleeper.quorum_due().filter(|_| !sleeper.leader_due);
        let others = [engine, clocks, leader, sleeper.calls.next_deadline()].into_iter().flatten();
        let Some(deadline) = leases.chain(nodes).chain(others).min() else { return };
        let at = sleeper.clock.when(deadline.0).max(self.now);
        if sleeper.wake_at.is_none_or(|earlier| at < earlier) {
            self.processes[process].wake_at = Some(at);
            self.later(process, at - self.now, Inside::Wake);
        }
    }

    pub fn wake(&mut self, process: usize) {
        if self.processes[process].wake_at != Some(self.now) {
            return;
        }
        self.processes[process].wake_at = None;
        let now = Time(self.local(process));
        // After a pause, effects that were held back.
        (0..self.processes[process].peers.len()).for_each(|node| self.drain_wire(process, node));
        self.serials(process).into_iter().for_each(|serial| self.drain(process, serial));
        self.drain_engine(process);
        self.drain_leader(process);
        self.wake_wires(process, now);
        self.judge_in_time(process, now);
        self.wake_machines(process, now);
        self.wake_engine(process, now);
        if self.processes[process].calls.next_deadline().is_some_and(|at| at <= now) {
            self.dispatch(process);
        }
        if self.processes[process].quorum_due().is_some_and(|at| at <= now) {
            self.wake_leader(process);
        }
        self.nothing_spins(process, now);
    }

    pub fn carry_out_polled(&mut self, process: usize, effect: Polled) {
        match effect {
            Polled::Lease(uid, serial, effect) => self.carry_out_lease(process, uid, serial, effect),
            Polled::Engine(uid, effect) => self.carry_out_engine(process, uid, effect),
            Polled::Leader(effect) => self.carry_out_leader(process, effect),
        }
    }
}
