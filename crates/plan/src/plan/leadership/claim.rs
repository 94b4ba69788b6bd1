//! The authority of a replica without the lock, and the name in `RedisQuorum.status.leader`.
//!
//! While the quorum is lost, no replica can have the lock. The replica that the status names still ends its terms. If that
//! replica may have died, another one claims the name; a leader that still runs contradicts.

use redislease_core::backoff::Backoff;
use redislease_core::time::{Millis, Time};

use super::interface::LeadershipEffect;
use crate::election::takeover::LEADER_LEASE;
use crate::plan::facts::Authority;
use crate::plan::output::Output;

/// The pause before repeating an unanswered read.
pub(super) const READ_AGAIN: Millis = Millis(1000);
/// How long the quorum must be lost before a replica writes itself as leader in place of one that may have died. It
/// doubles with each claim, because a running leader has contradicted the previous one; that leader can die later.
const CLAIM_AFTER: Backoff = Backoff::exponential(10_000, 40_000, 0);
/// A running leader contradicts a claim within this time.
const CONTRADICTED_WITHIN: Millis = Millis(5000);
/// How long a contradiction extends the right to end terms: until a read after it counts.
const EXTENSION: Millis = Millis(CONTRADICTED_WITHIN.0 + READ_AGAIN.0);
/// How long after the end of its authority contradictions can extend the right at most. Several replicas may claim the name one after
/// another. But two replicas that both have the right would write their names for ever.
const MOST_EXTENSION: Millis = Millis(2 * EXTENSION.0);
/// How long before the end of its authority the replica reads the name again.
const CONFIRMED_AGAIN: Millis = Millis(LEADER_LEASE.0 / 2);
/// How often a leader contradicts before it has the right to end terms: each other replica may claim the name, and a write may fail. A
/// replica that has the right contradicts in turn.
const MOST_WITHOUT_RIGHT: u32 = 3;
/// How long the quorum must be lost if the status has never named a leader: the nodes of a new quorum do not vote for a
/// while, and the status of the leases must show this.
const FIRST_CLAIM_AFTER: Millis = Millis(1000);

/// The state of `RedisQuorum.status.leader` while no replica can have the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Name {
    /// Until when this replica may end terms, because the API server has named it since the lock was lost: one lock duration
    /// from before the read on. Another replica that leads earlier is named earlier, which ends this right. One that only claims the
    /// name does not: then this replica contradicts, and goes on until its name is confirmed again.
    confirmed_until: Option<Time>,
    /// Until when contradictions can extend this right before the next read that confirms it.
    extended_until: Option<Time>,
    /// How often this replica has contradicted claims without this right since the last read that confirmed it.
    without_right: u32,
    /// When the read under way was sent.
    reading_since: Option<Time>,
    read_again_at: Option<Time>,
    /// When this replica claimed the name, if it did.
    claimed_at: Option<Time>,
    /// Since when the API server has answered, while a claim is due soon.
    answers_since: Option<Time>,
    /// The number of claims. All contradictions of one claim count as one.
    claims: u32,
    /// Whether the status named no leader before the newest claim, so that no replica can contradict it.
    was_free: bool,
    /// Until when this replica keeps its terms although the status names another replica: it has contradicted.
    contradicts_until: Option<Time>,
}

/// What a replica without the lock knows.
pub(super) struct WithoutLock<'a> {
    /// The replica in `RedisQuorum.status.leader`.
    pub named: Option<&'a str>,
    /// Whether that replica has only claimed the name.
    pub is_claimed: bool,
    /// This replica.
    pub instance: &'a str,
    pub api_answered_at: Option<Time>,
    pub quorum_lost_since: Option<Time>,
    /// Whether another replica's lock was observed.
    pub seen_other: bool,
    /// The authority until now.
    pub authority: Authority,
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

    /// The authority of this process over its running terms without the lock.
    pub(super) fn without_lock(
        &mut self,
        now: Time,
        situation: &WithoutLock<'_>,
        out: &mut Output<LeadershipEffect>,
    ) -> Authority {
        let &WithoutLock { named, instance, quorum_lost_since, seen_other, mut authority, .. } = situation;
        let is_named = named == Some(instance);
        let other_is_named = named.is_some() && !is_named;
        let other_claims = other_is_named && situation.is_claimed && quorum_lost_since.is_some();
        if is_named {
            self.contradicts_until = None;
        } else {
            // If the other replica has the lock, it writes its name again, and then this replica follows.
            let contradicts = match authority {
                Authority::End => other_claims,
                // It led until now, and the read that confirms its name had no answer yet.
                Authority::Lead | Authority::Renew => other_claims && self.without_right < MOST_WITHOUT_RIGHT,
                Authority::Follow => false,
            };
            if contradicts && self.contradicts_until.is_none() && !seen_other {
                self.contradicts_until = Some(now + CONTRADICTED_WITHIN);
                self.claims = self.claims.saturating_add(1);
                self.contradict(now, out);
            }
            self.confirmed_until = self.confirmed_until.filter(|_| other_claims);
        }
        let contradicts_until = self.contradicts_until.filter(|until| now < *until);
        if seen_other || (other_is_named && contradicts_until.is_none()) {
            // Another replica leads and has adopted the terms of this one.
            self.confirmed_until = None;
            authority = Authority::Follow;
        } else if authority.decides() {
            authority = Authority::Renew;
        }
        match (quorum_lost_since, contradicts_until) {
            _ if is_named && quorum_lost_since.is_some() => {
                if self.confirms(now, out) {
                    authority = Authority::End;
                }
            }
            (Some(_), Some(until)) => {
                let has_right = self.confirmed_until.is_some_and(|confirmed| now < confirmed);
                if has_right {
                    authority = Authority::End;
                }
                if has_right || self.without_right < MOST_WITHOUT_RIGHT {
                    self.contradict_again(now, out);
                }
                out.wake_at(until);
            }
            (Some(since), None) => self.claim_later(now, since, situation, out),
            (None, _) => *self = self.unclaimed(),
        }
        authority
    }

    /// Whether a read has confirmed, shortly before, that the status names this replica. Reads the status again in time.
    fn confirms(&mut self, now: Time, out: &mut Output<LeadershipEffect>) -> bool {
        let confirmed_until = self.confirmed_until.filter(|until| now < *until);
        let read_at = confirmed_until.map_or(now, |until| until - CONFIRMED_AGAIN);
        if let Some(until) = confirmed_until {
            out.wake_at(until);
        }
        if now < read_at {
            out.wake_at(read_at);
        } else {
            self.read(now, out);
        }
        confirmed_until.is_some()
    }

    /// Writes this replica as leader in place of one that may have died, so that the terms of the dead one are shown as
    /// ended. If that leader still runs and only this replica has lost the quorum, the leader contradicts.
    fn claim_later(&mut self, now: Time, since: Time, situation: &WithoutLock<'_>, out: &mut Output<LeadershipEffect>) {
        let is_free = situation.named.is_none();
        let pause = if is_free { FIRST_CLAIM_AFTER } else { CLAIM_AFTER.delay(self.claims.saturating_add(1)) };
        let claim_at = self.claimed_at.unwrap_or(since) + pause;
        let asks_at = if is_free { claim_at } else { claim_at - CONTRADICTED_WITHIN };
        if now < asks_at {
            return out.wake_at(asks_at);
        }
        let answered = situation.api_answered_at.filter(|answered| *answered >= since);
        // After an outage of the API server, a running leader must first read its name and write that the quorum is lost.
        let answers = answered.filter(|answered| now < *answered + CONTRADICTED_WITHIN);
        self.answers_since = answers.map(|_| self.answers_since.unwrap_or(now));
        let settled = self.answers_since.is_some_and(|since| since + CONTRADICTED_WITHIN <= now);
        if now >= claim_at && (settled || (is_free && answered.is_some())) {
            return self.claim(now, situation.named, out);
        }
        out.emit(LeadershipEffect::Probe);
        out.wake_at(now + READ_AGAIN);
        if now < claim_at {
            out.wake_at(claim_at);
        }
    }

    /// Writes the name of this replica again after another one has claimed it. That extends the right to end terms: otherwise nobody
    /// would end them until the claim is settled.
    fn contradict(&mut self, now: Time, out: &mut Output<LeadershipEffect>) {
        // A replica that was paused has no right any more.
        let right = self.confirmed_until.filter(|until| now < *until);
        self.without_right += u32::from(right.is_none());
        let limit = self.extended_until.unwrap_or(now);
        self.confirmed_until = right.map(|until| until.max(limit.min(now + EXTENSION)));
        self.write_name(now, false, out);
    }

    /// Contradicts again if the last write failed, or another replica has claimed the name since.
    fn contradict_again(&mut self, now: Time, out: &mut Output<LeadershipEffect>) {
        match self.claimed_at.map(|at| at + READ_AGAIN) {
            Some(at) if at <= now => self.contradict(now, out),
            Some(at) => out.wake_at(at),
            None => {}
        }
        if let Some(confirmed) = self.confirmed_until {
            out.wake_at(confirmed);
        }
    }

    fn claim(&mut self, now: Time, named: Option<&str>, out: &mut Output<LeadershipEffect>) {
        self.claims = self.claims.saturating_add(1);
        self.write_name(now, named.is_none(), out);
    }

    fn write_name(&mut self, now: Time, was_free: bool, out: &mut Output<LeadershipEffect>) {
        (self.claimed_at, self.was_free) = (Some(now), was_free);
        out.emit(LeadershipEffect::Claim);
        out.wake_at(now + READ_AGAIN);
    }

    fn read(&mut self, now: Time, out: &mut Output<LeadershipEffect>) {
        if self.reading_since.is_some() {
            return;
        }
        if let Some(at) = self.read_again_at.filter(|at| now < *at) {
            return out.wake_at(at);
        }
        self.reading_since = Some(now);
        out.emit(LeadershipEffect::ReadQuorum);
    }

    /// Takes the answer to a read: whether the status names this replica. Returns whether it confirms that.
    pub(super) fn quorum_read(&mut self, now: Time, is_named: Result<bool, ()>) -> bool {
        let sent_at = self.reading_since.take();
        self.read_again_at = Some(now + READ_AGAIN);
        let Ok(is_named) = is_named else { return false };
        let settled = self.claimed_at.filter(|_| !self.was_free).map(|at| at + CONTRADICTED_WITHIN);
        if let Some(at) = settled.filter(|at| now < *at) {
            self.read_again_at = Some(at);
            return false;
        }
        // Otherwise the next turn sees who is named, and whether that one leads.
        let Some(sent_at) = sent_at.filter(|_| is_named) else { return false };
        let until = sent_at + LEADER_LEASE;
        (self.confirmed_until, self.extended_until, self.without_right) =
            (Some(until), Some(until + MOST_EXTENSION), 0);
        true
    }
}
