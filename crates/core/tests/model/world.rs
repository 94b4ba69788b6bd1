//! Three nodes, two processes, two attempts, one status: the state, and what may be chosen about it.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config, Lease, Renumbering, Round, Standing, TermId};
use redislease_core::marker::{Marker, Membership};
use redislease_core::mutant::Mutant;
use redislease_core::op::{Attempt, Grant, Holder, Op, Stages, Token, Vote};
use redislease_core::quorum::{Node, Quorum};
use redislease_core::reference::{Call, Node as Server};
use redislease_core::time::{Drift, Millis, Time};

use crate::shared::{Mixer, Shared};
use std::hash::{Hash, Hasher};

pub const NODES: usize = 3;

/// Every state is seen at this instant: a tick moves all the others instead.
pub const NOW: Time = Time(100);

/// What one run explores.
#[derive(Clone, Debug)]
pub struct Setup {
    pub name: &'static str,
    pub ttl: u64,
    pub renew_interval: u64,
    pub command_timeout: u64,
    pub stop_budget: u64,
    /// Of the lease of A and of the lease of B.
    pub keys: [&'static [u8]; 2],
    /// So many grants by joins; after that every join fails.
    pub joins: u8,
    /// Processes without a term may adopt the one that the status names.
    pub adopt: bool,
    /// So many crashes: the machine is lost, its requests and its status write may still happen.
    pub crashes: u8,
    /// The term is ended by decision: sealed, and released on the holder's word once the seal is effective.
    pub end: bool,
    /// The holder may be proven dead: released at once.
    pub death: bool,
    /// The first process may take B as well, after A.
    pub relay: bool,
    /// Status writes may stay without an answer.
    pub unanswered: bool,
    /// Requests may fail at once instead of at their deadline.
    pub broken: bool,
    /// The deadline inside the scripts holds: a late acquire does nothing.
    pub late_guard: bool,
    /// The highest token that a status shows from before the nodes forgot it.
    pub history: u64,
    pub mutant: Option<Mutant>,
}

impl Setup {
    pub fn config(&self) -> Config {
        Config {
            quorum: Quorum::of(3).unwrap(),
            ttl: Millis(self.ttl),
            renew_interval: Millis(self.renew_interval),
            stop_budget: Millis(self.stop_budget),
            command_timeout: Millis(self.command_timeout),
            drift: Drift { percent: 0, slack: Millis(0) },
            backoff: Backoff { strategy: Strategy::Linear, min: Millis(1), max: Millis(1), limit: None, jitter: 0 },
            mutant: self.mutant,
        }
    }
}

fn membership() -> Membership {
    Membership { generation: 1, fingerprint: "f".into() }
}

pub fn marker() -> Marker {
    membership().marker("r".into())
}

/// A and B.
pub const fn attempt(index: usize) -> Attempt {
    Attempt(index as u128 + 1)
}

pub fn index(attempt: Attempt) -> usize {
    usize::from(attempt.0 == 2)
}

pub fn holder(index: usize) -> Holder {
    Holder(["x", "y"][index].into())
}

/// A request whose answer is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub process: usize,
    pub round: Round,
    pub give_up_at: Time,
    pub op: Op,
    /// It was executed, and the answer is lost.
    pub done: bool,
}

/// A request that may still be executed, without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ghost {
    Acquire(Attempt, Time),
    Confirm(Attempt, Grant, Token),
}

/// One node with all that is on its way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    pub server: Server<u8>,
    pub wire: Vec<Request>,
    pub ghosts: Vec<Ghost>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Process {
    pub lease: Shared<Lease>,
    /// The running round of extension began after another term with a greater token had completed.
    pub across: bool,
    /// It began before the holder said that it stopped: it says nothing about the holder any more.
    pub before_word: bool,
}

/// A write of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    None,
    /// Sent by this process, which waits for the answer.
    Sent(usize),
    /// Nobody waits for it, and it may still happen.
    Adrift,
    Done,
    Refused,
}

/// What is known of an attempt from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tale {
    pub begun: bool,
    /// Completed with this token.
    pub token: Option<Token>,
    /// The other attempt had completed before this one began.
    pub second: bool,
    pub write: Write,
    /// The last instant at which the holder was told that it holds.
    pub believed_until: Time,
    /// The holder said that it stopped.
    pub stopped: bool,
    pub dead: bool,
    /// Extensions, seals and releases of it are about: they may be executed at any time, and more than once.
    pub extended: bool,
    pub sealed: bool,
    pub released: Option<Stages>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    EqualTokens,
    TokenNotAbove,
    Bridged,
}

#[derive(Clone, Debug, PartialEq)]
pub struct World {
    pub sites: [Shared<Site>; NODES],
    pub processes: [Process; 2],
    pub tales: [Tale; 2],
    pub status: Option<usize>,
    pub joins: u8,
    pub crashes: u8,
    pub flaw: Option<Flaw>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for site in &self.sites {
            site.hash(state);
        }
        for process in &self.processes {
            process.hash(state);
        }
        self.tales.hash(state);
        (self.status, self.joins, self.crashes, self.flaw).hash(state);
    }
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let mut server = Server::new("r".into());
        server.marker = Some(marker());
        server.mutant = setup.mutant;
        let site = Shared::new(Site { server, wire: Vec::new(), ghosts: Vec::new() });
        let lease = Shared::new(Lease::new(setup.config()));
        let process = Process { lease, across: false, before_word: false };
        let tale = Tale {
            begun: false,
            token: None,
            second: false,
            write: Write::None,
            believed_until: NOW,
            stopped: false,
            dead: false,
            extended: false,
            sealed: false,
            released: None,
        };
        Self {
            sites: std::array::from_fn(|_| site.clone()),
            processes: [process.clone(), process],
            tales: [tale; 2],
            status: None,
            joins: setup.joins,
            crashes: setup.crashes,
            flaw: None,
        }
    }

    pub fn standing(&self, process: usize) -> &Standing {
        &self.processes[process].lease.view().standing
    }

    /// The term that the attempt became.
    pub fn term(&self, index: usize) -> Option<TermId> {
        let token = self.tales[index].token?;
        Some(TermId { attempt: attempt(index), token, holder: holder(index) })
    }

    /// Runs one script on one node.
    pub fn execute(&mut self, setup: &Setup, node: usize, op: &Op, deadline: Time) -> Vote {
        let lease = index(op.attempt());
        let call = Call { keys: setup.keys[lease].to_vec(), marker: marker(), deadline: deadline.0, op: op.clone() };
        self.sites[node].update(|site| site.server.vote(NOW.0, &call))
    }

    /// The rounds of one process were numbered again: requests that nobody listens to become ghosts.
    pub fn renumber(&mut self, setup: &Setup, process: usize, rounds: &Renumbering) {
        for site in &mut self.sites {
            let stays = |request: &Request| {
                request.process != process || rounds.of(request.round) == Some(request.round)
            };
            if site.wire.iter().all(stays) {
                continue;
            }
            site.update(|site| {
                for mut request in std::mem::take(&mut site.wire) {
                    if request.process != process {
                        site.wire.push(request);
                    } else if let Some(round) = rounds.of(request.round) {
                        request.round = round;
                        site.wire.push(request);
                    } else {
                        site.lose(setup, &request);
                    }
                }
                site.tidy(setup);
            });
        }
    }

    /// Nodes in an order that does not depend on their names.
    pub fn sort_nodes(&mut self) {
        let key = |node: usize| {
            let mut hasher = Mixer::default();
            self.sites[node].hash(&mut hasher);
            for process in &self.processes {
                process.lease.hash_node(Node(u8::try_from(node).unwrap()), &mut hasher);
            }
            hasher.finish()
        };
        let keys: [u64; NODES] = std::array::from_fn(key);
        if keys.is_sorted() {
            return;
        }
        let mut order: [usize; NODES] = std::array::from_fn(|node| node);
        order.sort_by_key(|&node| keys[node]);
        self.sites = order.map(|node| self.sites[node].clone());
        let order = order.map(|node| Node(u8::try_from(node).unwrap()));
        for process in &mut self.processes {
            process.lease.update(|lease| lease.permute(&order));
        }
    }
}

impl Site {
    /// The answer to the request will not be heard; the request may still be executed.
    ///
    /// Extensions, seals and releases are about in any case, and a confirm has left its ghost when it was sent.
    pub fn lose(&mut self, setup: &Setup, request: &Request) {
        if let Op::Acquire { attempt, .. } = request.op
            && !request.done
        {
            let deadline = if setup.late_guard { request.give_up_at } else { Time(u64::MAX) };
            self.ghosts.push(Ghost::Acquire(attempt, deadline));
        }
    }

    /// Drops what can have no effect any more, and orders the rest.
    pub fn tidy(&mut self, setup: &Setup) {
        self.server.purge(NOW.0);
        let grants_differ = setup.mutant != Some(Mutant::NoGrantNumber);
        let server = &self.server;
        self.ghosts.retain(|ghost| match ghost {
            Ghost::Acquire(_, deadline) => NOW <= *deadline,
            // A node grants no number twice.
            Ghost::Confirm(attempt, grant, _) => {
                let granted = |value: &redislease_core::op::Stored| {
                    value.attempt == *attempt
                        && value.stage == redislease_core::op::Stage::Pending
                        && (value.number == grant.0)
                };
                !grants_differ || server.keys.values().any(|entry| granted(&entry.value))
            }
        });
        self.ghosts.sort_unstable();
        self.ghosts.dedup_by(|a, b| a == b && matches!(a, Ghost::Confirm(..)));
        self.wire.sort_by_key(|request| (request.process, request.round));
    }
}
