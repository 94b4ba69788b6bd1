//! Faults of processes: crashes, pauses and lost time, and the effects before which they come.

use redislease_core::driver;
use redislease_core::lease::Effect;
use redislease_core::op::Token;
use redislease_core::time::{Millis, Time};

use crate::chaos::bug::Bug;
use crate::chaos::fault::{BeforeEffect, Fault, Phase, Polled, Spot};
use crate::event::{Event, Inside};
use crate::operator::state::{LOCK, Life, Machine, Process};
use crate::redis::clock::{MILLI, Micros};
use crate::redis::server::Memory;
use crate::world::World;

impl World {
    /// Crashes between two effects. The messages that it sent still arrive, and their consequences last.
    pub fn crash(&mut self, process: usize) {
        self.check.leads_no_more(process);
        self.process_disturbed(process);
        let Process { cluster, boot, clock, wall, api_cut, saw_workloads, .. } = self.processes[process];
        let new = Process::new(cluster, [clock, wall], &self.swarm, &self.bugs);
        self.processes[process] = Process { boot: boot + 1, api_cut, saw_workloads, ..new };
    }

    /// Pauses. With `suspend`, a clock that does not count suspend would stop too.
    fn freeze(&mut self, process: usize, suspend: bool) {
        let fault = if suspend { Fault::Suspend } else { Fault::Freeze };
        let phases = self.phases(Some(process));
        self.processes[process].life = Life::Frozen;
        self.processes[process].history.stopped_by = Some((fault, phases));
        if suspend && self.is(Bug::MonotonicClock) {
            let now = self.now;
            self.processes[process].clock.set_rate(now, 0);
            for claim in self.check.live.iter_mut().filter(|claim| claim.process == process) {
                claim.until = Micros::MAX;
            }
        }
    }

    /// Pauses for `span`.
    pub fn pause(&mut self, process: usize, span: Micros, suspend: bool) {
        self.freeze(process, suspend);
        let boot = self.processes[process].boot;
        self.after(span, Event::Resume { process, boot });
    }

    pub fn resume(&mut self, process: usize, boot: u32) {
        if self.processes[process].life != Life::Frozen || self.processes[process].boot != boot {
            return;
        }
        self.processes[process].life = Life::Running;
        self.processes[process].history.continued_at = self.now;
        self.clock_continues(process);
        self.process_disturbed(process);
        if self.processes[process].clock.rate() == 0 {
            let (now, rate) = (self.now, self.swarm.rate(&mut self.rng));
            self.processes[process].clock.set_rate(now, rate);
            let clock = self.processes[process].clock;
            for claim in self.check.live.iter_mut().filter(|claim| claim.process == process) {
                claim.until = clock.when(claim.valid_until);
            }
        }
        let missed = std::mem::take(&mut self.processes[process].history.inbox);
        let overslept = self.processes[process].wake_at.is_some_and(|at| at < self.now);
        if let Some((fault, phases)) = self.processes[process].history.stopped_by.take()
            && (overslept || !missed.is_empty())
        {
            self.coverage.hit_all(fault, &phases);
        }
        // Either the events that arrived meanwhile are handled first, or the deadlines that have passed.
        let late = u64::from(!self.rng.percent(50));
        for event in missed {
            self.later(process, late, event);
        }
        self.processes[process].wake_at = Some(self.now);
        self.later(process, 0, Inside::Wake);
        if let Some(effect) = self.processes[process].history.held_back.take() {
            self.carry_out_polled(process, effect);
        }
    }

    /// Counts an effect of the process that the scenario crashes, and whether it crashes before this one.
    pub fn crashes_before_effect(&mut self, process: usize) -> bool {
        let Some((_, at)) = self.crash_before.filter(|(crashes, _)| *crashes == process) else { return false };
        self.effects += 1;
        let crashes = self.effects == at;
        if crashes {
            self.crash(process);
            self.after(200 * MILLI, Event::Start(process));
        }
        crashes
    }

    /// Between any two effects the process may crash or pause, because of the scenario or a fault.
    pub fn before_effect(&mut self, process: usize, uid: u32, node: Option<usize>) -> BeforeEffect {
        let boot = self.processes[process].boot;
        if self.crashes_before_effect(process) {
            return BeforeEffect::Crashed;
        }
        if self.chaos && !self.swarm.faults.is_empty() {
            let fault = if self.rng.permille(self.swarm.effect_faults) {
                Some(self.rng.weighted(&self.swarm.faults.clone()))
            } else {
                self.aimed(process, uid)
            };
            if let Some(fault) = fault {
                self.inject(fault, Some(Spot { process, uid, node }));
            }
        }
        if self.processes[process].boot != boot {
            BeforeEffect::Crashed
        } else if self.processes[process].life == Life::Frozen {
            BeforeEffect::Paused
        } else {
            BeforeEffect::Continue
        }
    }

    /// A fault that would rarely take place before the right effect by chance: few effects belong to a second round, clocks are
    /// stepped rarely, and a server that lost data may start again at any time.
    fn aimed(&mut self, process: usize, uid: u32) -> Option<Fault> {
        let in_second_round = |machine: &Machine| machine.phases().any(|phase| phase == Phase::Round2);
        if !self.processes[process].machine_of(uid).is_some_and(in_second_round) {
            return None;
        }
        let losses = [
            (Fault::Promote, Memory::Latest),
            (Fault::RestartOlder, Memory::Older),
            (Fault::RestartEmpty, Memory::Empty),
            (Fault::LoseAll, Memory::Empty),
        ];
        for (fault, memory) in losses {
            if self.swarm.has(fault) && self.rng.permille(5) {
                let one = self.rng.index(self.servers.len());
                let nodes = if fault == Fault::LoseAll { 0..self.servers.len() } else { one..one + 1 };
                // Each of them starts again before the next request.
                for node in nodes {
                    self.stop_server(node, memory, fault);
                    self.start_server(node, memory, fault);
                }
            }
        }
        let steps = [Fault::Step, Fault::SmallStep];
        steps.into_iter().find(|step| self.swarm.has(*step) && self.rng.percent(5))
    }

    /// The process and its clock stand still. It is not told. It has observed the clock of every node: a node that it knew alone
    /// cannot be compared.
    pub fn stop_clock(&mut self, process: usize) {
        let judge = &self.processes[process].judge;
        if !self.swarm.quorum.nodes().all(|node| judge.offset(node).is_some()) {
            return;
        }
        let span = self.while_it_lasts();
        self.hit(Fault::LoseTime, Some(process));
        self.stop_clock_for(process, span);
    }

    pub fn stop_clock_for(&mut self, process: usize, span: Micros) {
        let shown = self.processes[process].clock.micros(self.now);
        self.processes[process].history.losing = Some((shown, self.now));
        self.pause(process, span, false);
    }

    /// The checker's claims end when they would have ended: until a reply shows the jump, nobody can know of it.
    pub fn clock_continues(&mut self, process: usize) {
        if let Some((shown, since)) = self.processes[process].history.losing.take() {
            let clock = &mut self.processes[process].clock;
            clock.step(self.now, shown as i64 - clock.micros(self.now) as i64);
            let at = Time(self.local(process));
            self.processes[process].history.losses.push((at, self.now - since));
        }
    }

    /// After an outage, thousands of other leases of the process have reserved the next turns.
    pub fn crowd(&mut self, process: usize) {
        if self.chaos && self.rng.permille(self.swarm.attempts_wait) {
            let until = Time(self.local(process)) + Millis(self.rng.between(10, 3000));
            self.processes[process].turns.reserve(until);
        }
    }

    /// The token that an attempt proposes. Sometimes it is another than in a release: no token may be wrong.
    pub fn proposal(&mut self, process: usize) -> Option<Token> {
        let (word, off) = (self.rng.below(8), self.rng.below(6));
        let Process { proposals, floor, .. } = &mut self.processes[process];
        let Token(next) = proposals.next(*floor)?;
        match word {
            0 => None,
            1 => Some(Token(next.saturating_sub(off))),
            2 => Some(Token(next + off)),
            _ => Some(Token(next)),
        }
    }

    /// Carries out an effect, unless the process crashes before it. A process that pauses does so when it continues.
    pub fn perform(&mut self, process: usize, effect: Polled) {
        let (uid, node) = match &effect {
            Polled::Lease(uid, _, driver::Effect::Lease(Effect::Send { node, .. })) => (*uid, Some(node.index())),
            Polled::Lease(uid, ..) | Polled::Engine(uid, ..) => (*uid, None),
            Polled::Leader(_) => (LOCK, None),
        };
        match self.before_effect(process, uid, node) {
            BeforeEffect::Continue => self.carry_out_polled(process, effect),
            BeforeEffect::Paused => self.processes[process].history.held_back = Some(effect),
            BeforeEffect::Crashed => {}
        }
    }
}
