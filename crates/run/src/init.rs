//! The parent process of the command: the first process of its PID namespace, if it has one. It starts the command, passes signals on
//! and waits for orphans. It ends with the command or with the guard.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};

use crate::channel::{Channel, Received};
use crate::children::{self, Change, Next};
use crate::isolation::Isolation;
use crate::message::{Outcome, Report, Start, ToInit};
use crate::{exit, helper, launch, namespace, signals, terminal};

/// Runs the command in `line`.
pub fn main(line: &[OsString]) -> ExitCode {
    helper::main(line, run, "a helper process failed")
}

fn run(user: &[OsString]) -> io::Result<()> {
    signals::block_all()?;
    helper::set_name(c"run-init")?;
    set_pdeathsig(Signal::SIGKILL)?;
    let guard = Channel::of_stdin()?;
    // The guard may have ended before the call above. `getppid` cannot tell: in a PID namespace it is always zero.
    if is_closed(&guard)? {
        return Ok(());
    }
    let Some(Received { message: ToInit::Start(start), fd: stdin }) = guard.receive(true)? else { return Ok(()) };
    if start.isolation.has_namespace()
        && let Err(error) = namespace::mount_proc()
    {
        let note =
            format!("/proc shows the process IDs outside of the namespace, because it cannot be mounted: {error}");
        guard.send(&Report::Note(note), None)?;
    }
    if start.isolation == Isolation::PidInUser {
        namespace::drop_mount_capability()?;
    }
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&SigSet::from(Signal::SIGCHLD), flags)?;
    let mut init =
        Init { guard, signals, start, is_preparing: false, stopped_by: None, child: None, exec: None, stdin };
    init.guard.send(&Report::Launching, None)?;
    let outcome = init.run(user);
    // Without the guard, nobody needs the outcome.
    let _ = init.guard.send(&Report::Ended(outcome), None);
    Ok(())
}

fn is_closed(channel: &Channel) -> io::Result<bool> {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().contains(PollFlags::HUP))
}

struct Init {
    guard: Channel,
    signals: SignalFd,
    start: Start,
    /// Whether `child` is the command of `--on-acquire`.
    is_preparing: bool,
    /// The signal that asked to stop while `--on-acquire` ran: then the command does not start.
    stopped_by: Option<i32>,
    /// The process that is waited for; also the number of its process group.
    child: Option<Pid>,
    /// To that process, until it has become the command.
    exec: Option<Channel>,
    stdin: Option<OwnedFd>,
}

impl Init {
    fn run(&mut self, user: &[OsString]) -> Outcome {
        let prepare = self.start.before.clone();
        let started = match &prepare {
            Some(prepare) => self.start(&["/bin/sh".into(), "-c".into(), prepare.into()], true),
            None => self.start(user, false),
        };
        if let Err(error) = started {
            return not_started(&error);
        }
        loop {
            match self.next_end() {
                Err(error) => return Outcome::Failed(format!("cannot wait for the command: {error}")),
                Ok(None) => return Outcome::Failed("the guard process has ended".to_owned()),
                Ok(Some(Change::Exited(_))) if let Some(outcome) = self.not_executed() => return outcome,
                Ok(Some(end @ (Change::Exited(_) | Change::Killed(_)))) if self.is_preparing => {
                    match self.prepared(end, user) {
                        Ok(None) => {}
                        Ok(Some(outcome)) => return outcome,
                        Err(error) => return not_started(&error),
                    }
                }
                Ok(Some(Change::Exited(code))) => return Outcome::Exited(code),
                Ok(Some(Change::Killed(signal))) => return Outcome::Killed(signal),
                Ok(Some(Change::Stopped(_))) => {}
            }
        }
    }

    /// Starts the command after `--on-acquire` has succeeded, unless it was asked to stop meanwhile: then it counts as ended by that
    /// signal, however the command of `--on-acquire` has ended.
    fn prepared(&mut self, end: Change, user: &[OsString]) -> io::Result<Option<Outcome>> {
        if !self.read_guard()? {
            return Ok(Some(Outcome::Failed("the guard process has ended".to_owned())));
        }
        let killed_by = match end {
            Change::Killed(signal) => {
                Signal::try_from(i32::from(signal)).ok().filter(|signal| signals::ends_a_service(*signal))
            }
            _ => None,
        };
        if let Some(signal) = self.stopped_by.or(killed_by.map(|signal| signal as i32)) {
            let code = exit::of_signal(u8::try_from(signal).unwrap_or_default());
            let why = format!("the command did not start: signal {signal} has come while that of --on-acquire ran");
            return Ok(Some(Outcome::NotStarted { code, why }));
        }
        match end {
            Change::Exited(0) => self.start(user, false).map(|()| None),
            Change::Exited(code) => Ok(Some(not_prepared(&format!("ended with exit code {code}")))),
            Change::Killed(signal) => Ok(Some(not_prepared(&format!("was ended by signal {signal}")))),
            Change::Stopped(_) => Ok(None),
        }
    }

    fn start(&mut self, user: &[OsString], is_preparing: bool) -> io::Result<()> {
        let stdin = if is_preparing { None } else { self.stdin.take() };
        // A shell may have stopped `run` and given the terminal to another program, which keeps it.
        self.start.foreground = self.start.foreground && (is_preparing || terminal::may_read());
        let (child, exec) = launch::spawn(&self.start, user, stdin.as_ref(), is_preparing)?;
        self.exec = Some(exec);
        self.child = i32::try_from(child.id()).ok().map(Pid::from_raw);
        self.is_preparing = is_preparing;
        Ok(())
    }

    /// Why the child that has ended was never executed.
    fn not_executed(&mut self) -> Option<Outcome> {
        self.exec.take()?.receive(false).ok().flatten().map(|received| received.message)
    }

    /// Waits until the child has ended, and passes signals on. `None` if the guard has ended.
    fn next_end(&mut self) -> io::Result<Option<Change>> {
        loop {
            // Without a namespace, this ends what the command has left in its process group, whose number belongs to nobody else before
            // the command is removed. `run` finds the other processes.
            let is_over = !self.is_preparing && self.child.is_some_and(children::has_ended);
            if is_over {
                self.signal(Signal::SIGKILL);
            }
            while let Next::Changed(pid, change) = children::next() {
                match change {
                    Change::Stopped(signal) => self.stopped(pid, signal),
                    end if Some(pid) == self.child => {
                        if !is_over && !self.is_preparing {
                            // It ended in this moment. Numbers are not used again so soon.
                            self.signal(Signal::SIGKILL);
                        }
                        // Its number can belong to another process from now on.
                        self.child = None;
                        return Ok(Some(end));
                    }
                    _ => {}
                }
            }
            let mut fds = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.guard, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while self.signals.read_signal()?.is_some() {}
            if !self.read_guard()? {
                return Ok(None);
            }
        }
    }

    /// Whether the guard is still there.
    fn read_guard(&mut self) -> io::Result<bool> {
        loop {
            match self.guard.receive(false) {
                Ok(Some(Received { message: ToInit::Signal { number, stops }, .. })) => {
                    if stops && self.is_preparing {
                        self.stopped_by = Some(number);
                    }
                    let Ok(signal) = Signal::try_from(number) else { continue };
                    self.signal(signal);
                    if stops {
                        // A stopped process handles the signal only when it continues.
                        self.signal(Signal::SIGCONT);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// The child was stopped. The lock is renewed all the same, so nobody else can do its work: a command that was suspended with the
    /// keyboard, because it does not ignore that, goes on.
    fn stopped(&self, pid: Pid, signal: i32) {
        if Some(pid) != self.child {
            return;
        }
        let note = if self.start.foreground && !self.is_preparing && signal == Signal::SIGTSTP as i32 {
            self.signal(Signal::SIGCONT);
            "the command cannot be suspended while it holds the lock; Ctrl-C ends it".to_owned()
        } else {
            let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            format!(
                "the command is stopped by {name}, and the lock stays held: send SIGCONT or SIGKILL to its process group"
            )
        };
        // Without the guard, this process ends too.
        let _ = self.guard.send(&Report::Note(note), None);
    }

    /// Sends a signal to the process group of the child.
    fn signal(&self, signal: Signal) {
        if let Some(child) = self.child {
            // The group may be empty.
            let _ = killpg(child, signal);
        }
    }
}

fn not_started(error: &io::Error) -> Outcome {
    Outcome::not_started(format!("cannot start the command: {error}"))
}

fn not_prepared(how: &str) -> Outcome {
    Outcome::not_started(format!("the command did not start, because that of --on-acquire {how}"))
}
