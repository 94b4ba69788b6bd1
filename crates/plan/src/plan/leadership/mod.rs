//! The leader election between the operator's replicas: which one decides about the leases of a quorum.
//!
//! Replicas acquire a lock on that quorum with the same core that keeps the leases: 5 s, renewed every second. The lock
//! avoids duplicate work and prevents a faulty replica from ending terms that others renew; safety does not depend on it.
//! A renewal writes nothing to the API server: `RedisQuorum.status.leader` changes only with the leader.
//!
//! A replica contends only while the API server answers it, and releases leadership when it does not: a leader must be
//! able to write. When no replica can lead because the quorum is lost, the replica that the status names still ends its
//! terms and writes their status, because ending needs no lock. Before that it reads the RedisQuorum again, because the
//! replica itself may be disconnected. It does the same when its lock has ended and no majority answers its attempts: the
//! nodes count as lost only after `commandTimeout`, and its terms may end before.

mod claim;
mod interface;
mod status_writer;

use std::sync::Arc;

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Config, OnDeadline, Publication, Standing, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::output::Output;
use super::restarts::Restarts;
use super::{Authority, Command, Granted, News, OpenQuorum};
use crate::election::takeover::{LEADER_LEASE, LEADER_STOP_BUDGET};
use crate::election::{Cluster, HolderName};
use claim::{Name, READ_AGAIN, WithoutLock};
pub use interface::LeadershipEffect;
pub(super) use interface::LeadershipFacts;
pub(super) use status_writer::QuorumStatusWriter;

/// The renewal interval of the lock.
const LEADER_RENEW: Millis = Millis(1000);
/// The maximum timeout of one request to a Redis node. With a longer one, a lost packet would lose the lock: a renewal that begins 1 s after
/// the last one fails after this time, and another one as slow must still succeed before the leader stops deciding, after 4.4 s.
const COMMAND_TIMEOUT: Millis = Millis(1500);
/// How often a replica checks that the API server answers, before it contends and while it leads.
const HEARTBEAT: Millis = Millis(2000);
/// How often a replica checks whether another replica's lock was released. A leader that stops hands over at once.
const LOOK_AGAIN: Millis = Millis(300);
/// How long after an outage of the quorum only the previous leader contends: it knows when its terms have ended, and
/// another replica would have to wait.
const HEAD_START: Millis = Millis(1500);
/// The election of one replica on one quorum.
#[derive(Clone, Debug)]
pub struct Leadership {
    holder: HolderName,
    lock: Option<Lock>,
    restarts: Restarts,
    authority: Authority,
    /// How often it has become one that decides.
    gains: u32,
    name: Name,
    /// Whether another replica's lock was observed after this replica's own, without newer contrary information.
    seen_other: bool,
    /// The attempt of another replica's lock that has certainly ended: the API server has named this replica since.
    outdated: Option<Attempt>,
    quorum_lost_since: Option<Time>,
    quorum_back_since: Option<Time>,
    probed_at: Option<Time>,
    stopping: bool,
    out: Output<LeadershipEffect>,
}

/// The machine of the lock.
#[derive(Clone, Debug)]
struct Lock {
    quorum: Arc<OpenQuorum>,
    view: View,
    wanted_at: Option<Time>,
    /// The start of the last attempt.
    tried_at: Time,
    published: Option<Attempt>,
    released: Option<Attempt>,
}

impl Leadership {
    /// `instance` names this replica, `process` identifies this run of it.
    pub(super) fn new(cluster: Cluster, instance: String, process: String) -> Self {
        let (namespace, lease) = <(String, String)>::default();
        Self::of(HolderName { cluster, namespace, lease, pod: instance, pod_uid: process })
    }

    /// The same replica as a follower that has no lock.
    pub(super) fn restarted(&self) -> Self {
        Self { gains: self.gains, ..Self::of(self.holder.clone()) }
    }

    fn of(holder: HolderName) -> Self {
        Self {
            holder,
            lock: None,
            restarts: Restarts::default(),
            authority: Authority::Follow,
            gains: 0,
            name: Name::default(),
            seen_other: false,
            outdated: None,
            quorum_lost_since: None,
            quorum_back_since: None,
            probed_at: None,
            stopping: false,
            out: Output::new(),
        }
    }

    /// The authority of this process over the leases of the quorum, as of the last turn.
    pub const fn authority(&self) -> Authority {
        self.authority
    }

    /// The authority, and when it ends.
    pub const fn granted(&self) -> Granted {
        Granted { authority: self.authority, named_until: self.name.confirmed_until(), gains: self.gains }
    }

    /// Whether this replica holds the lock, also one that does not lead any more.
    pub const fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether another replica may still renew leases on the quorum.
    pub const fn waits_for_another(&self) -> bool {
        !self.authority.decides() && !self.quorum_is_lost()
    }

    /// Whether the quorum was lost at the last turn.
    pub(super) const fn quorum_is_lost(&self) -> bool {
        self.quorum_lost_since.is_some()
    }

    /// The name of this replica.
    pub fn instance(&self) -> &str {
        &self.holder.pod
    }

    /// Whether the election needs a turn after the next answer of the API server.
    pub const fn awaits_api_answer(&self) -> bool {
        self.probed_at.is_some()
    }

    /// Decides, with the `news` from the lock's machine.
    pub(super) fn turn(&mut self, now: Time, mut news: News, facts: &LeadershipFacts) {
        news.take_views().for_each(|view| self.show(view));
        if news.ended {
            self.lock = None;
            self.restarts.panicked(now);
        }
        self.decide(now, facts);
    }

    /// The next effect to execute.
    pub(super) fn poll_effect(&mut self) -> Option<LeadershipEffect> {
        self.out.poll()
    }

    /// The time of the next turn if no event arrives before.
    pub const fn next_deadline(&self) -> Option<Time> {
        self.out.deadline()
    }

    /// `RedisQuorum.status.leader` was read from the API server; `Err` if it did not answer.
    pub(super) fn quorum_read(&mut self, now: Time, named: Result<Option<String>, ()>) {
        let is_named = named.map(|named| named.as_deref() == Some(self.instance()));
        if self.name.quorum_read(now, is_named) {
            (self.seen_other, self.outdated) = (false, self.other());
        }
    }

    /// Decides the authority of this process over its running terms without the lock.
    fn without_lock(&mut self, now: Time, facts: &LeadershipFacts) {
        let situation = WithoutLock {
            named: facts.named.as_deref(),
            is_claimed: facts.is_claimed,
            instance: &self.holder.pod,
            api_answered_at: facts.api_answered_at,
            quorum_lost_since: self.quorum_lost_since,
            seen_other: self.seen_other,
            authority: self.authority,
        };
        let authority = self.name.without_lock(now, &situation, &mut self.out);
        self.set(authority);
    }

    fn show(&mut self, view: View) {
        let Some(lock) = &mut self.lock else { return };
        lock.wanted_at = None;
        lock.view = view;
        self.give_up_unconfirmed();
    }

    fn decide(&mut self, now: Time, facts: &LeadershipFacts) {
        self.out.begin_turn();
        if self.stopping {
            return;
        }
        self.open(now, facts);
        self.confirm_own_lock();
        if self.quorum_lost_since.is_some() && !facts.quorum_lost {
            self.quorum_back_since = Some(now);
        }
        self.quorum_lost_since = facts.quorum_lost.then(|| self.quorum_lost_since.unwrap_or(now));
        if facts.quorum.is_none() {
            return if facts.quorum_lost { self.without_lock(now, facts) } else { self.without_quorum() };
        }
        self.note_other();
        if self.holds() {
            self.lead(now, facts);
        } else {
            self.without_lock(now, facts);
            self.contend(now, facts);
        }
    }

    /// Opens one machine for the lock on the quorum in its current configuration.
    fn open(&mut self, now: Time, facts: &LeadershipFacts) {
        if let Some(lock) = &mut self.lock {
            match &facts.quorum {
                Some(quorum) if quorum.id == lock.quorum.id => {
                    let config = durations(quorum);
                    if config != durations(&lock.quorum) {
                        self.out.emit(Command::Configure(Box::new(config)));
                    }
                    lock.quorum.clone_from(quorum);
                }
                _ => {
                    self.release();
                    self.lock = None;
                    self.out.emit(Command::Close);
                }
            }
        }
        if let (None, Some(quorum)) = (&self.lock, &facts.quorum) {
            if let Some(at) = self.restarts.waits_until(now) {
                return self.out.wake_at(at);
            }
            self.restarts.started(now);
            self.lock = Some(Lock {
                quorum: quorum.clone(),
                view: View::default(),
                wanted_at: None,
                tried_at: Time(0),
                published: None,
                released: None,
            });
            let config = durations(quorum);
            self.out.emit(LeadershipEffect::Open { quorum: quorum.clone(), config });
        }
    }

    /// The lock needs no publication: a second successful round confirms it.
    fn confirm_own_lock(&mut self) {
        let Some(lock) = &mut self.lock else { return };
        if let Standing::Publishing(term) = &lock.view.standing {
            let attempt = term.id.attempt;
            if lock.published.replace(attempt) != Some(attempt) {
                self.out.emit(Command::Published { attempt, outcome: Publication::Written });
            }
        }
    }

    fn holds(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| match &lock.view.standing {
            Standing::Held(term) => lock.released != Some(term.id.attempt),
            _ => false,
        })
    }

    /// Releases a lock that is not confirmed any more: this process has stopped to decide, so nobody needs to wait for the end
    /// of the lock, this process included.
    fn give_up_unconfirmed(&mut self) {
        let Some(lock) = &mut self.lock else { return };
        if let Standing::Adopting(term) | Standing::Uncertain(term) = &lock.view.standing
            && lock.released != Some(term.id.attempt)
        {
            self.release();
        }
    }

    /// Records that another replica of this cluster holds the lock.
    fn note_other(&mut self) {
        let seen = self.other();
        if seen.is_some() && seen != self.outdated {
            self.seen_other = true;
        }
    }

    /// The attempt of the other replica's lock that refused this one's.
    fn other(&self) -> Option<Attempt> {
        let refused_by = self.lock.as_ref()?.view.refused_by.as_ref()?;
        let holder: HolderName = refused_by.metadata.parse().ok()?;
        (holder != self.holder).then_some(refused_by.attempt)
    }

    /// This process holds the lock.
    fn lead(&mut self, now: Time, facts: &LeadershipFacts) {
        self.seen_other = false;
        self.name = self.name.unclaimed();
        let answered = facts.api_answered_at.unwrap_or(Time(0));
        if self.probed_at.is_some_and(|probed| answered >= probed) {
            self.probed_at = None;
        }
        match self.probed_at {
            Some(probed) if now >= probed + LEADER_LEASE => {
                // The API server has not answered for one lock duration: another replica may be able to write.
                self.release();
                return self.set(Authority::Renew);
            }
            Some(probed) => self.out.wake_at(probed + LEADER_LEASE),
            None if now >= answered + HEARTBEAT => {
                self.probed_at = Some(now);
                self.out.emit(LeadershipEffect::Probe);
                self.out.wake_at(now + LEADER_LEASE);
            }
            None => self.out.wake_at(answered + HEARTBEAT),
        }
        self.set(Authority::Lead);
    }

    /// No replica has opened the quorum, so no term can be renewed, but the status of the leases must show this. All replicas
    /// write the same, so it does not matter which one does.
    fn without_quorum(&mut self) {
        self.seen_other = false;
        self.name = self.name.unclaimed();
        self.probed_at = None;
        self.set(Authority::Lead);
    }

    /// Acquires the lock if an attempt can start at once and the API server answers.
    fn contend(&mut self, now: Time, facts: &LeadershipFacts) {
        let Some(lock) = &mut self.lock else { return };
        if !matches!(lock.view.standing, Standing::Idle) {
            return;
        }
        let retry_at = lock.view.retry_at.unwrap_or(Time(0));
        // A lock of another replica can be released before it expires.
        let looks_at = lock.view.refused_by.as_ref().map_or(retry_at, |_| retry_at.min(lock.tried_at + LOOK_AGAIN));
        let waits = lock.wanted_at.map(|wanted| wanted + READ_AGAIN);
        if let Some(at) = waits.into_iter().chain([looks_at]).filter(|at| now < *at).max() {
            return self.out.wake_at(at);
        }
        let led_before = facts.named.as_deref() == Some(self.instance());
        let head_start = self.quorum_back_since.map(|since| since + HEAD_START);
        if let Some(at) = head_start.filter(|at| !led_before && now < *at) {
            return self.out.wake_at(at);
        }
        let answered = facts.api_answered_at;
        if answered.is_none_or(|answered| answered + HEARTBEAT < now) {
            let asked = self.probed_at.is_some_and(|probed| answered.is_none_or(|answered| answered < probed));
            if !asked {
                self.probed_at = Some(now);
                self.out.emit(LeadershipEffect::Probe);
            }
            return self.look_for_another(now);
        }
        self.probed_at = None;
        if let Some(lock) = &mut self.lock {
            (lock.wanted_at, lock.tried_at) = (Some(now), now);
        }
        if now < retry_at {
            self.out.emit(Command::TryNow);
        }
        self.out.emit(Command::Want((&self.holder).into()));
        self.out.wake_at(now + READ_AGAIN);
    }

    /// Without answers of the API server this replica makes no attempt, and the status does not show it who leads. If another replica
    /// has the lock, that one cannot acquire the leases whose terms this one renews.
    fn look_for_another(&mut self, now: Time) {
        let Some(lock) = self.lock.as_mut().filter(|_| self.authority == Authority::Renew) else { return };
        let at = lock.tried_at + READ_AGAIN;
        if now < at {
            return self.out.wake_at(at);
        }
        lock.tried_at = now;
        self.out.emit(Command::ReadKeys);
        self.out.wake_at(now + READ_AGAIN);
    }

    /// Releases the lock: this process has stopped deciding.
    fn release(&mut self) {
        let Some(lock) = &mut self.lock else { return };
        if let Some(term) = lock.view.standing.term().map(|term| term.id.clone()) {
            lock.released = Some(term.attempt);
            self.out.emit(Command::End { term, proof: true });
        }
    }

    /// This process is about to end: the lock is released.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.out.begin_turn();
        self.set(Authority::Follow);
        self.release();
    }

    fn set(&mut self, authority: Authority) {
        if self.authority != authority {
            let decided = std::mem::replace(&mut self.authority, authority).decides();
            self.gains = self.gains.wrapping_add(u32::from(authority.decides() && !decided));
            self.out.emit(LeadershipEffect::Authority(authority));
        }
    }
}

/// On a quorum with a short longest lease the lock is renewed more often, so that one failed round does not lose it.
fn durations(quorum: &OpenQuorum) -> Config {
    let (ttl, drift) = (LEADER_LEASE.min(quorum.longest_lease), Drift::STANDARD);
    let stop_budget = LEADER_STOP_BUDGET.min(Millis(ttl.0 / 10));
    Config {
        quorum: quorum.quorum,
        ttl,
        renew_interval: LEADER_RENEW.min(Millis(drift.least(ttl).saturating_sub(stop_budget).0 / 3)),
        stop_budget,
        // So that a failed round leaves the time for another one.
        command_timeout: COMMAND_TIMEOUT.min(Millis(ttl.0 * 3 / 10)).min(quorum.command_timeout),
        drift,
        backoff: Backoff::exponential(50, 1000, 10),
        deadline: OnDeadline::Unconfirm,
    }
}
