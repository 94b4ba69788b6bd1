//! What happened in a run: a hash over all of it, and the last events for whoever has to understand a failure.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use redislease_core::admission;
use redislease_core::lease::{Effect, Publication, Round};
use redislease_core::op::{Op, Vote};

use crate::api::{Patch, Verdict};
use crate::clock::Micros;
use crate::fault::Fault;

const KEPT: usize = 60;

/// One event of a run. Processes, nodes, resources and pods are named by their numbers.
#[derive(Clone, Debug, Hash)]
pub enum Note {
    Fault(Fault, usize, usize),
    Healed(&'static str, usize),
    Effect { process: usize, uid: u32, effect: Effect },
    Node { process: usize, node: usize, standing: admission::Standing },
    Ran { node: usize, process: usize, uid: u32, op: Op, vote: Vote, repeat: bool },
    Counted { process: usize, uid: u32, round: Round, node: u8, vote: Vote },
    Wrote { process: usize, uid: u32, patch: Patch, verdict: Verdict },
    Published { process: usize, uid: u32, outcome: Publication },
    Claim { process: usize, attempt: u128, token: u64, until: Micros },
    Pod(u32, &'static str),
    Quiet(u8),
}

pub struct Trace {
    hash: Fnv,
    last: VecDeque<(Micros, Note)>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: Fnv(0xcbf2_9ce4_8422_2325), last: VecDeque::with_capacity(KEPT) }
    }
}

impl Trace {
    pub fn note(&mut self, now: Micros, note: Note) {
        now.hash(&mut self.hash);
        note.hash(&mut self.hash);
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back((now, note));
    }

    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// The last events, one a line, with the true time in seconds.
    pub fn tail(&self) -> String {
        let line = |(at, note): &(Micros, Note)| format!("{:>12.6}  {note:?}\n", *at as f64 / 1e6);
        self.last.iter().map(line).collect()
    }
}

/// FNV-1a over eight bytes at a time: the same in every run and on every machine.
struct Fnv(u64);

impl Fnv {
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.word(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }
}
