//! The clocks of the nodes and of one process: carries out what the judge of the core finds.

use redislease_core::clock::Sample;
use redislease_core::driver::Input;
use redislease_core::judge::{Effect, Judge};
use redislease_core::quorum::Node;
use redislease_core::time::{Drift, Time};
use redislease_core::{admission, wire};

use crate::check::coverage::Sight;
use crate::redis::clock::MILLI;
use crate::redis::link::Own;
use crate::world::World;

impl World {
    pub fn new_judge(&self) -> Judge {
        Judge::new(self.swarm.quorum, self.swarm.longest, Drift::STANDARD).with_mutant(self.mutant())
    }

    /// Passes on the TIME of an answer, in microseconds. Returns whether the votes in it count.
    pub fn judge_clock(&mut self, process: usize, node: usize, sent: Time, clock: u64) -> bool {
        let sample = Sample { node_time: clock / MILLI, sent, received: Time(self.local(process)) };
        self.tell_wire(process, node, wire::Input::Clock { node_time: sample.node_time });
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
                    self.tell_wire(process, node.index(), wire::Input::Own(Own::Fence(None)));
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
                Effect::Stepped(node) => {
                    self.step_found(process, node.index());
                    self.admission(process, node.index(), admission::Input::Stepped);
                }
                Effect::Void { lost } => {
                    if lost.is_some() {
                        self.coverage.saw(Sight::OwnClockJumped);
                    }
                    self.tell_all(process, &Input::ClockJumped);
                    self.nothing_outlasts_a_jump(process);
                }
            }
        }
    }
}
