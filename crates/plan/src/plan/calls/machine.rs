//! The machine of calls: it takes requests and answers, and says what to send and what the callers get.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::time::{Millis, Time};

use super::answer::{Answer, CallError, Changed, Found, Outcome, RoleAnswer};
use super::judge::{Judged, judge};
use super::limits::Limits;
use super::queue::Queue;
use super::request::{Key, Request};
use super::submission::{Next, Priority, Submission, Verdict};
use crate::plan::{Read, RoleOutcome, RoleWrite, StatusOutcome};

/// What the caller of [`Calls::poll_effect`] does.
#[derive(Debug)]
pub enum Effect<T> {
    /// Send the request. It is answered by exactly one [`Calls::answered`] with this number.
    Send(u64, Arc<Request>),
    /// Pass the outcome to the caller whom the ticket names.
    Outcome(T, Outcome),
    /// The API server has answered a call, after [`Calls::await_answer`].
    Answered,
    /// A call was not answered: the others wait. The text is the error.
    Unreachable(String),
    /// The API server answers again, so long after the first call without an answer.
    Reachable(Millis),
}

/// After how many repetitions a secret counts as unreadable, for now: after 5 s at least.
const GIVES_UP: u32 = 6;

/// A request, and the callers that get its outcome.
#[derive(Debug)]
struct Job<T> {
    request: Arc<Request>,
    /// The last one is the newest.
    tickets: Vec<T>,
}

impl<T> Job<T> {
    /// Takes over the callers of an older read of the same lease, whom the answer to this one serves too. Returns another job.
    fn join(&mut self, mut older: Self) -> Option<Self> {
        if !matches!(*self.request, Request::Read { read: Read::Lease, .. }) {
            return Some(older);
        }
        older.tickets.append(&mut self.tickets);
        self.tickets = older.tickets;
        None
    }
}

#[derive(Debug)]
struct InFlight<T> {
    key: Key,
    job: Job<T>,
    /// The error of a role write whose object is being read now.
    first: Option<CallError>,
}

/// The calls that are queued or in flight. A ticket names a caller.
#[derive(Debug)]
pub struct Calls<T> {
    queue: Queue<Key, Job<T>>,
    in_flight: BTreeMap<u64, InFlight<T>>,
    /// The number of the probe in flight.
    probe: Option<u64>,
    last_number: u64,
    effects: VecDeque<Effect<T>>,
    /// By quorum: until when this process decides about its leases.
    decides_until: BTreeMap<Arc<str>, Time>,
    answered_at: Option<Time>,
    /// Whether a caller waits for the next answer.
    is_awaited: bool,
    unreachable_since: Option<Time>,
}

impl<T> Calls<T> {
    /// Creates a machine without calls.
    pub fn new(limits: Limits) -> Self {
        Self {
            queue: Queue::new(limits),
            in_flight: BTreeMap::new(),
            probe: None,
            last_number: 0,
            effects: VecDeque::new(),
            decides_until: BTreeMap::new(),
            answered_at: None,
            is_awaited: false,
            unreachable_since: None,
        }
    }

    /// Queues a call. It replaces one of the same key that was not sent yet.
    pub fn submit(&mut self, now: Time, request: Request, ticket: T) {
        let Some(key) = request.key() else { return self.probe() };
        let mut job = Job { request: Arc::new(request), tickets: vec![ticket] };
        if let Some(older) = self.queue.withdraw(&key)
            && let Some(replaced) = job.join(older)
        {
            self.withdrawn(replaced);
        }
        let request = &job.request;
        let submission = Submission {
            key,
            tenant: request.tenant(),
            lane: request.lane(),
            priority: request.priority(),
            not_before: request.not_before(),
            not_after: request.not_after(),
            payload: job,
        };
        self.queue.submit(now, submission);
    }

    /// Withdraws a call, if it was not sent yet.
    pub fn withdraw(&mut self, key: &Key) {
        if let Some(job) = self.queue.withdraw(key) {
            self.withdrawn(job);
        }
    }

    /// Makes sure that the API server is asked: a probe is sent unless another call is answered first.
    pub const fn probe(&mut self) {
        self.queue.want_probe();
    }

    /// Asks for [`Effect::Answered`] after the next answer to any call.
    pub const fn await_answer(&mut self) {
        self.is_awaited = true;
    }

    /// When a call was last answered.
    pub const fn answered_at(&self) -> Option<Time> {
        self.answered_at
    }

    /// Until when this process decides about the leases of a quorum, on its own clock, as far as it knows now. Calls that only
    /// the leader may make are not sent from then on. Without this, every process decides.
    pub fn decides_until(&mut self, quorum: &str, until: Time) {
        match self.decides_until.get_mut(quorum) {
            Some(known) => *known = until,
            None => _ = self.decides_until.insert(quorum.into(), until),
        }
    }

    /// The next effect; `None` if there is none before [`Calls::next_deadline`] or another input.
    pub fn poll_effect(&mut self, now: Time) -> Option<Effect<T>> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            match self.queue.next(now)? {
                Next::Expired(job) => self.withdrawn(job),
                Next::Probe => {
                    let number = self.next_number();
                    self.probe = Some(number);
                    return Some(Effect::Send(number, Arc::new(Request::Probe)));
                }
                Next::Call(key, job) if !self.is_allowed(now, &job.request) => {
                    self.queue.unsent(&key);
                    self.withdrawn(job);
                }
                Next::Call(key, mut job) => {
                    if self.queue.was_unanswered(&key)
                        && let Request::Role { write, .. } = Arc::make_mut(&mut job.request)
                    {
                        write.waits = write.must_be_stored();
                    }
                    let request = job.request.clone();
                    return Some(self.send(InFlight { key, job, first: None }, request));
                }
            }
        }
    }

    /// When there may be an effect, if there is no input before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.queue.next_deadline()
    }

    /// Takes the answer to a call. Returns what became of the call with which request; `None` if it goes on with another
    /// request, was a probe, or was answered before.
    pub fn answered(
        &mut self,
        now: Time,
        number: u64,
        answer: Answer,
        entropy: Entropy,
    ) -> Option<(Arc<Request>, Judged)> {
        if self.probe == Some(number) {
            self.probe = None;
            let (judged, _) = judge(&Request::Probe, None, answer);
            let unanswered = matches!(judged.verdict, Verdict::Unanswered | Verdict::Panicked);
            self.queue.probe_done(now, !unanswered, entropy);
            self.record(now, &judged);
            return None;
        }
        let mut sent = self.in_flight.remove(&number)?;
        let request = sent.job.request.clone();
        // A role write that finds another object reads it within the same job.
        if let (Request::Role { lease, write, .. }, Err(CallError::Conflict | CallError::NotFound), None) =
            (&*request, &answer, &sent.first)
        {
            sent.first = answer.err();
            self.record_answer(now);
            let RoleWrite { pod, uid, workload, .. } = &**write;
            let read = Read::Holder { pod: pod.clone(), uid: uid.clone(), workload: *workload };
            let effect = self.send(sent, Arc::new(Request::Read { lease: lease.clone(), read }));
            self.effects.push_back(effect);
            return None;
        }
        let InFlight { key, job, first } = sent;
        let (judged, mut outcome) = judge(&request, first, answer);
        let terms = self.queue.done(now, &key, judged.verdict, entropy);
        let unanswered = judged.verdict == Verdict::Unanswered;
        let (failures, at_fault) = self.queue.failed(&key);
        if !at_fault {
            self.record(now, &judged);
        } else if let Outcome::Role(_, RoleAnswer { outcome, .. }) = &mut outcome {
            outcome.blame_call();
        } else if let Outcome::LeaseStatus(outcome) = &mut outcome {
            outcome.blame_call();
        }
        // A secret that cannot be read must not keep all quorums from starting.
        let gives_up = failures >= GIVES_UP && matches!(*request, Request::Secret { .. });
        match terms {
            Some(terms) if unanswered && request.is_read() && !gives_up => {
                // A newer read of the same object may be queued already.
                if let Some(older) = self.queue.put_back(now, key.clone(), terms, job)
                    && let Some(newer) = self.queue.queued(&key)
                {
                    newer.join(older);
                }
            }
            _ => {
                self.rebase(&request, &outcome);
                self.pass_on(job, &outcome);
            }
        }
        Some((request, judged))
    }

    /// Whether the call with this number has no answer yet.
    pub fn waits_for(&self, number: u64) -> bool {
        self.probe == Some(number) || self.in_flight.contains_key(&number)
    }

    /// How many calls are queued, by priority.
    pub const fn lengths(&self) -> [usize; Priority::ALL.len()] {
        self.queue.lengths()
    }

    /// Whether a call of this priority is queued or in flight.
    pub fn has(&self, priority: Priority) -> bool {
        self.queue.has(priority)
    }

    /// Drops every queued call of another priority, and those that are not sent before `until`. Their callers get no outcome.
    pub fn keep_only(&mut self, priority: Priority, until: Time) {
        self.queue.keep_only(priority, until);
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn send(&mut self, sent: InFlight<T>, request: Arc<Request>) -> Effect<T> {
        let number = self.next_number();
        self.in_flight.insert(number, sent);
        Effect::Send(number, request)
    }

    /// Whether this process may still make this call at `now`.
    fn is_allowed(&self, now: Time, request: &Request) -> bool {
        request.quorum().and_then(|quorum| self.decides_until.get(quorum)).is_none_or(|until| now < *until)
    }

    /// The call was never sent. Reads are replaced by newer ones: only writes have an outcome then.
    fn withdrawn(&mut self, job: Job<T>) {
        let outcome = match &*job.request {
            Request::LeaseStatus { .. } => Outcome::LeaseStatus(StatusOutcome::Withdrawn),
            Request::Role { write, .. } => {
                let answer = RoleAnswer { outcome: RoleOutcome::Withdrawn, found: None };
                Outcome::Role(write.uid.clone(), answer)
            }
            Request::LeaseChange(_) => Outcome::LeaseChange(Changed::Outdated),
            _ => return,
        };
        self.pass_on(job, &outcome);
    }

    fn pass_on(&mut self, job: Job<T>, outcome: &Outcome) {
        self.effects.extend(job.tickets.into_iter().map(|ticket| Effect::Outcome(ticket, outcome.clone())));
    }

    /// A role write of this process has changed the object from one version to the next, and changed only the role for one
    /// lease. The pending role writes of other leases, decided on the previous version, are valid for the next version too.
    fn rebase(&mut self, request: &Request, outcome: &Outcome) {
        let (Request::Role { write: written, .. }, Outcome::Role(_, answer)) = (request, outcome) else { return };
        let is_stored = matches!(answer.outcome, RoleOutcome::Written(_));
        let Some(Found::Here(_, found)) = answer.found.as_ref().filter(|_| is_stored) else { return };
        let Some(after) = found.object().resource_version.clone() else { return };
        self.queue.change_lane(&written.uid.as_str().into(), |job| {
            // A lane can have thousands of writes on earlier versions, which are not copied.
            if matches!(&*job.request, Request::Role { write, .. } if write.version == written.version)
                && let Request::Role { write, .. } = Arc::make_mut(&mut job.request)
            {
                write.version = Some(after.clone());
            }
        });
    }

    /// Records whether the API server answers.
    fn record(&mut self, now: Time, judged: &Judged) {
        match judged.verdict {
            Verdict::Panicked => {}
            Verdict::Unanswered => {
                if self.unreachable_since.is_none() {
                    self.unreachable_since = Some(now);
                    let why = judged.problem.clone().unwrap_or_default();
                    self.effects.push_back(Effect::Unreachable(why));
                }
            }
            Verdict::Done | Verdict::Conflict | Verdict::Raced | Verdict::Refused => self.record_answer(now),
        }
    }

    fn record_answer(&mut self, now: Time) {
        self.answered_at = self.answered_at.max(Some(now));
        if std::mem::take(&mut self.is_awaited) {
            self.effects.push_back(Effect::Answered);
        }
        if let Some(since) = self.unreachable_since.take() {
            self.effects.push_back(Effect::Reachable(now.since(since)));
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
