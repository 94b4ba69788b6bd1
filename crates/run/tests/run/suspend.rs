//! A machine that is suspended: no process runs, `CLOCK_MONOTONIC` stands still, and `CLOCK_BOOTTIME` goes on.
//!
//! The shim of the lab stops the processes and makes their `CLOCK_MONOTONIC` late, with which tokio counts. It cannot show in which order
//! the kernel continues the processes and handles a timer that has expired meanwhile: here the kernel is awake and kills at the
//! deadline, and a command that was suspended with its machine can run for the moment until the kernel does so.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redislease_lab::{Process, SuspendLibrary, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::process_log::{self, overlaps};
use crate::support::{PATIENCE, Servers, child_of, eventually};
use crate::worker;

/// A `run` on a machine of its own, with its helper processes and the command.
struct Machine {
    process: Process,
}

impl Machine {
    /// All processes but `run`.
    fn others(&self) -> Vec<Pid> {
        let run = self.process.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        std::iter::successors(run, |pid| child_of(*pid)).skip(1).collect()
    }

    fn suspend_for(&self, span: Duration) {
        let others = self.others();
        assert_eq!(others.len(), 3, "guard, init and command");
        let began = Instant::now();
        self.process.suspend().unwrap();
        // A process that has ended meanwhile needs no signal.
        let signal = |signal: Signal| {
            for pid in &others {
                let _ = kill_process(*pid, signal);
            }
        };
        signal(Signal::STOP);
        std::thread::sleep(span.saturating_sub(began.elapsed()));
        signal(Signal::CONT);
        // A `run` whose lock has expired can end before it reads its clock.
        let _ = self.process.wake();
    }
}

fn machine(folder: &Path, servers: &Servers, library: &SuspendLibrary, name: &str, isolate: &str) -> Machine {
    let run: Command = servers.run(&["--lease", name, "--isolate", isolate], &worker::command()).0;
    let (log, output) = (folder.join("log"), folder.join("output"));
    let process = Process::new("run", run.get_program(), output).args(run.get_args()).env("WORKER_LOG", log);
    let machine = library.machine("machine").unwrap();
    let process = process.on_machine(machine);
    process.start().unwrap();
    Machine { process }
}

#[test]
fn a_short_suspend_costs_no_lock() {
    let (servers, folder) = (Servers::short(), tempfile::tempdir().unwrap());
    let library = SuspendLibrary::compile(folder.path()).unwrap();
    let machine = machine(folder.path(), &servers, &library, "test/short", "pid");
    let log = || process_log::read(&folder.path().join("log"));
    eventually("the command", || !log().is_empty());
    for _ in 0..3 {
        machine.suspend_for(Duration::from_millis(400));
        let until = *log().values().map(|(_, last)| last).max().unwrap() + 1_000_000_000;
        // Longer than the time to the deadline without a renewal.
        eventually("the command to go on", || log().values().any(|(_, last)| *last > until));
    }
    assert_eq!(log().len(), 1, "{}", fs::read_to_string(folder.path().join("output")).unwrap());
}

#[test]
fn after_a_long_suspend_the_command_is_gone_and_run_says_so() {
    after_a_long_suspend("pid");
}

#[test]
fn without_a_namespace_too_the_command_is_gone_after_a_long_suspend() {
    after_a_long_suspend("none");
}

fn after_a_long_suspend(isolate: &str) {
    let (servers, folder) = (Servers::short(), tempfile::tempdir().unwrap());
    let library = SuspendLibrary::compile(folder.path()).unwrap();
    let machine = machine(folder.path(), &servers, &library, "test/long", isolate);
    let log = || process_log::read(&folder.path().join("log"));
    eventually("the command", || !log().is_empty());
    let second = servers.run(&["--lease", "test/long", "--wait", "60s"], &worker::command());
    let second = second.env("WORKER_LOG", folder.path().join("log")).spawn_to(&folder.path().join("second"));
    machine.suspend_for(Duration::from_secs(4));
    let output = || fs::read_to_string(folder.path().join("output")).unwrap();
    let ended = poll(PATIENCE, || if machine.process.pid().is_none() { Ok(()) } else { Err(output()) });
    assert!(ended.is_ok(), "run still runs: {}", output());
    eventually("the second command", || log().len() > 1);
    drop(second);
    assert!(overlaps(&log()).is_empty(), "{:?}", log());
    let output = output();
    // Which of the two `run` notices first depends on when it is scheduled.
    assert!(output.contains("the kernel has killed the command") || output.contains("the lock expired"), "{output}");
}
