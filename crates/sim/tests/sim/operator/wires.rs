//! The shell around the wires of the core: requests and replies to them, their effects to the network and the leases.

use redislease_core::lease::Round;
use redislease_core::op::{Op, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Time;
use redislease_core::wire::replies::{InvalidReply, Value, read_fence};
use redislease_core::wire::{Call, Effect, Input, Request, Why};

use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::event::Inside;
use crate::operator::state::Peer;
use crate::redis::clock::MILLI;
use crate::redis::link::{Address, Own, Ticket, Wire};
use crate::redis::server::Answer;
use crate::world::World;

impl World {
    /// Gives one request of a lease to the wire. It has exactly one answer. Without `keys` no request can be sent.
    pub fn ask_node(&mut self, process: usize, serial: u64, node: Node, ask: (Round, Op, Time), keys: Option<Vec<u8>>) {
        let (round, op, give_up_at) = ask;
        let release = op.is_release();
        self.tickets += 1;
        let ticket = Ticket { number: self.tickets, serial, round, release };
        let Some(keys) = keys else { return self.voted(process, node, ticket, Vote::Unknown) };
        let Peer { conn, wire, .. } = &self.processes[process].peers[node.index()];
        let ready = conn.as_ref().is_some_and(|conn| conn.ready);
        let votes = wire.admission().marker().is_some();
        if let Some(machine) = self.machine(process, serial).filter(|_| release && ready) {
            machine.seen.releasing += 1;
        }
        if !op.is_sent(ready, votes) {
            return self.voted(process, node, ticket, Vote::Abstained);
        }
        let (node, request) = (node.index(), Request { keys: keys.into(), op, give_up_at });
        self.tell_wire(process, node, Input::Request(request, ticket));
        // The task of the node takes requests that arrive together.
        let (low, high) = if self.chaos { self.swarm.node_delay } else { (1, 100) };
        let delay = self.rng.between(low, high);
        let Some(conn) = self.conn(process, node) else { return };
        if !std::mem::replace(&mut conn.flushes, true) {
            let to = self.address(process, node);
            self.later(process, delay, Inside::Flush(to));
        }
    }

    pub fn flush(&mut self, to: Address) {
        let Some(conn) = self.current(to) else { return };
        conn.flushes = false;
        self.tell_wire(to.process, to.node, Input::Flush);
    }

    fn voted(&mut self, process: usize, node: Node, ticket: Ticket, vote: Vote) {
        let Ticket { serial, round, release, .. } = ticket;
        if let Some(machine) = self.machine(process, serial).filter(|_| release) {
            machine.seen.releasing = machine.seen.releasing.saturating_sub(1);
        }
        self.later(process, 0, Inside::Vote { serial, round, node, vote });
    }

    /// Gives an input to a wire, unless the process has crashed, and carries out what follows.
    pub fn tell_wire(&mut self, process: usize, node: usize, input: Input<u8, Ticket, Own>) {
        let now = Time(self.local(process));
        let Some(peer) = self.processes[process].peers.get_mut(node) else { return };
        peer.wire.handle(now, input);
        self.drain_wire(process, node);
    }

    pub fn drain_wire(&mut self, process: usize, node: usize) {
        let (boot, mut again) = (self.processes[process].boot, None);
        while self.polls_on(process, boot, "a wire") {
            let poll = || self.processes[process].peers.get_mut(node)?.wire.poll_effect();
            let Some(effect) = again.take().or_else(poll) else { return };
            if self.crashes_before_effect(process) {
                return;
            }
            match effect {
                Effect::Send(id) => self.post(process, node, id),
                Effect::Load => {
                    if let Some(conn) = self.conn(process, node) {
                        conn.lost_scripts = true;
                    }
                    self.tell_wire(process, node, Input::Own(Own::Load));
                }
                Effect::Vote(ticket, vote) => self.voted(process, Node(node as u8), ticket, vote),
                Effect::Failed(Why::Busy, _) => self.coverage.saw(Sight::RequestsRefused),
                Effect::Foreign { invalid, .. } => self.check.fail(format!("node {node}: {invalid}")),
                Effect::Admission(effect) => {
                    again = self.is(Bug::AdmissionEffectRepeated).then(|| Effect::Admission(effect.clone()));
                    self.carry_out_admission(process, node, effect);
                }
                Effect::Overdue | Effect::AnotherServer(_) | Effect::Flushed => self.disconnect(process, node),
                Effect::Lost(Own::Fence(Some(target))) => self.fence_read(process, target, node, None),
                Effect::Failed(..) | Effect::Lost(_) => {}
            }
        }
    }

    pub fn wake_wires(&mut self, process: usize, now: Time) {
        for node in 0..self.processes[process].peers.len() {
            // A wire may have crashed the process.
            let deadline = self.processes[process].peers.get(node).and_then(|peer| peer.wire.next_deadline());
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.tell_wire(process, node, Input::Wake);
                self.tell_wire(process, node, Input::Flush);
            }
        }
    }

    pub fn reply(&mut self, to: Address, id: u64, answer: Answer) {
        let Address { process, node, .. } = to;
        if self.current(to).is_none() {
            return;
        }
        let wire = &mut self.processes[process].peers[node].wire;
        let Some(at) = wire.get(id).map(|sent| sent.at) else { return };
        let own = if matches!(answer, Answer::NoScript) { None } else { wire.take_own(id) };
        match (answer, own) {
            (Answer::NoScript, _) => {
                self.hit(Fault::FlushScripts, Some(process));
                self.tell_wire(process, node, Input::NotRun { id });
            }
            (Answer::Loaded, _) => self.tell_wire(process, node, Input::Loaded),
            (Answer::Info(run_id), _) => self.connected(process, node, run_id),
            (Answer::Reply(value), own) => {
                let read = match own {
                    Some(Own::Fence(target)) => self.fence_reply(to, at, target, value),
                    _ => self.reply_to_call(to, id, at, value),
                };
                if let Err(invalid) = read {
                    self.check.fail(format!("node {node}: {invalid}"));
                }
            }
        }
        if self.current(to).is_some() {
            self.tell_wire(process, node, Input::Flush);
        }
    }

    fn fence_reply(&mut self, to: Address, at: Time, target: Option<usize>, value: Value) -> Result<(), InvalidReply> {
        let report = read_fence(value)?;
        let counts = self.judge_clock(to.process, to.node, at, report.clock);
        if let Some(target) = target.filter(|_| self.current(to).is_some()) {
            self.fence_read(to.process, target, to.node, counts.then_some(report));
        }
        Ok(())
    }

    /// Votes, or the marker of the node.
    fn reply_to_call(&mut self, from: Address, id: u64, at: Time, value: Value) -> Result<(), InvalidReply> {
        let Address { process, node, .. } = from;
        let wire = &self.processes[process].peers[node].wire;
        let Some(sent) = wire.get(id) else { return Ok(()) };
        let (reply, is_batch) = (Wire::read(&sent.call, value)?, matches!(sent.call, Call::Batch(_)));
        let counts = self.judge_clock(process, node, at, reply.time);
        let Some(peer) = self.processes[process].peers.get(node) else { return Ok(()) };
        if is_batch && (!counts || peer.wire.admission().marker().is_none()) {
            self.coverage.saw(Sight::VoteDiscardedAfterStep);
        }
        self.tell_wire(process, node, Input::Answered { id, counts, answers: reply.answer });
        Ok(())
    }

    /// Drops the connection: each request on it is answered with an unknown vote.
    pub fn disconnect(&mut self, process: usize, node: usize) {
        let boot = self.processes[process].boot;
        let Some(peer) = self.processes[process].peers.get_mut(node) else { return };
        let Some(conn) = peer.conn.take() else { return };
        peer.gather = None;
        peer.tokens_asked += 1;
        self.tell_wire(process, node, Input::Closed);
        self.node_is_down(process, node);
        let now = Time(self.local(process));
        self.processes[process].judge.disconnected(now, Node(node as u8));
        self.carry_out_findings(process);
        let delay = self.rng.between(20, 200) * MILLI;
        self.later(process, delay, Inside::Dial(Address { process, boot, node, conn: conn.number + 1 }));
    }
}
