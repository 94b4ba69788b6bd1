//! The leases of one process: carries commands and answers to the drivers of the core, and their effects to the nodes and readers.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::driver::{self, Command, Driver, Fresh, Input, LeaseId, concerned};
use redislease_core::lease::{Config, Effect, Round, View};
use redislease_core::op::{Attempt, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::Time;
use redislease_plan::plan::{Effect as Planned, OpenQuorum};

use crate::api::objects;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::check::coverage::Sight;
use crate::check::state::Seen;
use crate::event::{Inside, SharedViews};
use crate::operator::state::{LOCK, Machine, Process};
use crate::world::World;

impl World {
    pub fn machine(&mut self, process: usize, serial: u64) -> Option<&mut Machine> {
        self.processes[process].machines.iter_mut().find(|machine| machine.serial == serial)
    }

    pub fn serials(&self, process: usize) -> Vec<u64> {
        self.processes[process].machines.iter().map(|machine| machine.serial).collect()
    }

    /// Sends an order of the engine, or of the election of a replica. Orders keep their order.
    pub fn send_order(&mut self, process: usize, uid: u32, order: Planned) {
        let views = SharedViews::default();
        let operator = &mut self.processes[process];
        match &order {
            Planned::Open { .. } => _ = operator.views.insert(uid, views.clone()),
            Planned::Keeper(Command::Close) => _ = operator.views.remove(&uid),
            _ => {}
        }
        let delay = self.rng.between(10, 200);
        operator.last_command = operator.last_command.max(self.now + delay);
        let delay = operator.last_command - self.now;
        self.later(process, delay, Inside::Order { uid, order: Box::new(order), views });
    }

    /// The keeper gets an order.
    pub fn obey(&mut self, process: usize, uid: u32, order: Planned, views: SharedViews) {
        let serial = self.processes[process].machine_of(uid).map(|machine| machine.serial);
        match (order, serial) {
            (Planned::Open { quorum, keys, config }, earlier) => {
                if let Some(earlier) = earlier {
                    self.command(process, earlier, Command::Close);
                }
                self.open_machine(process, uid, quorum, &keys, config, views);
            }
            (Planned::RaiseFloor(token), _) => self.processes[process].raise_floor(token),
            (Planned::Keeper(command), Some(serial)) => self.command(process, serial, command),
            _ => {}
        }
    }

    pub fn open_machine(
        &mut self,
        process: usize,
        uid: u32,
        quorum: Option<Arc<OpenQuorum>>,
        keys: &[String],
        config: Config,
        views: SharedViews,
    ) -> Option<u64> {
        let place = self.unit(process, uid).map(|unit| unit.place);
        let (jump_wait, keys) = if uid == LOCK {
            (config.ttl, vec![objects::lock_key(self.processes[process].cluster)])
        } else if place.is_some() || self.swarm.programs > 0 {
            (self.swarm.longest, keys.iter().map(|key| objects::key_number(key)).collect())
        } else {
            return None;
        };
        let mutant = self.mutant();
        let process = &mut self.processes[process];
        let id = process.lease_ids.take();
        let driver = Driver::new(id, config, jump_wait, &mut process.turns).with_mutant(mutant);
        let (place, serial, seen) = (place.unwrap_or(0), id.pack(), Seen::default());
        process.machines.push(Machine { uid, place, serial, driver, quorum, keys, views, seen });
        Some(serial)
    }

    /// Gives a command to a machine.
    pub fn command(&mut self, process: usize, serial: u64, command: Command) {
        let wants = matches!(command, Command::Want(_));
        let fresh = wants.then(|| Fresh {
            attempt: Attempt(self.rng.wide()),
            entropy: Entropy(self.rng.word()),
            floor: self.processes[process].floor,
            jumped_at: self.processes[process].judge.jumped_at(),
            proposal: self.proposal(process),
        });
        if wants || matches!(command, Command::Adopt(_) | Command::AdoptOverrun(_)) {
            self.crowd(process);
        }
        let before = self.sees_command(process, serial, &command);
        self.feed(process, serial, Input::Command(command, fresh));
        if wants && self.sees_attempt(process, serial, before) && self.is(Bug::NoPace) {
            self.feed(process, serial, Input::Command(Command::TryNow, None));
        }
    }

    pub fn wake_machines(&mut self, process: usize, now: Time) {
        let due = |machine: &&Machine| machine.driver.next_deadline().is_some_and(|deadline| deadline <= now);
        let due: Vec<u64> = self.processes[process].machines.iter().filter(due).map(|machine| machine.serial).collect();
        for serial in due {
            self.feed(process, serial, Input::Wake);
        }
    }

    /// Gives an input to the leases that it concerns.
    pub fn tell_all(&mut self, process: usize, input: &Input) {
        let now = Time(self.local(process));
        if *input == Input::NodeReturned {
            self.crowd(process);
        }
        let Process { machines, turns, .. } = &mut self.processes[process];
        let leases = concerned(now, input, machines.iter().map(|machine| &machine.driver), turns);
        if *input == Input::MajorityReturned && !leases.is_empty() {
            self.coverage.saw(Sight::MajorityReturned);
        }
        for id in leases {
            self.feed(process, id.pack(), input.clone());
        }
    }

    /// A vote for one machine.
    pub fn vote(&mut self, process: usize, serial: u64, round: Round, node: Node, vote: Vote) {
        self.counted(process, serial, round, node, &vote);
        self.processes[process].proposals.saw(&vote);
        self.feed(process, serial, Input::Vote { round, node, vote });
    }

    /// Gives an input to the machine in the slot of a lease, and carries out what follows. Another lease may have the slot by now.
    pub fn feed(&mut self, process: usize, serial: u64, input: Input) {
        let (now, to) = (Time(self.local(process)), LeaseId::unpack(serial));
        let decides = now < self.decides_until(process);
        let input = self.as_the_program_wants(process, serial, input);
        let Process { machines, turns, .. } = &mut self.processes[process];
        let Some(machine) = machines.iter_mut().find(|machine| machine.driver.id().slot == to.slot) else { return };
        let serial = machine.serial;
        let believed = machine.before(&input);
        machine.driver.set_may_end(decides || machine.uid == LOCK);
        machine.driver.handle(now, to, input, turns);
        machine.after(believed);
        self.check_machine(process, serial, now);
        self.drain(process, serial);
        self.want_again(process, serial, now);
    }

    /// Carries out the effects of a machine.
    pub fn drain(&mut self, process: usize, serial: u64) {
        let boot = self.processes[process].boot;
        while self.polls_on(process, boot, "a lease") {
            let Some(machine) = self.machine(process, serial) else { return };
            let Some(effect) = machine.driver.poll_effect() else {
                machine.seen.behind = false;
                return self.claim(process, serial);
            };
            let uid = machine.uid;
            self.perform(process, Polled::Lease(uid, serial, effect));
        }
    }

    pub fn carry_out_lease(&mut self, process: usize, uid: u32, serial: u64, effect: driver::Effect) {
        match effect {
            driver::Effect::Lease(effect) => {
                self.sees_effect(process, uid, serial, &effect);
                self.carry_out(process, serial, effect);
            }
            driver::Effect::Released => self.lock_released(process, serial),
            driver::Effect::Ended => self.machine_ended(process, serial),
        }
    }

    fn machine_ended(&mut self, process: usize, serial: u64) {
        let operator = &mut self.processes[process];
        let Some(place) = operator.machines.iter().position(|machine| machine.serial == serial) else { return };
        let Machine { uid, driver, views, .. } = operator.machines.remove(place);
        operator.lease_ids.give_back(driver.id());
        let closed = driver.is_closing();
        driver.leave(&mut operator.turns);
        if !closed && views.borrow_mut().end() {
            self.later(process, 100, Inside::Mail { uid });
        }
    }

    fn carry_out(&mut self, process: usize, serial: u64, effect: Effect) {
        match effect {
            Effect::Send { round, node, op, give_up_at } => {
                let Some(machine) = self.machine(process, serial) else { return };
                let keys = machine.quorum.is_some().then(|| machine.keys.clone());
                self.ask_node(process, serial, node, (round, op, give_up_at), keys);
            }
            Effect::Publish(_) | Effect::Renewed(_) => {}
            Effect::Changed(view) if self.swarm.programs > 0 => self.lock_shown(process, serial, &view),
            Effect::Changed(view) => self.changed(process, serial, &view),
            Effect::Broken(broken) => panic!("{broken:?}"),
        }
    }

    fn changed(&mut self, process: usize, serial: u64, view: &View) {
        self.check_view(process, serial, view);
        let delay = if self.chaos { self.rng.between(10, 500) } else { 20 };
        let Some(machine) = self.machine(process, serial) else { return };
        let uid = machine.uid;
        machine.seen.is_reported = false;
        // A closed machine has no reader.
        if machine.views.borrow_mut().show(view) && !machine.driver.is_closing() {
            self.later(process, delay, Inside::Mail { uid });
        }
    }
}
