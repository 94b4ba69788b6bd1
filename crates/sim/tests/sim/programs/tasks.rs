//! The tasks of the programs: they drive the machine of the lock, and the lease below it.

use redislease_core::backoff::{Backoff, Entropy, Strategy};
use redislease_core::driver::{self, Command};
use redislease_core::lease::{Config, OnDeadline, View};
use redislease_core::lock::{Input, Lock, Request};
use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::Step;
use super::worker::{Taken, Worker};
use crate::api::objects::{self, Keys};
use crate::chaos::fault::{BeforeEffect, Fault};
use crate::event::{Event, SharedViews};
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

impl World {
    pub fn program_step(&mut self, process: usize, step: Step) {
        match step {
            Step::Ask(task) => self.ask_for_lock(process, task),
            Step::Command(serial, command) => self.command_lease(process, serial, command),
            Step::Wake(serial) => self.wake_task(process, serial),
            Step::Take(serial, won) => self.take_lock(process, serial, won),
            Step::Write(serial) => self.write(process, serial),
            // Some programs release their lock, and others drop it.
            Step::LetGo(serial) if serial.is_multiple_of(2) => self.let_go(process, serial, Input::Release),
            Step::LetGo(serial) => self.let_go(process, serial, Input::LetGo),
            Step::Abandon(serial) => self.let_go(process, serial, Input::Abandon),
            Step::ShutDown(serial) => self.command(process, serial, Command::Close),
            Step::Closed(serial) => self.notices_shutdown(process, serial),
            Step::Overdue(serial) => self.must_be_answered(process, serial),
        }
    }

    fn draw_request(&mut self, process: usize) -> (Request, Config, Keys) {
        let holder =
            Self::holder_of(process, self.processes[process].boot, self.processes[process].lease_ids.next().pack());
        let specs: Vec<u64> = self.swarm.specs.iter().map(|spec| spec.lease * 1000).collect();
        let ttl = self.rng.pick(&specs);
        let contest = self.programs.contest.is_some();
        let retry =
            |strategy, min, max| Backoff { strategy, min: Millis(min), max: Millis(max), limit: None, jitter: 0 };
        let default = retry(Strategy::Exponential, 10, 250);
        let once = retry(Strategy::None, 0, 0);
        let constant = retry(Strategy::Linear, 100, 100);
        let mut request = Request {
            holder,
            wait: Millis(self.rng.pick(&[0, 300, ttl, 3 * ttl])),
            retry: self.rng.pick(&[default, default, constant, once]),
            max_hold: self.rng.percent(25).then_some(Millis(ttl / 2)),
            hold_at_least: Millis(if self.rng.percent(25) { self.swarm.longest.0 } else { 0 }),
        };
        if contest {
            request = Request {
                wait: Millis(600_000),
                retry: default,
                max_hold: None,
                hold_at_least: Millis::ZERO,
                ..request
            };
        }
        let (stop_budget, renew) = (ttl / 10, (ttl - ttl / 10) / 3);
        let config = Config {
            quorum: self.swarm.quorum,
            ttl: Millis(ttl),
            renew_interval: Millis(renew),
            stop_budget: Millis(stop_budget),
            command_timeout: self.swarm.command_timeout.min(Millis(renew)),
            drift: Drift::STANDARD,
            backoff: Backoff::one_attempt(1),
            deadline: OnDeadline::Seal,
        };
        let keys = if contest { 0b001 } else { self.rng.pick(&[0b001, 0b001, 0b011, 0b110]) };
        (request, config, keys)
    }

    fn ask_for_lock(&mut self, process: usize, task: u32) {
        let quiet = !self.chaos && self.programs.contest.is_none();
        if quiet || self.processes[process].workers.iter().any(|worker| worker.task == task) {
            return;
        }
        let (request, config, keys) = self.draw_request(process);
        let names: Vec<String> = (0..3).filter(|key| keys & 1 << key != 0).map(|key| format!("key-{key}")).collect();
        debug_assert!(names.iter().all(|name| keys & 1 << objects::key_number(name) != 0));
        let quorum = Some(self.quorum_resources[0].open.clone());
        let Some(serial) = self.open_machine(process, task, quorum, &names, config.clone(), SharedViews::default())
        else {
            return;
        };
        self.command(process, serial, Command::KeepKeysFor(request.hold_at_least));
        let now = self.local(process);
        let lock = Lock::new(Time(now), request.clone()).with_mutant(self.mutant());
        let (asked_at, knows_loss, work_goes_on, wake_at, taken) = (self.now, false, false, None, None);
        let worker = Worker { task, serial, keys, lock, config, asked_at, taken, knows_loss, work_goes_on, wake_at };
        self.processes[process].workers.push(worker);
        let wait = request.wait.0 * MILLI * 101 / 100 + self.answer_within();
        self.program_after(process, wait, Step::Overdue(serial));
        if self.chaos && self.rng.percent(20) {
            let delay = self.rng.pick(&[MILLI, 5 * MILLI, 100 * MILLI, SECOND]);
            let delay = self.rng.between(1, delay);
            self.program_after(process, delay, Step::LetGo(serial));
        }
        self.drive(process, serial);
    }

    /// Passes an input to the machine of a lock, and carries out what follows.
    fn input(&mut self, process: usize, serial: u64, input: Input<'_>) {
        let now = Time(self.local(process));
        let Some(worker) = self.worker(process, serial) else { return };
        worker.lock.handle(now, input);
        self.drive(process, serial);
    }

    /// Sends the commands of the machine to its lease, which is on another thread. Before each of them the program may crash, pause
    /// or cancel its request.
    fn drive(&mut self, process: usize, serial: u64) {
        while let Some(command) = self.worker(process, serial).and_then(|worker| worker.lock.poll_command()) {
            if self.before_lock_effect(process, serial) == BeforeEffect::Crashed {
                return;
            }
            let delay = if self.chaos { self.rng.between(1, 500) } else { 20 };
            // A process that pauses handles it when it continues.
            self.program_after(process, delay, Step::Command(serial, command));
        }
        self.claim_of_program(process, serial);
        let (now, clock) = (self.now, self.processes[process].clock);
        let Some(worker) = self.worker(process, serial) else { return };
        let Some(deadline) = worker.lock.next_deadline() else { return };
        let at = clock.when(deadline.0).max(now + if deadline == Time(0) { 1 } else { MILLI });
        if worker.wake_at.is_none_or(|earlier| at < earlier || earlier <= now) {
            worker.wake_at = Some(at);
            self.program_after(process, at - now, Step::Wake(serial));
        }
    }

    fn before_lock_effect(&mut self, process: usize, serial: u64) -> BeforeEffect {
        let Some(task) = self.worker(process, serial).map(|worker| worker.task) else { return BeforeEffect::Crashed };
        self.sees("effects of a lock");
        let before = self.before_effect(process, task, None);
        if before != BeforeEffect::Crashed && self.chaos && self.rng.permille(4) {
            self.cancel_request(process, serial);
        }
        if before != BeforeEffect::Crashed && self.chaos && self.rng.permille(1) {
            self.shut_down(process);
        }
        before
    }

    /// The program shuts down what its locks are taken with. The leases and the tasks are on different threads.
    fn shut_down(&mut self, process: usize) {
        self.sees("shutdowns");
        let serials: Vec<u64> = self.processes[process].workers.iter().map(|worker| worker.serial).collect();
        for serial in serials {
            for step in [Step::ShutDown(serial), Step::Closed(serial)] {
                let delay = self.rng.pick(&[10, 500, 3 * MILLI]);
                let delay = self.rng.between(1, delay);
                self.program_after(process, delay, step);
            }
        }
    }

    fn notices_shutdown(&mut self, process: usize, serial: u64) {
        let Some(worker) = self.worker(process, serial) else { return };
        // The program stops the work under a lock that it has some time after it has noticed the loss, as after any other.
        if worker.taken.is_some() {
            self.input(process, serial, Input::Closed);
        } else {
            self.let_go(process, serial, Input::LetGo);
        }
    }

    /// Cancels a request that has no answer yet.
    fn cancel_request(&mut self, process: usize, serial: u64) {
        if self.worker(process, serial).is_some_and(|worker| worker.taken.is_none() && !worker.lock.is_over()) {
            self.let_go(process, serial, Input::LetGo);
        }
    }

    fn wake_task(&mut self, process: usize, serial: u64) {
        let (now, entropy) = (Time(self.local(process)), Entropy(self.rng.word()));
        let at = self.processes[process].judge.jumped_at();
        let paused_until = at.map(|at| at + Drift::STANDARD.most(self.swarm.longest));
        let Some(worker) = self.worker(process, serial) else { return };
        worker.wake_at = None;
        self.input(process, serial, Input::Wake { paused_until, entropy });
        let Some(worker) = self.worker(process, serial) else { return };
        if let Some(attempt) = worker.lock.won(now).map(|term| term.attempt) {
            // A task in ten forgets its request, and finds it much later.
            let (forgets, late) = (worker.asked_at.is_multiple_of(10), 3 * worker.config.ttl.0 * MILLI);
            let delay = match self.chaos {
                true if forgets => late,
                true => self.rng.pick(&[1, 200, 50 * MILLI]),
                false => 20,
            };
            self.program_after(process, delay, Step::Take(serial, (attempt, now)));
        } else if worker.lock.failure().is_some() {
            self.sees("failed requests");
            self.let_go(process, serial, Input::LetGo);
        }
    }

    fn take_lock(&mut self, process: usize, serial: u64, won: (Attempt, Time)) {
        let (at, local) = (self.now, self.local(process));
        let Some(worker) = self.worker(process, serial) else { return };
        let Some(attempt) = worker.lock.won(Time(local)).map(|term| term.attempt) else { return };
        // It is renewed, and every renewal notices that nobody has taken it.
        if attempt == won.0 && Time(local) >= won.1 + worker.config.ttl + worker.config.ttl {
            return self
                .check
                .fail(format!("{attempt:?} was won {} ms ago, and is still there", Time(local).since(won.1).0));
        }
        worker.taken = Some(Taken { at, local, attempt });
        let (task, ttl) = (worker.task, worker.config.ttl.0);
        self.input(process, serial, Input::Taken);
        self.sees("locks");
        let contest = self.next_in_contest(process, task);
        let hold = if contest { 50 } else { self.rng.pick(&[0, 20, ttl / 3, ttl, 3 * ttl]) };
        let step = if self.rng.percent(10) && !contest { Step::Abandon(serial) } else { Step::LetGo(serial) };
        self.program_after(process, hold * MILLI + 1, step);
        self.program_after(process, 0, Step::Write(serial));
    }

    /// The lease gets a command from the task.
    fn command_lease(&mut self, process: usize, serial: u64, mut command: Command) {
        match &mut command {
            // Its name is that of the process as it runs now.
            Command::Want(holder) => *holder = Self::holder_of(process, self.processes[process].boot, serial),
            Command::End { .. } => self.sees("locks that were held for their longest time"),
            Command::Close => self.processes[process].workers.retain(|worker| worker.serial != serial),
            _ => {}
        }
        self.command(process, serial, command);
        // After a shutdown, the lease may have ended before.
        if self.machine(process, serial).is_none() {
            self.processes[process].workers.retain(|worker| worker.serial != serial || !worker.lock.is_over());
        }
    }

    /// The program cancels its request, or ends its lock.
    fn let_go(&mut self, process: usize, serial: u64, input: Input<'static>) {
        let (now, local) = (self.now, self.local(process));
        let boot = self.processes[process].boot;
        let Some(worker) = self.worker(process, serial).filter(|worker| !worker.lock.is_over()) else { return };
        let (task, keys, taken) = (worker.task, worker.keys, worker.taken);
        let won = worker.lock.won(Time(local)).is_some();
        let life = worker.config.ttl.max(worker.lock.request().hold_at_least);
        // What was spawned under a lock may go on when the lock is lost and dropped.
        let work_goes_on = input == Input::LetGo && worker.lock.check(Time(local)).is_err();
        worker.work_goes_on = work_goes_on;
        match (taken, won, worker.lock.failure()) {
            (Some(_), ..) => self.sees("releases"),
            (None, true, _) => self.sees("cancelled after it was won"),
            (None, false, None) => self.sees("cancelled"),
            _ => {}
        }
        if !work_goes_on {
            self.stops_believing(process, serial);
        }
        if self.programs.contest.is_some() {
            self.programs.released_at = Some(now);
        }
        let holder = Self::holder_of(process, boot, serial);
        // A clock that is set back lets keys live longer.
        let stepped = if self.swarm.has(Fault::Step) || self.swarm.has(Fault::SmallStep) { 25_000 } else { 0 };
        let life = (life.0 * 1030 / 1000 + self.swarm.command_timeout.0 + 1000 + stepped) * MILLI;
        self.after(life, Event::Left { process, holder, since: now, life });
        self.input(process, serial, input);
        // The next waiting task of this program is woken, if the keys are deleted now.
        let is_freed = self.worker(process, serial).is_some_and(|worker| worker.lock.is_freed());
        let waits = |worker: &&Worker| worker.keys == keys && worker.serial != serial && worker.lock.is_pausing();
        let next = self.processes[process].workers.iter().find(waits).map(|worker| worker.serial);
        if let Some(next) = next.filter(|_| is_freed) {
            self.sees("woken by a release in the same program");
            self.input(process, next, Input::Freed);
        }
        if let Some(worker) = self.worker(process, serial) {
            worker.task = u32::MAX;
        }
        if self.chaos {
            let longest = self.rng.pick(&[10, 1000, 3000]) * MILLI;
            self.ask_later(process, task, longest);
        }
    }

    /// What becomes of an input to the lease of a program. It is called on the thread of the lease.
    pub fn as_the_program_wants(&mut self, process: usize, serial: u64, input: driver::Input) -> driver::Input {
        let now = Time(self.local(process));
        let command = self.worker(process, serial).and_then(|worker| worker.lock.instead(now, &input));
        let Some(command) = command else { return input };
        self.sees(if input == driver::Input::Wake {
            "given up, because nobody took it"
        } else {
            "deleted by a shutdown"
        });
        self.claim_of_program(process, serial);
        driver::Input::Command(command, None)
    }

    /// The lease shows another view. It is called on the thread of the lease.
    pub fn lock_shown(&mut self, process: usize, serial: u64, view: &View) {
        let now = Time(self.local(process));
        let Some(worker) = self.worker(process, serial) else { return };
        let wakes = worker.lock.handle(now, Input::Shown(view));
        self.claim_of_program(process, serial);
        if wakes {
            let delay = if self.chaos { self.rng.between(1, 500) } else { 20 };
            self.program_after(process, delay, Step::Wake(serial));
        }
        if self.chaos && self.rng.permille(4) {
            self.cancel_request(process, serial);
        }
    }

    /// A majority has answered the release.
    pub fn lock_released(&mut self, process: usize, serial: u64) {
        let now = Time(self.local(process));
        if let Some(worker) = self.worker(process, serial) {
            worker.lock.handle(now, Input::Released);
        }
        self.must_be_kept(process, serial);
        self.processes[process].workers.retain(|worker| worker.serial != serial || !worker.lock.is_over());
    }
}
