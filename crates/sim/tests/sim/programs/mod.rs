//! Programs that take locks for themselves, as with the library: their tasks request, hold, renew, release, cancel and crash.
//!
//! They run in the same world as the operators: the same servers, network, clocks and faults, and a shell of the same form around
//! `redislease_core::lease`. Above it, [`redislease_core::lock::Lock`] decides, as it does in the library. A task runs on another
//! thread than its lease: commands and wake-ups take time, and faults come between any two of them.

mod checks;
mod search;
mod tasks;

use std::collections::BTreeMap;

use redislease_core::driver::Command;
use redislease_core::lease::Config;
use redislease_core::lock::Lock;
use redislease_core::op::{Attempt, Holder};

use crate::api::objects::Keys;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::{Event, World};

/// Something that a program does.
#[derive(Clone, Debug)]
pub enum Step {
    /// The task with this number requests a lock.
    Ask(u32),
    /// The lease gets a command.
    Command(u64, Command),
    /// The task is woken, because of a report or a deadline.
    Wake(u64),
    /// The program takes the lock that it has won.
    Take(u64),
    /// The program writes to what the lock protects, if it holds the lock.
    Write(u64),
    /// The program cancels its request, or releases its lock.
    LetGo(u64),
    /// The program drops its lock and leaves the keys.
    Abandon(u64),
    /// The request must have been answered.
    Overdue(u64),
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// All faults end, and all programs let go.
    Heal,
    /// Wall clocks are synchronized, once every process has seen the steps.
    Clocks,
    /// No keys are left. All tasks request the same key.
    Contest,
    /// All of them have had it.
    End,
}

/// One request of a task, and the lock that comes from it.
pub struct Worker {
    /// The number of the task in its program.
    task: u32,
    /// The number of its lease.
    serial: u64,
    keys: Keys,
    lock: Lock,
    config: Config,
    /// True time.
    asked_at: Micros,
    taken: Option<Taken>,
    /// A write was refused: the program has stopped its work.
    knows_loss: bool,
    wake_at: Option<Micros>,
}

/// When a program got its lock.
#[derive(Clone, Copy)]
struct Taken {
    /// True time.
    at: Micros,
    /// On the clock of the process.
    local: u64,
    attempt: Attempt,
}

/// A lock that was released and must be kept.
struct Kept {
    keys: Keys,
    attempt: Attempt,
    until: Micros,
}

/// What happened in one run.
#[derive(Default)]
pub struct Programs {
    pub seen: BTreeMap<&'static str, u64>,
    kept: Vec<Kept>,
    /// The tasks that have not held the lock in the contest.
    contest: Option<Vec<(usize, u32)>>,
    released_at: Option<Micros>,
}

impl World {
    pub fn start_program(&mut self, process: usize) {
        self.processes[process].floor_complete = true;
        for task in 0..self.swarm.programs as u32 {
            self.ask_later(process, task, SECOND);
        }
    }

    fn ask_later(&mut self, process: usize, task: u32, longest: Micros) {
        let delay = self.rng.between(1, longest);
        self.program_after(process, delay, Step::Ask(task));
    }

    fn program_after(&mut self, process: usize, delay: Micros, step: Step) {
        let boot = self.processes[process].boot;
        self.after(delay, Event::Program { process, boot, step });
    }

    fn sees(&mut self, what: &'static str) {
        *self.programs.seen.entry(what).or_default() += 1;
    }

    fn worker(&mut self, process: usize, serial: u64) -> Option<&mut Worker> {
        self.processes[process].workers.iter_mut().find(|worker| worker.serial == serial)
    }

    /// The holder that the servers store: each request has its own.
    fn holder_of(process: usize, boot: u32, serial: u64) -> Holder {
        Holder(format!("program {process}/{boot}/holder-{serial}").into())
    }

    pub fn programs_stage(&mut self, stage: Stage) {
        let everywhere = |world: &Self| -> Vec<(usize, u64)> {
            let of = |(process, program): (usize, &crate::operator::process::Process)| {
                program.workers.iter().map(move |worker| (process, worker.serial)).collect::<Vec<_>>()
            };
            world.processes.iter().enumerate().flat_map(of).collect()
        };
        match stage {
            Stage::Heal => {
                self.heal_all();
                for (process, serial) in everywhere(self) {
                    self.program_after(process, MILLI, Step::LetGo(serial));
                }
                self.after(5 * SECOND, Event::Programs(Stage::Clocks));
            }
            Stage::Clocks => {
                self.synchronize();
                let delay = 2 * self.swarm.quarantine() + 2 * self.swarm.key_life() + 30 * SECOND;
                self.after(delay, Event::Programs(Stage::Contest));
            }
            Stage::Contest => {
                self.no_key_is_left();
                let tasks: Vec<(usize, u32)> = (0..self.processes.len())
                    .flat_map(|process| (0..self.swarm.programs as u32).map(move |task| (process, task)))
                    .collect();
                for &(process, task) in &tasks {
                    self.ask_later(process, task, SECOND);
                }
                let delay = (5 + 5 * tasks.len() as u64) * SECOND;
                self.programs.contest = Some(tasks);
                self.after(delay, Event::Programs(Stage::End));
            }
            Stage::End => {
                let without = self.programs.contest.clone().unwrap_or_default();
                if !without.is_empty() {
                    self.check.fail(format!("these tasks never got a lock that was free: {without:?}"));
                }
                self.done = true;
            }
        }
    }
}
