//! Connections between operators and Redis masters: first in, first out, with loss, delay, repeats and one-way cuts.

use redislease_core::admission;
use redislease_core::clock::Sample;
use redislease_core::lease::Round;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Op, Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Time;

use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::core_check::Call;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::redis::server::Answer;
use crate::world::{Event, World};

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

/// A request on its way to, or queued in, a server.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub from: Address,
    pub incarnation: u32,
    pub id: u64,
    pub request: Request,
    pub repeat: bool,
}

/// A request on a connection.
#[derive(Clone, Debug)]
pub enum Request {
    Info,
    Observe { run_id: RunId, nonce: u128, stepped: Option<Marker> },
    Admit { ticket: Marker, marker: Marker, seed: Token },
    Fence,
    Vote { call: Call<u8> },
}

impl Request {
    /// Whether it can change the server.
    const fn writes(&self) -> bool {
        !matches!(self, Self::Info | Self::Fence)
    }
}

/// Why a process waits for an answer.
#[derive(Clone, Debug)]
pub enum Purpose {
    Info,
    Marker,
    /// Only the clock is read.
    Clock,
    /// For the admission of this node.
    Fence(usize),
    /// The marker is the one that the request named.
    Vote {
        serial: u64,
        round: Round,
        marker: Option<Marker>,
        release: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Pending {
    id: u64,
    purpose: Purpose,
    sent: u64,
    give_up: u64,
}

pub struct Conn {
    pub number: u32,
    pub incarnation: u32,
    pub ready: bool,
    waiting: Vec<Pending>,
    last_to: Micros,
    last_from: Micros,
    watched: bool,
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
            waiting: Vec::new(),
            last_to: self.now,
            last_from: self.now,
            watched: false,
        });
        let give_up = self.local(process) + self.swarm.command_timeout.0;
        self.post(process, node, Request::Info, Purpose::Info, give_up);
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

    pub fn post(&mut self, process: usize, node: usize, request: Request, purpose: Purpose, give_up: u64) {
        let (now, sent, id) = (self.now, self.local(process), self.new_id(process));
        let from = self.address(process, node);
        let cut = self.links[process][node].lost_to();
        let bound = self.command_bound(process);
        self.check.sent(now, process, node, bound);
        let server = &self.servers[node];
        let conn = self.processes[process].peers[node].conn.as_ref();
        let is_down = !server.up || conn.is_none_or(|conn| conn.incarnation != server.incarnation);
        let travel = self.travel(process, cut, is_down);
        let Some(conn) = &mut self.processes[process].peers[node].conn else { return };
        conn.waiting.push(Pending { id, purpose, sent, give_up });
        let incarnation = conn.incarnation;
        if !conn.watched {
            conn.watched = true;
            let at = self.processes[process].clock.when(give_up);
            self.at(at, Event::Overdue(from));
        }
        let Some(travel) = travel else { return };
        let Some(conn) = &mut self.processes[process].peers[node].conn else { return };
        conn.last_to = conn.last_to.max(now + travel);
        let at = conn.last_to;
        let delivery = Delivery { from, incarnation, id, request, repeat: false };
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
        let Delivery { from, id, request, repeat, .. } = delivery;
        let Address { process, node, .. } = from;
        let answer = self.servers[node].run(self.now, &request);
        let asked = self.processes[process].boot == from.boot
            && self.processes[process].peers[node].conn.as_ref().is_some_and(|conn| conn.number == from.conn);
        if repeat && request.writes() {
            self.hit(Fault::Repeat, Some(process));
        }
        if let (Request::Vote { call }, Answer::Vote(vote, foreign)) = (&request, &answer) {
            match vote {
                Vote::Abstained if *foreign => self.coverage.saw(Sight::NotAdmittedAtTheNode),
                Vote::Abstained => self.coverage.saw(Sight::LateAtTheNode),
                Vote::Granted(_) if repeat || !asked => self.coverage.saw(Sight::GhostGrant),
                _ => {}
            }
            self.note(Note::Ran { node, process, op: &call.op, vote, repeat });
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

    fn current(&mut self, to: Address) -> Option<&mut Conn> {
        self.processes[to.process].peers[to.node].conn.as_mut().filter(|conn| conn.number == to.conn)
    }

    pub fn reply(&mut self, to: Address, id: u64, answer: Answer, clock: u64) {
        let Address { process, node, .. } = to;
        let now = self.local(process);
        let Some(conn) = self.current(to) else { return };
        let Some(at) = conn.waiting.iter().position(|pending| pending.id == id) else { return };
        if now > conn.waiting[at].give_up {
            return self.disconnect(process, node);
        }
        let Pending { purpose, sent, .. } = conn.waiting.remove(at);
        self.processes[process].peers[node].newest = Some((clock / 1000, now));
        let sample = Sample { node_time: clock / 1000, sent: Time(sent), received: Time(now) };
        let steady = self.judge_clock(process, node, sample);
        match (purpose, answer) {
            (Purpose::Info, Answer::Info(run_id)) => self.connected(process, node, run_id),
            (Purpose::Marker, Answer::Marker(Some(marker))) => {
                self.admission(process, node, admission::Input::Observed(marker));
            }
            // Flushed between observe and admit: a new connection reads the marker again.
            (Purpose::Marker, _) => self.disconnect(process, node),
            (Purpose::Fence(target), Answer::Fence { marker, fence }) => {
                self.fence_read(process, target, node, Some((marker, fence, clock)));
            }
            (Purpose::Vote { serial, round, marker, release }, Answer::Vote(vote, foreign)) => {
                if foreign && !release {
                    self.admission(process, node, admission::Input::NotAdmitted);
                }
                // A request in flight when the clock stepped was executed by an unknown clock.
                let trusted = release || self.processes[process].peers[node].admission.marker() == marker;
                if !trusted {
                    self.coverage.saw(Sight::VoteDiscardedAfterStep);
                }
                let counts = steady && (trusted || foreign);
                if release {
                    self.release_answered(process, serial);
                }
                self.vote(process, serial, round, Node(node as u8), if counts { vote } else { Vote::Unknown });
            }
            _ => {}
        }
    }

    /// A request that was not answered in time ends the connection.
    pub fn overdue(&mut self, to: Address) {
        let now = self.local(to.process);
        let Some(conn) = self.current(to) else { return };
        let Some(first) = conn.waiting.iter().map(|pending| pending.give_up).min() else {
            conn.watched = false;
            return;
        };
        if now >= first {
            return self.disconnect(to.process, to.node);
        }
        let at = self.processes[to.process].clock.when(first);
        self.at(at, Event::Overdue(to));
    }

    pub fn reset(&mut self, to: Address) {
        if self.current(to).is_some() {
            self.disconnect(to.process, to.node);
        }
    }

    /// Drops the connection: each request on it is answered with an unknown vote.
    pub fn disconnect(&mut self, process: usize, node: usize) {
        let boot = self.processes[process].boot;
        let Some(conn) = self.processes[process].peers[node].conn.take() else { return };
        self.processes[process].peers[node].gather = None;
        self.processes[process].peers[node].tokens_asked += 1;
        self.admission(process, node, admission::Input::Disconnected);
        self.judge_without(process, node);
        for pending in conn.waiting {
            match pending.purpose {
                Purpose::Vote { serial, round, release, .. } => {
                    if release {
                        self.release_answered(process, serial);
                    }
                    self.vote(process, serial, round, Node(node as u8), Vote::Unknown);
                    if self.processes[process].boot != boot {
                        return;
                    }
                }
                Purpose::Fence(target) => self.fence_read(process, target, node, None),
                Purpose::Info | Purpose::Marker | Purpose::Clock => {}
            }
        }
        let delay = self.rng.between(20, 200) * MILLI;
        self.after(delay, Event::Dial(Address { process, boot, node, conn: conn.number + 1 }));
    }

    /// Sends one request of a lease. It has exactly one answer, by `give_up_at`. Without `keys` no request can be sent.
    #[allow(clippy::too_many_arguments, reason = "one effect of the core, with whose it is")]
    pub fn ask_node(
        &mut self,
        process: usize,
        serial: u64,
        round: Round,
        node: Node,
        op: Op,
        give_up_at: Time,
        keys: Option<Vec<u8>>,
    ) {
        let (now, boot) = (self.local(process), self.processes[process].boot);
        let release = op.is_release();
        let unknown = Event::Vote { process, boot, serial, round, node, vote: Vote::Unknown };
        let Some(keys) = keys else { return self.after(0, unknown) };
        let peer = &self.processes[process].peers[node.index()];
        let ready = peer.conn.as_ref().is_some_and(|conn| conn.ready) && now < give_up_at.0;
        let (marker, newest) = (peer.admission.marker(), peer.newest);
        if release {
            self.release_sent(process, serial, ready);
        }
        let (true, Some((time, received))) = (ready && (release || marker.is_some()), newest) else {
            return self.after(0, unknown);
        };
        let deadline = time + give_up_at.0.saturating_sub(received);
        let asked_under = marker.clone().unwrap_or_else(|| self.membership.marker("none".into()));
        let call = Call { keys, marker: asked_under, deadline, op };
        let purpose = Purpose::Vote { serial, round, marker, release };
        self.post(process, node.index(), Request::Vote { call }, purpose, give_up_at.0);
    }
}
