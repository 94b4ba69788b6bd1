//! The guard process. The kernel kills it at the deadline, and its end ends the command.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::channel::{Channel, Received};
use crate::clock::BootTime;
use crate::deadline::{Action, Schedule};
use crate::message::{Outcome, Report, Start, ToGuard, ToInit};
use crate::timer::KillTimer;
use crate::{helper, namespace, signals};

/// Why a process ended with SIGSYS.
pub const SECCOMP: &str = "a seccomp filter, such as SystemCallFilter= of systemd, forbids a system call";

/// Runs the guard of the command in `line`.
pub fn main(line: &[OsString]) -> ExitCode {
    helper::main(line, run, "the guard process failed")
}

fn run(user: &[OsString]) -> io::Result<()> {
    signals::block_all()?;
    helper::set_name(c"run-guard")?;
    helper::hurry();
    let keeper = Channel::of_stdin()?;
    let Some(Received { message: ToGuard::Start(start, deadlines), fd: stdin }) = keeper.receive(true)? else {
        return Ok(());
    };
    // From here on, this process does not outlive the deadline, whatever happens.
    let timer = match KillTimer::new(deadlines.kill_at) {
        Ok(timer) => timer,
        Err(error) => {
            let why = format!("cannot start the command: the kernel gives no timer: {error}. See `ulimit -i`");
            return keeper.send(&Report::Ended(Outcome::not_started(why)), None);
        }
    };
    let schedule = Schedule::new(deadlines, Duration::from_millis(start.grace_ms));
    match start_init(&keeper, &start, user, stdin.as_ref()) {
        Ok((child, init)) => Guard::new(keeper, timer, schedule, child, init, start.stop_signal)?.watch(),
        Err(error) => keeper.send(&not_started(&error), None),
    }
}

/// A limit of processes or memory says nothing about the isolation.
fn not_started(error: &io::Error) -> Report {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            let why = format!("cannot start the command: the kernel starts no process: {error}. See `ulimit -u`");
            Report::Ended(Outcome::not_started(why))
        }
        _ => Report::Refused(error.to_string()),
    }
}

fn start_init(
    keeper: &Channel,
    start: &Start,
    user: &[OsString],
    stdin: Option<&OwnedFd>,
) -> io::Result<(Child, Channel)> {
    namespace::enter(start.isolation)?;
    let (ours, theirs) = Channel::pair()?;
    let child = helper::command(helper::INIT, user).stdin(Stdio::from(theirs.into_fd())).spawn()?;
    // First: a guard that ends without this report has started no command. Without `run`, nobody needs it.
    let _ = keeper.send(&Report::Init { pid: i32::try_from(child.id()).unwrap_or_default() }, None);
    ours.send(&ToInit::Start(start.clone()), stdin.map(|fd| fd.as_fd()))?;
    Ok((child, ours))
}

struct Guard {
    keeper: Channel,
    /// Whether `run` is alive.
    is_kept: bool,
    timer: KillTimer,
    schedule: Schedule,
    alarm: OwnedFd,
    children: SignalFd,
    child: Child,
    init: Channel,
    is_init_open: bool,
    /// Whether init may have started the command.
    is_launching: bool,
    stop_signal: i32,
}

impl Guard {
    fn new(
        keeper: Channel,
        timer: KillTimer,
        schedule: Schedule,
        child: Child,
        init: Channel,
        stop_signal: i32,
    ) -> io::Result<Self> {
        let alarm = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let children = SignalFd::with_flags(&SigSet::from(Signal::SIGCHLD), flags)?;
        Ok(Self {
            keeper,
            is_kept: true,
            timer,
            schedule,
            alarm,
            children,
            child,
            init,
            is_init_open: true,
            is_launching: false,
            stop_signal,
        })
    }

    /// Returns when the command has ended, or init. Init can take long to end then: it waits for every process of its namespace, and
    /// the guard would go on to renew its time and to report what is no loss.
    fn watch(mut self) -> io::Result<()> {
        loop {
            self.set_alarm()?;
            self.wait()?;
            while self.children.read_signal()?.is_some() {}
            // First: what init has sent before its end is read.
            let end = self.child.try_wait()?;
            if let Some(outcome) = self.read_init() {
                self.report(&Report::Ended(outcome));
                return Ok(());
            }
            if let Some(end) = end {
                self.report(&self.killed(end));
                return Ok(());
            }
            self.read_keeper()?;
            let action = self.schedule.time(BootTime::now());
            if matches!(action, Action::Stop(_)) {
                self.report(&Report::Stopping);
            }
            self.act(action)?;
        }
    }

    /// What the end of init means that has reported none of the command.
    fn killed(&self, end: ExitStatus) -> Report {
        if end.signal() == Some(Signal::SIGSYS as i32) && !self.is_launching {
            Report::Refused(SECCOMP.to_owned())
        } else {
            Report::Ended(Outcome::Failed("a helper process was killed, and the command with it".to_owned()))
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.alarm, PollFlags::IN)];
        // The end of a process that is gone would be ready again and again.
        if self.is_kept {
            fds.push(PollFd::new(&self.keeper, PollFlags::IN));
        }
        if self.is_init_open {
            fds.push(PollFd::new(&self.init, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the alarm for the stop signal, and then for SIGKILL.
    fn set_alarm(&self) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = self.schedule.next().map_or(zero, |at| BootTime(at.0.max(1)).timespec());
        let spec = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    fn read_keeper(&mut self) -> io::Result<()> {
        while self.is_kept {
            let action = match self.keeper.receive(false) {
                Ok(Some(Received { message: ToGuard::Signal(signal), .. })) => {
                    self.signal(signal, Signal::try_from(signal).is_ok_and(signals::ends_a_service));
                    Action::Nothing
                }
                Ok(Some(Received { message, .. })) => self.schedule.told(&message, BootTime::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Nobody renews the lock any more.
                Ok(None) | Err(_) => {
                    self.is_kept = false;
                    self.schedule.stop(BootTime::now())
                }
            };
            self.act(action)?;
        }
        Ok(())
    }

    /// Passes reports on. Returns how the command has ended, if it has.
    fn read_init(&mut self) -> Option<Outcome> {
        while self.is_init_open {
            match self.init.receive(false) {
                Ok(Some(Received { message: Report::Ended(outcome), .. })) => return Some(outcome),
                Ok(Some(Received { message, .. })) => {
                    self.is_launching |= message == Report::Launching;
                    self.report(&message);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.is_init_open = false,
            }
        }
        None
    }

    fn act(&mut self, action: Action) -> io::Result<()> {
        match action {
            Action::Nothing => Ok(()),
            Action::Arm(at) => self.timer.set(at),
            Action::Kill => {
                self.signal(Signal::SIGKILL as i32, true);
                Ok(())
            }
            Action::Stop(at) => {
                self.timer.set(at)?;
                self.signal(self.stop_signal, true);
                Ok(())
            }
        }
    }

    fn signal(&self, number: i32, stops: bool) {
        // An init that is gone has no command to signal; one that does not read is killed at the deadline.
        let _ = self.init.send(&ToInit::Signal { number, stops }, None);
    }

    fn report(&self, report: &Report) {
        // Without `run`, nobody needs the report.
        let _ = self.keeper.send(report, None);
    }
}
