//! The authority of a replica without the lock, and the name in `RedisQuorum.status.leader`.
//!
//! While the quorum is lost, no replica can have the lock. The replica that the status names still ends its terms. If that
//! replica may have died, another one claims the name; a leader that still runs contradicts.

use redislease_core::backoff::{Backoff, Strategy};
use redislease_core::time::{Millis, Time};

use super::{Leadership, LeadershipEffect, LeadershipFacts, READ_AGAIN};
use crate::election::takeover::LEADER_LEASE;
use crate::plan::facts::Authority;

/// How long the quorum must be lost before a replica writes itself as leader in place of one that may have died. It
/// doubles with each claim, because a running leader has contradicted the previous one.
const CLAIM_AFTER: Backoff =
    Backoff { strategy: Strategy::Exponential, min: Millis(10_000), max: Millis(640_000), limit: None, jitter: 0 };
/// A running leader contradicts a claim within this time.
const CONTRADICTED_WITHIN: Millis = Millis(5000);
/// How long before the end of its authority the replica reads the name again.
const CONFIRMED_AGAIN: Millis = Millis(LEADER_LEASE.0 / 2);
/// How long the quorum must be lost if the status has never named a leader: the nodes of a new quorum do not vote for a
/// while, and the status of the leases must show this.
const FIRST_CLAIM_AFTER: Millis = Millis(1000);

/// The state of `RedisQuorum.status.leader` while no replica can have the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Name {
    /// Until when this replica may end terms, because the API server has named it since the lock was lost: one lock duration
    /// from before the read on. Another replica can lead after that.
    confirmed_until: Option<Time>,
    /// When the read under way was sent.
    reading_since: Option<Time>,
    read_again_at: Option<Time>,
    /// When this replica claimed the name, if it did.
    claimed_at: Option<Time>,
    /// The number of claims.
    claims: u32,
    /// Whether the status named no leader before the newest claim, so that no replica can contradict it.
    was_free: bool,
    /// Until when this replica, which ended terms, keeps them although the status names another replica: it has contradicted.
    contradicts_until: Option<Time>,
}

impl Name {
    /// The state when no claim is needed. A read may be under way.
    pub(super) fn unclaimed(&self) -> Self {
        Self { reading_since: self.reading_since, ..Self::default() }
    }

    /// Until when this replica may end terms.
    pub(super) const fn confirmed_until(&self) -> Option<Time> {
        self.confirmed_until
    }
}

impl Leadership {
    /// The authority of this process over its running terms without the lock.
    pub(super) fn without_lock(&mut self, now: Time, facts: &LeadershipFacts) {
        let is_named = facts.named.as_deref() == Some(self.instance());
        let other_is_named = facts.named.is_some() && !is_named;
        let is_lost = self.quorum_lost_since.is_some();
        if is_named {
            self.name.contradicts_until = None;
        } else if other_is_named && is_lost && self.authority == Authority::End && !self.seen_other {
            // If the other replica has the lock, it writes its name again, and then this replica follows.
            self.claim(now, facts);
            self.name.contradicts_until = Some(now + CONTRADICTED_WITHIN);
        }
        let contradicts_until = self.name.contradicts_until.filter(|until| now < *until);
        if !is_named {
            self.name.confirmed_until = None;
        }
        let mut authority = self.authority;
        if self.seen_other || (other_is_named && contradicts_until.is_none()) {
            // Another replica leads and has adopted the terms of this one.
            self.name.confirmed_until = None;
            authority = Authority::Follow;
        } else if matches!(authority, Authority::Lead | Authority::End) {
            authority = Authority::Renew;
        }
        match self.quorum_lost_since {
            Some(_) if is_named => {
                let confirmed_until = self.name.confirmed_until.filter(|until| now < *until);
                let read_at = confirmed_until.map_or(now, |until| until - CONFIRMED_AGAIN);
                if let Some(until) = confirmed_until {
                    authority = Authority::End;
                    self.wake_at(until);
                }
                if now < read_at {
                    self.wake_at(read_at);
                } else {
                    self.read(now);
                }
            }
            Some(since) => match contradicts_until {
                Some(until) => self.wake_at(until),
                None => self.claim_later(now, since, facts),
            },
            None => self.name = self.name.unclaimed(),
        }
        self.set(authority);
    }

    /// Writes this replica as leader in place of one that may have died, so that the terms of the dead one are shown as
    /// ended. If that leader still runs and only this replica has lost the quorum, the leader contradicts.
    fn claim_later(&mut self, now: Time, since: Time, facts: &LeadershipFacts) {
        let pause = CLAIM_AFTER.delay(self.name.claims.saturating_add(1));
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
        if self.name.reading_since.is_some() {
            return;
        }
        if let Some(at) = self.name.read_again_at.filter(|at| now < *at) {
            return self.wake_at(at);
        }
        self.name.reading_since = Some(now);
        self.emit(LeadershipEffect::ReadQuorum);
    }

    pub(super) fn quorum_read(&mut self, now: Time, read: Result<Option<String>, ()>) {
        let sent_at = self.name.reading_since.take();
        self.name.read_again_at = Some(now + READ_AGAIN);
        if let Ok(named) = read {
            let settled = self.name.claimed_at.filter(|_| !self.name.was_free).map(|at| at + CONTRADICTED_WITHIN);
            if let Some(at) = settled.filter(|at| now < *at) {
                self.name.read_again_at = Some(at);
                return;
            }
            let is_named = named.as_deref() == Some(self.instance());
            self.name.confirmed_until = sent_at.filter(|_| is_named).map(|sent_at| sent_at + LEADER_LEASE);
            if self.name.confirmed_until.is_some() {
                (self.seen_other, self.outdated) = (false, self.other());
            }
        }
    }
}
