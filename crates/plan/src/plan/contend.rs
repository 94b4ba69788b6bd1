//! Decides when an attempt may start.
//!
//! An attempt starts only if the API server has answered a call of this process after the reason to contend arose.
//! Without this rule, a cluster without its API server could acquire a shared lease, never publish the term, and keep a
//! healthy cluster from the lease.

use redislease_core::lease::Standing;
use redislease_core::op::{Attempt, Token};
use redislease_core::time::{Millis, Time};

use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::{Command, Effect, PermitUse};
use crate::election::{Cluster, HolderName};

/// The timeout after which a requested attempt that has not started is requested again: the keeper drops a request that
/// cannot start at once.
const ATTEMPT_SHOWN: Millis = Millis(1000);
/// How long other clusters can acquire the lease before this process contends again, counted from the expiry of the keys
/// of an unpublished term. Their next attempts start when the keys expire, so a second is enough.
const HEAD_START: Millis = Millis(1000);
/// How long an attempt and its publication use a permit at most: terms that cannot be published delay other leases only
/// briefly.
const PERMIT: Millis = Millis(10_000);
/// The longest cooldown while no status write succeeds, unless the keys last longer.
const COOLDOWN_MOST: Millis = Millis(60_000);

/// The state about attempts that is kept between turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Contention {
    /// Since when an attempt has been due that has not started.
    due_since: Option<Time>,
    /// When the keeper allows the next attempt, if one is wanted and no other process holds the lease.
    turn_at: Option<Time>,
    /// Whether the API server was asked for an answer for that attempt.
    probing: bool,
    /// Whether the lease uses a permit, or waits for one.
    permit: PermitUse,
    /// When the attempt was requested that uses the permit.
    permit_since: Option<Time>,
    /// Set after a term that could not be published, because another cluster may be able to publish.
    cooldown: Option<Cooldown>,
    /// The unpublished term, and when it is ended.
    unpublished: Option<(Attempt, Time)>,
}

/// The time without attempts after a term that could not be published.
///
/// Otherwise a cluster whose API server accepts no status would acquire a shared lease repeatedly. Two lease durations
/// are enough for another cluster to acquire it. When a status write succeeds, the reason is gone; the cooldown then ends
/// [`HEAD_START`] after the keys expire.
#[derive(Clone, Copy, Debug)]
struct Cooldown {
    /// The end if a status write has succeeded.
    shortest: Time,
    /// The end if none has.
    longest: Time,
    /// Whether a status write of this lease has succeeded since the cooldown began.
    written: bool,
}

impl Cooldown {
    /// Creates a cooldown for a term that was extended no later than `now`.
    fn new(now: Time, ttl: Millis) -> Self {
        let shortest = now + ttl + HEAD_START;
        Self { shortest, longest: shortest.max(now + (ttl + ttl).min(COOLDOWN_MOST)), written: false }
    }

    const fn ends_at(&self) -> Time {
        if self.written { self.shortest } else { self.longest }
    }
}

impl Contention {
    pub const fn awaits_api_answer(&self) -> bool {
        self.probing
    }

    pub fn cooldown_until(&self, now: Time) -> Option<Time> {
        self.cooldown.map(|cooldown| cooldown.ends_at()).filter(|at| now < *at)
    }

    /// Every turn decides again whether the lease waits for a permit. Without `may_begin` it needs none.
    pub fn begin_turn(&mut self, may_begin: bool) {
        if !may_begin {
            self.not_due();
        } else if self.permit == PermitUse::Waits {
            self.permit = PermitUse::None;
        }
        self.permit_since = self.permit_since.filter(|_| may_begin);
    }

    pub const fn permit(&self) -> PermitUse {
        self.permit
    }

    pub const fn status_was_written(&mut self) {
        if let Some(cooldown) = &mut self.cooldown {
            cooldown.written = true;
        }
    }

    pub fn not_due(&mut self) {
        self.due_since = None;
        self.turn_at = None;
        self.probing = false;
        self.permit = PermitUse::None;
    }

    /// When the next attempt starts that is wanted and in backoff.
    pub const fn turn_at(&self) -> Option<Time> {
        self.turn_at
    }

    /// Starts an attempt for the pod or workload if it can start at once and the API server answers.
    pub fn contend(&mut self, turn: &Turn<'_>, (name, uid): (&str, &str), link: &mut KeeperLink, out: &mut Effects) {
        let &Turn { now, identity, facts, .. } = turn;
        if let Standing::Acquiring(_, holder) = &link.view.standing {
            self.not_due();
            if holder.0.parse().is_ok_and(|name: HolderName| name.pod_uid != uid) {
                out.emit(Command::Forget);
            }
            return;
        }
        if let Some(at) = link.attempt_requested_at.map(|at| at + ATTEMPT_SHOWN).filter(|at| now < *at) {
            return out.wake_at(at);
        }
        let changed = link.last_candidate.as_ref().is_some_and(|last| *last != uid);
        if let Some(at) = link.next_attempt_at().filter(|at| now < *at) {
            let counts = link.view.refused_by.is_none() && link.view.ending.is_none();
            if changed && counts {
                // The backoff was for attempts for another pod.
                link.last_candidate = Some(uid.to_owned());
                out.emit(Command::TryNow);
            }
            self.not_due();
            self.turn_at = Some(at).filter(|_| counts);
            return out.wake_at(at);
        }
        if !facts.permitted.attempt {
            self.not_due();
            self.permit = PermitUse::Waits;
            return;
        }
        self.permit = PermitUse::Uses;
        let due_since = *self.due_since.get_or_insert(now);
        if facts.api_answered_at.is_none_or(|answered| answered < due_since) {
            if !std::mem::replace(&mut self.probing, true) {
                out.emit(Effect::Probe);
            }
            return;
        }
        self.not_due();
        let holder = HolderName {
            cluster: Cluster::clone(&identity.cluster),
            namespace: identity.namespace.to_string(),
            lease: identity.name.clone(),
            pod: name.to_owned(),
            pod_uid: uid.to_owned(),
        };
        link.attempt_requested_at = Some(now);
        self.permit_since = Some(now);
        link.last_candidate = Some(uid.to_owned());
        out.emit(Command::Want((&holder).into()));
        // The keeper may drop the attempt without a view that causes a turn.
        out.wake_at(now + ATTEMPT_SHOWN);
    }

    /// No attempt is to be made, and one that is under way stops.
    pub fn stop(&mut self, link: &mut KeeperLink, out: &mut Effects) {
        self.not_due();
        if link.attempt_requested_at.take().is_some() || matches!(link.view.standing, Standing::Acquiring(..)) {
            out.emit(Command::Forget);
        }
    }

    /// Makes no attempt for a while: the API server did not accept the term with this token.
    pub fn cool_down(&mut self, now: Time, ttl: Millis, token: Token, out: &mut Effects) {
        let cooldown = Cooldown::new(now, ttl);
        self.cooldown = Some(cooldown);
        out.wake_at(cooldown.ends_at());
        out.emit(Effect::Warn(format!(
            "The API server did not accept the status of the term with token {token} within one lease duration. The \
             operator gives the term up and makes no attempt for {} ms, or for {} ms if the API server accepts a status \
             meanwhile.",
            cooldown.longest.since(now).0,
            cooldown.shortest.since(now).0
        )));
    }

    /// Whether the running term has been unpublished for one lease duration. Its keys block others, so this process gives it up
    /// whether the API server answers or not.
    pub fn unpublished_too_long(&mut self, now: Time, link: &KeeperLink, out: &mut Effects) -> bool {
        let Standing::Publishing(term) = &link.view.standing else {
            self.unpublished = None;
            return false;
        };
        let attempt = term.id.attempt;
        let limit = now + link.config.drift.most(link.config.ttl);
        let ends_at = match self.unpublished {
            Some((waiting, at)) if waiting == attempt => at,
            _ => limit,
        };
        self.unpublished = Some((attempt, ends_at));
        let is_too_long = now >= ends_at;
        if !is_too_long {
            out.wake_at(ends_at);
        }
        is_too_long
    }

    /// Ends the use of the permit when the attempt has failed, when its term is published, or after [`PERMIT`]. A refused or
    /// unanswered write ends it at once: it is not the length of the queue that delays the publication.
    pub fn update_permit(&mut self, now: Time, is_used: bool, out: &mut Effects) {
        let Some(since) = self.permit_since else { return };
        let ends_at = since + PERMIT;
        if now < ends_at && is_used {
            self.permit = PermitUse::Uses;
            return out.wake_at(ends_at);
        }
        self.permit_since = None;
        if self.permit == PermitUse::Uses && self.due_since.is_none() {
            self.permit = PermitUse::None;
        }
    }

    /// Whether an attempt is due, requested or in progress, or its term is being published.
    pub fn is_contending(&self, link: Option<&KeeperLink>) -> bool {
        let under_way =
            link.is_some_and(|link| matches!(link.view.standing, Standing::Acquiring(..) | Standing::Publishing(_)));
        under_way || self.due_since.is_some() || link.is_some_and(|link| link.attempt_requested_at.is_some())
    }
}
