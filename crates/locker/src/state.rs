//! What is known about one lock, shared by the thread of the shard and the tasks of the program.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use redislease_core::lease::{Renewal, View};
use redislease_core::lock::{self, Input, Lock};
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

    /// The observer knows of the lock with this token: its span begins, and from now on its loss is reported. One until now is reported
    /// now.
    pub fn begin(&self, token: u64) {
        let span = tracing::info_span!(parent: None, "lock", key = self.key, token);
        let lock = self.lock();
        let _ = self.span.set(span);
        let lost = lock.lost();
        drop(lock);
        self.report_lost(token, lost);
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

    /// Passes an input to the machine. Wakes the readers if they may wait for it. A lock ends once: with a loss, which is reported here,
    /// or when the program lets it go before.
    fn handle(&self, now: Time, input: Input<'_>) -> Handled {
        let mut lock = self.lock();
        let is_running = lock.lost().is_none() && self.span.get().is_some();
        let running = lock.held().map(|term| term.token.0).filter(|_| is_running);
        let wakes = lock.handle(now, input);
        // Without commands this allocates nothing.
        let commands = std::iter::from_fn(|| lock.poll_command()).collect();
        let lost = lock.lost();
        let let_go = running.is_some() && lost.is_none() && lock.is_over();
        drop(lock);
        if let Some(token) = running {
            self.report_lost(token, lost);
        }
        if wakes {
            self.changed.notify_waiters();
        }
        Handled { commands, let_go }
    }

    fn report_lost(&self, token: u64, lost: Option<lock::Lost>) {
        if let Some(lost) = lost.map(Lost::from) {
            tracing::warn!(parent: self.span(), "{lost}");
            self.report(|observer, key| observer.lost(key, token, lost));
        }
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

/// What follows from an input.
struct Handled {
    commands: Vec<Command>,
    /// Whether the program has let go a lock that was valid until now.
    let_go: bool,
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

impl keeper::Policy for Status {
    fn instead(&self, now: Time, input: &keeper::Input) -> Option<Command> {
        let command = self.lock().instead(now, input)?;
        self.changed.notify_waiters();
        Some(command)
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

    /// Passes an input to the machine and its commands to the lease. Returns whether the program has let go a lock that was valid until
    /// now.
    pub fn input(&self, input: Input<'_>) -> bool {
        let Handled { commands, let_go } = self.status.handle(clock::now(), input);
        for command in commands {
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
        let_go
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redislease_core::backoff::{Backoff, Entropy};
    use redislease_core::lease::{EndReason, EndingView, Standing, TermId, TermView};
    use redislease_core::lock::Request;
    use redislease_core::op::{Attempt, Holder, Token};
    use redislease_core::time::Millis;

    use super::*;

    const NOW: Time = Time(10_000);
    const END: Time = Time(11_000);

    #[derive(Clone, Default)]
    struct Losses(Arc<Mutex<Vec<Lost>>>);

    impl Observer for Losses {
        fn lost(&self, _: &str, token: u64, why: Lost) {
            assert_eq!(token, 7);
            self.0.lock().unwrap().push(why);
        }

        fn released(&self, _: &str, _: u64, _: Duration) {
            unreachable!("the guard reports it");
        }
    }

    fn id() -> TermId {
        TermId { attempt: Attempt(1), token: Token(7), holder: Holder("w".into()) }
    }

    /// A lock that the program has and that is valid until `END`.
    fn held() -> (Status, Losses) {
        let (status, losses) = won();
        assert!(!status.handle(NOW, Input::Taken).let_go);
        status.begin(7);
        (status, losses)
    }

    fn won() -> (Status, Losses) {
        let request = Request {
            holder: Holder("w".into()),
            wait: Millis::ZERO,
            retry: Backoff::one_attempt(1),
            max_hold: None,
            hold_at_least: Millis::ZERO,
        };
        let losses = Losses::default();
        let status = Status::new(Lock::new(NOW, request), Observed::by(losses.clone()), "k".to_owned());
        let term = TermView { id: id(), valid_until: Some(END), stop_at: Some(END), failed_rounds: 0 };
        let view = View { standing: Standing::Publishing(term), ..View::default() };
        status.handle(NOW, Input::Shown(&view));
        status.handle(NOW, Input::Wake { paused_until: None, entropy: Entropy(0) });
        (status, losses)
    }

    /// The caller of a request may take its turn long after the request has won, and an observer that is slow delays it.
    #[test]
    fn a_lock_that_was_lost_before_the_observer_knew_of_it_is_lost_when_it_does() {
        for inputs in [[Input::Ended, Input::Taken], [Input::Taken, Input::Ended]] {
            let (status, losses) = won();
            assert!(!inputs.iter().any(|input| status.handle(END, *input).let_go));
            assert_eq!(losses.0.lock().unwrap().as_slice(), []);
            status.begin(7);
            status.handle(END, Input::Ended);
            assert_eq!(losses.0.lock().unwrap().as_slice(), [Lost::Closed], "once");
        }
    }

    /// The loss and the end may come in any order, from two threads.
    #[test]
    fn a_lock_ends_once_with_a_loss_or_because_it_is_let_go() {
        let ending = EndingView { id: id(), reason: EndReason::Misses, sealed: false, keys_until: END };
        let gone = View { ending: Some(Box::new(ending)), ..View::default() };
        let loss = || Input::Shown(&gone);
        for how in [|| Input::LetGo, || Input::Release] {
            let cases = [
                (vec![how(), loss(), Input::Ended], NOW, true, None),
                (vec![loss(), how(), Input::Ended], NOW, false, Some(Lost::Missing)),
                (vec![how(), loss(), Input::Ended], END, false, Some(Lost::Expired)),
                (vec![Input::Closed, how(), Input::Ended], NOW, false, Some(Lost::Closed)),
                (vec![Input::Ended, how(), how()], NOW, false, Some(Lost::Closed)),
                (vec![how(), how()], NOW, true, None),
            ];
            for (inputs, now, let_go, lost) in cases {
                let (status, losses) = held();
                let counted = inputs.iter().filter(|input| status.handle(now, **input).let_go).count();
                assert_eq!(
                    (counted, losses.0.lock().unwrap().as_slice()),
                    (usize::from(let_go), lost.as_slice()),
                    "{inputs:?}"
                );
            }
        }
    }
}
