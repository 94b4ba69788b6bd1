//! Connections between operators and Redis masters: first in, first out, with loss, delay, repeats and one-way cuts.

use redislease_core::wire::{self, Input};
use redislease_plan::api::quorum::NodeState;

use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::event::{Event, Inside};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::redis::link::{Address, Batch, Call, Conn, Delivery, Own, Ticket};
use crate::world::World;

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
        let retry = Inside::Dial(Address { process, boot, node, conn: conn + 1 });
        if let Some(fault) = self.links[process][node].lost_to() {
            if self.servers[node].up {
                self.hit(fault, Some(process));
            }
            self.node_is_down(process, node);
            return self.later(process, self.swarm.command_timeout.0 * MILLI, retry);
        }
        if !self.servers[node].up {
            self.node_is_down(process, node);
            let delay = self.rng.between(100, 400) * MILLI;
            return self.later(process, delay, retry);
        }
        self.processes[process].peers[node].conn = Some(Conn {
            number: conn,
            incarnation: self.servers[node].incarnation,
            ready: false,
            flushes: false,
            lost_scripts: false,
            last_to: self.now,
            last_from: self.now,
        });
        self.tell_wire(process, node, Input::Opened);
        self.tell_wire(process, node, Input::Own(Own::Info));
    }

    /// A node has no connection.
    pub fn node_is_down(&mut self, process: usize, node: usize) {
        let Some(peer) = self.processes[process].peers.get_mut(node) else { return };
        let down = (NodeState::Down, true);
        if std::mem::replace(&mut peer.shown, down) != down {
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
        let Some(peer) = self.processes[process].peers.get(node) else { return };
        let Some(conn) = &peer.conn else { return };
        let (incarnation, Some(sent)) = (conn.incarnation, peer.wire.get(id)) else { return };
        let call = match &sent.call {
            wire::Call::Own(Own::Info) => Call::Info,
            wire::Call::Own(Own::Load) => Call::Load,
            wire::Call::Own(Own::Fence(_)) => {
                Call::Fence(self.membership.marker(peer.run_id.clone().unwrap_or_default()))
            }
            wire::Call::Admission(call) => Call::Admission(call.clone()),
            wire::Call::Batch(batch) => {
                let requests = peer.wire.requests(batch);
                let of = |ticket: &Ticket| (ticket.number, ticket.serial);
                Call::Batch(Batch {
                    requests: requests.iter().map(|one| (one.request.keys.clone(), one.request.op.clone())).collect(),
                    terms: batch.terms().cloned(),
                    asked: requests.iter().map(|one| one.reply.as_ref().map(of)).collect(),
                })
            }
        };
        let from = self.address(process, node);
        let cut = self.links[process][node].lost_to();
        let bound = self.command_bound(process);
        self.check.sent(now, process, node, bound);
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
        let delivery = Delivery { from, incarnation, id, call, nonce: self.rng.wide(), repeat: false };
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
        let Delivery { from, id, call, nonce, repeat, .. } = delivery;
        let Address { process, node, .. } = from;
        let answer = self.servers[node].run(self.now, &call, nonce);
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
        let cut = self.links[process][node].lost_from();
        let Some(travel) = self.travel(process, cut, false) else { return };
        let now = self.now;
        let Some(conn) = &mut self.processes[process].peers[node].conn else { return };
        conn.last_from = conn.last_from.max(now + travel);
        let delay = conn.last_from - now;
        self.later(process, delay, Inside::Reply { to: from, id, answer });
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
