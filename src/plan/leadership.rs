//! Which replica of the operator decides about the leases of one quorum.
//!
//! Replicas take a lock on that quorum with the same core that keeps the leases: 5 s, renewed every second. It saves work
//! and keeps one sick replica from ending what the others keep; safety does not need it. Nothing is written to the API
//! server for a renewal: `RedisQuorum.status.leader` changes with the leader.
//!
//! A replica contends only while the API server answers it, and gives leadership up when it does not: a new leader must
//! be able to write. When nobody can lead because the quorum is lost, the replica that the status names still ends and shows
//! what it ran, since ending needs no lock; before that it reads the resource again, because it may only have been cut off.

use std::collections::VecDeque;
use std::sync::Arc;

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::lease::{Config, OnDeadline, Publication, Standing, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Drift, Millis, Time};

use super::effect::Command;
use super::facts::{Authority, OpenQuorum};
use crate::election::{Cluster, HolderName};

/// How long the lock outlives its last renewal.
pub const LEADER_LEASE: Millis = Millis(5000);
/// How often it is renewed.
pub const LEADER_RENEW: Millis = Millis(1000);
/// How long before the end of the lock this process stops to decide.
const STOP_BUDGET: Millis = Millis(500);
/// One request to one Redis node may not take longer, or a lost packet costs the lock.
const COMMAND_TIMEOUT: Millis = Millis(500);
/// How often a replica makes sure that the API server answers, before it contends and while it leads.
const HEARTBEAT: Millis = Millis(2000);
/// For how long the quorum must be lost before a replica claims the name of a leader that may have died. It doubles with
/// each claim, because a leader that lives has contradicted the one before.
const CLAIM_AFTER: Millis = Millis(10_000);
/// How often that doubles.
const CLAIM_DOUBLES: u32 = 6;
/// A leader that lives contradicts a claim within this.
const CONTRADICTED_WITHIN: Millis = Millis(5000);
/// For how long it must be lost if no leader was ever named: when a quorum is new, its nodes do not vote for a while, and
/// the leases must say so.
const FIRST_CLAIM_AFTER: Millis = Millis(1000);
/// How often a replica looks whether the lock that another one holds was released. A leader that stops hands over at once.
const LOOK_AGAIN: Millis = Millis(300);
/// For how long after an outage of the quorum the replica that led before it contends alone: it knows when the terms that
/// it ran have ended, and another would have to wait.
const HEAD_START: Millis = Millis(1500);
/// When a read that was not answered is tried again.
const READ_AGAIN: Millis = Millis(1000);

/// What a turn depends on beside what is remembered.
#[derive(Clone, Debug, Default)]
pub struct LeadershipFacts {
    /// The quorum, as long as this process is connected to it.
    pub quorum: Option<Arc<OpenQuorum>>,
    /// Whether too few of its nodes vote, as far as this process sees, after each was tried.
    pub quorum_lost: bool,
    /// The instance that `RedisQuorum.status.leader` names, by the newest watch event, write or read.
    pub named: Option<String>,
    /// When a call to the API server was last answered.
    pub api_answered_at: Option<Time>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum LeadershipEvent {
    /// A turn.
    Facts(LeadershipFacts),
    /// What the machine of the lock shows.
    View(View),
    /// The machine of the lock has ended.
    KeeperEnded,
    /// `RedisQuorum.status.leader` as the API server holds it; `Err` when it did not answer.
    QuorumRead(Result<Option<String>, ()>),
    /// This process is about to end: the lock is released.
    Stop,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadershipEffect {
    /// To the keeper of the lock. `Open` carries no keys: the key of the lock follows from the cluster.
    Keeper(Command),
    /// Ask the API server anything.
    Probe,
    /// Read the `RedisQuorum`.
    ReadQuorum,
    /// Write this process into `RedisQuorum.status.leader`, against the resource version that was read.
    Claim,
    /// The authority over the quorum's leases has changed.
    Authority(Authority),
}

/// The election of one replica on one quorum.
#[derive(Clone, Debug)]
pub struct Leadership {
    holder: HolderName,
    lock: Option<Lock>,
    authority: Authority,
    name: Name,
    /// Another replica's lock was seen since this one had its own, and nothing newer contradicts it.
    seen_other: bool,
    /// The attempt of another replica's lock that is known to be over: the API server has named this replica since.
    outdated: Option<Attempt>,
    due_since: Option<Time>,
    quorum_lost_since: Option<Time>,
    quorum_back_since: Option<Time>,
    probed_at: Option<Time>,
    stopping: bool,
    deadline: Option<Time>,
    effects: VecDeque<LeadershipEffect>,
}

/// What is known of `RedisQuorum.status.leader` while nobody can have the lock.
#[derive(Clone, Debug, Default)]
struct Name {
    /// The API server named this replica since the lock was lost, so it may still end terms.
    confirmed: bool,
    reading: bool,
    read_again_at: Option<Time>,
    /// When this replica claimed the name, if it did.
    claimed_at: Option<Time>,
    /// How often.
    claims: u32,
    /// Before the newest claim the status named no leader, so nobody can contradict it.
    was_free: bool,
}

/// The machine of the lock.
#[derive(Clone, Debug)]
struct Lock {
    quorum: u64,
    view: View,
    wanted_at: Option<Time>,
    /// When the last attempt began.
    tried_at: Time,
    published: Option<Attempt>,
    released: Option<Attempt>,
}

impl Leadership {
    /// `instance` names this replica, `process` this start of it.
    pub fn new(cluster: Cluster, instance: String, process: String) -> Self {
        let holder =
            HolderName { cluster, namespace: String::new(), lease: String::new(), pod: instance, pod_uid: process };
        Self {
            holder,
            lock: None,
            authority: Authority::Follow,
            name: Name::default(),
            seen_other: false,
            outdated: None,
            due_since: None,
            quorum_lost_since: None,
            quorum_back_since: None,
            probed_at: None,
            stopping: false,
            deadline: None,
            effects: VecDeque::new(),
        }
    }

    /// What this process may decide about the leases of the quorum.
    pub const fn authority(&self) -> Authority {
        self.authority
    }

    /// The name of this replica.
    pub fn instance(&self) -> &str {
        &self.holder.pod
    }

    /// Whether the next answer of the API server must be followed by a turn.
    pub const fn awaits_api_answer(&self) -> bool {
        self.probed_at.is_some()
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Time, event: LeadershipEvent) {
        match event {
            LeadershipEvent::Facts(facts) => self.turn(now, &facts),
            LeadershipEvent::View(view) => self.show(view),
            LeadershipEvent::KeeperEnded => self.lock = None,
            LeadershipEvent::QuorumRead(read) => self.quorum_read(now, read),
            LeadershipEvent::Stop => self.stop(),
        }
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<LeadershipEffect> {
        self.effects.pop_front()
    }

    /// When the next turn is due, if nothing happens before.
    pub const fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn show(&mut self, view: View) {
        let Some(lock) = &mut self.lock else { return };
        lock.wanted_at = None;
        lock.view = view;
    }

    fn turn(&mut self, now: Time, facts: &LeadershipFacts) {
        self.deadline = None;
        if self.stopping {
            return;
        }
        self.open(facts);
        self.believe();
        if self.quorum_lost_since.is_some() && !facts.quorum_lost {
            self.quorum_back_since = Some(now);
        }
        self.quorum_lost_since = facts.quorum_lost.then(|| self.quorum_lost_since.unwrap_or(now));
        if facts.quorum.is_none() {
            return self.without_quorum();
        }
        self.note_other();
        self.give_up_unconfirmed();
        if self.holds() {
            self.lead(now, facts);
        } else {
            self.without_lock(now, facts);
            self.contend(now, facts);
        }
    }

    /// Keeps one machine for the lock on the quorum as it is configured now.
    fn open(&mut self, facts: &LeadershipFacts) {
        let now = facts.quorum.as_ref().map(|quorum| quorum.id);
        if let Some(lock) = &self.lock
            && Some(lock.quorum) != now
        {
            self.release();
            self.lock = None;
            self.command(Command::Close);
        }
        if let (None, Some(quorum)) = (&self.lock, &facts.quorum) {
            self.lock = Some(Lock {
                quorum: quorum.id,
                view: View::default(),
                wanted_at: None,
                tried_at: Time(0),
                published: None,
                released: None,
            });
            let config = durations(quorum);
            self.command(Command::Open { quorum: Some(quorum.clone()), keys: Vec::new(), config });
        }
    }

    /// The lock is this process's own: it believes its own second round, nothing needs to be published.
    fn believe(&mut self) {
        let Some(lock) = &mut self.lock else { return };
        if let Standing::Publishing(term) = &lock.view.standing {
            let attempt = term.id.attempt;
            if lock.published.replace(attempt) != Some(attempt) {
                self.command(Command::Published { attempt, outcome: Publication::Written });
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
        let Some(lock) = &self.lock else { return };
        if let Standing::Adopting(term) | Standing::Uncertain(term) = &lock.view.standing
            && lock.released != Some(term.id.attempt)
        {
            self.release();
        }
    }

    /// Notes that another replica of this cluster holds the lock.
    fn note_other(&mut self) {
        let seen = self.other();
        if seen.is_some() && seen != self.outdated {
            self.seen_other = true;
        }
    }

    /// The attempt of the other replica's lock that has refused this one's.
    fn other(&self) -> Option<Attempt> {
        let refused_by = self.lock.as_ref()?.view.refused_by.as_ref()?;
        let holder: HolderName = refused_by.metadata.parse().ok()?;
        (holder != self.holder).then_some(refused_by.attempt)
    }

    /// This process holds the lock.
    fn lead(&mut self, now: Time, facts: &LeadershipFacts) {
        self.due_since = None;
        self.seen_other = false;
        self.name = Name { reading: self.name.reading, ..Name::default() };
        let answered = facts.api_answered_at.unwrap_or(Time(0));
        if self.probed_at.is_some_and(|probed| answered >= probed) {
            self.probed_at = None;
        }
        match self.probed_at {
            Some(probed) if now >= probed + LEADER_LEASE => {
                // No answer for one leader lease: another replica may be able to write.
                self.release();
                return self.set(Authority::Renew);
            }
            Some(probed) => self.wake_at(probed + LEADER_LEASE),
            None if now >= answered + HEARTBEAT => {
                self.probed_at = Some(now);
                self.emit(LeadershipEffect::Probe);
                self.wake_at(now + LEADER_LEASE);
            }
            None => self.wake_at(answered + HEARTBEAT),
        }
        self.set(Authority::Lead);
    }

    /// There is no quorum on which anybody could lead, and none on which a term could be renewed. Somebody must say so in the
    /// leases' statuses. Every replica says the same, so it does not matter which one.
    fn without_quorum(&mut self) {
        self.seen_other = false;
        self.name = Name::default();
        self.due_since = None;
        self.probed_at = None;
        self.set(Authority::Lead);
    }

    /// What this process may still do about the terms that it runs.
    fn without_lock(&mut self, now: Time, facts: &LeadershipFacts) {
        let ended = self.authority == Authority::End;
        let mut authority = self.authority;
        if self.seen_other || facts.named.as_deref().is_some_and(|named| named != self.instance()) {
            // Another replica leads and has adopted what this one runs.
            self.name.confirmed = false;
            authority = Authority::Follow;
        } else if matches!(authority, Authority::Lead | Authority::End) {
            authority = Authority::Renew;
        }
        match self.quorum_lost_since {
            Some(_) if facts.named.as_deref() == Some(self.instance()) => {
                if self.name.confirmed {
                    authority = Authority::End;
                } else {
                    self.read(now);
                }
            }
            // If the other one has the lock, it writes its name again, and this replica waits.
            Some(_) if ended => self.claim(now, facts),
            Some(since) => self.claim_later(now, since, facts),
            None => self.name = Name { reading: self.name.reading, ..Name::default() },
        }
        self.set(authority);
    }

    /// Claims the name of a leader that may have died: its terms must be shown as ended all the same. Or it lives and only
    /// this replica has lost the quorum: then it contradicts.
    fn claim_later(&mut self, now: Time, since: Time, facts: &LeadershipFacts) {
        let pause = Millis(CLAIM_AFTER.0 << self.name.claims.min(CLAIM_DOUBLES));
        let pause = if facts.named.is_some() { pause } else { FIRST_CLAIM_AFTER };
        let claim_at = self.name.claimed_at.unwrap_or(since) + pause;
        if now < claim_at {
            return self.wake_at(claim_at);
        }
        if facts.api_answered_at.is_some_and(|answered| answered >= since) {
            return self.claim(now, facts);
        }
        self.wake_at(now + READ_AGAIN);
    }

    fn claim(&mut self, now: Time, facts: &LeadershipFacts) {
        self.name.claimed_at = Some(now);
        self.name.claims = self.name.claims.saturating_add(1);
        self.name.was_free = facts.named.is_none();
        self.emit(LeadershipEffect::Claim);
        self.wake_at(now + READ_AGAIN);
    }

    fn read(&mut self, now: Time) {
        if self.name.reading {
            return;
        }
        if let Some(at) = self.name.read_again_at.filter(|at| now < *at) {
            return self.wake_at(at);
        }
        self.name.reading = true;
        self.emit(LeadershipEffect::ReadQuorum);
    }

    fn quorum_read(&mut self, now: Time, read: Result<Option<String>, ()>) {
        self.name.reading = false;
        self.name.read_again_at = Some(now + READ_AGAIN);
        if let Ok(named) = read {
            let settled = self.name.claimed_at.filter(|_| !self.name.was_free).map(|at| at + CONTRADICTED_WITHIN);
            if let Some(at) = settled.filter(|at| now < *at) {
                self.name.read_again_at = Some(at);
                return;
            }
            self.name.confirmed = named.as_deref() == Some(self.instance());
            if self.name.confirmed {
                (self.seen_other, self.outdated) = (false, self.other());
            }
        }
    }

    /// Takes the lock if it would be taken at once and the API server answers.
    fn contend(&mut self, now: Time, facts: &LeadershipFacts) {
        let Some(lock) = &mut self.lock else { return };
        if !matches!(lock.view.standing, Standing::Idle) {
            self.due_since = None;
            return;
        }
        let retry_at = lock.view.retry_at.unwrap_or(Time(0));
        // A lock that another replica holds can be released before its time is over.
        let looks_at = lock.view.refused_by.as_ref().map_or(retry_at, |_| retry_at.min(lock.tried_at + LOOK_AGAIN));
        let waits = lock.wanted_at.map(|wanted| wanted + READ_AGAIN);
        if let Some(at) = waits.into_iter().chain([looks_at]).filter(|at| now < *at).max() {
            self.due_since = None;
            return self.wake_at(at);
        }
        let led_before = facts.named.as_deref() == Some(self.instance());
        let head_start = self.quorum_back_since.map(|since| since + HEAD_START);
        if let Some(at) = head_start.filter(|at| !led_before && now < *at) {
            return self.wake_at(at);
        }
        let due_since = *self.due_since.get_or_insert(now);
        if facts.api_answered_at.is_none_or(|answered| answered + HEARTBEAT < now) {
            if self.probed_at.is_none_or(|probed| probed < due_since) {
                self.probed_at = Some(now);
                self.emit(LeadershipEffect::Probe);
            }
            return;
        }
        self.probed_at = None;
        self.due_since = None;
        if let Some(lock) = &mut self.lock {
            (lock.wanted_at, lock.tried_at) = (Some(now), now);
        }
        if now < retry_at {
            self.command(Command::TryNow);
        }
        self.command(Command::Want(self.holder.clone()));
        self.wake_at(now + READ_AGAIN);
    }

    /// Gives the lock back: this process has stopped to decide.
    fn release(&mut self) {
        let Some(lock) = &mut self.lock else { return };
        if let Some(term) = lock.view.standing.term().map(|term| term.id.clone()) {
            lock.released = Some(term.attempt);
            self.command(Command::End { term, proof: true });
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.deadline = None;
        self.set(Authority::Follow);
        self.release();
    }

    fn set(&mut self, authority: Authority) {
        if self.authority != authority {
            self.authority = authority;
            self.emit(LeadershipEffect::Authority(authority));
        }
    }

    fn wake_at(&mut self, at: Time) {
        self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
    }

    fn emit(&mut self, effect: LeadershipEffect) {
        self.effects.push_back(effect);
    }

    fn command(&mut self, command: Command) {
        self.emit(LeadershipEffect::Keeper(command));
    }
}

fn durations(quorum: &OpenQuorum) -> Config {
    Config {
        quorum: quorum.quorum,
        ttl: LEADER_LEASE.min(quorum.longest_lease),
        renew_interval: LEADER_RENEW,
        stop_budget: STOP_BUDGET,
        command_timeout: COMMAND_TIMEOUT.min(quorum.command_timeout),
        drift: Drift::STANDARD,
        backoff: Backoff {
            strategy: Strategy::Exponential,
            min: Millis(50),
            max: Millis(1000),
            limit: None,
            jitter: 10,
        },
        deadline: OnDeadline::Doubt,
    }
}
