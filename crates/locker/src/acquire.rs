//! The attempts of one request. They run on the thread of the nodes: an attempt needs no change of thread.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redislease_core::lease::{Config, TermId, View};
use redislease_core::op::Holder;
use redislease_core::time::{Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::{LeaseHandle, Setup};
use redislease_lock::nodes::random::Random;
use tokio::sync::{oneshot, watch};

use crate::guard::Guard;
use crate::local::{Keys, Waiting};
use crate::state::{Reports, State};
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
pub type Answer = oneshot::Receiver<Result<Guard, AcquireError>>;

/// Starts the attempts.
pub fn start(plan: Plan) -> Answer {
    let (mut answer, answered) = oneshot::channel();
    let nodes = plan.locker.0.nodes.clone();
    nodes.spawn(async move {
        let mut attempts = Attempts::open(plan);
        let closed = attempts.plan.locker.0.closed.clone();
        let result = tokio::select! {
            biased;
            () = answer.closed() => return,
            () = closed.cancelled() => Err(AcquireError::Closed),
            result = attempts.run() => result,
        };
        // A guard that the caller does not want any more is dropped, which releases it.
        let _ = answer.send(result.map(|term| attempts.into_guard(term)));
    });
    answered
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
    state: watch::Receiver<State>,
    reports: watch::Sender<State>,
    plan: Plan,
    /// From the first failure on.
    waiting: Option<Waiting>,
}

impl Attempts {
    fn open(plan: Plan) -> Self {
        let (reports, state) = watch::channel(State::default());
        let inner = &plan.locker.0;
        let handle = inner.keeper.open(Setup {
            nodes: Some(inner.nodes.clone()),
            keys: plan.keys.clone(),
            config: plan.lease.clone(),
            may_end: None,
            jump_wait: None,
            observer: Box::new(Reports(reports.clone())),
        });
        handle.keep_keys_for(plan.hold_at_least);
        Self { lease: Lease::new(handle), state, reports, plan, waiting: None }
    }

    async fn run(&mut self) -> Result<TermId, AcquireError> {
        let until = clock::now() + self.plan.wait;
        let mut random = Random::new();
        let mut failures = 0;
        loop {
            failures += 1;
            let (error, free_at) = match self.attempt(until).await {
                Ok(term) => return Ok(term),
                Err((AcquireError::Closed, _)) => return Err(AcquireError::Closed),
                Err(failed) => failed,
            };
            let now = clock::now();
            let delay = self.plan.retry.jittered(failures, &mut random).map(Millis::from);
            // One attempt was asked for.
            let Some(delay) = delay.filter(|_| self.plan.wait > Millis::ZERO) else { return Err(error) };
            if now >= until {
                return Err(AcquireError::TimedOut { waited: self.plan.wait.into(), last: Box::new(error) });
            }
            let at = free_at.map_or(now + delay, |free_at| free_at.min(now + delay));
            self.pause(at.min(until).since(now)).await;
        }
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
        self.reports.send_modify(State::begin);
        let failed = self.state.borrow_and_update().failed;
        loop {
            self.lease.with(|handle| handle.want(self.plan.owner.clone()));
            // Without a report for long, the request had no effect. It is repeated.
            let reported = tokio::time::timeout(SILENCE, self.state.changed()).await;
            let now = clock::now();
            let turn = {
                let state = self.state.borrow_and_update();
                if state.ended || reported.is_ok_and(|open| open.is_err()) {
                    return Err((AcquireError::Closed, None));
                }
                if let Ok(term) = state.lost_at(now) {
                    return Ok(term.id.clone());
                }
                let has_failed = state.failed != failed || state.lost.is_some();
                if has_failed { Err(state.view.clone()) } else { Ok(state.view.retry_at) }
            };
            let turn = turn.map_err(|view| self.why(&view, now))?;
            let Some(turn) = turn.filter(|turn| *turn > now) else { continue };
            let paused = self.paused_until().filter(|paused| *paused > now);
            if let Some(paused) = paused.filter(|paused| *paused >= until || self.plan.wait == Millis::ZERO) {
                let (key, free_in) = (self.plan.name.clone(), paused.since(now).into());
                return Err((AcquireError::ClockStoodStill { key, free_in }, None));
            }
            if turn >= until && self.plan.wait > Millis::ZERO {
                return Err((AcquireError::TooSlow { key: self.plan.name.clone() }, None));
            }
            tokio::time::sleep(turn.since(now).into()).await;
        }
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
        (AcquireError::Held { key, by: by.metadata.clone(), free_in: free_in.into() }, view.retry_at)
    }

    fn into_guard(self, term: TermId) -> Guard {
        let Self { lease, state, reports, plan, waiting } = self;
        let guard = Guard::new(plan.locker, plan.keys, plan.lease, plan.hold_at_least, lease, state, term);
        drop(waiting);
        if let Some(longest) = plan.max_hold {
            guard.end_at(clock::now() + longest, reports);
        }
        guard
    }
}
