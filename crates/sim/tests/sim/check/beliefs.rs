//! The invariants of each machine of the core, and which terms a process treats as held.

use redislease_core::invariants;
use redislease_core::lease::{Effect, EndReason, Standing, TermId, View};
use redislease_core::op::{Op, Stage, Stored};
use redislease_core::time::Time;

use crate::api::objects::pod_of;
use crate::check::checker::{KEYS, LOCK_HOLDER, Live};
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::operator::engine::lease_of;
use crate::operator::leader::LOCK;
use crate::redis::clock::Micros;
use crate::redis::server::Server;
use crate::world::World;

impl World {
    /// After each input: checks the shared invariants, and that no term is held after its deadline.
    pub fn check_machine(&mut self, process: usize, serial: u64, now: Time) {
        let Some(machine) = self.machine(process, serial) else { return };
        let uid = machine.uid;
        let late = machine.stop_at().filter(|&stop_at| now >= stop_at);
        let broken = invariants::lease(&machine.lease).err();
        if let Some(violation) = broken {
            self.check.fail(format!("{violation} (lease {uid} of process {process})"));
        }
        if let Some(stop_at) = late {
            let text =
                format!("process {process} treats a term as held at {} although it ends at {}", now.0, stop_at.0);
            self.check.fail(text);
        }
    }

    /// I5: the view shows the end of a term before the machine sends a request because of it.
    pub fn shown_first(&mut self, process: usize, serial: u64, effect: &Effect) {
        let Some(machine) = self.machine(process, serial) else { return };
        let Some(attempt) = machine.unshown.ended else { return };
        match effect {
            Effect::Changed(_) => machine.unshown.ended = None,
            Effect::Send { .. } => self.check.fail(format!("I5: the end of {attempt:?} is shown after {effect:?}")),
            _ => {}
        }
    }

    pub fn before_sending(&mut self, process: usize, serial: u64, op: &Op) {
        let Some(machine) = self.machine(process, serial) else { return };
        let acquiring = matches!(machine.lease.view().standing, Standing::Acquiring(..));
        match op {
            Op::Acquire { attempt, .. } if acquiring => {
                machine.confirming = false;
                if machine.began.replace(*attempt) != Some(*attempt) {
                    let (bits, uid) = (machine.bits(), machine.uid);
                    self.check.begins(bits, *attempt, lease_of(uid));
                }
            }
            Op::Confirm { .. } if acquiring => machine.confirming = true,
            Op::Extend { .. } => machine.renewing = true,
            _ => {}
        }
    }

    pub fn release_sent(&mut self, process: usize, serial: u64, on_the_wire: bool) {
        if let Some(machine) = self.machine(process, serial) {
            machine.releasing += u32::from(on_the_wire);
        }
    }

    /// A release was answered or timed out.
    pub fn release_answered(&mut self, process: usize, serial: u64) {
        if let Some(machine) = self.machine(process, serial) {
            machine.releasing = machine.releasing.saturating_sub(1);
        }
    }

    pub fn check_view(&mut self, process: usize, serial: u64, view: &View) {
        let Some(machine) = self.machine(process, serial) else { return };
        let (uid, bits, known) = (machine.uid, machine.bits(), machine.missed);
        if uid == LOCK && !matches!(view.standing, Standing::Held(_)) {
            self.check.leads_no_more(process);
        }
        let Some(ending) = &view.ending else {
            if view.refused_by.is_some() {
                self.coverage.saw(Sight::Refused);
            }
            return;
        };
        if ending.sealed {
            self.coverage.saw(Sight::SealEffective);
        }
        self.coverage.saw(match ending.reason {
            EndReason::Misses => Sight::LostByMisses,
            EndReason::Deadline => Sight::LostByDeadline,
            EndReason::NeverConfirmed => Sight::AdoptionNeverConfirmed,
            EndReason::Superseded => Sight::Superseded,
            EndReason::Decided => Sight::EndDecided,
        });
        let lost = matches!(ending.reason, EndReason::Misses | EndReason::Deadline | EndReason::NeverConfirmed);
        if lost && uid != LOCK && self.swarm.programs == 0 && self.lost.insert((process, ending.id.attempt)) {
            self.loss_is_due(process, serial, uid, ending.id.attempt);
        }
        if ending.reason == EndReason::Misses && known != Some(ending.id.attempt) {
            let id = ending.id.clone();
            machine_missed(self, process, serial, &id);
            self.must_be_gone(bits, &id);
        }
    }

    /// A term was dropped because nodes answered that they do not hold it. An unknown vote is no such answer.
    fn must_be_gone(&mut self, keys: u16, id: &TermId) {
        let now = self.now;
        let holds = |server: &&Server| {
            let value = |key: u8| server.node.entry(&key, server.clock.millis(now)).map(|entry| &entry.value);
            let exact =
                |value: &Stored| (value.stage, value.attempt, value.number) == (Stage::Term, id.attempt, id.token.0);
            (0..KEYS as u8).filter(|key| keys & 1 << key != 0).all(|key| value(key).is_some_and(exact))
        };
        let holding = self.servers.iter().filter(|server| server.up).filter(holds).count();
        if keys != 0 && holding >= self.swarm.quorum.majority() {
            self.check
                .fail(format!("unknown was taken for no: {id:?} was given up as gone, and {holding} nodes hold it"));
        }
    }

    /// Reports to the checker until when this process treats the term as held, by its own clock.
    pub fn claim(&mut self, process: usize, serial: u64) {
        if self.swarm.programs > 0 {
            return self.claim_of_program(process, serial);
        }
        let Some(machine) = self.machine(process, serial) else { return };
        if !std::mem::take(&mut machine.changed) {
            return;
        }
        let (uid, place, keys) = (machine.uid, machine.place, machine.bits());
        let Standing::Held(term) = &machine.lease.view().standing else { return };
        let (Some(valid_until), id) = (term.valid_until, term.id.clone()) else { return };
        let t0 = valid_until - machine.lease.config().drift.least(machine.lease.config().ttl);
        let until = self.belief_ends(process, t0, valid_until);
        if uid == LOCK {
            return self.claim_lock(process, keys, &id, valid_until.0, until);
        }
        if self.check.published_only {
            self.check.completes(keys, &id);
        }
        let cluster = self.processes[process].cluster;
        let known = self.check.last.get(&(cluster, place)).map(|last| last.attempt);
        if known.is_some_and(|attempt| attempt != id.attempt) {
            self.coverage.saw(Sight::ReElection);
        }
        self.note(Note::Claim { process, attempt: id.attempt.0, token: id.token.0, until });
        let (pod, valid_until) = (pod_of(&id), valid_until.0);
        self.running.term_held(cluster, pod);
        let claim =
            Live { process, keys, attempt: id.attempt, token: id.token, pod, from: self.now, until, valid_until };
        self.check.claims(self.now, (cluster, place), claim);
    }
}

impl World {
    /// A replica leads for as long as its lock is valid.
    fn claim_lock(&mut self, process: usize, keys: u16, id: &TermId, valid_until: u64, until: Micros) {
        let claim = Live {
            process,
            keys,
            attempt: id.attempt,
            token: id.token,
            pod: LOCK_HOLDER,
            from: self.now,
            until,
            valid_until,
        };
        self.check.leads(self.now, claim);
    }
}

fn machine_missed(world: &mut World, process: usize, serial: u64, id: &TermId) {
    if let Some(machine) = world.machine(process, serial) {
        machine.missed = Some(id.attempt);
    }
}
