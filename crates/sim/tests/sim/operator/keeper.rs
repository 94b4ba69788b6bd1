//! The keeper of one process: owns the lease machines of the core, handles commands and carries out effects.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::lease::{
    Attempts, Config, Effect, Input, JOIN_DELAY, Lease, Requested, Round, Standing, View, Want,
};
use redislease_core::op::{Attempt, Holder, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};
use redislease_plan::election::HolderName;
use redislease_plan::plan::{Command, OpenQuorum};

use crate::api::objects;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Phase;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::operator::engine::SharedViews;
use crate::operator::leader::{LOCK, lock_key};
use crate::operator::process::{BeforeEffect, Life};
use crate::world::{EFFECTS_AT_ONE_INSTANT, Event, World};

/// The machine of one lease, from `Open` to its end.
pub struct Machine {
    /// The number of the lease's UID.
    pub uid: u32,
    pub place: usize,
    /// Distinguishes it from earlier machines of the same lease: an answer belongs to one of them.
    pub serial: u64,
    pub lease: Lease,
    /// Without a quorum no request can be sent.
    quorum: Option<Arc<OpenQuorum>>,
    keys: Vec<u8>,
    /// Those that its reader has not taken.
    views: SharedViews,
    /// An effect that was polled when the process was paused. It is carried out when the process continues.
    held_back: Option<Effect>,
    /// Whether the view changed since validity was last reported to the checker.
    pub changed: bool,
    pub unshown: Unshown,
    pub began: Option<Attempt>,
    pub confirming: bool,
    pub renewing: bool,
    pub releasing: u32,
    attempts: Attempts,
    /// The last term that was given up because nodes did not hold it.
    pub missed: Option<Attempt>,
    /// It was let go: votes and time have no effect any more.
    pub closing: bool,
    /// The round that releases its keys, and how many nodes have answered.
    pub last_release: Option<(Round, usize)>,
    retiring: bool,
    /// The holder of attempts that it repeats by itself: only a planted bug does so.
    desired: Option<HolderName>,
}

/// The end of a term that no view has shown yet.
#[derive(Default)]
pub struct Unshown {
    /// Whether effects of an earlier input are still to be carried out.
    behind: bool,
    /// The term that has ended, until a view shows it.
    pub ended: Option<Attempt>,
}

impl Machine {
    /// Its phases, for the table of faults.
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

    /// The keys as bits.
    pub fn bits(&self) -> u16 {
        self.keys.iter().fold(0, |bits, key| bits | 1 << key)
    }

    /// Until when this process may treat the running term as held.
    pub fn stop_at(&self) -> Option<Time> {
        self.lease.view().standing.term().and_then(|term| term.stop_at)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.lease.next_deadline().filter(|_| !self.closing)
    }

    fn believed(&self) -> Option<Attempt> {
        self.lease.view().standing.term().map(|term| term.id.attempt)
    }

    fn is_busy(&self) -> bool {
        !matches!(self.lease.view().standing, Standing::Idle)
    }
}

impl World {
    pub fn machine(&mut self, process: usize, serial: u64) -> Option<&mut Machine> {
        self.processes[process].machines.iter_mut().find(|machine| machine.serial == serial)
    }

    /// The machine of a lease: the newest.
    pub fn machine_of(&mut self, process: usize, uid: u32) -> Option<&mut Machine> {
        self.processes[process].machines.iter_mut().rev().find(|machine| machine.uid == uid)
    }

    pub fn obey(&mut self, process: usize, uid: u32, command: Command) {
        let Some(serial) = self.machine_of(process, uid).map(|machine| machine.serial) else {
            if let Command::Open { quorum, keys, config } = command {
                self.open_machine(process, uid, quorum, &keys, config);
            }
            return;
        };
        let input = match command {
            Command::Open { quorum, keys, config } => {
                self.close_machine(process, serial);
                return self.open_machine(process, uid, quorum, &keys, config);
            }
            Command::Want(holder) => return self.want(process, serial, &holder),
            Command::Forget => Input::Forget,
            Command::Adopt(term) => Input::Adopt(term),
            Command::UnconfirmedShown(attempt) => Input::UnconfirmedShown(attempt),
            Command::KeptElsewhere(attempt) => Input::KeptElsewhere(attempt),
            Command::End { term, proof } => {
                let now = Time(self.local(process));
                if let Some(machine) = self.machine(process, serial) {
                    machine.attempts.term_ends(now, &mut machine.lease, &term, proof);
                }
                Input::End { term, proof }
            }
            Command::Published { attempt, outcome } => Input::Published { attempt, outcome },
            Command::TryNow => Input::TryNow,
            Command::Configure(config) => {
                self.saw_configure(process, serial);
                Input::Configure(config)
            }
            Command::RaiseFloor(token) => {
                let floor = &mut self.processes[process].floor;
                *floor = token.max(*floor);
                return;
            }
            Command::Retire => {
                if let Some(machine) = self.machine(process, serial) {
                    machine.retiring = true;
                }
                Input::Forget
            }
            Command::Close => return self.close_machine(process, serial),
        };
        if let Some(machine) = self.machine(process, serial)
            && matches!(input, Input::Forget | Input::End { .. })
        {
            machine.desired = None;
        }
        if matches!(input, Input::Forget) && self.machine(process, serial).is_some_and(|machine| machine.is_busy()) {
            self.coverage.saw(Sight::ForgotDuringAttempt);
        }
        self.feed(process, serial, input);
    }

    pub fn open_machine(
        &mut self,
        process: usize,
        uid: u32,
        quorum: Option<Arc<OpenQuorum>>,
        keys: &[String],
        config: Config,
    ) {
        let place = self.unit(process, uid).map(|unit| unit.place);
        if place.is_none() && uid != LOCK && self.swarm.programs == 0 {
            return;
        }
        let keys = if uid == LOCK {
            vec![lock_key(self.processes[process].cluster)]
        } else {
            keys.iter().map(|key| objects::key_number(key)).collect()
        };
        let views = SharedViews::default();
        if let Some(unit) = self.unit(process, uid) {
            unit.opening = unit.opening.saturating_sub(1);
            unit.views = Some(views.clone());
        } else if let Some(leader) = self.processes[process].leader.as_mut().filter(|_| uid == LOCK) {
            leader.views = Some(views.clone());
        }
        let (serial, mutant) = (self.new_id(process), self.mutant());
        let mut lease = Lease::new(config).with_mutant(mutant);
        lease.delay_joins(JOIN_DELAY);
        self.processes[process].machines.push(Machine {
            uid,
            place: place.unwrap_or(0),
            serial,
            lease,
            quorum,
            keys,
            views,
            held_back: None,
            changed: true,
            unshown: Unshown::default(),
            began: None,
            confirming: false,
            renewing: false,
            releasing: 0,
            attempts: Attempts::default(),
            missed: None,
            closing: false,
            last_release: None,
            retiring: false,
            desired: None,
        });
    }

    /// Stops a machine and leaves its term as it is. An attempt that was not published is released.
    fn close_machine(&mut self, process: usize, serial: u64) {
        self.feed(process, serial, Input::Forget);
        self.processes[process].machines.retain(|machine| machine.serial != serial);
    }

    /// Makes one attempt, or none: see [`Attempts`]. After an outage the keeper spreads the attempts of many leases: then an
    /// attempt waits for its turn.
    fn want(&mut self, process: usize, serial: u64, holder: &HolderName) {
        let wants_again = self.is(Bug::KeeperWantsAgain);
        if let Some(machine) = self.machine(process, serial).filter(|_| wants_again) {
            machine.desired = Some(holder.clone());
        }
        self.make_attempt(process, serial, Holder(holder.to_string().into()));
    }

    /// Makes one attempt for `holder`, or none.
    pub fn make_attempt(&mut self, process: usize, serial: u64, holder: Holder) {
        let (attempt, entropy) = (Attempt(self.rng.wide()), Entropy(self.rng.word()));
        let floor = self.processes[process].floor;
        let now = Time(self.local(process));
        let waits = self.chaos && self.rng.permille(self.swarm.attempts_wait);
        let turn = if waits { now + Millis(self.rng.between(10, 3000)) } else { now };
        let void_until = self.void_until(process, serial);
        let Some(machine) = self.machine(process, serial) else { return };
        if let Some(until) = void_until.filter(|until| now < *until && !machine.lease.is_taken_for(&holder)) {
            machine.lease.hold(until);
            return self.feed(process, serial, Input::Wake);
        }
        match machine.attempts.request(now, &mut machine.lease, &holder, || turn) {
            Requested::Dropped => {
                if !machine.is_busy() {
                    self.coverage.saw(Sight::AttemptDropped);
                }
                return;
            }
            Requested::Waits => {
                self.coverage.saw(Sight::AttemptPaced);
                return self.feed(process, serial, Input::Wake);
            }
            Requested::Starts | Requested::StartsWithoutTurn => {}
        }
        self.feed(process, serial, Input::Want(Want { holder, attempt, floor, entropy }));
        let Some(machine) = self.machine(process, serial) else { return };
        if machine.lease.next_attempt_at().is_some() && machine.desired.is_none() {
            self.feed(process, serial, Input::Forget);
        }
        if self.is(Bug::NoPace) {
            self.feed(process, serial, Input::TryNow);
        }
    }

    fn saw_configure(&mut self, process: usize, serial: u64) {
        let Some(machine) = self.machine(process, serial) else { return };
        if machine.renewing {
            self.coverage.saw(Sight::ConfiguredDuringRound);
        }
    }

    pub fn wake_machines(&mut self, process: usize, now: Time) {
        let due = |machine: &&Machine| machine.next_deadline().is_some_and(|deadline| deadline <= now);
        let due: Vec<u64> = self.processes[process].machines.iter().filter(due).map(|machine| machine.serial).collect();
        for serial in due {
            self.feed(process, serial, Input::Wake);
        }
    }

    /// A node votes again: every machine asks the node, at a time that depends on the other leases of the keeper.
    pub fn node_returned(&mut self, process: usize) {
        let now = Time(self.local(process));
        let boot = self.processes[process].boot;
        let all: Vec<u64> = self.processes[process].machines.iter().map(|machine| machine.serial).collect();
        for serial in all {
            if self.processes[process].life != Life::Running || self.processes[process].boot != boot {
                return;
            }
            let waits = self.chaos && self.rng.permille(self.swarm.attempts_wait);
            let wait = if waits { self.rng.between(10, 3000) } else { 0 };
            self.feed(process, serial, Input::NodeReturned { ask_by: now + Millis(wait) });
        }
    }

    /// After a pause: carries out the effects that were held back.
    pub fn drain_machines(&mut self, process: usize) {
        let all: Vec<u64> = self.processes[process].machines.iter().map(|machine| machine.serial).collect();
        for serial in all {
            self.drain(process, serial);
        }
    }

    pub fn vote(&mut self, process: usize, serial: u64, round: Round, node: Node, vote: Vote) {
        if self.processes[process].life == Life::Frozen {
            let boot = self.processes[process].boot;
            let event = Event::Vote { process, boot, serial, round, node, vote };
            return self.processes[process].inbox.push(event);
        }
        self.release_counted(process, serial, round, &vote);
        let Some(machine) = self.machine(process, serial) else { return };
        let (uid, place, held) =
            (machine.uid, machine.place, matches!(machine.lease.view().standing, Standing::Held(_)));
        self.note(Note::Counted { process, uid, round, node: node.0, vote: &vote });
        if uid != LOCK {
            self.attempt_answered(process, place, &vote);
        }
        if matches!(vote, Vote::Confirmed { .. }) && held {
            self.coverage.saw(Sight::JoinConfirmed);
        }
        self.feed(process, serial, Input::Vote { round, node, vote });
    }

    pub fn feed(&mut self, process: usize, serial: u64, input: Input) {
        let now = Time(self.local(process));
        let Some(machine) = self.machine(process, serial).filter(|machine| !machine.closing) else { return };
        let before = machine.believed().filter(|_| !machine.unshown.behind);
        machine.lease.handle(now, input);
        let ended = before.filter(|_| machine.believed() != before).or(machine.unshown.ended);
        machine.unshown = Unshown { behind: true, ended };
        self.check_machine(process, serial, now);
        self.drain(process, serial);
        self.want_again(process, serial, now);
    }

    /// The old rule, planted: the keeper repeats the last request for an attempt by itself.
    fn want_again(&mut self, process: usize, serial: u64, now: Time) {
        if !self.is(Bug::KeeperWantsAgain) {
            return;
        }
        let Some(machine) = self.machine(process, serial).filter(|machine| !machine.is_busy()) else { return };
        let Some(holder) = machine.desired.clone() else { return };
        if machine.lease.is_taken_for(&Holder(holder.to_string().into())) {
            return;
        }
        let (attempt, entropy) = (Attempt(self.rng.wide()), Entropy(self.rng.word()));
        let floor = self.processes[process].floor;
        let want = Want { holder: Holder(holder.to_string().into()), attempt, floor, entropy };
        if let Some(machine) = self.machine(process, serial) {
            machine.lease.handle(now, Input::Want(want));
        }
        self.drain(process, serial);
    }

    /// Carries out the effects of a machine. Between any two effects the process may crash or pause.
    pub fn drain(&mut self, process: usize, serial: u64) {
        let boot = self.processes[process].boot;
        for effects in 0.. {
            if self.processes[process].life != Life::Running || self.processes[process].boot != boot {
                return;
            }
            if effects == EFFECTS_AT_ONE_INSTANT {
                return self.check.fail(format!("machine {serial} has more than {effects} effects at one instant"));
            }
            let Some(machine) = self.machine(process, serial) else { return };
            let uid = machine.uid;
            let Some(effect) = machine.held_back.take().or_else(|| machine.lease.poll_effect()) else { break };
            let node = match &effect {
                Effect::Send { node, .. } => Some(node.index()),
                _ => None,
            };
            match self.before_effect(process, uid, node) {
                BeforeEffect::Continue => {}
                BeforeEffect::Crashed => return,
                BeforeEffect::Paused => {
                    if let Some(machine) = self.machine(process, serial) {
                        machine.held_back = Some(effect);
                    }
                    return;
                }
            }
            self.note(Note::Effect { process, uid, effect: &effect });
            self.shown_first(process, serial, &effect);
            self.carry_out(process, serial, effect);
        }
        if let Some(machine) = self.machine(process, serial) {
            machine.unshown.behind = false;
        }
        self.claim(process, serial);
        self.end_machine(process, serial);
    }

    /// A retiring machine ends when its last key has ended.
    fn end_machine(&mut self, process: usize, serial: u64) {
        let boot = self.processes[process].boot;
        let Some(machine) = self.machine(process, serial).filter(|machine| machine.retiring) else { return };
        if machine.lease.is_quiet() {
            let (uid, wakes) = (machine.uid, machine.views.borrow_mut().end());
            self.processes[process].machines.retain(|machine| machine.serial != serial);
            if wakes {
                self.after(100, Event::Mail { process, boot, uid });
            }
        }
    }

    fn carry_out(&mut self, process: usize, serial: u64, effect: Effect) {
        match effect {
            Effect::Send { round, node, op, give_up_at } => {
                self.program_sends(process, serial, round, &op);
                self.before_sending(process, serial, &op);
                let Some(machine) = self.machine(process, serial) else { return };
                let keys = machine.quorum.is_some().then(|| machine.keys.clone());
                self.ask_node(process, serial, round, node, op, give_up_at, keys);
            }
            Effect::Publish(id) => {
                let Some(bits) = self.machine(process, serial).map(|machine| machine.bits()) else { return };
                if !self.check.published_only {
                    self.check.completes(bits, &id);
                }
                self.program_completes(bits, &id);
            }
            Effect::Renewed(_) => {
                if let Some(machine) = self.machine(process, serial) {
                    machine.renewing = false;
                }
            }
            Effect::Changed(view) if self.swarm.programs > 0 => self.lock_shown(process, serial, &view),
            Effect::Changed(view) => self.changed(process, serial, &view),
        }
    }

    fn changed(&mut self, process: usize, serial: u64, view: &View) {
        self.check_view(process, serial, view);
        let boot = self.processes[process].boot;
        let delay = if self.chaos { self.rng.between(10, 500) } else { 20 };
        let Some(machine) = self.machine(process, serial) else { return };
        let uid = machine.uid;
        machine.changed = true;
        if machine.views.borrow_mut().show(view) {
            self.after(delay, Event::Mail { process, boot, uid });
        }
    }
}
