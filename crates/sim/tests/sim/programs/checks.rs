//! What must hold for the locks of programs, in true time.

use redislease_core::lease::TermId;
use redislease_core::lock::Lost;
use redislease_core::op::{Holder, Stage};
use redislease_core::time::Time;

use super::Step;
use crate::api::objects::{KEYS, Keys};
use crate::chaos::fault::Fault;
use crate::check::checker::Live;
use crate::check::state::Kept;
use crate::check::trace::Note;
use crate::event::Event;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

impl World {
    /// How long after its wait a request may be without an answer: the last attempt takes two rounds and the releases of the one
    /// before, and a request without a report is repeated after a second.
    pub(super) fn answer_within(&self) -> Micros {
        4 * self.swarm.command_timeout.0 * MILLI + 3 * SECOND
    }

    /// The program holds its lock until the end of its validity, its stop budget included. Nobody else may hold it then.
    pub fn claim_of_program(&mut self, process: usize, serial: u64) {
        let now = Time(self.local(process));
        let Some(worker) = self.worker(process, serial) else { return };
        let (Some(taken), keys) = (worker.taken, worker.keys) else { return };
        let held = worker.lock.check(now).ok().filter(|term| term.id.attempt == taken.attempt);
        let Some((id, valid_until)) = held.and_then(|term| Some((term.id.clone(), term.valid_until?))) else {
            // Until the keys end, the work may still stop: nobody else may hold the lock.
            let works = worker.work_goes_on || !worker.lock.is_over();
            if !works || !matches!(worker.lock.check(now), Err(Lost::Expired | Lost::MaxHold)) {
                self.stops_believing(process, serial);
            }
            return;
        };
        let t0 = valid_until - worker.config.drift.least(worker.config.ttl);
        // The slot and its generation.
        let pod = (serial >> 32) as u32 * 1_000_000 + serial as u32;
        let until = self.belief_ends(process, t0, valid_until);
        self.note(Note::Claim { process, attempt: id.attempt.0, token: id.token.0, until });
        let (from, valid_until) = (self.now, valid_until.0);
        let claim = Live { process, keys, attempt: id.attempt, token: id.token, pod, from, until, valid_until };
        self.check.claims(from, (process, serial as usize), claim);
    }

    /// The program knows that it does not hold the lock.
    pub(super) fn stops_believing(&mut self, process: usize, serial: u64) {
        let attempt = self.worker(process, serial).and_then(|worker| worker.taken).map(|taken| taken.attempt);
        self.check.live.retain(|live| Some(live.attempt) != attempt);
    }

    /// The program checks its lock and writes.
    pub(super) fn write(&mut self, process: usize, serial: u64) {
        let (now, local) = (self.now, self.local(process));
        let Some(worker) = self.worker(process, serial).filter(|worker| !worker.lock.is_over()) else { return };
        let (Some(taken), keys, ttl) = (worker.taken, worker.keys, worker.config.ttl.0) else { return };
        let knew = worker.knows_loss;
        let longest = worker.lock.request().max_hold;
        let valid = worker.lock.check(Time(local)).is_ok();
        worker.knows_loss |= !valid;
        if valid {
            self.sees("writes");
            if knew {
                return self.check.fail(format!("{:?} was lost, and is valid again", taken.attempt));
            }
            if longest.is_some_and(|longest| local >= taken.local + longest.0) {
                return self.check.fail(format!("{:?} is held for longer than {longest:?}", taken.attempt));
            }
            let others = |live: &&Live| live.keys & keys != 0 && live.attempt != taken.attempt && now < live.until;
            let other = self.check.live.iter().find(others).map(|live| live.attempt);
            // No lock protects from a process whose clock stood still.
            let stood_still = self.processes[process].history.losses.iter().any(|(at, _)| at.0 >= taken.local);
            if let Some(other) = other.filter(|_| !stood_still) {
                return self.check.fail(format!("{:?} writes while {other:?} holds the lock", taken.attempt));
            }
        } else if !knew {
            self.sees("losses");
            // The program stops some time later.
            let delay = self.rng.pick(&[1, 1000, ttl]) * MILLI;
            self.program_after(process, delay, Step::LetGo(serial));
        }
        let delay = self.rng.between(MILLI, ttl * MILLI / 4);
        self.program_after(process, delay, Step::Write(serial));
    }

    /// A request has an answer soon after its wait.
    pub(super) fn must_be_answered(&mut self, process: usize, serial: u64) {
        let (now, local, within) = (self.now, self.local(process), self.answer_within());
        let Some(worker) = self.worker(process, serial) else { return };
        if worker.taken.is_some() || worker.lock.is_over() || worker.lock.won(Time(local)).is_some() {
            return;
        }
        let (asked_at, wait) = (worker.asked_at, worker.lock.request().wait.0);
        let paused = self.processes[process].history.continued_at >= asked_at;
        if !paused && now >= asked_at + wait * MILLI * 101 / 100 + within {
            return self.check.fail(format!("a request of program {process} waits for longer than {wait} ms"));
        }
        self.program_after(process, SECOND, Step::Overdue(serial));
    }

    /// After a program let go, or cancelled its request, its term exists for no longer than the TTL.
    pub fn nothing_is_left_of(&mut self, process: usize, holder: Holder, since: Micros, life: Micros) {
        let continued_at = self.processes[process].history.continued_at.max(since);
        let is_paused = self.processes[process].life == crate::operator::state::Life::Frozen;
        if continued_at > since || is_paused {
            // A process that was paused lets go when it continues.
            let since = if is_paused { self.now } else { continued_at };
            let at = (since + life).max(self.now + 1);
            return self.at(at, Event::Left { process, holder, since, life });
        }
        let left = self.servers.iter().enumerate().filter(|(_, server)| server.up).find_map(|(node, server)| {
            let millis = server.clock.millis(self.now);
            let entries = (0..KEYS as u8).filter_map(|key| server.node.entry(&key, millis));
            let mut terms = entries.filter(|entry| entry.value.stage == Stage::Term);
            terms.find(|entry| *entry.value.metadata == *holder.0).map(|entry| (node, entry.value.to_string()))
        });
        if let Some((node, value)) = left {
            self.check.fail(format!("node {node} still has {value}, which was let go {life} µs before"));
        }
    }

    /// At the end, when no program asks for a lock.
    pub(super) fn no_key_is_left(&mut self) {
        for (node, server) in self.servers.iter().enumerate() {
            let millis = server.clock.millis(self.now);
            let left = (0..KEYS as u8).find_map(|key| server.node.entry(&key, millis));
            if let Some(left) = left {
                let text = format!("node {node} still has {}, and no program has a lock", left.value);
                return self.check.fail(text);
            }
        }
    }

    /// A majority has answered the release of a lock that must be held for a least time.
    pub(super) fn must_be_kept(&mut self, process: usize, serial: u64) {
        // A clock that is set may end keys early.
        let steps = self.swarm.has(Fault::Step) || self.swarm.has(Fault::SmallStep);
        let Some(worker) = self.worker(process, serial) else { return };
        let least = worker.lock.request().hold_at_least.0;
        let (Some(taken), keys, ttl) = (worker.taken, worker.keys, worker.config.ttl.0) else { return };
        // If its clock stood still since the grant, the keys end earlier than the program can know.
        let stood_still = self.processes[process].history.losses.iter().any(|(at, _)| at.0 + ttl >= taken.local);
        let until = (taken.at + least * MILLI * 985 / 1000).saturating_sub(20 * MILLI);
        if least > 0 && !steps && !stood_still && self.now < until {
            self.sees("released early and kept");
            self.programs.kept.push(Kept { keys, attempt: taken.attempt, until });
        }
    }

    pub fn program_completes(&mut self, keys: Keys, id: &TermId) {
        let now = self.now;
        self.programs.kept.retain(|kept| now < kept.until);
        if let Some(kept) = self.programs.kept.iter().find(|kept| kept.keys & keys != 0 && kept.attempt != id.attempt) {
            let text =
                format!("{:?} is held {} µs before {:?} may be followed", id.attempt, kept.until - now, kept.attempt);
            self.check.fail(text);
        }
    }

    /// Without faults, the next waiting task has the lock soon after a release. Returns whether this is the contest.
    pub(super) fn next_in_contest(&mut self, process: usize, task: u32) -> bool {
        let now = self.now;
        let Some(waiting) = &mut self.programs.contest else { return false };
        waiting.retain(|other| *other != (process, task));
        let took = self.programs.released_at.map(|released| now - released);
        // With several waiting tasks a few attempts collide.
        if let Some(took) = took.filter(|took| *took > 3 * SECOND) {
            self.check.fail(format!("after a release the next task has the lock {took} µs later"));
        }
        true
    }
}
