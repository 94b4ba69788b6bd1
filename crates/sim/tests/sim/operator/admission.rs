//! The state of each Redis node in one process: the connection, its clock, and whether it votes.

use std::sync::Arc;

use redislease_core::admission::{self, Admission, Effect, Standing};
use redislease_core::driver::returned;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{Allegiance, FenceReport, Fences};
use redislease_core::time::{Drift, Millis};
use redislease_core::wire;
use redislease_plan::api::conditions::LeaseReady;
use redislease_plan::engine::Input;
use redislease_plan::plan::{QuorumFacts, calls};

use crate::api::objects::QUORUM;
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::operator::state::{Gather, Peer, Ticket};
use crate::redis::link::{Own, Wire};
use crate::world::World;

/// How often the marker of a node is read.
const HEARTBEAT: Millis = Millis(1000);

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
        let wire = || {
            let admission = Admission::new(config.clone()).with_mutant(self.mutant());
            Wire::new(admission, self.swarm.limits.clone(), self.swarm.command_timeout).with_mutant(self.mutant())
        };
        let fresh = |_| Peer {
            wire: wire(),
            conn: None,
            tried: false,
            gather: None,
            seeded_by: None,
            tokens_asked: 0,
            stepped: None,
            doubted_at: None,
            run_id: None,
        };
        (0..self.servers.len()).map(fresh).collect()
    }

    /// The quorums have been read: the leases can be opened on this one.
    pub fn quorum_read(&mut self, process: usize) {
        let open = Some(self.open_quorum.clone());
        let valid = Some(self.valid_quorum.clone());
        let facts = Arc::new(QuorumFacts { read: true, open, valid, ..QuorumFacts::default() });
        self.quorum_changed(process, facts);
        self.nodes_changed(process);
        self.wake_leader(process);
        self.tell_engine(process, Input::QuorumsRead);
    }

    /// The leases, the index and the election of one replica learn about the nodes.
    pub fn nodes_changed(&mut self, process: usize) {
        let operator = &mut self.processes[process];
        let admitted = |peer: &Peer| *peer.wire.admission().standing() == Standing::Admitted;
        let votes: Vec<bool> = operator.peers.iter().map(admitted).collect();
        let up = votes.iter().filter(|votes| **votes).count();
        let evaluated = operator.peers.iter().all(|peer| peer.tried);
        let (boot, before) = (operator.boot, std::mem::replace(&mut operator.votes, votes.clone()));
        for input in returned(self.swarm.quorum, &before, &votes) {
            // A lease may have crashed the process.
            if self.processes[process].boot == boot {
                self.tell_all(process, &input);
            }
        }
        let operator = &self.processes[process];
        let before = operator.quorum.clone();
        if !before.read {
            return;
        }
        let denied = self.quorum_denied[operator.cluster];
        let obstacle = (denied || self.quorum_obstacles[operator.cluster])
            .then(|| (LeaseReady::InvalidReference, "the quorum cannot be used".to_owned()));
        let after = QuorumFacts { up, evaluated, obstacle, denied, ..QuorumFacts::clone(&before) };
        if after != *before {
            self.quorum_changed(process, Arc::new(after));
            self.wake_leader(process);
        }
    }

    fn quorum_changed(&mut self, process: usize, facts: Arc<QuorumFacts>) {
        self.processes[process].quorum = facts.clone();
        let authority = self.authority(process);
        self.tell_engine(process, Input::Quorum { name: QUORUM.into(), facts: Some(facts), authority });
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
        self.tell_wire(process, node, wire::Input::Admission(input));
    }

    pub fn carry_out_admission(&mut self, process: usize, node: usize, effect: Effect) {
        match effect {
            // The wire sends it.
            Effect::Call(_) => {}
            Effect::ListStatuses { again } => self.list_statuses(process, node, again),
            Effect::ReadFences => self.gather(process, node),
            Effect::Changed(standing) => {
                let peer = &mut self.processes[process].peers[node];
                match standing {
                    Standing::Admitted => {
                        peer.tried = true;
                        if let Some(seeded_by) = peer.seeded_by.take() {
                            self.coverage.saw(seeded_by);
                            self.coverage.saw(Sight::ReAdmitted);
                        }
                    }
                    Standing::Seeding(Some(_)) => {
                        peer.seeded_by = None;
                        self.coverage.saw(Sight::SeedingRefused);
                    }
                    _ => {}
                }
                self.note(Note::Node { process, node, standing: &standing });
                self.nodes_changed(process);
            }
        }
    }

    /// The admission of a node waits until all leases are listed, for the first time or again.
    fn list_statuses(&mut self, process: usize, node: usize, again: bool) {
        if again {
            let peer = &mut self.processes[process].peers[node];
            peer.tokens_asked += 1;
            let request = peer.tokens_asked;
            let of = node.to_string().into();
            let tokens = calls::Request::Tokens { of, quorum: QUORUM.to_owned(), namespaces: Arc::default() };
            self.submit(process, tokens, Ticket::Tokens { node, request });
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
        operator.floor = operator.floor.max(token);
        if operator.peers[target].tokens_asked == request {
            self.coverage.saw(Sight::StatusesReadAgain);
            self.admission(process, target, admission::Input::StatusesListed);
        }
    }

    /// Asks every node for its fence, on behalf of the admission of `target`.
    fn gather(&mut self, process: usize, target: usize) {
        let nodes = 0..self.processes[process].peers.len();
        self.processes[process].peers[target].gather =
            Some(Gather { outstanding: nodes.clone().collect(), reports: Vec::new() });
        for node in nodes {
            self.tell_wire(process, node, wire::Input::Own(Own::Fence(Some(target))));
        }
    }

    /// One node has answered with its fence, or has not answered.
    pub fn fence_read(
        &mut self,
        process: usize,
        target: usize,
        node: usize,
        said: Option<(Option<Marker>, Token, u64)>,
    ) {
        let reads = !self.is(Bug::SeedFromReadableFences);
        let operator = &mut self.processes[process];
        let ours = operator.peers[node].run_id.clone().map(|run_id| self.membership.marker(run_id));
        let Some(Gather { outstanding, reports }) = &mut operator.peers[target].gather else { return };
        if !outstanding.remove(&node) {
            return;
        }
        reports.extend(said.map(|(marker, fence, clock)| {
            let allegiance = if marker.is_some() && marker == ours { Allegiance::Ours } else { Allegiance::Nobody };
            (Node(node as u8), FenceReport { allegiance, fence, clock: if reads { clock } else { 0 } })
        }));
        if !outstanding.is_empty() {
            return;
        }
        let reports = std::mem::take(reports);
        operator.peers[target].gather = None;
        let (floor, own_clock) = if reads { (operator.floor, operator.wall.micros(self.now)) } else { (Token(0), 0) };
        let fences = Fences::of(Node(target as u8), reports, floor, own_clock);
        operator.peers[target].seeded_by = fences.as_ref().map(|fences| {
            let by_others = fences.remembering() >= self.swarm.quorum.majority();
            if by_others { Sight::SeededByOthers } else { Sight::SeededByClocks }
        });
        self.admission(process, target, admission::Input::Fences(fences));
    }
}
