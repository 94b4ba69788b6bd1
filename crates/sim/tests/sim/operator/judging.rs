//! The clocks of the nodes and of one process: carries out what the judge of the core finds, and checks it.

use redislease_core::clock::Sample;
use redislease_core::driver::Input;
use redislease_core::judge::{Effect, Judge};
use redislease_core::lease::Standing;
use redislease_core::quorum::Node;
use redislease_core::time::{Drift, Time};
use redislease_core::{admission, wire};

use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::redis::clock::{MILLI, Micros};
use crate::redis::link::Own;
use crate::world::World;

impl World {
    pub fn new_judge(&self) -> Judge {
        Judge::new(self.swarm.quorum, self.swarm.longest, Drift::STANDARD).with_mutant(self.mutant())
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
        let shown = self.processes[process].clock.micros(self.now);
        self.processes[process].losing = Some((shown, self.now));
        self.pause(process, span, false);
    }

    /// The checker's claims end when they would have ended: until a reply shows the jump, nobody can know of it.
    pub fn clock_continues(&mut self, process: usize) {
        if let Some((shown, since)) = self.processes[process].losing.take() {
            let clock = &mut self.processes[process].clock;
            clock.step(self.now, shown as i64 - clock.micros(self.now) as i64);
            let at = Time(self.local(process));
            self.processes[process].losses.push((at, self.now - since));
        }
    }

    /// When a belief ends that counts from `t0` by the clock of the process, if it had not lost time since. Until a reply shows the
    /// jump, nobody can know of it: no lock protects from a process that stands still.
    pub fn belief_ends(&self, process: usize, t0: Time, valid_until: Time) -> Micros {
        let process = &self.processes[process];
        let lost = process.losses.iter().filter(|(at, _)| *at >= t0).map(|(_, lost)| lost).sum();
        process.clock.when(valid_until.0).saturating_sub(lost)
    }

    /// Passes on the TIME of an answer. Returns whether the votes in it count.
    pub fn judge_clock(&mut self, process: usize, node: usize, sample: Sample) -> bool {
        let judge = &mut self.processes[process].judge;
        let steady = judge.read(sample.received, Node(node as u8), sample);
        let doubted = judge.is_in_doubt(Node(node as u8));
        self.step_answered(process, node, doubted || !steady);
        self.carry_out_findings(process);
        steady
    }

    pub fn judge_in_time(&mut self, process: usize, now: Time) {
        let timeout = self.swarm.command_timeout;
        self.processes[process].judge.wake(now, timeout);
        self.carry_out_findings(process);
    }

    pub fn judge_without(&mut self, process: usize, node: usize) {
        let now = Time(self.local(process));
        self.processes[process].judge.disconnected(now, Node(node as u8));
        self.carry_out_findings(process);
    }

    fn carry_out_findings(&mut self, process: usize) {
        let boot = self.processes[process].boot;
        while self.processes[process].boot == boot {
            let Some(effect) = self.processes[process].judge.poll_effect() else { return };
            match effect {
                Effect::ReadClock(node) => {
                    self.feed_wire(process, node.index(), wire::Input::Own(Own::Fence(None)));
                }
                Effect::Doubted(node) => {
                    let now = self.now;
                    self.processes[process].peers[node.index()].doubted_at.get_or_insert(now);
                    self.admission(process, node.index(), admission::Input::Doubted);
                }
                Effect::Steady(node) => {
                    self.doubt_ends(process, node.index());
                    self.admission(process, node.index(), admission::Input::Steady);
                }
                Effect::Stepped(node) => self.stepped(process, node.index()),
                Effect::Void { lost } => {
                    if lost.is_some() {
                        self.coverage.saw(Sight::OwnClockJumped);
                    }
                    self.void(process);
                }
            }
        }
    }

    /// A node whose clock was never set may get a ticket: its offset may have been known badly, because its answers were slow or it
    /// was disconnected. But no process may take the quorum away from the others because its own clock stood still.
    fn stepped(&mut self, process: usize, node: usize) {
        self.coverage.saw(Sight::StepSeen);
        self.processes[process].peers[node].doubted_at = None;
        // A pause that coincides with a step of one node cannot be told from steps of all.
        let explained = self.last_step.iter().any(|step| *step > 0) || self.swarm.quorum.size() < 3;
        if !explained && !self.processes[process].waited_out_a_doubt {
            self.wrong_tickets[node] = Some(self.now);
            let since = self.now.saturating_sub(self.swarm.quarantine());
            let silenced = self.wrong_tickets.iter().flatten().filter(|at| **at >= since).count();
            if silenced >= self.swarm.quorum.blocking() {
                self.check
                    .fail(format!("process {process} takes the vote of {silenced} nodes whose clocks were never set"));
            }
        }
        self.admission(process, node, admission::Input::Stepped);
    }

    /// A doubt may have ended because it lasted for one longest lease. Then it is not known whose clock jumped, and the same jump
    /// of a node that comes back later cannot be explained.
    fn doubt_ends(&mut self, process: usize, node: usize) {
        let (now, longest) = (self.now, self.swarm.longest.0 * MILLI);
        let process = &mut self.processes[process];
        let doubted_at = process.peers[node].doubted_at.take();
        process.waited_out_a_doubt |= doubted_at.is_some_and(|at| now - at >= longest);
    }

    /// No belief from before the jump may last.
    fn void(&mut self, process: usize) {
        self.tell_all(process, &Input::ClockJumped);
        for machine in self.processes[process].machines.iter().filter(|machine| !machine.driver.is_closing()) {
            if let Standing::Held(term) | Standing::Publishing(term) = &machine.driver.view().standing {
                self.check.fail(format!("process {process} believes in {term:?} from before its clock jumped"));
            }
        }
    }
}
