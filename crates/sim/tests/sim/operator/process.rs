//! One operator process: start, crash, pause and wake.

use redislease_core::driver;
use redislease_core::lease::Effect;
use redislease_core::time::Time;

use crate::chaos::bug::Bug;
use crate::chaos::fault::{Fault, Phase};
use crate::check::trace::{Brief, Note};
use crate::event::{Event, Inside};
use crate::operator::state::{BeforeEffect, LOCK, Life, Machine, Polled, Process, Spot, new_engine};
use crate::redis::clock::{MILLI, Micros};
use crate::redis::link::Address;
use crate::redis::server::Memory;
use crate::world::{EFFECTS_OF_ONE_EVENT, World};

impl World {
    /// Milliseconds on the clock of a process.
    pub fn local(&self, process: usize) -> u64 {
        self.processes[process].clock.millis(self.now)
    }

    pub fn start(&mut self, process: usize) {
        if self.processes[process].life != Life::Down {
            return;
        }
        let peers = self.new_peers();
        let nodes = peers.len();
        self.running.disturbed(self.processes[process].cluster, self.now);
        let leader = self.new_leader(process);
        let judge = self.new_judge();
        let engine = new_engine(self.processes[process].cluster, self.swarm.permits, &self.bugs);
        let starting = &mut self.processes[process];
        starting.life = Life::Running;
        starting.peers = peers;
        starting.judge = judge;
        starting.engine = engine;
        starting.leader = leader;
        let boot = starting.boot;
        for node in 0..nodes {
            self.later(process, 1, Inside::Dial(Address { process, boot, node, conn: 0 }));
        }
        if self.swarm.programs > 0 {
            return self.start_program(process);
        }
        self.start_watches(process);
        let delay = self.rng.between(1, 20) * MILLI;
        self.later(process, delay, Inside::QuorumRead);
    }

    /// Crashes between two effects. The messages that it sent still arrive, and their consequences last.
    pub fn crash(&mut self, process: usize) {
        self.check.leads_no_more(process);
        self.running.disturbed(self.processes[process].cluster, self.now);
        let Process { cluster, boot, clock, wall, api_cut, saw_workloads, .. } = self.processes[process];
        let new = Process::new(cluster, self.swarm.quorum, clock, wall, self.swarm.calls_at_once);
        self.processes[process] = Process { boot: boot + 1, api_cut, saw_workloads, ..new };
    }

    /// Pauses. With `suspend`, a clock that does not count suspend would stop too.
    fn freeze(&mut self, process: usize, suspend: bool) {
        let fault = if suspend { Fault::Suspend } else { Fault::Freeze };
        let phases = self.phases(Some(process));
        self.processes[process].life = Life::Frozen;
        self.processes[process].stopped_by = Some((fault, phases));
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
        self.processes[process].continued_at = self.now;
        self.clock_continues(process);
        self.running.disturbed(self.processes[process].cluster, self.now);
        if self.processes[process].clock.rate() == 0 {
            let (now, rate) = (self.now, self.swarm.rate(&mut self.rng));
            self.processes[process].clock.set_rate(now, rate);
            let clock = self.processes[process].clock;
            for claim in self.check.live.iter_mut().filter(|claim| claim.process == process) {
                claim.until = clock.when(claim.valid_until);
            }
        }
        let missed = std::mem::take(&mut self.processes[process].inbox);
        let overslept = self.processes[process].wake_at.is_some_and(|at| at < self.now);
        if let Some((fault, phases)) = self.processes[process].stopped_by.take()
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
        if let Some(effect) = self.processes[process].held_back.take() {
            self.carry_out_polled(process, effect);
        }
    }

    /// The earliest deadline of all machines becomes the next wake.
    pub fn schedule_wake(&mut self, process: usize) {
        let sleeper = &self.processes[process];
        if sleeper.life != Life::Running {
            return;
        }
        let leases = sleeper.machines.iter().filter_map(Machine::next_deadline);
        let nodes = sleeper.peers.iter().filter_map(|peer| peer.admission.next_deadline());
        let wires = sleeper.peers.iter().filter_map(|peer| peer.conn.as_ref()?.wire.next_deadline());
        let engine = sleeper.engine.next_deadline();
        let engine = if self.is(Bug::TimerEndsAtOnce) { engine.map(|_| Time(0)) } else { engine };
        let clocks = sleeper.judge.next_deadline(self.swarm.command_timeout);
        // An election that is due has its turn soon.
        let leader = sleeper.leader.as_ref().filter(|leader| !leader.due);
        let leader = leader.and_then(|leader| leader.machine.next_deadline());
        let others = [engine, clocks, leader, sleeper.writer.calls.next_deadline()].into_iter().flatten();
        let Some(deadline) = leases.chain(nodes).chain(wires).chain(others).min() else { return };
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
        self.drain_wires(process);
        self.drain_machines(process);
        self.drain_engine(process);
        self.drain_leader(process);
        self.wake_wires(process, now);
        self.judge_in_time(process, now);
        self.wake_admissions(process, now);
        self.wake_machines(process, now);
        self.wake_engine(process, now);
        self.wake_calls(process, now);
        self.leader_timer(process, now);
        self.nothing_spins(process, now);
    }

    /// A machine that was woken must move its deadline: otherwise its driver would wake it in a busy loop.
    fn nothing_spins(&mut self, process: usize, now: Time) {
        let woken = &self.processes[process];
        if woken.life != Life::Running {
            return;
        }
        let late = |deadline: &Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let lease = woken.machines.iter().find(|machine| late(&machine.next_deadline()));
        let node = woken.peers.iter().find(|peer| late(&peer.admission.next_deadline()));
        let wire =
            woken.peers.iter().filter_map(|peer| peer.conn.as_ref()).find(|conn| late(&conn.wire.next_deadline()));
        let machine = lease.map(|machine| format!("{:?}", machine.driver));
        let machine = machine.or_else(|| wire.map(|conn| format!("{:?}", conn.wire)));
        let engine = late(&woken.engine.next_deadline()).then(|| "the engine".to_owned());
        if let Some(machine) = machine.or_else(|| node.map(|peer| format!("{:?}", peer.admission))).or(engine) {
            self.check.fail(format!("woken at {} it asks to be woken in the past: {machine}", now.0));
        }
    }

    /// Whether a process that has run since `boot` polls its next effect.
    pub fn polls_on(&mut self, process: usize, boot: u32, of: &str) -> bool {
        let polls = &self.processes[process];
        polls.life == Life::Running && polls.boot == boot && self.polls(of)
    }

    /// Whether another effect may be polled in this event: a machine may repeat the same one for ever.
    pub fn polls(&mut self, of: &str) -> bool {
        self.polled += 1;
        if self.polled > EFFECTS_OF_ONE_EVENT {
            self.check.fail(format!("{of} has more than {EFFECTS_OF_ONE_EVENT} effects at one instant"));
        }
        self.polled <= EFFECTS_OF_ONE_EVENT
    }

    /// Carries out an effect, unless the process crashes before it. A process that pauses does so when it continues.
    pub fn perform(&mut self, process: usize, effect: Polled) {
        let (uid, node) = match &effect {
            Polled::Lease(uid, _, driver::Effect::Lease(Effect::Send { node, .. })) => (*uid, Some(node.index())),
            Polled::Lease(uid, ..) | Polled::Planned(uid, ..) => (*uid, None),
            Polled::Leader(_) => (LOCK, None),
        };
        match self.before_effect(process, uid, node) {
            BeforeEffect::Continue => self.carry_out_polled(process, effect),
            BeforeEffect::Paused => self.processes[process].held_back = Some(effect),
            BeforeEffect::Crashed => {}
        }
    }

    fn carry_out_polled(&mut self, process: usize, effect: Polled) {
        match effect {
            Polled::Lease(uid, serial, effect) => self.carry_out_lease(process, uid, serial, effect),
            Polled::Planned(uid, subject, effect) => {
                self.note(Note::Planned { process, uid, effect: &Brief::of(&effect) });
                self.carry_out_plan(process, uid, &subject, effect);
            }
            Polled::Leader(effect) => self.carry_out_leader(process, effect),
        }
    }

    /// Between any two effects the process may crash or pause, because of the scenario or a fault.
    pub fn before_effect(&mut self, process: usize, uid: u32, node: Option<usize>) -> BeforeEffect {
        let boot = self.processes[process].boot;
        if let Some((crashes, at)) = self.crash_before
            && process == crashes
        {
            self.effects += 1;
            if self.effects == at {
                self.crash(process);
                self.after(200 * MILLI, Event::Start(process));
                return BeforeEffect::Crashed;
            }
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
        let in_second_round = |machine: &mut Machine| machine.phases().any(|phase| phase == Phase::Round2);
        if !self.machine_of(process, uid).is_some_and(in_second_round) {
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
                nodes.for_each(|node| self.restart_at_once(node, memory, fault));
            }
        }
        let steps = [Fault::Step, Fault::SmallStep];
        steps.into_iter().find(|step| self.swarm.has(*step) && self.rng.percent(5))
    }

    /// I8: how many commands one process may send to one node within five seconds. A heartbeat each second, readings of its clock, and the steps of
    /// an admission; for each lease that it still runs, three commands for each round of renewal (an extension and the two
    /// halves of a join), and attempts and their releases, which the backoff delays until a majority of the nodes returns. The
    /// release of each failed attempt is repeated to a node that does not answer, until the keys have ended: over 2000 seeds that
    /// was at most 82 commands for one lease.
    pub fn command_bound(&self, process: usize) -> u64 {
        let machines = self.processes[process].machines.iter();
        let rounds = machines.map(|machine| 5000 / machine.driver.lease().config().retry_pace().0 + 1);
        50 + rounds.map(|rounds| 3 * rounds + 110).sum::<u64>()
    }
}
