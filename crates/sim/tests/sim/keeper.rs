//! Feeds the lease machines of a process and carries out their effects, each of which may be its last.

use redislease_core::invariants;
use redislease_core::lease::{Effect, EndReason, Input, Lease, Round, Standing, TermId, View};
use redislease_core::op::{Attempt, Op, Stage, Stored, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Time;

use crate::check::Live;
use crate::coverage::Sight;
use crate::fault::{Fault, Phase};
use crate::nemesis::Spot;
use crate::policy::Memory;
use crate::process::Life;
use crate::server::Server;
use crate::trace::Note;
use crate::world::World;

/// One lease of one process.
pub struct Owner {
    pub uid: u32,
    pub resource: usize,
    pub lease: Lease,
    pub memory: Memory,
    /// Polled when the process was stopped; it is carried out when it goes on.
    held_back: Option<Effect>,
    dirty: bool,
    telling: Telling,
    began: Option<Attempt>,
    confirming: bool,
    renewing: bool,
    releasing: u32,
    /// The last term that was given up as gone.
    missed: Option<Attempt>,
}

/// What is owed to those who watch.
#[derive(Default)]
struct Telling {
    /// Effects of an earlier step wait to be carried out.
    behind: bool,
    /// The term that is not believed in any more, until that is shown.
    owed: Option<Attempt>,
}

/// The pod that a holder text names.
pub fn pod_of(id: &TermId) -> u32 {
    id.holder.0.trim_start_matches("pod-").parse().unwrap_or(0)
}

impl Owner {
    pub fn new(uid: u32, resource: usize, lease: Lease) -> Self {
        Self {
            uid,
            resource,
            lease,
            memory: Memory::default(),
            held_back: None,
            dirty: true,
            telling: Telling::default(),
            began: None,
            confirming: false,
            renewing: false,
            releasing: 0,
            missed: None,
        }
    }

    /// What it is doing, for the table of faults.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let main = match self.lease.view().standing {
            Standing::Acquiring(..) if self.confirming => Some(Phase::Round2),
            Standing::Acquiring(..) => Some(Phase::Round1),
            Standing::Publishing(_) => Some(Phase::Publication),
            Standing::Held(_) if self.renewing => Some(Phase::Renewing),
            Standing::Held(_) => Some(Phase::Held),
            _ => None,
        };
        main.into_iter().chain((self.releasing > 0).then_some(Phase::Releasing))
    }
}

impl World {
    pub fn owner(&mut self, process: usize, uid: u32) -> Option<&mut Owner> {
        self.processes[process].owners.iter_mut().find(|owner| owner.uid == uid)
    }

    /// The lock keys of a resource: one bit each.
    pub fn keys_of(&mut self, process: usize, uid: u32) -> Vec<u8> {
        let Some(resource) = self.owner(process, uid).map(|owner| owner.resource) else { return Vec::new() };
        (0..8).filter(|key| self.swarm.keys[resource] & 1 << key != 0).collect()
    }

    pub fn wake_leases(&mut self, process: usize, now: Time) {
        let due = |owner: &&Owner| owner.lease.next_deadline().is_some_and(|deadline| deadline <= now);
        let due: Vec<u32> = self.processes[process].owners.iter().filter(due).map(|owner| owner.uid).collect();
        for uid in due {
            self.feed(process, uid, Input::Wake);
        }
        let queued: Vec<u32> = self.processes[process].owners.iter().map(|owner| owner.uid).collect();
        for uid in queued {
            self.drain(process, uid);
        }
    }

    pub fn vote(&mut self, process: usize, uid: u32, round: Round, node: Node, vote: Vote) {
        if self.processes[process].life == Life::Frozen {
            let boot = self.processes[process].boot;
            let event = crate::world::Event::Vote { process, boot, uid, round, node, vote };
            return self.processes[process].inbox.push(event);
        }
        self.note(Note::Counted { process, uid, round, node: node.0, vote: vote.clone() });
        let Some(owner) = self.owner(process, uid) else { return };
        let held = matches!(owner.lease.view().standing, Standing::Held(_));
        if matches!(vote, Vote::Confirmed { .. }) && held {
            self.coverage.saw(Sight::JoinConfirmed);
        }
        self.feed(process, uid, Input::Vote { round, node, vote });
    }

    pub fn feed(&mut self, process: usize, uid: u32, input: Input) {
        let now = Time(self.local(process));
        let Some(owner) = self.owner(process, uid) else { return };
        let believed = |owner: &Owner| owner.lease.view().standing.term().map(|term| term.id.attempt);
        let before = believed(owner).filter(|_| !owner.telling.behind);
        owner.lease.handle(now, input);
        let owed = before.filter(|_| believed(owner) != before).or(owner.telling.owed);
        owner.telling = Telling { behind: true, owed };
        let believes_late = owner.lease.view().standing.term().and_then(|term| term.stop_at).filter(|&at| now >= at);
        if let Err(violation) = invariants::lease(&owner.lease) {
            self.check.fail(format!("{violation} (lease {uid} of process {process})"));
        }
        if let Some(stop_at) = believes_late {
            self.check.fail(format!("process {process} believes at {} although it stops at {}", now.0, stop_at.0));
        }
        self.drain(process, uid);
    }

    /// Carries out what the machine wants done. Between any two effects the process may die or stand still.
    fn drain(&mut self, process: usize, uid: u32) {
        let boot = self.processes[process].boot;
        loop {
            if self.processes[process].life != Life::Running || self.processes[process].boot != boot {
                return;
            }
            let Some(owner) = self.owner(process, uid) else { return };
            let Some(effect) = owner.held_back.take().or_else(|| owner.lease.poll_effect()) else { break };
            self.strike_at_effect(process, uid, &effect);
            if self.processes[process].boot != boot {
                return;
            }
            if self.processes[process].life == Life::Frozen {
                if let Some(owner) = self.owner(process, uid) {
                    owner.held_back = Some(effect);
                }
                return;
            }
            self.note(Note::Effect { process, uid, effect: effect.clone() });
            self.shown_first(process, uid, &effect);
            self.carry_out(process, uid, effect);
        }
        if let Some(owner) = self.owner(process, uid) {
            owner.telling.behind = false;
        }
        self.claim(process, uid);
        let dirty = self.owner(process, uid).is_some_and(|owner| std::mem::take(&mut owner.dirty));
        if dirty {
            self.reconcile(process, uid);
        }
    }

    /// I5: whoever stops believing says so before any request that follows from it.
    fn shown_first(&mut self, process: usize, uid: u32, effect: &Effect) {
        let Some(owner) = self.owner(process, uid) else { return };
        let Some(attempt) = owner.telling.owed else { return };
        match effect {
            Effect::Changed(_) => owner.telling.owed = None,
            Effect::Send { .. } => self.check.fail(format!("I5: the end of {attempt:?} is shown after {effect:?}")),
            _ => {}
        }
    }

    fn carry_out(&mut self, process: usize, uid: u32, effect: Effect) {
        match effect {
            Effect::Send { round, node, op, give_up_at } => {
                self.before_sending(process, uid, &op);
                self.ask_node(process, uid, round, node, op, give_up_at);
            }
            Effect::Publish(id) => {
                let Some(owner) = self.owner(process, uid) else { return };
                owner.memory.to_publish = Some(id.clone());
                owner.dirty = true;
                let resource = self.resource_of(process, uid);
                let keys = self.swarm.keys[resource];
                if !self.check.published_only {
                    self.check.completes(keys, &id);
                }
            }
            Effect::Renewed(_) => {
                if let Some(owner) = self.owner(process, uid) {
                    owner.renewing = false;
                }
            }
            Effect::Changed(view) => self.changed(process, uid, &view),
        }
    }

    pub fn resource_of(&mut self, process: usize, uid: u32) -> usize {
        self.owner(process, uid).map_or(0, |owner| owner.resource)
    }

    fn before_sending(&mut self, process: usize, uid: u32, op: &Op) {
        let Some(owner) = self.owner(process, uid) else { return };
        let acquiring = matches!(owner.lease.view().standing, Standing::Acquiring(..));
        match op {
            Op::Acquire { attempt, .. } if acquiring => {
                owner.confirming = false;
                if owner.began != Some(*attempt) {
                    owner.began = Some(*attempt);
                    let (attempt, resource) = (*attempt, owner.resource);
                    self.check.begins(self.swarm.keys[resource], attempt, uid);
                }
            }
            Op::Confirm { .. } if acquiring => owner.confirming = true,
            Op::Extend { .. } => owner.renewing = true,
            _ => {}
        }
    }

    pub fn release_sent(&mut self, process: usize, uid: u32, on_the_wire: bool) {
        if let Some(owner) = self.owner(process, uid) {
            owner.releasing += u32::from(on_the_wire);
        }
    }

    /// A release was answered, one way or the other.
    pub fn release_answered(&mut self, process: usize, uid: u32) {
        if let Some(owner) = self.owner(process, uid) {
            owner.releasing = owner.releasing.saturating_sub(1);
        }
    }

    fn changed(&mut self, process: usize, uid: u32, view: &View) {
        let Some(owner) = self.owner(process, uid) else { return };
        owner.dirty = true;
        if view.standing == Standing::Idle {
            owner.memory.wanting = None;
        }
        let lost =
            view.ending.as_ref().filter(|ending| ending.reason == EndReason::Misses).map(|ending| ending.id.clone());
        let lost = lost.filter(|id| owner.missed.replace(id.attempt) != Some(id.attempt));
        let resource = owner.resource;
        if let Some(id) = lost {
            self.must_be_gone(self.swarm.keys[resource], &id);
        }
        let peer = view.refused_by.is_some();
        let sight = view.ending.as_ref().map(|ending| match ending.reason {
            EndReason::Misses => Sight::LostByMisses,
            EndReason::Deadline => Sight::LostByDeadline,
            EndReason::NeverConfirmed => Sight::AdoptionNeverConfirmed,
            EndReason::Superseded => Sight::Superseded,
            EndReason::Decided => Sight::SealEffective,
        });
        let sealed = view.ending.as_ref().is_some_and(|ending| ending.sealed);
        if let Some(sight) = sight.filter(|&sight| sight != Sight::SealEffective) {
            self.coverage.saw(sight);
        }
        if sealed {
            self.coverage.saw(Sight::SealEffective);
        }
        if peer {
            self.coverage.saw(Sight::RefusedByAPeer);
        }
    }

    /// A term that was given up because the nodes said that they do not hold it: unknown is no "no".
    fn must_be_gone(&mut self, keys: u8, id: &TermId) {
        let now = self.now;
        let holds = |server: &&Server| {
            let value = |key: u8| server.node.entry(&key, server.clock.millis(now)).map(|entry| &entry.value);
            let exact =
                |value: &Stored| (value.stage, value.attempt, value.number) == (Stage::Term, id.attempt, id.token.0);
            (0..8).filter(|key| keys & 1 << key != 0).all(|key| value(key).is_some_and(exact))
        };
        let holding = self.servers.iter().filter(|server| server.up).filter(holds).count();
        if holding >= self.swarm.lease.quorum.majority() {
            self.check
                .fail(format!("unknown was taken for no: {id:?} was given up as gone, and {holding} nodes hold it"));
        }
    }

    /// Reports a belief to the checker, until it ends by the clock of the believer.
    fn claim(&mut self, process: usize, uid: u32) {
        let Some(owner) = self.owner(process, uid).filter(|owner| owner.dirty) else { return };
        let resource = owner.resource;
        let Standing::Held(term) = &owner.lease.view().standing else { return };
        let (Some(valid_until), id) = (term.valid_until, term.id.clone()) else { return };
        let until = self.processes[process].clock.when(valid_until.0);
        let keys = self.swarm.keys[resource];
        if self.check.published_only {
            self.check.completes(keys, &id);
        }
        let cluster = self.processes[process].cluster;
        let known = self.check.last.get(&(cluster, resource)).map(|last| last.attempt);
        if known.is_some_and(|attempt| attempt != id.attempt) {
            self.coverage.saw(Sight::ReElection);
        }
        self.note(Note::Claim { process, attempt: id.attempt.0, token: id.token.0, until });
        let (pod, valid_until) = (pod_of(&id), valid_until.0);
        let claim =
            Live { process, keys, attempt: id.attempt, token: id.token, pod, from: self.now, until, valid_until };
        self.check.claims(self.now, (cluster, resource), claim);
    }

    fn strike_at_effect(&mut self, process: usize, uid: u32, effect: &Effect) {
        if let Some(at) = self.crash_before {
            self.effects += 1;
            if self.effects == at {
                self.crash(process);
                self.after(200 * crate::clock::MILLI, crate::world::Event::Start(process));
                return;
            }
        }
        if self.chaos && self.rng.permille(self.swarm.strikes) && !self.swarm.faults.is_empty() {
            let fault: Fault = self.rng.weighted(&self.swarm.faults.clone());
            let node = match effect {
                Effect::Send { node, .. } => Some(node.index()),
                _ => None,
            };
            self.strike(fault, Some(Spot { process, uid, node }));
        }
    }
}
