//! What is known about one lock, shared by the thread of the shard and the tasks of the program.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use redislease_core::lease::{Renewal, View};
use redislease_core::lock::{Input, Lock};
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_lock::keeper::{self, Command, LeaseHandle};
use tokio::sync::Notify;
use tracing::Span;

use crate::observer::Observed;
use crate::{Lost, Observer};

/// The machine of one lock, and who waits for it to change. A channel costs several times as much for each change.
#[derive(Debug)]
pub struct Status {
    lock: Mutex<Lock>,
    changed: Notify,
    observer: Observed,
    /// The first key, for the observer.
    key: String,
    /// From the return of the acquire until the lock has ended.
    span: OnceLock<Span>,
}

impl Status {
    pub fn new(lock: Lock, observer: Observed, key: String) -> Self {
        Self { lock: Mutex::new(lock), changed: Notify::new(), observer, key, span: OnceLock::new() }
    }

    /// The first key of the request.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Begins the span of the term with this token.
    pub fn begin_span(&self, token: u64) {
        self.span.get_or_init(|| tracing::info_span!(parent: None, "lock", key = self.key, token));
    }

    /// The span of the term; a disabled one before.
    pub fn span(&self) -> &Span {
        static NONE: Span = Span::none();
        self.span.get().unwrap_or(&NONE)
    }

    fn lock(&self) -> MutexGuard<'_, Lock> {
        // The machine is consistent between any two statements that change it.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the machine. `read` is short: the shard serves other locks.
    pub fn read<R>(&self, read: impl FnOnce(&Lock) -> R) -> R {
        read(&self.lock())
    }

    /// Passes an input to the machine and returns its commands. Wakes the readers if they may wait for it.
    fn handle(&self, now: Time, input: Input<'_>) -> Vec<Command> {
        let mut lock = self.lock();
        let known = lock.lost();
        let wakes = lock.handle(now, input);
        // Without commands this allocates nothing.
        let commands = std::iter::from_fn(|| lock.poll_command()).collect();
        let lost = lock.held().filter(|_| known.is_none()).and_then(|term| Some((term.token.0, lock.lost()?)));
        drop(lock);
        if let Some((token, lost)) = lost {
            let lost = Lost::from(lost);
            tracing::warn!(parent: self.span(), "the lock is lost: {lost}");
            self.report(|observer, key| observer.lost(key, token, lost));
        }
        if wakes {
            self.changed.notify_waiters();
        }
        commands
    }

    /// Reports to the observer, with the first key.
    pub fn report(&self, report: impl FnOnce(&dyn Observer, &str)) {
        self.observer.report(|observer| report(observer, &self.key));
    }

    /// Returns what `probe` finds, when it finds something.
    pub async fn wait_for<R>(&self, mut probe: impl FnMut(&Lock) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change between the probe and the wait counts.
            changed.as_mut().enable();
            if let Some(found) = self.read(&mut probe) {
                return found;
            }
            changed.await;
        }
    }
}

/// Passes on the reports of the shard. They have no effect before somebody considers them.
pub struct Reports(pub Arc<Status>);

impl Drop for Reports {
    /// The thread of the shard may end without another report.
    fn drop(&mut self) {
        keeper::Observer::ended(self);
    }
}

impl keeper::Observer for Reports {
    fn renewed(&self, renewal: &Renewal, _: u64) {
        let took = if let Renewal::Success { took, .. } = renewal { Some((*took).into()) } else { None };
        self.0.report(|observer, key| observer.renewed(key, took));
    }

    fn changed(&self, view: &View) {
        self.0.handle(Time(0), Input::Shown(view));
    }

    fn released(&self) {
        self.0.handle(Time(0), Input::Released);
    }

    fn ended(&self) {
        self.0.handle(Time(0), Input::Ended);
    }
}

/// The machine of one lock together with the lease that carries out its effects.
#[derive(Debug)]
pub struct Driver {
    /// `None` after a release.
    handle: Mutex<Option<LeaseHandle>>,
    pub status: Arc<Status>,
}

impl Driver {
    pub fn new(handle: LeaseHandle, status: Arc<Status>) -> Self {
        Self { handle: Mutex::new(Some(handle)), status }
    }

    fn handle(&self) -> MutexGuard<'_, Option<LeaseHandle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command, if the lock was not let go.
    pub fn command(&self, command: Command) {
        if let Some(handle) = &*self.handle() {
            handle.command(command);
        }
    }

    /// Passes an input to the machine and its commands to the lease.
    pub fn input(&self, input: Input<'_>) {
        for command in self.status.handle(clock::now(), input) {
            match command {
                Command::Release { keep_until } => {
                    let handle = self.handle().take();
                    if let Some(handle) = handle {
                        handle.release(keep_until);
                    }
                }
                // Dropping the handle closes the lease.
                Command::Close => drop(self.handle().take()),
                command => self.command(command),
            }
        }
    }
}

/// The program's side of a lock: what exists is released when it is dropped.
#[derive(Debug)]
pub struct Session(pub Arc<Driver>);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.input(Input::LetGo);
    }
}
