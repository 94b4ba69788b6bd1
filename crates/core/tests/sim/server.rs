//! One Redis master: the reference node with a clock, and what can befall it.

use std::collections::VecDeque;

use redislease_core::check::reference::{Call, Node};
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Token, Vote};

use crate::clock::{Clock, Micros};
use crate::net::Request;

/// What a server answers; every answer also carries TIME.
#[derive(Clone, Debug)]
pub enum Answer {
    Info(RunId),
    Marker(Option<Marker>),
    Fence {
        marker: Option<Marker>,
        fence: Token,
    },
    /// The flag says that the marker was another one.
    Vote(Vote, bool),
}

/// What a server knows after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Full,
    Older,
    Latest,
    Empty,
}

pub struct Server {
    pub node: Node<u8>,
    pub clock: Clock,
    /// Counts the starts: a connection belongs to one.
    pub incarnation: u32,
    pub up: bool,
    pub stalled: bool,
    pub backlog: VecDeque<crate::world::Delivery>,
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
            backlog: VecDeque::new(),
            snapshots: VecDeque::new(),
            number,
        }
    }

    /// What a later restart may go back to.
    pub fn snapshot(&mut self) {
        if self.snapshots.len() == 8 {
            self.snapshots.pop_back();
        }
        self.snapshots.push_front(self.node.clone());
    }

    /// The server is gone, and every connection with it.
    pub fn stop(&mut self) {
        self.up = false;
        self.stalled = false;
        self.backlog.clear();
        self.incarnation += 1;
    }

    /// It starts under a new run id. `word` chooses the snapshot.
    pub fn start(&mut self, memory: Memory, word: usize) {
        let mutant = self.node.mutant;
        let old = match memory {
            Memory::Full => Some(self.node.clone()),
            Memory::Latest => self.snapshots.front().cloned(),
            Memory::Older if self.snapshots.is_empty() => None,
            Memory::Older => self.snapshots.get(word % self.snapshots.len()).cloned(),
            Memory::Empty => None,
        };
        self.node = old.unwrap_or_else(|| Node::new(self.node.run_id.clone()));
        self.node.run_id = run_id(self.number, self.incarnation);
        self.node.mutant = mutant;
        self.up = true;
    }

    /// FLUSHALL: the run id stays.
    pub fn flush(&mut self) {
        let mutant = self.node.mutant;
        self.node = Node::new(self.node.run_id.clone());
        self.node.mutant = mutant;
    }

    pub fn run(&mut self, now: Micros, request: &Request) -> Answer {
        match request {
            Request::Info => Answer::Info(self.node.run_id.clone()),
            Request::Observe { run_id, nonce, stepped } => {
                Answer::Marker(Some(self.node.observe(run_id, *nonce, stepped.as_ref())))
            }
            Request::Admit { ticket, marker, seed } => Answer::Marker(self.node.admit(ticket, marker, *seed)),
            Request::Fence => Answer::Fence { marker: self.node.marker.clone(), fence: Token(self.node.fence) },
            Request::Vote { call, .. } => {
                let foreign = self.node.marker.as_ref() != Some(&call.marker);
                let vote = self.vote(now, call);
                Answer::Vote(vote, foreign)
            }
        }
    }

    fn vote(&mut self, now: Micros, call: &Call<u8>) -> Vote {
        let millis = self.clock.millis(now);
        if self.node.keys.len() > 8 {
            self.node.purge(millis);
        }
        self.node.vote(millis, call)
    }
}

fn run_id(number: usize, incarnation: u32) -> RunId {
    format!("{number}r{incarnation}").into()
}
