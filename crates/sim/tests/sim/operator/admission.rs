//! The Redis nodes of one process: their admissions and their clocks, as the machines of the core judge them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::admission::{self, Admission, Effect, Standing};
use redislease_core::clock::Sample;
use redislease_core::driver::{self, returned};
use redislease_core::judge::Effect as Finding;
use redislease_core::marker::RunId;
use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Fences};
use redislease_core::time::{Beat, Drift, Millis, Time};
use redislease_core::wire;
use redislease_plan::api::quorum::NodeState;
use redislease_plan::plan::calls::Request;

use crate::api::objects::QUORUM;
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::state::SeenNode;
use crate::operator::state::{Peer, Ticket};
use crate::redis::clock::MILLI;
use crate::redis::link::{Own, Wire};
use crate::world::World;

/// How often the marker of a node is read.
const HEARTBEAT: Beat = Beat { every: Millis(1000), phase: Time(0) };

impl World {
    pub fn new_peers(&self) -> Vec<Peer> {
        let config = admission::Config {
            membership: self.membership.clone(),
            quorum: self.swarm.quorum,
            // A program has no statuses to read.
            has_statuses: self.swarm.programs == 0 && !self.is(Bug::SeedFromReadableFences),
            longest_lease: self.swarm.longest,
            drift: Drift::STANDARD,
            heartbeat: HEARTBEAT,
        };
        let (limits, timeout) = (&self.swarm.limits, self.swarm.command_timeout);
        let fresh = |_| {
            let admission = Admission::new(config.clone()).with_mutant(self.mutant());
            let wire = Wire::new(admission, limits.clone(), timeout).with_mutant(self.mutant());
            let seen = SeenNode::default();
            Peer {
                wire,
                conn: None,
                shown: (NodeState::Down, false),
                gather: None,
                tokens_asked: 0,
                run_id: None,
                seen,
            }
        };
        (0..self.servers.len()).map(fresh).collect()
    }

    /// The leases, the index and the election of one replica learn about the nodes.
    pub fn nodes_changed(&mut self, process: usize) {
        let operator = &mut self.processes[process];
        let votes: Vec<bool> = operator.peers.iter().map(|peer| peer.shown.0 == NodeState::Up).collect();
        let (boot, before) = (operator.boot, std::mem::replace(&mut operator.votes, votes.clone()));
        for input in returned(self.swarm.quorum, &before, &votes) {
            // A lease may have crashed the process.
            if self.processes[process].boot == boot {
                self.tell_all(process, &input);
            }
        }
        self.quorum_changed(process);
    }

    pub fn connected(&mut self, process: usize, node: usize, run_id: RunId) {
        let run_id = self.plant_run_id(process, node, run_id);
        let peer = &mut self.processes[process].peers[node];
        peer.run_id = Some(run_id.clone());
        if let Some(conn) = &mut peer.conn {
            conn.ready = true;
        }
        self.admission(process, node, admission::Input::Connected(run_id));
    }

    pub fn admission(&mut self, process: usize, node: usize, input: admission::Input) {
        self.tell_wire(process, node, wire::Input::Admission(input));
    }

    pub fn carry_out_admission(&mut self, process: usize, node: usize, effect: Effect) {
        match effect {
            // The wire sends it.
            Effect::Call(_) => {}
            Effect::ListStatuses { again } => self.list_statuses(process, node, again),
            Effect::ReadFences => self.gather(process, node),
            Effect::Changed(standing) => {
                self.sees_standing(process, node, &standing);
                let (shown, _) = &mut self.processes[process].peers[node].shown;
                *shown = match standing {
                    // The end of a connection is shown with its reason, and the others end after one call.
                    Standing::Offline | Standing::Observing | Standing::Seeding(None) => return,
                    Standing::Admitted => NodeState::Up,
                    Standing::Mismatch(_) => NodeState::Misconfigured,
                    Standing::Doubted | Standing::Quarantined { .. } | Standing::Seeding(Some(_)) => {
                        NodeState::Quarantined
                    }
                };
                self.nodes_changed(process);
            }
        }
    }

    /// The admission of a node waits until all leases are listed, for the first time or again.
    fn list_statuses(&mut self, process: usize, node: usize, again: bool) {
        if again {
            let asked = &mut self.processes[process].peers[node].tokens_asked;
            *asked += 1;
            let ticket = Ticket::Tokens { node, request: *asked };
            let (of, quorum) = (node.to_string().into(), QUORUM.to_owned());
            self.submit(process, Request::Tokens { of, quorum, namespaces: Arc::default() }, ticket);
        } else if self.processes[process].floor_complete {
            self.admission(process, node, admission::Input::StatusesListed);
        }
    }

    /// All leases are listed for the first time.
    pub fn floor_complete(&mut self, process: usize) {
        self.processes[process].floor_complete = true;
        for node in 0..self.processes[process].peers.len() {
            self.admission(process, node, admission::Input::StatusesListed);
        }
    }

    /// All statuses were read, because the clocks must seed the counter of `target`.
    pub fn tokens_read(&mut self, process: usize, target: usize, request: u64, token: Token) {
        let operator = &mut self.processes[process];
        operator.raise_floor(token);
        if operator.peers[target].tokens_asked == request {
            self.coverage.saw(Sight::StatusesReadAgain);
            self.admission(process, target, admission::Input::StatusesListed);
        }
    }

    /// Asks every node for its fence, on behalf of the admission of `target`.
    fn gather(&mut self, process: usize, target: usize) {
        self.processes[process].peers[target].gather = Some(BTreeMap::new());
        for node in 0..self.processes[process].peers.len() {
            self.tell_wire(process, node, wire::Input::Own(Own::Fence(Some(target))));
        }
    }

    /// One node has answered with its fence, or has not answered.
    pub fn fence_read(&mut self, process: usize, target: usize, node: usize, report: Option<FenceReport>) {
        let operator = &mut self.processes[process];
        let nodes = operator.peers.len();
        let gather = &mut operator.peers[target].gather;
        if let Some(answers) = gather {
            answers.entry(Node(node as u8)).or_insert(report);
        }
        let Some(answers) = gather.take_if(|answers| answers.len() == nodes) else { return };
        let reports = answers.into_iter().filter_map(|(node, report)| Some((node, report?))).collect();
        let own_clock = operator.wall.micros(self.now);
        let fences = Fences::of(Node(target as u8), reports, operator.floor, own_clock);
        let fences = self.plant_in_fences(fences);
        self.sees_fences(process, target, fences.as_ref());
        self.admission(process, target, admission::Input::Fences(fences));
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
        self.processes[process].judge.wake(now, self.swarm.command_timeout);
        self.carry_out_findings(process);
    }

    pub fn carry_out_findings(&mut self, process: usize) {
        let boot = self.processes[process].boot;
        while self.processes[process].boot == boot {
            let Some(finding) = self.processes[process].judge.poll_effect() else { return };
            self.sees_finding(process, finding);
            match finding {
                Finding::ReadClock(node) => {
                    self.tell_wire(process, node.index(), wire::Input::Own(Own::Fence(None)));
                }
                Finding::Doubted(node) => self.admission(process, node.index(), admission::Input::Doubted),
                Finding::Steady(node) => self.admission(process, node.index(), admission::Input::Steady),
                Finding::Stepped(node) => self.admission(process, node.index(), admission::Input::Stepped),
                Finding::Void { .. } => {
                    self.tell_all(process, &driver::Input::ClockJumped);
                    self.nothing_outlasts_a_jump(process);
                }
            }
        }
    }
}
