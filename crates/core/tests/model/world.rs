//! Three nodes, two processes, two attempts, one status: what one run explores, and its states.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::check::reference::{Call, Node as Server};
use redislease_core::check::{Mixer, Mutant};
use redislease_core::invariants::Violation;
use redislease_core::lease::{Config, Lease, OnDeadline, Standing, TermId};
use redislease_core::marker::{Marker, Membership};
use redislease_core::op::{Attempt, Holder, Op, Stages, Token};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis, Time};

use crate::interned::Interned;
use crate::machine::{Stimulus, react};
use crate::node::{NOW, Node};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

pub const NODES: usize = 3;

/// What one run explores. There are two attempts, A and B, and two processes.
#[derive(Clone, Debug)]
pub struct Setup {
    pub name: &'static str,
    /// TTL of the keys in ticks, the same for both processes.
    pub ttl: u64,
    /// The first process gets this TTL at some time. 0 if it does not.
    pub new_ttl: u64,
    pub renew_interval: u64,
    pub command_timeout: u64,
    pub stop_budget: u64,
    /// The keys of A and of B.
    pub keys: [&'static [u8]; 2],
    /// Attempt B is made at all.
    pub contend: bool,
    /// B is made only after A has succeeded.
    pub in_turn: bool,
    /// Number of grants by joins. After that every join fails.
    pub joins: u8,
    /// How often a process is told that a node votes again.
    pub returns: u8,
    /// The second process may adopt the term that the status names.
    pub adopt: bool,
    /// Number of crashes of the first process. The machine is lost; its requests and its status write may still happen.
    pub crashes: u8,
    /// This process ends the term by decision: it seals it, and releases it on the holder's word once the seal is
    /// effective.
    pub end: Option<usize>,
    /// The holder may be proven dead. Then the term is released at once.
    pub death: bool,
    /// The first process may be told to forget the lease while its attempt or its publication is under way.
    pub forget: bool,
    /// The processes do not lead: at its deadline a term becomes unconfirmed.
    pub unconfirm: bool,
    /// The first process may make attempt B too, after A.
    pub one_process: bool,
    /// Status writes may stay without an answer.
    pub unanswered: bool,
    /// An acquire may be executed and its answer lost.
    pub lossy: bool,
    /// Requests may fail at once instead of at their deadline.
    pub broken: bool,
    /// The deadline in the scripts holds: a late acquire does nothing.
    pub late_guard: bool,
    /// Each key may vanish at any time: tokens must grow even where clocks step. Exclusion is not promised then.
    pub vanish: bool,
    /// Only tokens are explored: no time passes, and a process is gone as soon as its term is complete.
    pub tokens_only: bool,
    /// The counters of the nodes at the beginning: one initial state for each element.
    pub fences: &'static [[u64; NODES]],
    /// The token that each attempt proposes, whatever the counters are.
    pub proposals: [Option<Token>; 2],
    /// The highest token that a status shows from before the nodes lost their memory.
    pub history: u64,
    /// Only I1, I2 and the rules for the world are checked, and not those for a single machine.
    pub overlaps_only: bool,
    pub mutant: Option<Mutant>,
}

impl Setup {
    fn config(&self) -> Config {
        Config {
            quorum: Quorum::of(3).unwrap(),
            ttl: Millis(self.ttl),
            renew_interval: Millis(self.renew_interval),
            stop_budget: Millis(self.stop_budget),
            command_timeout: Millis(self.command_timeout),
            drift: Drift::NONE,
            backoff: Backoff { strategy: Strategy::Linear, min: Millis(1), max: Millis(1), limit: None, jitter: 0 },
            deadline: if self.unconfirm { OnDeadline::Unconfirm } else { OnDeadline::Seal },
        }
    }

    /// The configuration that the first process gets at some time.
    pub fn new_config(&self) -> Config {
        Config { ttl: Millis(self.new_ttl), ..self.config() }
    }

    /// The TTLs of extensions.
    pub const fn ttls(&self) -> [u64; 2] {
        [self.ttl, self.new_ttl]
    }

    /// A process that has just started.
    pub fn process(&self) -> Process {
        let lease = Interned::new(Lease::new(self.config()).with_mutant(self.mutant));
        Process { lease, across: false, after_seal: false, before_word: false, unconfirmed: false }
    }

    /// The call of one script, which has no effect after `deadline`.
    pub fn call(&self, op: Op, deadline: Time) -> Call<u8> {
        Call { keys: self.keys[index(op.attempt())].to_vec(), marker: MARKER.clone(), deadline: deadline.0, op }
    }
}

static MARKER: LazyLock<Marker> =
    LazyLock::new(|| Membership { generation: 1, fingerprint: "f".into() }.marker("r".into()));

static HOLDERS: LazyLock<[Holder; 2]> = LazyLock::new(|| ["x", "y"].map(|name| Holder(name.into())));

/// A and B.
pub const fn attempt(index: usize) -> Attempt {
    Attempt(index as u128 + 1)
}

pub fn index(attempt: Attempt) -> usize {
    usize::from(attempt.0 == 2)
}

pub fn holder(index: usize) -> Holder {
    HOLDERS[index].clone()
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct Process {
    pub lease: Interned<Lease>,
    /// The open round of extension began after another term with a greater token had completed.
    pub across: bool,
    /// The open round began after a seal of the term was effective.
    pub after_seal: bool,
    /// The open round began before the holder said that it stopped: it says nothing about the holder any more.
    pub before_word: bool,
    /// The term of the process became unconfirmed at a deadline.
    pub unconfirmed: bool,
}

/// The status write of one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Write {
    #[default]
    None,
    /// It was sent by this process, which waits for the answer.
    Sent(usize),
    /// No process waits for it, and it may still be carried out.
    Adrift,
    Done,
    Refused,
}

/// What is known of an attempt from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttemptFacts {
    pub begun: bool,
    /// It completed with this token.
    pub token: Option<Token>,
    /// The other attempt had completed before this one began.
    pub second: bool,
    pub write: Write,
    /// The last instant until which the holder was told that it holds.
    pub believed_until: Time,
    /// The holder said that it stopped.
    pub stopped: bool,
    pub dead: bool,
    /// A seal of it was effective.
    pub sealed_once: bool,
    /// Extensions with each of the TTLs, seals and releases were sent. They may be executed at any time, and more than
    /// once.
    pub extended: [bool; 2],
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
    /// A release deleted keys of another attempt.
    Foreign,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invariant(violation) => violation.fmt(f),
            Self::Foreign => f.write_str("a release deleted keys of another attempt"),
            Self::Unsealed => f.write_str("a term was extended after its seal was effective"),
            Self::Bridged => f.write_str("a term was extended after a later term had completed"),
        }
    }
}

/// One state.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct World {
    pub nodes: [Interned<Node>; NODES],
    pub processes: [Process; 2],
    pub attempts: [AttemptFacts; 2],
    /// The attempt that the status names.
    pub status: Option<usize>,
    pub joins: u8,
    pub returns: u8,
    pub crashes: u8,
    /// The first process has its new TTL.
    pub configured: bool,
    /// A rule that was broken on the way here.
    pub flaw: Option<Flaw>,
}

impl World {
    pub fn new(setup: &Setup, fences: [u64; NODES]) -> Self {
        let server = Server { marker: Some(MARKER.clone()), mutant: setup.mutant, ..Server::new("r".into()) };
        let process = setup.process();
        let facts = AttemptFacts { believed_until: NOW, ..AttemptFacts::default() };
        Self {
            nodes: fences.map(|fence| Interned::new(Node::new(Server { fence: Some(fence), ..server.clone() }))),
            processes: [process; 2],
            attempts: [facts; 2],
            status: None,
            joins: setup.joins,
            returns: setup.returns,
            crashes: setup.crashes,
            configured: false,
            flaw: None,
        }
    }

    pub fn standing(&self, process: usize) -> &Standing {
        &self.processes[process].lease.view().standing
    }

    /// The term of an attempt that completed.
    pub fn term(&self, index: usize) -> Option<TermId> {
        let token = self.attempts[index].token?;
        Some(TermId { attempt: attempt(index), token, holder: holder(index) })
    }

    /// The call would join a node, and this run explores no more joins.
    pub fn is_join_too_many(&self, call: &Call<u8>) -> bool {
        let join = matches!(call.op, Op::Acquire { .. }) && self.attempts[index(call.op.attempt())].token.is_some();
        join && self.joins == 0
    }

    /// Puts the nodes into an order that does not depend on their names.
    pub fn sort_nodes(&mut self) {
        let key = |node: usize| {
            let mut hasher = Mixer::default();
            self.nodes[node].hash(&mut hasher);
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
        self.nodes = order.map(|node| self.nodes[node]);
        let order = order.map(|node| u8::try_from(node).unwrap());
        for process in &mut self.processes {
            process.lease = react(process.lease, Stimulus::Permute(order)).lease;
        }
    }
}
