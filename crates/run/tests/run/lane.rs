//! One lock, with a program that holds it and another one that waits for it.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cases::{Case, Fault, Place, Shape};
use crate::container;
use crate::process_log;
use crate::support::{Run, Running, Servers, child_of, eventually, program};
use crate::suspend::Suspension;
use crate::worker;
use redislease_lab::{Cut, Machine, RedisServer, SuspendLibrary};

/// Longer than the lock of a program lives that does not renew it.
const SUSPEND: Duration = Duration::from_secs(4);

/// What was seen.
pub struct Loss {
    pub code: Option<i32>,
    pub output: String,
    /// The first and the last time of each token, from the processes themselves.
    pub processes: BTreeMap<u64, (u64, u64)>,
    /// How many writes of the first command the store has rejected, because the second one had written before.
    pub rejected: usize,
    /// When the command ran its last instruction. Negative if that was before its deadline.
    ///
    /// A command on a suspended machine executes nothing from the begin of the suspend. For it, this is when it ended, as another
    /// process noticed it: then it can execute nothing any more, also if the machine continues.
    pub after_deadline_ms: f64,
}

/// One lock.
pub struct Lane {
    case: Case,
    lease: String,
    folder: PathBuf,
    /// It checks the tokens of the writes to the key that is the lease.
    store: Arc<RedisServer>,
    first: Running,
    second: Running,
    /// `run` and the guard of the first program.
    pids: Option<(Pid, Pid)>,
    /// The deadline of a guard that was stopped: it reads no later one.
    deadline: Option<u64>,
    is_taken_over: bool,
    /// The machine of the first program, if it can be suspended.
    machine: Option<Machine>,
    suspension: Option<Suspension>,
    /// When the command of a suspended machine ended.
    end_of_command: Option<JoinHandle<u64>>,
}

impl Lane {
    /// Starts both programs, the first one on a machine of its own if there is a library for it.
    pub fn start(
        case: Case,
        (servers, store): (&Servers, &Arc<RedisServer>),
        folder: &Path,
        library: Option<&SuspendLibrary>,
        name: &str,
    ) -> Self {
        let machine = library.map(|library| library.machine(name).unwrap());
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let (store, lease) = (store.clone(), format!("test/{name}"));
        let variables = variables(&folder, &store, &lease);
        let options = ["--lease", &lease, "--isolate", case.isolate];
        let run = |shape: Shape| servers.run(&options, &shape.command());
        let log = folder.join("log");
        let start = || {
            let mut first = placed(case.place, run(case.shape), &variables, &folder);
            first.envs(machine.iter().flat_map(Machine::env));
            Run(first).spawn_to(&folder.join("first"))
        };
        let mut first = start();
        eventually("the first command to work", || {
            // A busy machine can lose the lock before the command has begun. No other end is right.
            if let Some(status) = first.child.try_wait().unwrap() {
                let output = std::fs::read_to_string(folder.join("first")).unwrap();
                assert_eq!(status.code(), Some(76), "{case:?}: {output}");
                first = start();
            }
            !process_log::read(&log).is_empty()
        });
        // A busy machine can lose this lock too, before the command has begun.
        let mut second = servers.run(&[&options[..], &["--mode", "service"]].concat(), &worker::command());
        for (name, value) in variables {
            second = second.env(name, value);
        }
        let second = second.spawn_to(&folder.join("second"));
        let (pids, deadline, suspension, end_of_command) = (None, None, None, None);
        let is_taken_over = false;
        Self {
            case,
            lease,
            folder,
            store,
            first,
            second,
            pids,
            deadline,
            is_taken_over,
            machine,
            suspension,
            end_of_command,
        }
    }

    /// Waits until the first command works under its guard. Returns `false` if a busy machine has lost the lock before.
    pub fn wait_for_work(&mut self) -> bool {
        let mut ended = None;
        eventually("the first command to work under its guard", || {
            ended = self.first.child.try_wait().unwrap();
            ended.is_some() || self.works()
        });
        if let Some(status) = ended {
            let output = std::fs::read_to_string(self.folder.join("first")).unwrap();
            assert_eq!(status.code(), Some(76), "{:?}: {output}", self.case);
        }
        ended.is_none()
    }

    fn works(&mut self) -> bool {
        let Some(run) = self.run_pid() else { return false };
        self.pids = child_of(run).map(|guard| (run, guard));
        // The first command of the case with forks has several processes; all of them write to the store.
        self.pids.is_some() && self.writes("accepted") > 0
    }

    /// How many writes the store has `accepted` or `rejected`.
    fn writes(&self, answer: &str) -> usize {
        let count = self.store.command(&["HGET", &self.lease, answer]).unwrap().text();
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// The process `run`, which can be below another program.
    fn run_pid(&self) -> Option<Pid> {
        if self.case.place == Place::Container {
            return container::first_process(&self.folder);
        }
        let is_program = |pid: &Pid| {
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            line.starts_with(program().as_os_str().as_encoded_bytes())
        };
        std::iter::successors(Some(self.first.pid()), |pid| child_of(*pid)).find(is_program)
    }

    fn deadline_in_file(&self) -> Option<u64> {
        let entries = std::fs::read_dir(&self.folder).unwrap().flatten();
        let mut texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("deadline.json")).ok());
        texts.find_map(|text| worker::deadline(&text))
    }

    pub fn fault(&mut self, servers: &Servers) {
        let (run, guard) = self.pids.unwrap();
        // A busy machine can have lost the lock since the command was seen.
        let stop = |pid: Pid| match kill_process(pid, Signal::STOP) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("cannot stop {pid:?}: {error}"),
        };
        match self.case.fault {
            Fault::StopRun => stop(run),
            Fault::StopGuard => {
                stop(guard);
                self.deadline = self.deadline_in_file();
            }
            Fault::StopBoth => {
                stop(run);
                stop(guard);
            }
            Fault::StopServers => {}
            Fault::CutNetwork => servers.cut(run, Cut::Hang),
            Fault::ResetNetwork => servers.cut(run, Cut::Reset),
            Fault::DeleteKeys => servers.delete(&self.lease),
            Fault::Suspend => {
                self.suspension = Suspension::begin(self.machine.as_ref().unwrap(), run);
                // Without a suspension, the file can be that of the second program.
                self.deadline = self.suspension.as_ref().and_then(|_| self.deadline_in_file());
            }
        }
    }

    /// Ends a suspend that has lasted long enough. Returns `false` before that.
    pub fn is_awake(&mut self) -> bool {
        let is_due = |suspension: &mut Suspension| suspension.elapsed() >= SUSPEND;
        if let Some(suspension) = self.suspension.take_if(is_due) {
            self.end_of_command = Some(suspension.end(self.machine.as_ref().unwrap()));
        }
        self.suspension.is_none()
    }

    pub fn has_ended(&mut self) -> bool {
        self.first.child.try_wait().unwrap().is_some()
    }

    /// Whether the second command works.
    pub fn is_taken_over(&mut self) -> bool {
        self.is_taken_over |= process_log::has_changed_hands(&self.folder.join("log"));
        self.is_taken_over
    }

    /// What both programs have written, and whether they run.
    pub fn told(&mut self) -> String {
        let terms = process_log::read(&self.folder.join("log"));
        let output = |name: &str| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let (first, second) = (self.first.child.try_wait(), self.second.child.try_wait());
        let [of_first, of_second] = ["first", "second"].map(output);
        format!("{}: {terms:?}\n  first, {first:?}: {of_first}\n  second, {second:?}: {of_second}\n", self.lease)
    }

    pub fn finish(mut self) -> Loss {
        // The program `script` stops itself when its child is stopped, at a time of its own.
        let stopped = [self.first.pid(), self.pids.unwrap().0];
        let is_run_stopped = matches!(self.case.fault, Fault::StopRun | Fault::StopBoth);
        eventually("the first program to end", || {
            if is_run_stopped {
                for pid in stopped {
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            // `script` can hang after its child was stopped; what counts is `run`.
            self.first.child.try_wait().unwrap().is_some()
                || (self.case.place == Place::Terminal && has_ended(stopped[1]))
        });
        let code = self.first.child.try_wait().unwrap().and_then(|status| status.code());
        let rejected = self.writes("rejected");
        drop(self.second);
        let processes = process_log::read(&self.folder.join("log"));
        let (token, (_, last)) = processes.first_key_value().unwrap();
        let known = || process_log::deadline(&self.folder.join("log"), *token);
        let deadline = self.deadline.unwrap_or_else(known);
        let output = std::fs::read_to_string(self.folder.join("first")).unwrap();
        let end = self.end_of_command.map_or(*last, |end| end.join().unwrap());
        let micros = i128::from(end / 1000) - i128::from(deadline * 1000);
        let after_deadline_ms = f64::from(i32::try_from(micros).unwrap()) / 1000.0;
        Loss { code, output, processes, rejected, after_deadline_ms }
    }
}

/// Whether the process is gone, or its parent has not waited for it yet.
fn has_ended(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('Z'))
}

fn variables(folder: &Path, store: &RedisServer, lease: &str) -> Vec<(&'static str, String)> {
    vec![
        ("WORKER_LOG", folder.join("log").display().to_string()),
        ("WORKER_STORE", format!("{}/{lease}", store.address())),
        ("XDG_RUNTIME_DIR", folder.display().to_string()),
    ]
}

/// The command line `run` in its place.
fn placed(place: Place, run: Run, variables: &[(&str, String)], folder: &Path) -> Command {
    let mut command = match place {
        Place::Directly | Place::User => run.0,
        Place::Pid1 => run.under("unshare", &["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).0,
        Place::Container => container::command(&run, folder, variables),
        Place::Terminal => {
            let mut command = Command::new("script");
            command.args(["--quiet", "--return", "--command", &format!("exec {}", run.line()), "/dev/null"]);
            command
        }
        Place::Cron => {
            let mut command = Command::new("env");
            let minimal = ["-i", "HOME=/", "LOGNAME=root", "PATH=/usr/bin:/bin", "SHELL=/bin/sh"];
            command.args(minimal).args(variables.iter().map(|(name, value)| format!("{name}={value}")));
            command.args(["/bin/sh", "-c", &run.line()]);
            command
        }
    };
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    if place == Place::User {
        command.uid(65534).gid(65534);
    }
    command
}
