//! The order of jobs. Time and entropy are arguments.
//!
//! A job is identified by its key, and a key is queued at most once: a newer job replaces the older one. Jobs of the same
//! lane are sent one at a time. Jobs that decide who may be active go first. Tenants take turns with urgent jobs,
//! so a tenant with thousands of ending terms delays another tenant by one call. Within a tenant, more urgent priorities go
//! first.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::backoff::{Backoff, Entropy};
use redislease_core::time::{Millis, Time};

use super::gate::Gate;
use super::limits::Limits;
use super::refusal::{REFUSAL_KEPT, Refusal};
use super::submission::{Next, Priority, Submission, Verdict};
use crate::plan::bucket::Bucket;
use crate::plan::fair_queue::FairQueue;
use crate::plan::timers::Timers;

/// The pause of a repetition that finds no place.
const NO_PLACE: Millis = Millis(50);

/// 100 calls at once after a pause, and 2000 in a second over time.
type Rate = Bucket<100, 500>;

/// The pause between two jobs of a key whose last job was refused.
const REFUSED: Backoff = Backoff::exponential(200, 2000, 30);
/// How many times in a row a job that another writer has overtaken is repeated at once. A job that waits names a version that
/// is older still: with a pause after each race, another writer who never rests would keep it from the object for ever.
const RACES: u32 = 4;
/// How many failures in a row show that the object is the reason for one more without an answer, and not the API server, if other
/// calls were answered in between: its encryption key is lost, for example.
const AT_FAULT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane<K> {
    Named(Arc<str>),
    Key(K),
}

#[derive(Debug)]
struct LaneState<K> {
    busy: bool,
    /// Every queued job of the lane, the oldest first. Most lanes have one, for which a set would allocate eleven places.
    queued: Vec<K>,
}

/// A job without its payload.
#[derive(Clone, Debug)]
pub struct Terms<K> {
    tenant: Arc<str>,
    lane: Lane<K>,
    priority: Priority,
    not_after: Option<Time>,
}

#[derive(Debug)]
struct Job<K, P> {
    terms: Terms<K>,
    payload: P,
}

/// Calls to the API server by their keys, at most one for each key, in lanes that take turns.
#[derive(Debug)]
pub struct Queue<K, P> {
    limits: Limits,
    /// Boxed, because the nodes of a large map are half empty.
    jobs: BTreeMap<K, Box<Job<K, P>>>,
    /// By [`Priority::class`].
    ready: [FairQueue<K>; 4],
    /// When a job can be sent at the earliest.
    delayed: Timers<K>,
    /// When a job is not sent any more.
    expiring: Timers<K>,
    lanes: BTreeMap<Lane<K>, LaneState<K>>,
    under_way: BTreeMap<K, Terms<K>>,
    refusals: BTreeMap<K, Refusal>,
    refusals_pruned_at: Time,
    /// How many calls were answered, without probes.
    answers: u64,
    bucket: Rate,
    gate: Gate,
    probe_wanted: bool,
    probing: bool,
    lengths: [usize; Priority::ALL.len()],
}

impl<K: Clone + Ord, P> Queue<K, P> {
    /// Creates an empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
            ready: Default::default(),
            delayed: Timers::default(),
            expiring: Timers::default(),
            lanes: BTreeMap::new(),
            under_way: BTreeMap::new(),
            refusals: BTreeMap::new(),
            refusals_pruned_at: Time(0),
            answers: 0,
            bucket: Rate::default(),
            gate: Gate::default(),
            probe_wanted: false,
            probing: false,
            lengths: [0; Priority::ALL.len()],
        }
    }

    /// Queues a job. It replaces one of the same key.
    pub fn submit(&mut self, now: Time, job: Submission<K, P>) {
        let Submission { key, tenant, lane, priority, not_before, not_after, payload } = job;
        self.withdraw(&key);
        let lane = lane.map_or_else(|| Lane::Key(key.clone()), Lane::Named);
        self.put(now, key, Terms { tenant, lane, priority, not_after }, not_before, payload);
    }

    fn put(&mut self, now: Time, key: K, terms: Terms<K>, not_before: Option<Time>, payload: P) {
        let refused = self.refusals.get(&key).filter(|refusal| terms.priority >= refusal.priority).map(|one| one.until);
        let delayed_until = not_before.max(refused).filter(|until| now < *until);
        if delayed_until.is_none() {
            self.make_ready(&terms, key.clone());
        }
        self.delayed.set(key.clone(), delayed_until);
        self.expiring.set(key.clone(), terms.not_after);
        let idle = || LaneState { busy: false, queued: Vec::with_capacity(1) };
        self.lanes.entry(terms.lane.clone()).or_insert_with(idle).queued.push(key.clone());
        self.lengths[terms.priority.index()] += 1;
        self.jobs.insert(key, Box::new(Job { terms, payload }));
    }

    /// Removes a job that was not sent yet.
    pub fn withdraw(&mut self, key: &K) -> Option<P> {
        let Job { terms, payload } = *self.jobs.remove(key)?;
        self.lengths[terms.priority.index()] -= 1;
        self.delayed.set(key.clone(), None);
        self.expiring.set(key.clone(), None);
        if let Some(lane) = self.lanes.get_mut(&terms.lane) {
            lane.queued.retain(|other| other != key);
            if lane.queued.is_empty() && !lane.busy {
                self.lanes.remove(&terms.lane);
            }
        }
        Some(payload)
    }

    /// Changes the jobs of a lane that were not sent yet.
    pub fn change_lane(&mut self, lane: &Arc<str>, mut change: impl FnMut(&mut P)) {
        let Some(lane) = self.lanes.get(&Lane::Named(lane.clone())) else { return };
        for key in &lane.queued {
            if let Some(job) = self.jobs.get_mut(key) {
                change(&mut job.payload);
            }
        }
    }

    /// Requests an answer of the API server to a call that starts from now on.
    pub const fn want_probe(&mut self) {
        self.probe_wanted = true;
    }

    /// The next action; `None` if there is none before [`Queue::next_deadline`] or the completion of a call.
    pub fn next(&mut self, now: Time) -> Option<Next<K, P>> {
        if let Some(key) = self.expiring.expired(now) {
            return self.withdraw(&key).map(Next::Expired);
        }
        while let Some(key) = self.delayed.expired(now) {
            if let Some(terms) = self.jobs.get(&key).map(|job| job.terms.clone()) {
                self.make_ready(&terms, key);
            }
        }
        let probe_due = self.gate.probe_at().map_or(self.probe_wanted, |at| at <= now);
        if probe_due && !self.probing {
            (self.probing, self.probe_wanted) = (true, false);
            return Some(Next::Probe);
        }
        if !self.gate.is_open() || !self.bucket.has(now, 1) {
            return None;
        }
        let (key, job) = self.pop_ready(now)?;
        self.bucket.take(now);
        Some(Next::Call(key, job))
    }

    fn make_ready(&mut self, terms: &Terms<K>, key: K) {
        self.ready[terms.priority.class()].push_at(&terms.tenant, terms.priority.index(), key);
    }

    fn pop_of_class(&mut self, class: usize) -> Option<(usize, K)> {
        let Self { limits, ready, under_way, .. } = self;
        // Without this, thousands of tenants would be looked at for each answer.
        if !limits.have_place(under_way.len(), class == 0) {
            return None;
        }
        ready[class].pop_of(|tenant| limits.allow(tenants(under_way), tenant))
    }

    fn pop_ready(&mut self, now: Time) -> Option<(K, P)> {
        for class in 0..self.ready.len() {
            while let Some((priority, key)) = self.pop_of_class(class) {
                // The entry of a job that was withdrawn, or replaced by one of another priority, is skipped.
                let Some(job) = self.jobs.get(&key) else { continue };
                if job.terms.priority.index() != priority || self.delayed.get(&key).is_some() {
                    continue;
                }
                // The end of the job under way makes it ready again.
                if self.lanes.get(&job.terms.lane).is_some_and(|lane| lane.busy) {
                    continue;
                }
                let terms = job.terms.clone();
                if !self.has_place(&key, &terms.tenant) {
                    self.delayed.set(key, Some(now + NO_PLACE));
                    continue;
                }
                if let Some(lane) = self.lanes.get_mut(&terms.lane) {
                    lane.busy = true;
                }
                let payload = self.withdraw(&key)?;
                self.under_way.insert(key.clone(), terms);
                return Some((key, payload));
            }
        }
        None
    }

    /// Whether a job may be sent beside the repetitions of unanswered calls that are under way.
    fn has_place(&self, key: &K, tenant: &Arc<str>) -> bool {
        if !self.was_unanswered(key) {
            return true;
        }
        let unsure = || self.under_way.iter().filter(|(key, _)| self.was_unanswered(key));
        let Limits { unsure: most, unsure_of_tenant: most_of_tenant, .. } = self.limits;
        unsure().count() < most && unsure().filter(|(_, of)| of.tenant == *tenant).count() < most_of_tenant
    }

    /// Records that a job was not sent after all.
    pub fn unsent(&mut self, key: &K) {
        if let Some(terms) = self.under_way.remove(key) {
            self.free_lane(&terms.lane);
            self.bucket.give_back();
        }
    }

    /// The job of this key that was not sent yet.
    pub fn queued(&mut self, key: &K) -> Option<&mut P> {
        self.jobs.get_mut(key).map(|job| &mut job.payload)
    }

    /// Records the outcome of a call. Returns what [`Queue::put_back`] needs.
    pub fn done(&mut self, now: Time, key: &K, verdict: Verdict, entropy: Entropy) -> Option<Terms<K>> {
        let terms = self.under_way.remove(key);
        if let Some(terms) = &terms {
            self.free_lane(&terms.lane);
        }
        let priority = terms.as_ref().map_or(Priority::Counts, |terms| terms.priority);
        let recent =
            self.refusals.get(key).filter(|refusal| refusal.unanswered.is_some() || refusal.counts(now)).copied();
        let failures = recent.map(|refusal| refusal.failures);
        self.answers += u64::from(!matches!(verdict, Verdict::Unanswered | Verdict::Panicked));
        match (verdict, failures) {
            (Verdict::Unanswered, failures) => {
                // The first pause is that of the gate.
                let failures = failures.map_or(0, |failures| failures.saturating_add(1));
                let until = if failures == 0 { now } else { now + REFUSED.jittered(failures, entropy) };
                let before = recent.and_then(|refusal| refusal.unanswered).map_or(self.answers, |(answers, _)| answers);
                let at_fault = failures >= AT_FAULT && before < self.answers;
                let unanswered = Some((self.answers, at_fault));
                self.refusals
                    .insert(key.clone(), Refusal { failures, until, unanswered, ..Refusal::of(priority, now) });
                if !at_fault {
                    self.gate.unanswered(now, false, entropy);
                }
                return terms;
            }
            (Verdict::Done, _) => {
                self.refusals.remove(key);
            }
            // The first conflict is not a failure: the caller decides again at once. A second one in a row is not a race:
            // an admission webhook may refuse with the same status code.
            (Verdict::Conflict, None) => {
                self.refusals.insert(key.clone(), Refusal::of(priority, now));
            }
            (Verdict::Raced, _) => {
                let refusal = self.refusals.entry(key.clone()).or_insert(Refusal::of(priority, now));
                (refusal.races, refusal.unanswered) = (refusal.races.saturating_add(1), None);
                if refusal.races.is_multiple_of(RACES) {
                    refusal.until = now + REFUSED.jittered(refusal.races / RACES, entropy);
                }
            }
            (Verdict::Conflict | Verdict::Refused | Verdict::Panicked, failures) => {
                let failures = failures.unwrap_or(0).saturating_add(1);
                let until = now + REFUSED.jittered(failures, entropy);
                self.refusals.insert(key.clone(), Refusal { failures, until, ..Refusal::of(priority, now) });
            }
        }
        if now.since(self.refusals_pruned_at) >= REFUSAL_KEPT {
            // A repetition that waits for a place must not become a first call.
            let is_known = |key: &K| self.jobs.contains_key(key) || self.under_way.contains_key(key);
            self.refusals.retain(|key, refusal| refusal.counts(now) || is_known(key));
            self.refusals_pruned_at = now;
        }
        if verdict != Verdict::Panicked {
            self.answered();
        }
        terms
    }

    /// How many calls of this key failed in a row, the first one apart, and whether the object is the reason for the last one.
    pub fn failed(&self, key: &K) -> (u32, bool) {
        let refusal = self.refusals.get(key);
        refusal.map_or((0, false), |one| (one.failures, one.unanswered.is_some_and(|(_, at_fault)| at_fault)))
    }

    /// Whether the last call of this key was not answered.
    pub fn was_unanswered(&self, key: &K) -> bool {
        self.refusals.get(key).is_some_and(|refusal| refusal.unanswered.is_some())
    }

    /// Queues an unanswered job again, unless a newer one of its key is queued: then it returns the payload.
    pub fn put_back(&mut self, now: Time, key: K, terms: Terms<K>, payload: P) -> Option<P> {
        if self.jobs.contains_key(&key) {
            return Some(payload);
        }
        self.put(now, key, terms, None, payload);
        None
    }

    /// Records the outcome of the probe.
    pub fn probe_done(&mut self, now: Time, answered: bool, entropy: Entropy) {
        self.probing = false;
        if answered {
            self.answered();
        } else {
            self.gate.unanswered(now, true, entropy);
        }
    }

    fn answered(&mut self) {
        // This answer satisfies a requested probe, unless the probe is in flight.
        self.probe_wanted = false;
        self.gate.answered();
    }

    fn free_lane(&mut self, lane: &Lane<K>) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.busy = false;
        let queued = state.queued.clone();
        if queued.is_empty() {
            self.lanes.remove(lane);
        }
        for key in queued {
            if let Some(terms) = self.jobs.get(&key).map(|job| job.terms.clone()) {
                self.make_ready(&terms, key);
            }
        }
    }

    /// When there may be an action, if no call completes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let delayed = self.delayed.first().filter(|_| self.gate.is_open());
        let expiring = self.expiring.first();
        let probe = self.gate.probe_at().filter(|_| !self.probing);
        let may_send = |class: usize| {
            self.limits.have_place(self.under_way.len(), class == 0)
                && self.ready[class].has_of(|tenant| self.limits.allow(tenants(&self.under_way), tenant))
        };
        let may_send = self.gate.is_open() && (0..self.ready.len()).any(may_send);
        let token = may_send.then(|| self.bucket.available_at(1));
        [delayed, expiring, probe, token].into_iter().flatten().min()
    }

    /// How many jobs are queued, by priority.
    pub const fn lengths(&self) -> [usize; Priority::ALL.len()] {
        self.lengths
    }

    /// Whether a job of this priority is queued or in flight.
    pub fn has(&self, priority: Priority) -> bool {
        self.lengths[priority.index()] > 0 || self.under_way.values().any(|terms| terms.priority == priority)
    }

    /// Drops every queued job of another priority, and those that are not sent before `until`.
    pub fn keep_only(&mut self, priority: Priority, until: Time) {
        let is_late = |key| self.delayed.get(key).is_some_and(|at| until <= at);
        let others = self.jobs.iter().filter(|(key, job)| job.terms.priority != priority || is_late(key));
        for key in others.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.withdraw(&key);
        }
    }
}

/// The tenants of calls.
fn tenants<K>(calls: &BTreeMap<K, Terms<K>>) -> impl ExactSizeIterator<Item = &Arc<str>> {
    calls.values().map(|terms| &terms.tenant)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
