//! The attempts of one request. The future of the caller waits for the first one. The others, if there are any, run on the thread of the
//! nodes, which has a clock and timers. What follows from each answer is decided by [`Lock`].

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::lease::{Config, TermId};
use redislease_core::lock::{Failure, Input, Lock, Refusal, Request};
use redislease_core::time::{Millis, Time};
use redislease_lock::clock;
use redislease_lock::keeper::Setup;
use redislease_lock::nodes::Shown;
use redislease_lock::nodes::random::Random;
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::inspect::{self, Inspection, split};
use crate::local::{Keys, Waiting};
use crate::state::{Driver, Reports, Session, Status};
use crate::{AcquireError, Locker};

/// The checked values of a request.
#[derive(Debug)]
pub struct Plan {
    pub locker: Locker,
    /// The keys, as the program names them.
    pub names: Vec<String>,
    pub keys: Keys,
    pub lease: Config,
    pub request: Request,
}

/// The attempts that have won, or why there is no lock. If the caller drops it, what was acquired is released.
type Answer = oneshot::Receiver<Result<Attempts, AcquireError>>;

/// Makes the attempts. If the future is dropped, what was acquired is released.
pub async fn acquire(plan: Plan) -> Result<Guard, AcquireError> {
    let mut attempts = Attempts::open(plan);
    // The task of another thread and the way back cost as much as the attempt.
    attempts.status().wait_for(|lock| (lock.reports() > 0 || lock.has_ended()).then_some(())).await;
    if attempts.status().read(|lock| lock.check(clock::now()).is_ok()) {
        attempts.wake(Entropy(0));
    }
    loop {
        // The lock may have ended before this future was polled.
        if let Some(term) = attempts.won() {
            return attempts.into_guard(term);
        }
        attempts = attempts.go_on().await.unwrap_or(Err(AcquireError::Closed))?;
    }
}

/// The same. It blocks this thread.
pub fn acquire_blocking(plan: Plan) -> Result<Guard, AcquireError> {
    let mut attempts = Attempts::open(plan);
    loop {
        attempts = attempts.go_on().blocking_recv().unwrap_or(Err(AcquireError::Closed))?;
        if let Some(term) = attempts.won() {
            return attempts.into_guard(term);
        }
    }
}

struct Attempts {
    session: Session,
    plan: Plan,
    /// From the first failure on.
    waiting: Option<Waiting>,
}

impl Plan {
    /// The first key, as the program names it.
    fn name(&self) -> String {
        self.names.first().cloned().unwrap_or_default()
    }
}

impl Attempts {
    /// Opens a lease, which begins its first attempt.
    fn open(plan: Plan) -> Self {
        let inner = &plan.locker.0;
        let mut lock = Lock::new(clock::now(), plan.request.clone());
        // The first effect is the first attempt, which begins together with the lease.
        lock.poll_command();
        let status = Arc::new(Status::new(lock, inner.observer.clone(), plan.name()));
        let setup = Setup {
            nodes: Some(inner.nodes.clone()),
            keys: plan.keys.clone(),
            config: plan.lease.clone(),
            policy: Some(status.clone()),
            jump_wait: None,
            observer: Box::new(Reports(status.clone())),
        };
        let handle = inner.keeper.open_wanted(setup, plan.request.hold_at_least, plan.request.holder.clone());
        Self { session: Session(Arc::new(Driver::new(handle, status))), plan, waiting: None }
    }

    fn status(&self) -> &Status {
        &self.session.0.status
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
            // What the caller does not want any more is dropped, which releases it.
            let _ = answer.send(result.map(|()| self));
        });
        answered
    }

    async fn run(&mut self) -> Result<(), AcquireError> {
        let mut random = Random::new();
        loop {
            self.wait().await;
            self.wake(Entropy(random.word().unwrap_or_default()));
            if self.won().is_some() {
                return Ok(());
            }
            if let Some(failure) = self.status().read(|lock| lock.failure().cloned()) {
                return Err(self.explained(self.why(failure)).await);
            }
        }
    }

    /// Asks the servers for what the last attempt has not shown.
    async fn explained(&self, mut error: AcquireError) -> AcquireError {
        let last = if let AcquireError::TimedOut { last, .. } = &mut error { &mut **last } else { &mut error };
        let (by, is_decided) = self.status().read(|lock| {
            let view = lock.view();
            (view.refused_by.as_deref().map(|by| by.attempt), view.refusal.is_some())
        });
        let is_one = self.plan.keys.len() == 1;
        match last {
            // The answer to an attempt does not name the key. An attempt that cannot get a majority any more is over with the answer of
            // a single server, which does not show when a majority is free.
            AcquireError::Held { .. } if is_one && is_decided => return error,
            AcquireError::AlreadyHeldHere { .. } if is_one => return error,
            AcquireError::Held { .. } | AcquireError::AlreadyHeldHere { .. } | AcquireError::TooSlow { .. } => {}
            _ => return error,
        }
        let quorum = self.plan.locker.0.nodes.quorum();
        for (index, answers) in self.read_all().await.into_iter().enumerate() {
            let is_of = |shown: &Shown| matches!(shown, Shown::Value(value, _) if Some(value.attempt) == by);
            match last {
                // An answer that cannot be read is no vote.
                AcquireError::TooSlow { .. } if inspect::is_foreign(quorum, &answers) => {
                    *last = AcquireError::Foreign { key: self.plan.keys[index].clone() };
                    break;
                }
                AcquireError::Held { key, .. } | AcquireError::AlreadyHeldHere { key } if answers.iter().any(is_of) => {
                    key.clone_from(&self.plan.names[index]);
                    if let (AcquireError::Held { free_in, .. }, false, Inspection::Held { ttl_left, .. }) =
                        (last, is_decided, inspect::decide(quorum, &answers))
                    {
                        *free_in = ttl_left;
                    }
                    break;
                }
                _ => {}
            }
        }
        error
    }

    /// What the servers show of each key. The reads run at the same time.
    async fn read_all(&self) -> Vec<Vec<Shown>> {
        let reads = self.plan.keys.iter().map(|key| {
            let (nodes, key) = (self.plan.locker.0.nodes.clone(), key.clone());
            tokio::spawn(async move { nodes.read(&key).await })
        });
        let mut answers = Vec::new();
        for read in reads.collect::<Vec<_>>() {
            answers.push(read.await.unwrap_or_default());
        }
        answers
    }

    /// Waits until there is something to decide.
    async fn wait(&mut self) {
        let Self { session, plan, waiting } = self;
        let status = &session.0.status;
        let (reports, deadline, pauses) = status.read(|lock| (lock.reports(), lock.next_deadline(), lock.is_pausing()));
        if pauses && waiting.is_none() {
            *waiting = Some(plan.locker.0.local.wait(&plan.keys));
        }
        let freed = async {
            match waiting {
                Some(waiting) if pauses => waiting.released().await,
                _ => std::future::pending().await,
            }
        };
        let span = deadline.map_or(Millis::ZERO, |deadline| deadline.since(clock::now()));
        tokio::select! {
            () = status.wait_for(|lock| (lock.reports() != reports || lock.has_ended()).then_some(())) => {}
            () = tokio::time::sleep(span.into()) => {}
            () = freed => {
                session.0.input(Input::Freed);
            }
        }
    }

    fn wake(&self, entropy: Entropy) {
        self.session.0.input(Input::Wake { paused_until: self.paused_until(), entropy });
    }

    fn won(&self) -> Option<TermId> {
        self.status().read(|lock| lock.won(clock::now()).cloned())
    }

    /// Until when this process makes no attempt, because its clock stood still.
    fn paused_until(&self) -> Option<Time> {
        let nodes = &self.plan.locker.0.nodes;
        let at = nodes.jumped_at()?;
        Some(at + self.plan.lease.drift.most(nodes.longest_lease()))
    }

    /// Why the request failed.
    fn why(&self, failure: Failure) -> AcquireError {
        match failure {
            Failure::Closed => AcquireError::Closed,
            Failure::Attempt { last, timed_out: false } => self.refusal(last),
            Failure::Attempt { last, timed_out: true } => {
                let waited = self.plan.request.wait.into();
                AcquireError::TimedOut { waited, last: Box::new(self.refusal(last)) }
            }
        }
    }

    fn refusal(&self, refusal: Refusal) -> AcquireError {
        let (inner, now) = (&self.plan.locker.0, clock::now());
        let key = self.plan.name();
        match refusal {
            Refusal::ClockStoodStill(until) => AcquireError::ClockStoodStill { key, free_in: until.since(now).into() },
            Refusal::Held(by, _) if inner.local.holds(by.attempt) => AcquireError::AlreadyHeldHere { key },
            Refusal::Held(by, free_at) => {
                let free_in = free_at.map_or(Millis::ZERO, |at| at.since(now)).into();
                AcquireError::Held { key, by: split(&by.metadata).0.to_owned(), free_in }
            }
            Refusal::NotTaken => AcquireError::NotPolled { key },
            Refusal::NotGranted if inner.has_majority() => AcquireError::TooSlow { key },
            Refusal::NotGranted => AcquireError::NoMajority { key, nodes: inner.node_list() },
        }
    }

    /// The guard of a lock that was won. A shutdown may have begun meanwhile: then the lock is released, because nothing would renew it.
    fn into_guard(self, term: TermId) -> Result<Guard, AcquireError> {
        if self.plan.locker.0.is_closed() {
            return Err(AcquireError::Closed);
        }
        let Self { session, plan, waiting } = self;
        let guard = Guard::new(plan.locker, plan.keys, plan.lease, session, term);
        drop(waiting);
        Ok(guard)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redislease_lab::RedisServer;

    use super::*;

    /// Its keys are being deleted.
    #[tokio::test]
    async fn a_lock_that_a_shutdown_has_ended_is_not_given_to_the_program() {
        let server = RedisServer::start().unwrap();
        let url = format!("redis://{}", server.address());
        let locker = Locker::builder([url]).single_node().longest_lease(Duration::from_secs(1)).build().unwrap();
        locker.ready(Duration::from_secs(20)).await.unwrap();
        let attempts = Attempts::open(locker.lock("k").plan().unwrap());
        let attempts = attempts.go_on().await.unwrap().ok().unwrap();
        let guard = attempts.won().map(|term| attempts.into_guard(term)).unwrap().unwrap();
        locker.shutdown().await;
        assert_eq!(guard.taken().map(drop), Err(AcquireError::Closed));
    }
}
