//! One Redis master: the reference node with a clock of its own, and its restarts.

use std::collections::VecDeque;

use redislease_core::admission;
use redislease_core::check::reference::{Node, marker_reply};
use redislease_core::marker::RunId;
use redislease_core::wire::replies::Value;

use crate::redis::clock::{Clock, MILLI, Micros};
use crate::redis::link::{Call, Delivery};

/// How many snapshots are kept for restarts.
const SNAPSHOTS: usize = 8;

/// An answer of a server.
#[derive(Clone, Debug)]
pub enum Answer {
    Info(RunId),
    /// The reply of a script.
    Reply(Value),
    Loaded,
    /// It does not have the scripts, and executed nothing.
    NoScript,
}

/// The data of a server after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Everything.
    Full,
    /// Some snapshot, up to eight seconds old.
    Older,
    /// The newest snapshot: a replica that was promoted.
    Latest,
    /// Nothing.
    Empty,
}

pub struct Server {
    pub node: Node<u8>,
    pub clock: Clock,
    /// Counts the starts. A connection belongs to one start.
    pub incarnation: u32,
    pub up: bool,
    pub stalled: bool,
    /// Whether it has the scripts.
    pub has_scripts: bool,
    pub backlog: VecDeque<Delivery>,
    snapshots: VecDeque<Node<u8>>,
    number: usize,
}

impl Server {
    pub fn new(number: usize, clock: Clock) -> Self {
        let node = Node::new(run_id(number, 0));
        Self {
            node,
            clock,
            incarnation: 0,
            up: true,
            stalled: false,
            has_scripts: false,
            backlog: VecDeque::new(),
            snapshots: VecDeque::new(),
            number,
        }
    }

    /// Saves a state that a later restart may restore.
    pub fn snapshot(&mut self) {
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.pop_back();
        }
        self.snapshots.push_front(self.node.clone());
    }

    /// Stops the server and breaks every connection.
    pub fn stop(&mut self) {
        self.up = false;
        self.stalled = false;
        self.backlog.clear();
        self.incarnation += 1;
    }

    /// Starts it with a new run id; `word` chooses the snapshot. Returns whether it lost lock keys, its counter or its marker.
    pub fn start(&mut self, memory: Memory, word: usize) -> bool {
        let mutant = self.node.mutant;
        let old = match memory {
            Memory::Full => Some(self.node.clone()),
            Memory::Latest => self.snapshots.front().cloned(),
            Memory::Older if self.snapshots.is_empty() => None,
            Memory::Older => self.snapshots.get(word % self.snapshots.len()).cloned(),
            Memory::Empty => None,
        };
        let before = std::mem::replace(&mut self.node, old.unwrap_or_else(|| Node::new(run_id(self.number, 0))));
        let lost =
            (&before.keys, before.fence, &before.marker) != (&self.node.keys, self.node.fence, &self.node.marker);
        self.node.run_id = run_id(self.number, self.incarnation);
        self.node.mutant = mutant;
        self.up = true;
        self.has_scripts = false;
        lost
    }

    /// DEL of the counter. Returns whether there was one.
    pub const fn lose_fence(&mut self) -> bool {
        self.node.fence.take().is_some()
    }

    /// FLUSHALL: the run id stays. Returns whether there was data to delete.
    pub fn flush(&mut self) -> bool {
        let mutant = self.node.mutant;
        let empty = Node::new(self.node.run_id.clone());
        let before = std::mem::replace(&mut self.node, empty);
        self.node.mutant = mutant;
        !before.keys.is_empty() || before.marker.is_some()
    }

    pub fn run(&mut self, now: Micros, call: &Call, nonce: u128) -> Answer {
        if call.needs_scripts() && !self.has_scripts {
            return Answer::NoScript;
        }
        let micros = self.clock.micros(now);
        Answer::Reply(match call {
            Call::Info => {
                self.has_scripts = true;
                return Answer::Info(self.node.run_id.clone());
            }
            Call::Load => {
                self.has_scripts = true;
                return Answer::Loaded;
            }
            Call::Batch(batch) => {
                if self.node.keys.len() > 8 {
                    self.node.purge(micros / MILLI);
                }
                self.node.run(micros, &batch.requests, batch.terms.as_ref())
            }
            Call::Admission(admission::Call::Observe { run_id, stepped }) => {
                marker_reply(micros, Some(&self.node.observe(run_id, nonce, stepped.as_ref())))
            }
            Call::Admission(admission::Call::Admit { ticket, marker, seed }) => {
                marker_reply(micros, self.node.admit(ticket, marker, *seed).as_ref())
            }
            Call::Fence(expected) => self.node.fence(micros, expected),
        })
    }
}

fn run_id(number: usize, incarnation: u32) -> RunId {
    format!("{number}r{incarnation}").into()
}
