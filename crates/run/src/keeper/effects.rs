//! Carries out the effects of the machine.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::{Held, Keeper};
use crate::children;
use crate::clock::{BootTime, Deadlines};
use crate::deadline_file::DeadlineFile;
use crate::isolation::Isolation;
use crate::machine::{Effect, Event};
use crate::message::{Outcome, Report, Start, ToGuard};
use crate::say::say;
use crate::{helper, launch, link, terminal};

/// How long processes of the command get to disappear after SIGKILL.
const CLEAR_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two looks at what is left.
const CLEAR_EVERY: Duration = Duration::from_millis(5);
/// The longest time for the command of `--on-lost`.
const HOOK_WITHIN: Duration = Duration::from_secs(30);

impl Keeper {
    /// Carries out an effect. Returns the exit code if this was the last one.
    pub(super) async fn apply(&mut self, effect: Effect) -> Option<u8> {
        match effect {
            Effect::Acquire => self.acquire(),
            Effect::StartGuard(isolation) => self.start_guard(isolation).await,
            Effect::Send(message) => {
                let is_sent = self.guard.as_ref().is_some_and(|guard| guard.send(&message).is_ok());
                if message == ToGuard::Stop {
                    // As the guard does: there is a grace period only if the time to stop has come.
                    let is_early = self.deadlines.is_some_and(|deadlines| BootTime::now() < deadlines.stop_at);
                    self.shorten_deadlines(is_early);
                }
                // The file promises nothing that the guard was not told.
                if is_sent && matches!(message, ToGuard::Renewed(_)) {
                    self.write_deadlines();
                }
            }
            Effect::Clear => {
                self.shorten_deadlines(true);
                let is_gone = self.clear(Self::is_namespace_empty).await;
                // Not before: the process group of the command has it as long as it exists.
                self.take_terminal();
                self.events.push_back(if is_gone { Event::NothingLeft } else { Event::SomethingLeft });
            }
            Effect::Release { is_used } => self.release(is_used).await,
            Effect::Abandon => {
                self.renewals = None;
                self.held = Held(None);
            }
            Effect::RunLostHook => self.start_hook(),
            Effect::SignalLostHook(signal) => {
                if let Some((pid, _)) = self.hook {
                    // It is not reaped, so the number of the group is still its own.
                    let _ = killpg(pid, signal);
                }
            }
            Effect::Say(text, is_error) => {
                if is_error || !self.options.quiet {
                    say(&text);
                }
            }
            Effect::Exit(code) => return Some(code),
        }
        None
    }

    async fn start_guard(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        // A shell may have moved this process to the background or back.
        self.is_foreground = terminal::is_foreground();
        self.modes = terminal::modes().filter(|_| self.is_foreground);
        self.init = None;
        self.is_init_known = false;
        if self.deadline_file.is_none() {
            match self.deadline_start.writer(DeadlineFile::new).await {
                Ok(started) => self.deadline_file = started,
                Err(error) => say(&format!("there is no REDISLEASE_DEADLINE_FILE: {error}")),
            }
        }
        self.write_deadlines();
        if let Some(file) = &mut self.deadline_file {
            file.is_written(self.token).await;
        }
        // The folder may have taken a while.
        self.deadlines = self.held.0.as_ref().map(|held| self.deadlines_of(held)).or(self.deadlines);
        let Some(deadlines) = self.deadlines else { return };
        let start = Start {
            run: std::process::id(),
            isolation,
            stop_signal: self.options.signal as i32,
            grace_ms: u64::try_from(self.options.grace.as_millis()).unwrap_or(u64::MAX),
            before: self.options.on_acquire.clone(),
            foreground: self.is_foreground,
            blocked: self.blocked.clone(),
            nice: rustix::process::getpriority_process(None).unwrap_or_default(),
        };
        match link::Guard::start(start, deadlines, &self.options.command, &self.variables()) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => {
                let why = format!("cannot start the guard process: {}", helper::problem(&error));
                let report = Report::Ended(Outcome::not_started(why));
                self.events.extend([Event::Guard(report), Event::GuardEnded]);
            }
        }
    }

    /// What the command finds in its environment.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("REDISLEASE_TOKEN", self.token.to_string().into()),
            ("REDISLEASE_LEASE", self.options.lease.to_string().into()),
            ("REDISLEASE_HOLDER", self.owner.clone().into()),
        ];
        variables
            .extend(self.deadline_file.as_ref().map(|file| ("REDISLEASE_DEADLINE_FILE", file.path.clone().into())));
        variables
    }

    /// The command is stopped now, or has no time left.
    fn shorten_deadlines(&mut self, is_over: bool) {
        let Some(Deadlines { stop_at, kill_at }) = self.deadlines else { return };
        let now = BootTime::now();
        let kill_at = if is_over { kill_at.min(now) } else { kill_at };
        self.deadlines = Some(Deadlines { stop_at: stop_at.min(now), kill_at });
        self.write_deadlines();
    }

    fn write_deadlines(&self) {
        if let (Some(file), Some(deadlines)) = (&self.deadline_file, self.deadlines) {
            file.write(self.token, deadlines);
        }
    }

    /// The end of init, which has been waited for, is the end of its namespace.
    const fn is_namespace_empty(&self) -> bool {
        self.isolation.has_namespace() && self.is_init_known && self.init.is_none()
    }

    /// Kills all descendants, and waits until none is left or `is_proven`. Returns whether that came in time.
    async fn clear(&mut self, is_proven: impl Fn(&Self) -> bool) -> bool {
        let until = BootTime::now().after(CLEAR_WITHIN);
        loop {
            // All descendants become children of this process at last, and it has none.
            if self.reap() || is_proven(self) {
                return true;
            }
            if BootTime::now() >= until {
                return false;
            }
            children::kill_all(&self.strangers);
            tokio::select! {
                signal = self.incoming.next() => {
                    if signal != Signal::SIGCHLD {
                        self.events.push_back(Event::Signal(signal));
                    }
                }
                () = tokio::time::sleep(CLEAR_EVERY) => {}
            }
        }
    }

    async fn release(&mut self, is_used: bool) {
        self.renewals = None;
        self.deadlines = None;
        if let Some(held) = self.held.0.take() {
            if is_used {
                held.release().await
            } else {
                held.release_unused().await
            };
        }
    }

    /// Starts the command of `--on-lost` in a process group of its own.
    fn start_hook(&mut self) {
        let Some(text) = &self.options.on_lost else { return };
        let trap =
            if self.is_foreground { format!("trap '' {}; ", launch::IGNORED_IN_BACKGROUND) } else { String::new() };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{trap}{text}")]).stdin(Stdio::null()).process_group(0);
        helper::keep_signals(&mut command);
        link::set_environment(&mut command, &self.variables());
        let pid = command.spawn().map(|child| Pid::from_raw(i32::try_from(child.id()).unwrap_or_default()));
        match pid {
            Ok(pid) => self.hook = Some((pid, BootTime::now().after(HOOK_WITHIN))),
            Err(error) => {
                say(&format!("cannot start the command of --on-lost: {error}"));
                self.events.push_back(Event::LostHookEnded);
            }
        }
    }

    pub(super) fn kill_hook(&mut self) {
        if let Some((pid, _)) = self.hook.take() {
            say(&format!("the command of --on-lost is killed: it did not end in {HOOK_WITHIN:?}"));
            // It is not reaped, so the number of the group is still its own.
            let _ = killpg(pid, Signal::SIGKILL);
            self.events.push_back(Event::LostHookEnded);
        }
    }

    /// Ends what was begun: an attempt that is dropped deletes the keys that it may have taken.
    pub(super) async fn end(&mut self) {
        if self.options.on_lost.is_some() {
            // What the hook has left is in no namespace.
            self.clear(|_| false).await;
        }
        self.warn_of_servers();
        self.acquiring = None;
        self.renewals = None;
        self.held = Held(None);
        self.show_status();
        // Clients of `--listen` get the last event.
        tokio::task::yield_now().await;
        self.locker.shutdown().await;
        // Its folder may have come late.
        let late = self.deadline_start.arrived(Duration::ZERO).await.ok().flatten();
        if let Some(file) = self.deadline_file.take().or(late) {
            file.end().await;
        }
    }

    pub(super) fn show_status(&self) {
        let held = self.held.0.as_ref().filter(|_| self.machine.is_active());
        let term = held.zip(self.deadlines).map(|(held, deadlines)| (held.token(), deadlines.stop_at));
        self.status.send_if_modified(|status| {
            let is_new = status.term != term;
            status.term = term;
            is_new
        });
    }
}
