//! Three nodes, two processes, two attempts, one status: the state, and what may be chosen about it.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::check::Mutant;
use redislease_core::check::reference::{Call, Node as Server};
use redislease_core::invariants::Violation;
use redislease_core::lease::{Config, Lease, OnDeadline, Standing, TermId};
use redislease_core::marker::{Marker, Membership};
use redislease_core::op::{Attempt, Holder, Op, Stages, Token};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis, Time};

use crate::interned::{Interned, Mixer};
use crate::machine::{Stimulus, react};
use crate::site::Site;
use std::fmt;
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
    /// The second attempt is made at all.
    pub rival: bool,
    /// It is made only when the first has succeeded.
    pub in_turn: bool,
    /// So many grants by joins; after that every join fails.
    pub joins: u8,
    /// Processes without a term may adopt the one that the status names.
    pub adopt: bool,
    /// So many crashes: the machine is lost, its requests and its status write may still happen.
    pub crashes: u8,
    /// The term is ended by decision: sealed, and released on the holder's word once the seal is effective.
    pub end: Option<usize>,
    /// The holder may be proven dead: released at once.
    pub death: bool,
    /// The first process may take B as well, after A.
    pub relay: bool,
    /// Status writes may stay without an answer.
    pub unanswered: bool,
    /// An acquire may be executed and its answer lost.
    pub lossy: bool,
    /// Requests may fail at once instead of at their deadline.
    pub broken: bool,
    /// The deadline inside the scripts holds: a late acquire does nothing.
    pub late_guard: bool,
    /// Each key may vanish at any time: tokens must grow even where clocks step. Exclusion is not promised then.
    pub vanish: bool,
    /// How tokens come about, and no more: no time passes, and a process is gone as soon as its term is complete.
    pub tokens_only: bool,
    /// Where the counters of the nodes stand at the beginning, in each of these ways.
    pub fences: &'static [[u64; NODES]],
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
            deadline: OnDeadline::Seal,
        }
    }

    pub fn machine(&self) -> Lease {
        Lease::new(self.config()).with_mutant(self.mutant)
    }

    /// The call of one script, which has no effect after `deadline`.
    pub fn call(&self, op: Op, deadline: Time) -> Call<u8> {
        Call { keys: self.keys[index(op.attempt())].to_vec(), marker: marker(), deadline: deadline.0, op }
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

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct Process {
    pub lease: Interned<Lease>,
    /// The running round of extension began after another term with a greater token had completed.
    pub across: bool,
    /// It began after a seal of the term was effective.
    pub barred: bool,
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
    /// A seal of it was effective.
    pub barred: bool,
    /// Extensions, seals and releases of it are about: they may be executed at any time, and more than once.
    pub extended: bool,
    pub sealed: bool,
    pub released: Option<Stages>,
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    Invariant(Violation),
    /// A round that began after a term with a greater token had completed continued the earlier term.
    Bridged,
    /// A round that began after the term's seal was effective continued it.
    Unsealed,
    /// A release deleted what belongs to another attempt.
    Foreign,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invariant(violation) => violation.fmt(f),
            Self::Foreign => f.write_str("a release deleted what belongs to another attempt"),
            Self::Unsealed => f.write_str("a term is continued after its seal was effective"),
            Self::Bridged => f.write_str("a term is continued across a later one"),
        }
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct World {
    pub sites: [Interned<Site>; NODES],
    pub processes: [Process; 2],
    pub tales: [Tale; 2],
    pub status: Option<usize>,
    pub joins: u8,
    pub crashes: u8,
    /// A rule that was broken on the way here.
    pub flaw: Option<Flaw>,
}

impl World {
    pub fn new(setup: &Setup, fences: [u64; NODES]) -> Self {
        let mut server = Server::new("r".into());
        server.marker = Some(marker());
        server.mutant = setup.mutant;
        let lease = Interned::new(setup.machine());
        let process = Process { lease, across: false, barred: false, before_word: false };
        let tale = Tale {
            begun: false,
            token: None,
            second: false,
            write: Write::None,
            believed_until: NOW,
            stopped: false,
            dead: false,
            barred: false,
            extended: false,
            sealed: false,
            released: None,
        };
        Self {
            sites: fences.map(|fence| Interned::new(Site::new(Server { fence, ..server.clone() }))),
            processes: [process; 2],
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

    /// The call would join a node once more than this run explores.
    pub fn is_join_too_many(&self, call: &Call<u8>) -> bool {
        let join = matches!(call.op, Op::Acquire { .. }) && self.tales[index(call.op.attempt())].token.is_some();
        join && self.joins == 0
    }

    /// Nodes in an order that does not depend on their names.
    pub fn sort_nodes(&mut self) {
        let key = |node: usize| {
            let mut hasher = Mixer::default();
            self.sites[node].hash(&mut hasher);
            for process in &self.processes {
                hasher.write_u64(process.lease.by_node(node));
            }
            hasher.finish()
        };
        let keys: [u64; NODES] = std::array::from_fn(key);
        if keys.is_sorted() {
            return;
        }
        let mut order = [0, 1, 2];
        order.sort_by_key(|&node| keys[node]);
        self.sites = order.map(|node| self.sites[node]);
        let order = order.map(|node| u8::try_from(node).unwrap());
        for process in &mut self.processes {
            process.lease = react(process.lease, Stimulus::Permute(order)).lease;
        }
    }
}
