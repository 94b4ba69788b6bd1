//! The events of a run: a hash of all, and the last ones as text for a failure.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use redislease_core::admission;
use redislease_core::lease::{Effect, Round};
use redislease_core::op::{Attempt, Op, Vote};
use redislease_plan::api::names::PodRole;
use redislease_plan::plan::calls::Request;
use redislease_plan::plan::{Authority, Command, Effect as Planned, Measure, Priority};
use redislease_plan::status::{NoticeReason, TermEnd};

use crate::api::objects;
use crate::api::server::Verdict;
use crate::chaos::fault::Fault;
use crate::event::Stage;
use crate::redis::clock::Micros;

/// How many of the last events a failure shows.
pub const KEPT: usize = 80;

/// One event of a run. Processes, nodes, leases and pods are named by their numbers.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Note<'a> {
    Fault(Fault, usize, usize),
    Healed(&'static str, usize),
    Effect { process: usize, uid: u32, effect: &'a Effect },
    Planned { process: usize, uid: u32, effect: &'a Brief },
    Node { process: usize, node: usize, standing: &'a admission::Standing },
    Ran { node: usize, process: usize, op: &'a Op, vote: &'a Vote, repeat: bool },
    Counted { process: usize, uid: u32, round: Round, node: u8, vote: &'a Vote },
    WroteStatus { process: usize, uid: u32, priority: Priority, verdict: Verdict, named: Option<Attempt> },
    WroteRole { process: usize, pod: u32, role: Option<PodRole>, verdict: Verdict },
    Claim { process: usize, attempt: u128, token: u64, until: Micros },
    Authority { process: usize, authority: Authority },
    Pod(u32, &'static str),
    Lease(u32, &'static str),
    Stage(Stage),
}

/// The relevant part of an effect of a reconciler.
#[derive(Clone, Debug, Hash)]
pub enum Brief {
    Open,
    Want(u32),
    Adopt(Attempt, &'static str),
    End(Attempt, bool),
    Command(&'static str),
    WriteStatus(Priority, Option<String>, Option<String>),
    WithdrawStatus,
    WriteRole(u32, Option<PodRole>, Option<String>),
    WithdrawRole(u32),
    Read(String),
    Probe,
    Report(NoticeReason),
    Ended(TermEnd),
    Other,
}

impl Brief {
    pub fn of(effect: &Planned) -> Self {
        match effect {
            Planned::Open { .. } => Self::Open,
            Planned::Keeper(command) => Self::of_command(command),
            Planned::RaiseFloor(_) => Self::Command("raise floor"),
            Planned::WithdrawStatus => Self::WithdrawStatus,
            Planned::WithdrawRole { uid } => Self::WithdrawRole(objects::number(uid)),
            Planned::Probe => Self::Probe,
            Planned::Report(notice) => Self::Report(notice.reason),
            Planned::Measure(Measure::Ended(end)) => Self::Ended(*end),
            _ => Self::Other,
        }
    }

    pub fn of_call(request: &Request) -> Self {
        match request {
            Request::LeaseStatus { write, .. } => {
                let active = write.status.conditions.iter().find(|one| one.type_ == "Active");
                let active = active.map(|one| format!("{}/{}", one.status, one.reason));
                Self::WriteStatus(write.priority, write.status.attempt.clone(), active)
            }
            Request::Role { write, .. } => {
                Self::WriteRole(objects::number(&write.uid), write.role, write.token.clone())
            }
            request => Self::Read(request.to_string()),
        }
    }

    fn of_command(command: &Command) -> Self {
        match command {
            Command::Want(holder) => Self::Want(objects::number(&holder.0)),
            Command::Adopt(term) => Self::Adopt(term.attempt, ""),
            Command::AdoptOverrun(term) => Self::Adopt(term.attempt, "overrun"),
            Command::End { term, proof } => Self::End(term.attempt, *proof),
            Command::Forget => Self::Command("forget"),
            Command::UnconfirmedShown(_) => Self::Command("unconfirmed shown"),
            Command::KeptElsewhere(_) => Self::Command("kept elsewhere"),
            Command::Published { .. } => Self::Command("published"),
            Command::TryNow => Self::Command("try now"),
            Command::ReadKeys => Self::Command("read keys"),
            Command::Configure(_) => Self::Command("configure"),
            Command::Retire => Self::Command("retire"),
            Command::Close => Self::Command("close"),
            Command::Prove | Command::KeepKeysFor(_) | Command::Release { .. } => Self::Other,
        }
    }
}

/// The hash of all events, and the last of them as text if they are recorded.
pub struct Trace {
    hash: Fnv,
    last: VecDeque<String>,
    /// How many events are recorded.
    kept: usize,
}

impl Trace {
    pub fn new(kept: usize) -> Self {
        Self { hash: Fnv(0xcbf2_9ce4_8422_2325), last: VecDeque::with_capacity(kept), kept }
    }

    pub fn note(&mut self, now: Micros, note: Note<'_>) {
        now.hash(&mut self.hash);
        note.hash(&mut self.hash);
        if self.kept > 0 {
            if self.last.len() == self.kept {
                self.last.pop_front();
            }
            self.last.push_back(format!("{:>12.6}  {note:?}\n", now as f64 / 1e6));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }

    /// The last events, one a line, with the true time in seconds.
    pub fn last_events(&self) -> String {
        self.last.iter().map(String::as_str).collect()
    }
}

/// FNV-1a over eight bytes at a time: the same in every run.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }
}
