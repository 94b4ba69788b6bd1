//! A lock that was acquired.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use redislease_core::lease::{Config, TermId};
use redislease_core::lock::{Input, Lock};
use redislease_core::time::{Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::Command;
use tokio_util::sync::CancellationToken;

use crate::deadlines::Place;
use crate::local::Keys;
use crate::state::{Session, Status};
use crate::{AcquireError, Locker, Lost, Renewals};

/// A lock. It is renewed until it is released, dropped or lost.
///
/// Dropping a guard releases the lock. That never blocks and never panics, with or without a runtime, also while a panic unwinds.
/// But dropping does not stop work that was spawned, or that blocks: such work may go on while another process has the lock. And at
/// the end of a program the release may not be sent any more: call [`release`](Self::release), or the lock expires with its TTL.
/// Dropping a guard whose lock was lost deletes no keys, because such work may need the time until they expire to stop.
///
/// Work that blocks looks at the lock before each effect. Work that awaits can be left to [`run`](Self::run).
///
/// ```
/// # use redislease_locker::{Guard, Lost};
/// # fn write(_row: u32, _token: u64) {}
/// fn work(guard: &Guard) -> Result<(), Lost> {
///     for row in 0..1000 {
///         write(row, guard.check()?);
///     }
///     Ok(())
/// }
/// ```
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard {
    locker: Locker,
    keys: Keys,
    config: Config,
    session: Session,
    term: TermId,
    since: Time,
    /// With `max_hold`.
    deadline: Option<Place>,
    lost_token: OnceLock<CancellationToken>,
    is_let_go: bool,
}

/// What [`Guard::release`] has done. See the example of [`Request::hold_at_least`](crate::Request::hold_at_least).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// A majority of the servers has deleted the keys: another program can acquire the lock now.
    Majority,
    /// A majority of the servers will delete the keys after this time, and not before: the request has asked for it with
    /// [`hold_at_least`](crate::Request::hold_at_least). Until then no program can acquire the lock.
    Kept {
        /// How long the keys still exist.
        free_in: Duration,
    },
    /// No majority has answered a release in time. On a server that does not answer, or is not connected, the keys expire with
    /// their TTL.
    Queued,
    /// The lock was lost before. The servers that are connected have deleted the keys that they still had. On others they expire with
    /// their TTL, and on all of them after [`Locker::shutdown`], or if [`hold_at_least`](crate::Request::hold_at_least) has not passed.
    AlreadyLost(Lost),
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("keys", &self.keys)
            .field("token", &self.token())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

impl Guard {
    pub(crate) fn new(locker: Locker, keys: Keys, config: Config, session: Session, term: TermId) -> Self {
        locker.0.local.held(term.attempt);
        let (since, lost_token) = (clock::now(), OnceLock::new());
        Self { locker, keys, config, session, term, since, deadline: None, lost_token, is_let_go: false }
    }

    /// The program gets this guard now. A guard that no program has had is released at once.
    ///
    /// # Errors
    /// The lease was closed meanwhile, and its keys are deleted.
    pub(crate) fn taken(mut self) -> Result<Self, AcquireError> {
        self.session.0.input(Input::Taken);
        let (is_held, ends_at) = self.status().read(|lock| (lock.held().is_some(), lock.next_deadline()));
        if !is_held {
            return Err(AcquireError::Closed);
        }
        let inner = &self.locker.0;
        self.deadline = ends_at.map(|at| inner.deadlines.add(&inner.nodes, at, self.session.0.clone()));
        Ok(self)
    }

    /// The observer knows of this guard now.
    pub(crate) fn reported(&self) {
        self.status().begin(self.token());
    }

    fn status(&self) -> &Arc<Status> {
        &self.session.0.status
    }

    /// The fencing token, below 2^53: greater than the tokens of all earlier locks with one of its keys, and of all locks on the same
    /// servers and prefix that were acquired before its request began. It is no ID: locks of different keys that are acquired at the same
    /// time can have one token. Send it with every write, see [`guide::fencing`](crate::guide::fencing). After a majority of the servers
    /// has lost its data, this depends on clocks, see [`guide::limits`](crate::guide::limits). See the example of
    /// [`Request::acquire`](crate::Request::acquire).
    pub const fn token(&self) -> u64 {
        self.term.token.0
    }

    /// How long the lock is still valid if it is not renewed again, less the [`stop_budget`](crate::Request::stop_budget). Zero if it
    /// was lost. See the example of [`extend`](Self::extend).
    pub fn valid_for(&self) -> Duration {
        let now = clock::now();
        let until = self.status().read(|lock| self.valid_at(lock, now).ok().and_then(|()| lock.valid_until()));
        until.map_or(Duration::ZERO, |until| until.since(now).into())
    }

    fn valid_at(&self, lock: &Lock, now: Time) -> Result<(), Lost> {
        if self.locker.0.is_closed() {
            return Err(Lost::Closed);
        }
        lock.check(now).map(drop).map_err(Lost::from)
    }

    /// Whether the lock is valid now, by the clock of this process. It is cheap: call it before each write. Returns the token.
    /// See the example of [`Guard`].
    ///
    /// The process can be paused between this call and the write, see [`guide::limits`](crate::guide::limits). After a pause of a
    /// virtual machine only [`verify`](Self::verify) tells whether the lock is still held: the clock of this process stood still.
    ///
    /// # Errors
    /// Why the lock is not valid any more.
    pub fn check(&self) -> Result<u64, Lost> {
        self.status().read(|lock| self.valid_at(lock, clock::now())).map(|()| self.token())
    }

    /// Asks the servers whether they still hold the lock, which also renews it. Returns the token when a majority has confirmed it
    /// after this call.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").acquire().await?;
    /// // Slow work, in which the machine may have been paused.
    /// let token = guard.verify().await?;
    /// println!("write the report with token {token}");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Why the lock is not valid any more. Without a majority that answers, the call waits until the lock expires.
    pub async fn verify(&self) -> Result<u64, Lost> {
        let asked = clock::now();
        self.proven_since(asked, self.config.drift.least(self.config.ttl)).await
    }

    /// Renews the lock now, with a longer TTL for this and all later renewals: at least the present one, and at most the
    /// [`longest_lease`](crate::LockerBuilder::longest_lease). Returns the token when a majority has confirmed it. If the future is
    /// dropped, the longer TTL is used all the same.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let mut guard = locker.lock("report").ttl(Duration::from_millis(400)).acquire().await?;
    /// guard.extend(Duration::from_secs(1)).await?;
    /// assert!(guard.valid_for() > Duration::from_millis(400));
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Invalid`] if the TTL does not fit; the lock stays as it is. [`AcquireError::Lost`] if it was lost.
    pub async fn extend(&mut self, ttl: Duration) -> Result<u64, AcquireError> {
        let longest = self.locker.0.nodes.longest_lease();
        let asked_for = Millis::from(ttl);
        if asked_for > longest || asked_for < self.config.ttl {
            let problem = format!(
                "it cannot be extended to {ttl:?}: use {:?}, the present ttl, to {:?}, the longest_lease of the Locker",
                Duration::from(self.config.ttl),
                Duration::from(longest),
            );
            return Err(AcquireError::Invalid { key: Some(self.status().key().to_owned()), problem });
        }
        self.config.ttl = asked_for;
        self.session.0.command(Command::Configure(Box::new(self.config.clone())));
        let asked = clock::now();
        let proven = self.proven_since(asked, self.config.drift.least(asked_for)).await;
        proven.map_err(|why| AcquireError::Lost { key: self.status().key().to_owned(), why })
    }

    /// Returns when a round that began after `asked` has confirmed the lock for `validity`.
    async fn proven_since(&self, asked: Time, validity: Millis) -> Result<u64, Lost> {
        let mut seen = None;
        let mut proven = |lock: &Lock| {
            let valid = self.valid_at(lock, clock::now());
            if let Err(lost) = valid {
                return Some(Err(lost));
            }
            // A round that began in the same millisecond may be older than the call.
            if lock.term().is_some_and(|term| term.valid_until.is_some_and(|until| until > asked + validity)) {
                return Some(Ok(None));
            }
            // Another round is needed after each report.
            (seen.replace(lock.reports()) != Some(lock.reports())).then_some(Ok(Some(())))
        };
        while let Some(()) = self.status().wait_for(&mut proven).await? {
            self.session.0.command(Command::Prove);
        }
        self.check()
    }

    /// The renewals from now on, for a program that tells another process how long the lock is valid. See the example of [`Renewals`].
    pub fn renewals(&self) -> Renewals {
        let valid_until = self.status().read(Lock::valid_until);
        Renewals::new(self.status().clone(), valid_until)
    }

    /// Returns when the lock is lost.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").max_hold(Duration::from_millis(100)).acquire().await?;
    /// tokio::select! {
    ///     lost = guard.lost() => assert_eq!(lost, Lost::MaxHold),
    ///     () = std::future::pending() => println!("the work is done"),
    /// }
    /// # Ok(()) }) }
    /// ```
    pub async fn lost(&self) -> Lost {
        tokio::select! {
            biased;
            lost = self.status().wait_for(Lock::lost) => lost.into(),
            () = self.locker.0.closed.cancelled() => Lost::Closed,
        }
    }

    /// A token that is cancelled when the lock is lost, released or dropped, for code that works with
    /// [`CancellationToken`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").max_hold(Duration::from_millis(100)).acquire().await?;
    /// let lost = guard.lost_token();
    /// let work = tokio::spawn(async move {
    ///     tokio::select! {
    ///         () = lost.cancelled() => "stopped",
    ///         () = std::future::pending() => "done",
    ///     }
    /// });
    /// assert_eq!(work.await?, "stopped");
    /// # Ok(()) }) }
    /// ```
    pub fn lost_token(&self) -> CancellationToken {
        let token = self.lost_token.get_or_init(|| {
            let (token, status) = (CancellationToken::new(), self.status().clone());
            // The thread of the nodes may end before the task has its turn.
            let (cancelled, closed) = (token.clone().drop_guard(), self.locker.0.closed.clone());
            self.locker.0.nodes.spawn(async move {
                let ends = status.wait_for(|lock| (lock.lost().is_some() || lock.is_over()).then_some(()));
                tokio::select! {
                    () = ends => {}
                    () = closed.cancelled() => {}
                }
                drop(cancelled);
            });
            token
        });
        // The task may not have had its turn since the loss.
        if self.check().is_err() {
            token.cancel();
        }
        // A program that cancels its token cancels no other.
        token.child_token()
    }

    /// Runs `work`, and drops it when the lock is lost, one [`stop_budget`](crate::Request::stop_budget) before the lock expires. The
    /// validity is checked before each step of `work`, and after the last one. The steps run in the `tracing` span of the lock.
    ///
    /// Dropping a future stops it at its next `await`. It does not stop what it has spawned, or code that blocks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// # async fn write_report(_token: u64) -> usize { 17 }
    /// let guard = locker.lock("report").acquire().await?;
    /// let lines = guard.run(write_report(guard.token())).await?;
    /// assert_eq!(lines, 17);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Why the lock was lost.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        std::future::poll_fn(|context| {
            if let Poll::Ready(lost) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            if let Err(lost) = self.check() {
                return Poll::Ready(Err(lost));
            }
            let _entered = self.status().span().enter();
            // A step that blocked may have ended after the lock.
            work.as_mut().poll(context).map(|done| self.check().map(|_| done))
        })
        .await
    }

    /// Releases the lock, and waits until a majority of the servers has deleted the keys, at most one
    /// [`command_timeout`](crate::LockerBuilder::command_timeout). The work must have stopped. Before the time of
    /// [`hold_at_least`](crate::Request::hold_at_least) has passed, the keys stay until then ([`Released::Kept`]). If the future is
    /// dropped, the lock is released all the same. See the example of [`Request::hold_at_least`](crate::Request::hold_at_least).
    pub async fn release(mut self) -> Released {
        if !self.let_go(Input::Release) {
            self.status().wait_for(|lock| lock.has_ended().then_some(())).await;
            return Released::AlreadyLost(self.status().read(Lock::lost).map_or(Lost::Closed, Lost::from));
        }
        let released = |lock: &Lock| (lock.is_released() || lock.has_ended()).then_some(lock.is_released());
        if !self.status().wait_for(released).await {
            return Released::Queued;
        }
        let keep_until = self.status().read(Lock::keep_until);
        let left = keep_until.map_or(Millis::ZERO, |until| until.since(clock::now()));
        if left > Millis::ZERO { Released::Kept { free_in: left.into() } } else { Released::Majority }
    }

    /// The same as [`release`](Self::release), for a task that has not begun: the keys are deleted now, also before the time of
    /// [`hold_at_least`](crate::Request::hold_at_least) has passed.
    /// See the example of [`Request::hold_at_least`](crate::Request::hold_at_least).
    pub async fn release_unused(self) -> Released {
        self.session.0.input(Input::Unused);
        self.release().await
    }

    /// Ends this guard and leaves the keys to expire with their TTL, without renewals. For a program whose work may go on after it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").acquire().await?;
    /// guard.abandon();
    /// assert!(matches!(locker.inspect("report").await, Inspection::Held { .. }));
    /// # Ok(()) }) }
    /// ```
    pub fn abandon(self) {
        self.session.0.input(Input::Abandon);
    }

    /// Returns whether the lock was valid until now.
    fn let_go(&mut self, how: Input<'_>) -> bool {
        if std::mem::replace(&mut self.is_let_go, true) {
            return false;
        }
        if self.locker.0.is_closed() {
            self.session.0.input(Input::Closed);
        }
        let was_valid = self.session.0.input(how);
        if was_valid {
            let held = clock::now().since(self.since).into();
            self.status().report(|observer, key| observer.released(key, self.token(), held));
        }
        let freed = if self.status().read(Lock::is_freed) { &*self.keys } else { &[] };
        self.locker.0.local.ended(self.term.attempt, freed);
        was_valid
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(place) = self.deadline {
            self.locker.0.deadlines.remove(place);
        }
        self.let_go(Input::LetGo);
    }
}
