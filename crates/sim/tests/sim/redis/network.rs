//! Connections between operators and Redis masters: first in, first out, with loss, delay, repeats and one-way cuts.

use std::sync::Arc;

use redislease_core::lease::Round;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Op, Token};
use redislease_core::wire::{self, Input, Terms};

use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::{Event, World};

/// The wire of a process to one node.
pub type Wire = wire::Wire<u8, Ticket, Own>;

/// One connection of one start of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub process: usize,
    pub boot: u32,
    pub node: usize,
    pub conn: u32,
}

/// How many faults cut each direction at present.
#[derive(Clone, Copy, Default)]
pub struct Link {
    pub cut_to: u32,
    pub cut_from: u32,
    /// Both directions, together with those to every other node.
    pub isolated: u32,
}

impl Link {
    /// The fault by which a request does not reach its node.
    fn lost_to(self) -> Option<Fault> {
        (self.isolated > 0).then_some(Fault::Isolate).or((self.cut_to > 0).then_some(Fault::CutTo))
    }

    /// The fault by which an answer does not reach its process.
    fn lost_from(self) -> Option<Fault> {
        (self.isolated > 0).then_some(Fault::Isolate).or((self.cut_from > 0).then_some(Fault::CutFrom))
    }
}

/// Whose vote it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The number of the request in the run, in the order in which requests are given to wires.
    pub number: u64,
    pub serial: u64,
    pub round: Round,
    pub release: bool,
}

/// A call that is not for votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// The first call of a connection. The scripts are loaded with it.
    Info,
    Observe {
        run_id: RunId,
        nonce: u128,
        stepped: Option<Marker>,
    },
    Admit {
        ticket: Marker,
        marker: Marker,
        seed: Token,
    },
    /// For the admission of this node, or to read the clock only.
    Fence(Option<usize>),
    Load,
}

/// A call on its way to, or queued in, a server.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub from: Address,
    pub incarnation: u32,
    pub id: u64,
    pub call: Call,
    pub repeat: bool,
}

/// A call on a connection.
#[derive(Clone, Debug)]
pub enum Call {
    Own(Own),
    Batch(Batch),
}

/// Requests for votes.
#[derive(Clone, Debug)]
pub struct Batch {
    pub requests: Vec<(Arc<[u8]>, Op)>,
    pub terms: Option<Terms>,
    /// The numbers of the requests and the leases that they are about; `None` if nobody waits for the vote any more.
    pub asked: Vec<Option<(u64, u64)>>,
}

impl Call {
    /// Whether it can change the server.
    pub const fn writes(&self) -> bool {
        !matches!(self, Self::Own(Own::Info | Own::Fence(_) | Own::Load))
    }

    /// Whether the server executes it with a script.
    pub const fn needs_scripts(&self) -> bool {
        !matches!(self, Self::Own(Own::Info | Own::Load))
    }
}

pub struct Conn {
    pub number: u32,
    pub incarnation: u32,
    pub ready: bool,
    pub wire: Wire,
    /// Whether the requests that arrive now are sent soon.
    pub flushes: bool,
    /// The server has lost its scripts since it was opened.
    pub lost_scripts: bool,
    last_to: Micros,
    last_from: Micros,
}

impl World {
    pub fn address(&self, process: usize, node: usize) -> Address {
        let Some(conn) = &self.processes[process].peers[node].conn else { unreachable!("asked while connected") };
        Address { process, boot: self.processes[process].boot, node, conn: conn.number }
    }

    /// Tries to connect. `to.conn` is the number that the connection will have.
    pub fn dial(&mut self, to: Address) {
        let Address { process, boot, node, conn } = to;
        if self.processes[process].peers[node].conn.is_some() {
            return;
        }
        let retry = Event::Dial(Address { process, boot, node, conn: conn + 1 });
        if let Some(fault) = self.links[process][node].lost_to() {
            if self.servers[node].up {
                self.hit(fault, Some(process));
            }
            self.tried(process, node);
            return self.after(self.swarm.command_timeout.0 * MILLI, retry);
        }
        if !self.servers[node].up {
            self.tried(process, node);
            let delay = self.rng.between(100, 400) * MILLI;
            return self.after(delay, retry);
        }
        self.processes[process].peers[node].conn = Some(Conn {
            number: conn,
            incarnation: self.servers[node].incarnation,
            ready: false,
            wire: Wire::new(self.swarm.limits.clone(), self.swarm.command_timeout).with_mutant(self.mutant()),
            flushes: false,
            lost_scripts: false,
            last_to: self.now,
            last_from: self.now,
        });
        self.feed_wire(process, node, Input::Own(Own::Info));
    }

    fn tried(&mut self, process: usize, node: usize) {
        if !std::mem::replace(&mut self.processes[process].peers[node].tried, true) {
            self.nodes_changed(process);
        }
    }

    /// The delay of a message; `None` if it does not arrive. A fault of a message to a server that `is_down` changes nothing.
    fn travel(&mut self, process: usize, cut_by: Option<Fault>, is_down: bool) -> Option<Micros> {
        let (fault, delay) = self.draw_travel(cut_by);
        if let Some(fault) = fault.filter(|_| !is_down) {
            self.hit(fault, Some(process));
        }
        delay
    }

    fn draw_travel(&mut self, cut_by: Option<Fault>) -> (Option<Fault>, Option<Micros>) {
        if cut_by.is_some() {
            return (cut_by, None);
        }
        let network = self.swarm.network;
        if !self.chaos {
            return (None, Some(self.rng.between(100, MILLI)));
        }
        if self.rng.permille(network.loss) {
            return (Some(Fault::Loss), None);
        }
        if self.rng.permille(network.slow) {
            return (Some(Fault::Delay), Some(self.rng.between(network.delay.1, network.slowest)));
        }
        (None, Some(self.rng.between(network.delay.0, network.delay.1)))
    }

    /// Sends a call of the wire.
    pub fn post(&mut self, process: usize, node: usize, id: u64) {
        let now = self.now;
        let from = self.address(process, node);
        let cut = self.links[process][node].lost_to();
        let bound = self.command_bound(process);
        self.check.sent(now, process, node, bound);
        let Some(conn) = &self.processes[process].peers[node].conn else { return };
        let (incarnation, Some(sent)) = (conn.incarnation, conn.wire.get(id)) else { return };
        let call = match &sent.call {
            wire::Call::Own(own) => Call::Own(own.clone()),
            wire::Call::Batch(batch) => {
                let requests = conn.wire.requests(batch);
                let of = |ticket: &Ticket| (ticket.number, ticket.serial);
                Call::Batch(Batch {
                    requests: requests.iter().map(|one| (one.request.keys.clone(), one.request.op.clone())).collect(),
                    terms: batch.terms().cloned(),
                    asked: requests.iter().map(|one| one.reply.as_ref().map(of)).collect(),
                })
            }
        };
        if let Call::Batch(batch) = &call
            && batch.requests.len() > 1
        {
            let extends = batch.requests.iter().any(|(_, op)| op.is_extend());
            self.coverage.saw(if extends { Sight::ExtensionsTogether } else { Sight::RequestsTogether });
        }
        let server = &self.servers[node];
        let is_down = !server.up || incarnation != server.incarnation;
        let Some(travel) = self.travel(process, cut, is_down) else { return };
        let Some(conn) = &mut self.processes[process].peers[node].conn else { return };
        conn.last_to = conn.last_to.max(now + travel);
        let at = conn.last_to;
        let delivery = Delivery { from, incarnation, id, call, repeat: false };
        if self.chaos && self.rng.permille(self.swarm.network.repeat) {
            let later = at + self.rng.between(1, 5 * SECOND);
            self.at(later, Event::Arrive(Delivery { repeat: true, ..delivery.clone() }));
        }
        self.at(at, Event::Arrive(delivery));
    }

    pub fn arrive(&mut self, delivery: Delivery) {
        let server = &mut self.servers[delivery.from.node];
        if !server.up || server.incarnation != delivery.incarnation {
            return;
        }
        if server.stalled {
            server.backlog.push_back(delivery);
            return self.hit(Fault::Stall, None);
        }
        self.execute(delivery);
    }

    pub fn execute(&mut self, delivery: Delivery) {
        let Delivery { from, id, call, repeat, .. } = delivery;
        let Address { process, node, .. } = from;
        let answer = self.servers[node].run(self.now, &call);
        let asked = self.processes[process].boot == from.boot
            && self.processes[process].peers[node].conn.as_ref().is_some_and(|conn| conn.number == from.conn);
        if repeat && call.writes() {
            self.hit(Fault::Repeat, Some(process));
        }
        if let Call::Batch(batch) = &call {
            self.batch_ran(from, batch, &answer, repeat, asked);
        }
        if repeat || !asked {
            return;
        }
        let clock = self.servers[node].clock.micros(self.now);
        let cut = self.links[process][node].lost_from();
        let Some(travel) = self.travel(process, cut, false) else { return };
        let now = self.now;
        let Some(conn) = &mut self.processes[process].peers[node].conn else { return };
        conn.last_from = conn.last_from.max(now + travel);
        let at = conn.last_from;
        self.at(at, Event::Reply { to: from, id, answer, clock });
    }

    pub fn current(&mut self, to: Address) -> Option<&mut Conn> {
        self.conn(to.process, to.node).filter(|conn| conn.number == to.conn)
    }

    /// The connection of a process to a node. A process that has crashed has none.
    pub fn conn(&mut self, process: usize, node: usize) -> Option<&mut Conn> {
        self.processes[process].peers.get_mut(node)?.conn.as_mut()
    }

    /// The connection is closed, with all calls on it.
    pub fn reset(&mut self, to: Address) {
        if self.current(to).is_some() {
            self.disconnect(to.process, to.node);
        }
    }
}
