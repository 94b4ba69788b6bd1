//! Programs that take locks for themselves, as with the library: their tasks request, hold, renew, release, cancel and crash.
//!
//! They run in the same world as the operators: the same servers, network, clocks and faults, and a shell of the same form around
//! `redislease_core::lease`. Above it, [`redislease_core::lock::Lock`] decides, as it does in the library. A task runs on another
//! thread than its lease: commands and wake-ups take time, and faults come between any two of them.

mod checks;
mod search;
mod tasks;
pub mod worker;

use redislease_core::op::Holder;

use crate::event::{Event, Inside, ProgramStage as Stage, ProgramStep as Step};
use crate::operator::state::Process;
use crate::programs::worker::Worker;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

impl World {
    pub fn start_program(&mut self, process: usize) {
        for task in 0..self.swarm.programs as u32 {
            self.ask_later(process, task, SECOND);
        }
    }

    fn ask_later(&mut self, process: usize, task: u32, longest: Micros) {
        let delay = self.rng.between(1, longest);
        self.program_after(process, delay, Step::Ask(task));
    }

    fn program_after(&mut self, process: usize, delay: Micros, step: Step) {
        self.later(process, delay, Inside::Program(step));
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
            let of = |(process, program): (usize, &Process)| {
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
