//! The main process: it takes and renews the lock, and carries out what [`Machine`] decides.

mod effects;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::Termios;
use nix::unistd::Pid;
use redislease_locker::{Guard, Locker, Lost, NodeState, Renewals};
use tokio::sync::watch;

use crate::acquire::{self, NotAcquired};
use crate::children::{self, Change, Next};
use crate::clock::{BootTime, Deadlines};
use crate::deadline_writer::DeadlineWriter;
use crate::incoming::Incoming;
use crate::isolation::Isolation;
use crate::listen::{self, Status};
use crate::machine::{Event, Machine, Settings};
use crate::message::{Outcome, Report};
use crate::options::{Mode, RunOptions};
use crate::say::{self, say};
use crate::{deadline_writer, exit, files, guard, limits, link, signals, terminal};

/// Runs the command; returns the exit code.
pub fn main(options: RunOptions) -> u8 {
    if let Err(text) = limits::check() {
        say(&text);
        return exit::FAILED;
    }
    if let Err(error) = say::start() {
        say(&format!("cannot start: a thread is needed: {error}. See `ulimit -u`"));
        return exit::FAILED;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(keep(options)),
        Err(error) => Err((exit::FAILED, format!("cannot start: {error}"))),
    };
    let code = result.unwrap_or_else(|(code, text)| {
        say(&text);
        code
    });
    say::finish();
    code
}

async fn keep(options: RunOptions) -> Result<u8, (u8, String)> {
    let usage = |text: String| (exit::USAGE, text);
    let failed = |error: io::Error| (exit::FAILED, format!("cannot start: {error}"));
    let locker = acquire::locker(&options).map_err(usage)?;
    let owner = options.owner.clone().unwrap_or_else(|| locker.owner().to_owned());
    acquire::check(&locker, &options, &owner).map_err(usage)?;
    // Before any process is started.
    let blocked = signals::blocked();
    let incoming = Incoming::new().map_err(failed)?;
    children::adopt_orphans().map_err(failed)?;
    let (status, statuses) = watch::channel(Status::new(&options.lease, &owner));
    if let Some(address) = options.listen {
        let problem = |error| (exit::USAGE, format!("--listen {address}: {error}: choose another address"));
        let address = listen::start(address, statuses).await.map_err(problem)?;
        if !options.quiet {
            say(&format!("listening on http://{address}"));
        }
    }
    let options = Arc::new(options);
    files::watch(&locker, &options).map_err(failed)?;
    let keeper = Keeper::new(options, owner, locker, incoming, blocked, status);
    Ok(keeper.run().await)
}

/// The lock. Unless it is released, it is left to its TTL: dropping a [`Guard`] would release it, also in a panic, while the command
/// still runs.
struct Held(Option<Guard>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.abandon();
        }
    }
}

/// The output of the future; without one, it never returns.
async fn or_never<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// A service that loses each lock at once must not take all turns.
const LEAST_BETWEEN: Duration = Duration::from_secs(2);

/// How long after its deadline a guard can live: it knows of a loss later than this process, and ends 50 ms after that.
const GUARD_ENDS_WITHIN: Duration = Duration::from_millis(150);

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, NotAcquired>>>>;

struct Keeper {
    options: Arc<RunOptions>,
    owner: String,
    locker: Locker,
    incoming: Incoming,
    /// The signals that were blocked at the start: they stay so in the command.
    blocked: Vec<i32>,
    machine: Machine,
    acquiring: Option<Acquiring>,
    acquired_at: Option<BootTime>,
    held: Held,
    /// The token of the lock that is held, or was held last.
    token: u64,
    renewals: Option<Renewals>,
    /// What the guard knows.
    deadlines: Option<Deadlines>,
    guard: Option<link::Guard>,
    isolation: Isolation,
    /// Init, while it may run.
    init: Option<Pid>,
    /// Whether the present guard has named its init.
    is_init_known: bool,
    hook: Option<(Pid, BootTime)>,
    deadline_start: deadline_writer::Starting,
    deadline_file: Option<DeadlineWriter>,
    /// The servers that a warning has named.
    warned: Vec<String>,
    /// Children that this process had when it began, from a shell that became this program.
    strangers: Vec<Pid>,
    is_foreground: bool,
    /// The modes of the terminal before the command. A command that ends by itself leaves those that it wants.
    modes: Option<Termios>,
    status: watch::Sender<Status>,
    /// Events that the machine has not taken yet.
    events: VecDeque<Event>,
}

impl Keeper {
    fn new(
        options: Arc<RunOptions>,
        owner: String,
        locker: Locker,
        incoming: Incoming,
        blocked: Vec<i32>,
        status: watch::Sender<Status>,
    ) -> Self {
        let machine = Machine::new(Settings {
            isolations: options.isolate.candidates(),
            is_service: options.mode == Mode::Service,
            has_lost_hook: options.on_lost.is_some(),
            is_first_process: std::process::id() == 1,
        });
        let mut keeper = Self {
            options,
            owner,
            locker,
            incoming,
            blocked,
            machine,
            acquiring: None,
            acquired_at: None,
            held: Held(None),
            token: 0,
            renewals: None,
            deadlines: None,
            guard: None,
            isolation: Isolation::None,
            init: None,
            is_init_known: false,
            hook: None,
            deadline_start: deadline_writer::Starting::default(),
            deadline_file: None,
            warned: Vec::new(),
            strangers: children::list().unwrap_or_default(),
            is_foreground: terminal::is_foreground(),
            modes: None,
            status,
            events: VecDeque::new(),
        };
        keeper.acquire();
        keeper
    }

    /// Returns the exit code.
    async fn run(mut self) -> u8 {
        loop {
            let Some(event) = self.events.pop_front() else {
                self.show_status();
                self.wait().await;
                continue;
            };
            let effects = self.machine.step(event);
            // Effects can take seconds, in which a command that has ended is not active any more.
            self.show_status();
            for effect in effects {
                if let Some(code) = self.apply(effect).await {
                    self.end().await;
                    return code;
                }
            }
        }
    }

    fn acquire(&mut self) {
        let (locker, options, owner) = (self.locker.clone(), self.options.clone(), self.owner.clone());
        let since = self.acquired_at.map(|at| BootTime::now().since(at));
        let pause = since.map_or(Duration::ZERO, |since| LEAST_BETWEEN.saturating_sub(since));
        self.acquiring = Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            acquire::acquire(locker, &options, &owner).await
        }));
    }

    /// Waits for the next events.
    async fn wait(&mut self) {
        let held = self.held.0.as_ref().filter(|_| self.renewals.is_some());
        let hook_ends = self.hook.map(|(_, until)| tokio::time::sleep(until.since(BootTime::now())));
        let guard_is_late = self.kill_late_guard().map(tokio::time::sleep);
        let event = tokio::select! {
            signal = self.incoming.next() => {
                if signal == Signal::SIGCHLD {
                    self.reap();
                    None
                } else {
                    Some(Event::Signal(signal))
                }
            }
            acquired = or_never(self.acquiring.as_mut()) => {
                self.acquiring = None;
                Some(self.acquired(acquired))
            }
            report = or_never(self.guard.as_ref().map(link::Guard::report)) => {
                if let Some(report) = report {
                    Some(self.reported(report))
                } else {
                    // It has ended: SIGCHLD comes in a moment.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    self.reap();
                    None
                }
            }
            renewed = or_never(self.renewals.as_mut().map(Renewals::next)) => self.renewed(renewed),
            lost = or_never(held.map(Guard::lost)) => Some(self.lost(lost)),
            () = or_never(hook_ends) => {
                self.kill_hook();
                None
            }
            () = or_never(guard_is_late) => None,
        };
        self.events.extend(event);
    }

    /// Kills a guard that lives after its deadline: it was stopped, does not know of a loss, and its timer has a later time. Returns when
    /// to look again.
    fn kill_late_guard(&self) -> Option<Duration> {
        let (guard, deadlines) = self.guard.as_ref().zip(self.deadlines)?;
        let left = deadlines.kill_at.after(GUARD_ENDS_WITHIN).since(BootTime::now());
        if left.is_zero() {
            // It is not reaped, so the number is still its own.
            let _ = kill(guard.pid, Signal::SIGKILL);
            return Some(GUARD_ENDS_WITHIN);
        }
        Some(left)
    }

    fn acquired(&mut self, acquired: Result<Guard, NotAcquired>) -> Event {
        match acquired {
            Ok(held) => {
                self.renewals = Some(held.renewals());
                self.deadlines = Some(self.deadlines_of(&held));
                self.token = held.token();
                self.acquired_at = Some(BootTime::now());
                self.held.0 = Some(held);
                // Without the handler, SIGTSTP suspends this process, and the lock is lost.
                let _ = Incoming::survive_suspends();
                self.warn_of_servers();
                Event::Acquired
            }
            Err(not) => {
                if not.is_error && not.code == exit::NO_MAJORITY {
                    // The error names each server that does not vote.
                    self.warned.extend(self.locker.nodes().into_iter().map(|node| node.name));
                }
                Event::NotAcquired(not)
            }
        }
    }

    /// The deadlines of the lock. The time is read first, so they are never too late. Without any validity, it is not known how much of
    /// the grace period is left.
    fn deadlines_of(&self, held: &Guard) -> Deadlines {
        let now = BootTime::now();
        let valid_for = held.valid_for();
        let stop_at = now.after(valid_for);
        let grace = if valid_for.is_zero() { Duration::ZERO } else { self.options.grace };
        Deadlines { stop_at, kill_at: stop_at.after(grace) }
    }

    fn renewed(&mut self, renewed: Result<(), Lost>) -> Option<Event> {
        if let Err(lost) = renewed {
            return Some(self.lost(lost));
        }
        self.warn_of_servers();
        let deadlines = self.deadlines_of(self.held.0.as_ref()?);
        if self.deadlines.is_some_and(|known| deadlines.kill_at <= known.kill_at) {
            return None;
        }
        self.deadlines = Some(deadlines);
        Some(Event::Renewed(deadlines))
    }

    /// Names each server that cannot vote as it is configured, once. Another majority hides such a mistake until the next failure.
    fn warn_of_servers(&mut self) {
        for node in self.locker.nodes().into_iter().filter(|node| node.state == NodeState::Misconfigured) {
            if !self.warned.contains(&node.name) {
                say(&format!("warning: a server does not vote: {}", acquire::for_options(&node.message)));
                self.warned.push(node.name);
            }
        }
    }

    fn lost(&mut self, lost: Lost) -> Event {
        self.renewals = None;
        // A command that has ended before the loss has done its work. The guard reports no end after the deadline: it is dead then.
        self.take_reports();
        Event::Lost(format!("lease {}: {}", self.options.lease, acquire::for_options(&lost.to_string())))
    }

    /// Takes the reports of the guard that have arrived.
    fn take_reports(&mut self) {
        for report in self.guard.as_ref().map(link::Guard::arrived).unwrap_or_default() {
            let event = self.reported(report);
            self.events.push_back(event);
        }
    }

    fn reported(&mut self, report: Report) -> Event {
        match &report {
            Report::Init { pid } => {
                self.init = Some(Pid::from_raw(*pid));
                self.is_init_known = true;
            }
            Report::Launching if !self.isolation.has_namespace() && !children::proc_is_ours() => say(
                "/proc shows another PID namespace: processes that leave the process group of the command cannot be found there, go on \
                 after a loss, and otherwise keep the lock until its TTL has passed. Mount another /proc, as `unshare --mount-proc` does",
            ),
            Report::Ended(Outcome::Exited(_)) => self.modes = None,
            _ => {}
        }
        Event::Guard(report)
    }

    /// Removes the children that have ended. Returns whether none is left but those that were there before.
    fn reap(&mut self) -> bool {
        loop {
            let (pid, change) = match children::next() {
                Next::Changed(_, Change::Stopped(_)) => continue,
                Next::Changed(pid, change) => (pid, change),
                Next::NoChild => return true,
                // Every process that an ended child has left was given to this one before the child was removed.
                Next::Running => {
                    let are_strangers =
                        |children: Vec<Pid>| children.iter().all(|child| self.strangers.contains(child));
                    // A list that cannot be read proves nothing.
                    return !self.strangers.is_empty() && children::list().is_some_and(are_strangers);
                }
            };
            // Its number can belong to another process from now on.
            self.strangers.retain(|stranger| *stranger != pid);
            if self.init == Some(pid) {
                self.init = None;
            }
            if self.hook.is_some_and(|(hook, _)| hook == pid) {
                self.hook = None;
                self.events.push_back(Event::LostHookEnded);
            }
            if self.guard.as_ref().is_some_and(|guard| guard.pid == pid) {
                // What it has sent before its end.
                self.take_reports();
            }
            if let Some(guard) = self.guard.take_if(|guard| guard.pid == pid) {
                self.events.extend(self.not_started(&guard, change).map(Event::Guard));
                self.events.push_back(Event::GuardEnded);
            }
        }
    }

    /// Why a guard that was killed has started no command: init gets the command only after the guard has named it. At its deadline it is
    /// a loss. A guard that starts slowly on a busy machine knows of no renewal.
    fn not_started(&self, guard: &link::Guard, end: Change) -> Option<Report> {
        let Change::Killed(signal) = end else { return None };
        if self.is_init_known || guard.first_deadline <= BootTime::now() {
            return None;
        }
        let is_filtered = i32::from(signal) == Signal::SIGSYS as i32;
        if is_filtered && self.isolation.has_namespace() {
            return Some(Report::Refused(guard::SECCOMP.to_owned()));
        }
        let by = if is_filtered {
            guard::SECCOMP.to_owned()
        } else {
            format!("signal {signal} has ended the guard process")
        };
        Some(Report::Ended(Outcome::not_started(format!("cannot start the command: {by}"))))
    }

    fn take_terminal(&self) {
        if self.is_foreground
            && let Err(error) = terminal::take_back(&children::list().unwrap_or_default(), self.modes.as_ref())
        {
            say(&format!("cannot take the terminal back: {error}"));
        }
    }
}

#[cfg(test)]
mod tests;
