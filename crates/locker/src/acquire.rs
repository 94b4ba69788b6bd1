//! The attempts of one request. The future of the caller waits for the first one. The others, if there are any, run on the thread of the
//! nodes, which has a clock and timers.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redislease_core::lease::{Config, TermId, View};
use redislease_core::op::Holder;
use redislease_core::time::{Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::{LeaseHandle, Setup};
use redislease_lock::nodes::random::Random;
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::inspect::{self, Inspection, split};
use crate::local::{Keys, Waiting};
use crate::state::{Reports, State, Status};
use crate::{AcquireError, Locker, Retry};

/// How long an attempt may give no report. Then it is requested again.
const SILENCE: Duration = Duration::from_secs(1);

/// The checked values of a request.
#[derive(Debug)]
pub struct Plan {
    pub locker: Locker,
    /// The first key, as the program names it.
    pub name: String,
    pub keys: Keys,
    pub owner: Holder,
    pub lease: Config,
    pub wait: Millis,
    pub retry: Retry,
    pub max_hold: Option<Millis>,
    pub hold_at_least: Millis,
}

/// The result for the caller. If the caller drops it, what was acquired is released.
type Answer = oneshot::Receiver<Result<Guard, AcquireError>>;

/// Makes the attempts. If the future is dropped, what was acquired is released.
pub async fn acquire(plan: Plan) -> Result<Guard, AcquireError> {
    let attempts = Attempts::open(plan);
    // The task of another thread and the way back cost as much as the attempt.
    attempts.status.wait_for(|state| (state.reports > 0 || state.ended).then_some(())).await;
    if let Some(term) = attempts.status.read(|state| state.lost_at(clock::now()).ok().map(|term| term.id.clone())) {
        return Ok(attempts.into_guard(term));
    }
    attempts.go_on().await.unwrap_or(Err(AcquireError::Closed))
}

/// The same. It blocks this thread.
pub fn acquire_blocking(plan: Plan) -> Result<Guard, AcquireError> {
    Attempts::open(plan).go_on().blocking_recv().unwrap_or(Err(AcquireError::Closed))
}

/// The handle of a lease. `None` after a release.
type Handle = Mutex<Option<LeaseHandle>>;

fn take(handle: &Handle) -> Option<LeaseHandle> {
    handle.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn with(handle: &Handle, command: impl FnOnce(&LeaseHandle)) {
    if let Some(handle) = &*handle.lock().unwrap_or_else(PoisonError::into_inner) {
        command(handle);
    }
}

/// A lease that is released when it is dropped.
#[derive(Debug)]
pub struct Lease(Arc<Handle>);

/// A lease that something else releases.
pub struct WeakLease(Weak<Handle>);

impl WeakLease {
    /// Sends a command, if the lease was not released.
    pub fn with(&self, command: impl FnOnce(&LeaseHandle)) {
        if let Some(handle) = self.0.upgrade() {
            with(&handle, command);
        }
    }
}

impl Lease {
    fn new(handle: LeaseHandle) -> Self {
        Self(Arc::new(Mutex::new(Some(handle))))
    }

    pub fn downgrade(&self) -> WeakLease {
        WeakLease(Arc::downgrade(&self.0))
    }

    /// Sends a command, if the lease was not released.
    pub fn with(&self, command: impl FnOnce(&LeaseHandle)) {
        with(&self.0, command);
    }

    /// Deletes the keys, or lets them end at `keep_until`, and closes the lease.
    pub fn release(&self, keep_until: Option<Time>) {
        if let Some(handle) = take(&self.0) {
            match keep_until {
                Some(until) => handle.release_at(until),
                None => handle.release(),
            }
        }
    }

    /// Closes the lease without a release: its keys expire.
    pub fn abandon(&self) {
        drop(take(&self.0));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release(None);
    }
}

/// Why an attempt failed, and when the keys of the holder expire.
type Failed = (AcquireError, Option<Time>);

struct Attempts {
    lease: Lease,
    status: Arc<Status>,
    plan: Plan,
    until: Time,
    /// From the first failure on.
    waiting: Option<Waiting>,
}

impl Attempts {
    /// Opens a lease, which begins its first attempt.
    fn open(plan: Plan) -> Self {
        let status = Arc::new(Status::default());
        let until = clock::now() + plan.wait;
        let inner = &plan.locker.0;
        let setup = Setup {
            nodes: Some(inner.nodes.clone()),
            keys: plan.keys.clone(),
            config: plan.lease.clone(),
            may_end: None,
            jump_wait: None,
            observer: Box::new(Reports(status.clone())),
        };
        let handle = inner.keeper.open_wanted(setup, plan.hold_at_least, plan.owner.clone());
        Self { lease: Lease::new(handle), status, plan, until, waiting: None }
    }

    /// Waits for the first attempt and makes the others, on the thread of the nodes.
    fn go_on(mut self) -> Answer {
        let (mut answer, answered) = oneshot::channel();
        let nodes = self.plan.locker.0.nodes.clone();
        nodes.spawn(async move {
            let closed = self.plan.locker.0.closed.clone();
            let result = tokio::select! {
                biased;
                () = answer.closed() => return,
                () = closed.cancelled() => Err(AcquireError::Closed),
                result = self.run() => result,
            };
            // A guard that the caller does not want any more is dropped, which releases it.
            let _ = answer.send(result.map(|term| self.into_guard(term)));
        });
        answered
    }

    async fn run(&mut self) -> Result<TermId, AcquireError> {
        let until = self.until;
        let mut random = Random::new();
        let mut failures = 0;
        loop {
            let attempted = if failures == 0 { self.ended(0, 0, until).await } else { self.attempt(until).await };
            failures += 1;
            let (error, free_at) = match attempted {
                Ok(term) => return Ok(term),
                Err((AcquireError::Closed, _)) => return Err(AcquireError::Closed),
                Err(failed) => failed,
            };
            let now = clock::now();
            let delay = self.plan.retry.jittered(failures, &mut random).map(Millis::from);
            // One attempt was asked for.
            let Some(delay) = delay.filter(|_| self.plan.wait > Millis::ZERO) else {
                return Err(self.with_expiry(error).await);
            };
            if now >= until {
                let last = Box::new(self.with_expiry(error).await);
                return Err(AcquireError::TimedOut { waited: self.plan.wait.into(), last });
            }
            let at = free_at.map_or(now + delay, |free_at| free_at.min(now + delay));
            self.pause(at.min(until).since(now)).await;
        }
    }

    /// Asks the servers when the keys of the other holder expire, if the last attempt has not shown it: one that cannot get a majority
    /// any more is over with the answer of a single server.
    async fn with_expiry(&self, mut error: AcquireError) -> AcquireError {
        if let AcquireError::Held { free_in, .. } = &mut error
            && self.status.read(|state| state.view.refusal.is_none())
        {
            let nodes = &self.plan.locker.0.nodes;
            let answers = nodes.read(&self.plan.keys[0]).await;
            if let Inspection::Held { ttl_left, .. } = inspect::decide(nodes.quorum(), &answers) {
                *free_in = ttl_left;
            }
        }
        error
    }

    /// Waits for `span`, or until a guard of this `Locker` releases the keys.
    async fn pause(&mut self, span: Millis) {
        let Self { plan, waiting, .. } = self;
        let waiting = waiting.get_or_insert_with(|| plan.locker.0.local.wait(&plan.keys));
        tokio::select! {
            () = waiting.released() => {}
            () = tokio::time::sleep(span.into()) => {}
        }
        self.lease.with(LeaseHandle::try_now);
    }

    /// Makes one attempt, which may have to wait for its turn until `until`.
    async fn attempt(&mut self, until: Time) -> Result<TermId, Failed> {
        self.status.change(State::begin);
        let (failed, reports) = self.status.read(|state| (state.failed, state.reports));
        self.want();
        self.ended(failed, reports, until).await
    }

    fn want(&self) {
        self.lease.with(|handle| handle.want(self.plan.owner.clone()));
    }

    /// Waits for the end of an attempt that is requested. `failed` attempts had failed before it, and the state had changed `seen`
    /// times.
    async fn ended(&mut self, failed: u32, mut seen: u64, until: Time) -> Result<TermId, Failed> {
        loop {
            let changed = self.status.wait_for(|state| (state.reports != seen || state.ended).then_some(()));
            // Without a report for long, the request had no effect. It is repeated.
            let _ = tokio::time::timeout(SILENCE, changed).await;
            let now = clock::now();
            let turn = self.status.read(|state| {
                seen = state.reports;
                if state.ended {
                    return Err(Err((AcquireError::Closed, None)));
                }
                if let Ok(term) = state.lost_at(now) {
                    return Err(Ok(term.id.clone()));
                }
                let has_failed = state.failed != failed || state.lost.is_some();
                if has_failed { Err(Err(self.why(&state.view, now))) } else { Ok(state.view.retry_at) }
            });
            let turn = match turn {
                Ok(turn) => turn,
                Err(ended) => return ended,
            };
            if let Some(turn) = turn.filter(|turn| *turn > now) {
                self.wait_for_turn(now, turn, until).await?;
            }
            self.want();
        }
    }

    /// Waits until an attempt can begin.
    async fn wait_for_turn(&self, now: Time, turn: Time, until: Time) -> Result<(), Failed> {
        let paused = self.paused_until().filter(|paused| *paused > now);
        if let Some(paused) = paused.filter(|paused| *paused >= until || self.plan.wait == Millis::ZERO) {
            let (key, free_in) = (self.plan.name.clone(), paused.since(now).into());
            return Err((AcquireError::ClockStoodStill { key, free_in }, None));
        }
        if turn >= until && self.plan.wait > Millis::ZERO {
            return Err((AcquireError::TooSlow { key: self.plan.name.clone() }, None));
        }
        tokio::time::sleep(turn.since(now).into()).await;
        Ok(())
    }

    /// Until when this process makes no attempt, because its clock stood still.
    fn paused_until(&self) -> Option<Time> {
        let nodes = &self.plan.locker.0.nodes;
        let at = nodes.jumped_at()?;
        Some(at + self.plan.lease.drift.most(nodes.longest_lease()))
    }

    /// Why the last attempt failed.
    fn why(&self, view: &View, now: Time) -> Failed {
        let inner = &self.plan.locker.0;
        let key = self.plan.name.clone();
        let Some(by) = &view.refused_by else {
            let voting = inner.has_majority();
            let error = if voting {
                AcquireError::TooSlow { key }
            } else {
                AcquireError::NoMajority { key, nodes: inner.node_list() }
            };
            return (error, None);
        };
        if inner.local.holds(&self.plan.keys, by.attempt) {
            return (AcquireError::AlreadyHeldHere { key }, view.retry_at);
        }
        let free_in = view.retry_at.map_or(Millis::ZERO, |at| at.since(now));
        (AcquireError::Held { key, by: split(&by.metadata).0.to_owned(), free_in: free_in.into() }, view.retry_at)
    }

    fn into_guard(self, term: TermId) -> Guard {
        let Self { lease, status, plan, waiting, .. } = self;
        let guard = Guard::new(plan.locker, plan.keys, plan.lease, plan.hold_at_least, lease, status, term);
        drop(waiting);
        if let Some(longest) = plan.max_hold {
            guard.end_at(clock::now() + longest);
        }
        guard
    }
}
