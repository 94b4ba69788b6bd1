//! A machine that is suspended: no process runs, `CLOCK_MONOTONIC` stands still, and `CLOCK_BOOTTIME` goes on.
//!
//! The shim of the lab stops the processes and makes their `CLOCK_MONOTONIC` late, with which tokio counts. It cannot show in which order
//! the kernel continues the processes and handles a timer that has expired meanwhile: here the kernel is awake and kills at the
//! deadline, and a command that was suspended with its machine can run for the moment until the kernel does so.
//!
//! A suspend that is longer than the lock is one of the [cases](crate::cases) of a loss.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redislease_lab::{Machine, SuspendLibrary};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::process_log;
use crate::support::{PATIENCE, Run, Servers, child_of, eventually};
use crate::worker;

/// A machine that is suspended, with `run`, guard, init and command.
pub struct Suspension {
    processes: [Pid; 4],
    since: Instant,
    end_of_command: JoinHandle<u64>,
}

impl Suspension {
    /// Suspends the machine of this `run`. `None` if the command has ended, for example because a busy machine has lost the lock.
    pub fn begin(machine: &Machine, run: Pid) -> Option<Self> {
        let processes: Vec<Pid> = std::iter::successors(Some(run), |pid| child_of(*pid)).collect();
        let processes: [Pid; 4] = processes.try_into().ok()?;
        let command = pidfd_open(processes[3], PidfdFlags::empty()).ok()?;
        signal(&processes, Signal::STOP);
        eventually("the processes to stop", || processes.iter().all(|pid| has_stopped(*pid)));
        machine.suspended();
        assert!(machine.reads().unwrap() > 0, "the processes use the clock of their machine");
        let end_of_command = thread::spawn(move || end_of(&command));
        Some(Self { processes, since: Instant::now(), end_of_command })
    }

    /// How long it has lasted.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Continues the processes. A `run` whose lock has expired can end before it reads its clock. The value is when the command ended.
    pub fn end(self, machine: &Machine) -> JoinHandle<u64> {
        machine.woken().unwrap();
        signal(&self.processes, Signal::CONT);
        self.end_of_command
    }
}

/// A process that has ended needs no signal.
fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        let _ = kill_process(*pid, signal);
    }
}

/// Whether no thread of the process runs.
fn has_stopped(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        state.is_some_and(|state| "TZX".contains(state))
    })
}

/// Waits for the end of a process. Returns the time of `CLOCK_BOOTTIME` in nanoseconds at which this thread has noticed it.
fn end_of(process: &OwnedFd) -> u64 {
    let limit = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "the command of a suspended machine still exists after {PATIENCE:?}");
    worker::boottime()
}

#[test]
fn a_short_suspend_costs_no_lock() {
    let (servers, folder) = (Servers::short(), tempfile::tempdir().unwrap());
    let machine = SuspendLibrary::compile(folder.path()).unwrap().machine("short").unwrap();
    let mut run = servers.run(&["--lease", "test/short", "--isolate", "pid"], &worker::command()).0;
    run.envs(machine.env()).env("WORKER_LOG", folder.path().join("log"));
    let output = folder.path().join("output");
    let run = Run(run).spawn_to(&output);
    let log = || process_log::read(&folder.path().join("log"));
    eventually("the command", || !log().is_empty());
    for _ in 0..3 {
        let suspension = Suspension::begin(&machine, run.pid());
        let suspension = suspension.unwrap_or_else(|| panic!("{}", fs::read_to_string(&output).unwrap()));
        thread::sleep(Duration::from_millis(400).saturating_sub(suspension.elapsed()));
        drop(suspension.end(&machine));
        let until = *log().values().map(|(_, last)| last).max().unwrap() + 1_000_000_000;
        // Longer than the time to the deadline without a renewal.
        eventually("the command to go on", || log().values().any(|(_, last)| *last > until));
    }
    assert_eq!(log().len(), 1, "{}", fs::read_to_string(&output).unwrap());
}
