//! The status of a lease, written only on transitions, and its events.
//!
//! A publication is such a write. It names the resource version that was read, so only one process can publish, and no
//! process acts on a term before the API server has stored it. An unanswered write counts as written until a read shows
//! otherwise.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use redislease_core::lease::{Publication, Standing, TermView, View};
use redislease_core::time::{Millis, Time};

use super::effect::{Command, Effect, Measure, Priority, Read, Shown, StatusWrite};
use super::event::StatusOutcome;
use super::facts::Facts;
use super::inputs::Inputs;
use super::permits::{PermitUse, PermitUses};
use super::recorded::{Recorded, latest_token};
use super::repeat::{RepeatLimit, fingerprint};
use super::{Reconciler, Shared};
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::{RedisLease, RedisLeaseStatus};
use crate::election::takeover;
use crate::status::{self, Composed, Notice, Obstacle, QuorumOutlook, compose};

/// The interval between two writes of a status that change only the candidate counts: many leases may share pods, and a
/// pod's readiness may flap.
const COUNTS: Millis = Millis(5000);

/// How long a write waits for the outcome of an attempt that is due or in progress: the publication then includes it.
const HELD_BACK: Millis = Millis(250);
/// How long it waits in addition for the start of an attempt: after an outage the attempts of many leases are spread over
/// seconds.
const TURN: Millis = Millis(5000);
/// How long it waits in addition for a permit to start an attempt. The API server is busy then: a write of its own would
/// delay the publications of other leases, and soon the publication of this lease replaces it.
const PERMITTED: Millis = Millis(30_000);

/// A write that waits for the outcome of an attempt.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    since: Time,
    until: Time,
}

/// The state about a lease's status.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusState {
    /// Most leases write nothing most of the time: a status inside would double the size of the machine.
    writing: Option<Box<Writing>>,
    /// Whether the stored status is unknown: it is read before the next write.
    read: StatusRead,
    /// An unanswered write: its events are sent if it turns out to have succeeded.
    unanswered: Option<Box<Writing>>,
    /// A write that waits for a permit, and its priority.
    waits: Option<Priority>,
    /// Whether the last write did not succeed. The next one needs no permit, so that writes which never succeed delay no
    /// other lease; the writer delays them.
    failed: bool,
    repeat: RepeatLimit<u64>,
    /// When only the candidate counts were written last.
    counts_written_at: Option<Time>,
    /// A write that waits for the outcome of an attempt.
    held_back: Option<HeldBack>,
    /// The attempt whose end was counted in metrics.
    counted_end: Option<String>,
    /// The fingerprint of the last state in metrics.
    shown: Option<u64>,
    /// Whether the holder of the last term was proven to have stopped.
    pub last_end_was_proven: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StatusRead {
    #[default]
    NotNeeded,
    Needed,
    UnderWay,
}

/// A pending status write.
#[derive(Clone, Debug)]
struct Writing {
    priority: Priority,
    status: Arc<RedisLeaseStatus>,
    events: Vec<Notice>,
    /// A handover that the write completes: whether it is graceful, and how long no pod held the lease.
    handover: Option<(bool, Millis)>,
    withdrawn: bool,
}

impl StatusState {
    pub const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether the stored status is known: since the last read, no write was refused, conflicted or unanswered.
    pub fn is_known(&self) -> bool {
        self.read == StatusRead::NotNeeded
    }

    /// Every turn decides again whether a write waits for a permit.
    pub const fn begin_turn(&mut self) {
        self.waits = None;
    }

    /// The permits to write that the lease uses or waits for.
    pub fn permit_uses(&self) -> PermitUses {
        let writes = self.writing.as_ref().filter(|_| !self.failed).map(|writing| (writing.priority, PermitUse::Uses));
        match writes.or_else(|| self.waits.map(|priority| (priority, PermitUse::Waits))) {
            None | Some((Priority::Publication, _)) => PermitUses::default(),
            Some((Priority::End, end)) => PermitUses { end, ..PermitUses::default() },
            Some((_, other)) => PermitUses { other, ..PermitUses::default() },
        }
    }

    /// Clears the state. A pending write is still answered, and an end is not counted twice.
    pub fn forget(&mut self) {
        let (writing, counted_end) = (self.writing.take(), self.counted_end.take());
        *self = Self { writing, counted_end, ..Self::default() };
    }
}

impl Reconciler {
    /// Writes the status if it has changed.
    pub(super) fn write_status(&mut self, now: Time, lease: &Shared, inputs: &Inputs, facts: &Facts) {
        let composed = self.compose(now, lease, inputs, facts);
        self.count(lease, &composed);
        let publishing = self.publishing();
        if let Some(writing) = &mut self.status.writing {
            // Wait for the answer to the pending write first.
            if !writing.withdrawn && contradicts(&writing.status, &composed.status) {
                writing.withdrawn = true;
                self.emit(Effect::WithdrawStatus);
            }
            return;
        }
        match self.status.read {
            StatusRead::NotNeeded => {}
            StatusRead::UnderWay => return,
            StatusRead::Needed => {
                self.status.read = StatusRead::UnderWay;
                return self.emit(Effect::Read(Read::Lease));
            }
        }
        if let Some(term) = &publishing {
            if self.link.as_ref().is_some_and(|link| link.was_asked_to_end(term.id.attempt)) {
                return;
            }
            if let Some(outcome) = publication_outcome(lease, term) {
                return self.published(term, outcome);
            }
        }
        if lease.status.as_ref() == Some(&composed.status) {
            self.status.held_back = None;
            return;
        }
        if let Some(until) = self.held_back_until(now, lease, &composed) {
            return self.wake_at(until);
        }
        let due = self.due(lease, &composed.status);
        if now < due {
            return self.wake_at(due);
        }
        let stop_at = facts.stop_at.max(publishing.as_ref().and_then(|term| term.stop_at));
        if publishing.is_some() && stop_at.is_some_and(|stop_at| now >= stop_at) {
            // Too late to publish: the machine ends the term.
            return;
        }
        let priority = priority(lease, &composed);
        let permitted = match priority {
            Priority::Publication => true,
            Priority::End => facts.permitted.end,
            Priority::Active | Priority::Standby | Priority::Counts => facts.permitted.other,
        };
        if !permitted && !self.status.failed {
            self.status.waits = Some(priority);
            return;
        }
        self.send(now, lease, composed, priority, publishing.and(stop_at));
    }

    /// Until when the write waits for an attempt, whose publication includes it. A term that ended without proof is
    /// written at once.
    fn held_back_until(&mut self, now: Time, lease: &RedisLease, composed: &Composed) -> Option<Time> {
        let active = lease.status.as_ref().and_then(|status| status.condition(ConditionType::Active));
        let urgent = active.is_some_and(|active| active.status != ConditionStatus::False.as_str())
            && !composed.status.says(ConditionType::Active, ConditionStatus::True)
            && !self.status.last_end_was_proven;
        let turn_at = self.contention.turn_at();
        let waits = self.contention.permit() == PermitUse::Waits;
        if composed.began || urgent || (turn_at.is_none() && !self.is_contending() && !waits) {
            self.status.held_back = None;
            return None;
        }
        let HeldBack { since, until } =
            self.status.held_back.get_or_insert(HeldBack { since: now, until: now + HELD_BACK });
        if let Some(turn_at) = turn_at {
            *until = turn_at.max(*since).min(*since + TURN) + HELD_BACK;
        }
        if waits {
            *until = *since + PERMITTED + HELD_BACK;
        }
        let until = *until;
        (now < until).then_some(until)
    }

    fn send(&mut self, now: Time, lease: &RedisLease, composed: Composed, priority: Priority, not_after: Option<Time>) {
        self.status.held_back = None;
        if only_counts(lease, &composed.status) {
            self.status.counts_written_at = Some(now);
        }
        let had_a_term = lease.status.as_ref().is_some_and(|status| status.fencing_token.is_some());
        let handover = self
            .unheld_since
            .filter(|_| composed.began && had_a_term)
            .map(|since| (self.status.last_end_was_proven, now.since(since)));
        let status = Arc::new(composed.status);
        self.status.writing = Some(Box::new(Writing {
            priority,
            status: status.clone(),
            events: composed.events,
            handover,
            withdrawn: false,
        }));
        let version = lease.metadata.resource_version.clone();
        let write = StatusWrite { priority, version, status, not_after };
        self.emit(Effect::WriteStatus(Box::new(write)));
    }

    /// The earliest time of the status write.
    fn due(&self, lease: &RedisLease, status: &RedisLeaseStatus) -> Time {
        let counts = match self.status.counts_written_at {
            Some(at) if only_counts(lease, status) => at + COUNTS,
            _ => Time(0),
        };
        // A write that calls the term unconfirmed, or active again, skips the backoff: other replicas depend on it.
        let active = lease.status.as_ref().is_some_and(|now| now.says(ConditionType::Active, ConditionStatus::True));
        let answers = match self.link.as_ref().map(|link| &link.view.standing) {
            Some(Standing::Held(_)) => !active,
            Some(Standing::Uncertain(_)) => active,
            _ => false,
        };
        if answers { counts } else { counts.max(self.status.repeat.due(&fingerprint(status))) }
    }

    /// Handles the outcome of the status write.
    pub(super) fn status_written(&mut self, now: Time, outcome: StatusOutcome) {
        let Some(writing) = self.status.writing.take() else { return };
        let publishing = self.publishing();
        if outcome != StatusOutcome::Withdrawn {
            self.status.failed = !matches!(outcome, StatusOutcome::Written(_));
        }
        match outcome {
            StatusOutcome::Written(lease) => {
                self.status.repeat.wrote(now, fingerprint(&writing.status));
                self.contention.status_was_written();
                if let Some(term) = &publishing
                    && let Some(outcome) = publication_outcome(&lease, term)
                {
                    self.published(term, outcome);
                }
                self.reconcile_unconfirmed(now, &lease);
                self.emit_outcome(*writing);
            }
            StatusOutcome::Unanswered(_) => {
                if let Some(term) = &publishing {
                    self.published(term, Publication::Unknown);
                }
                self.status.read = StatusRead::Needed;
                self.status.unanswered = Some(writing);
            }
            StatusOutcome::Gone => {
                if let Some(term) = &publishing {
                    self.published(term, Publication::Superseded);
                }
            }
            StatusOutcome::Conflict | StatusOutcome::Refused(_) => self.status.read = StatusRead::Needed,
            StatusOutcome::Withdrawn => {}
        }
    }

    /// Handles the lease that was read from the API server.
    pub(super) fn lease_read(&mut self, read: Result<Option<Shared>, String>) {
        match read {
            Ok(Some(lease)) => {
                if self.status.read == StatusRead::UnderWay {
                    self.status.read = StatusRead::NotNeeded;
                }
                let shown = lease.status.as_ref();
                if let Some(writing) = self.status.unanswered.take().filter(|writing| shown == Some(&*writing.status)) {
                    self.emit_outcome(*writing);
                }
                self.roles.lease_read(latest_token(&lease));
            }
            Ok(None) => {
                self.status.read = StatusRead::NotNeeded;
                self.roles.read_failed();
                if let Some(term) = self.publishing() {
                    self.published(&term, Publication::Superseded);
                }
            }
            Err(_) => {
                if self.status.read == StatusRead::UnderWay {
                    self.status.read = StatusRead::Needed;
                }
                self.roles.read_failed();
            }
        }
    }

    fn emit_outcome(&mut self, writing: Writing) {
        if let Some((graceful, leaderless)) = writing.handover {
            self.emit(Effect::Measure(Measure::Handover { graceful, leaderless: leaderless.into() }));
        }
        for notice in writing.events {
            self.emit(Effect::Report(notice));
        }
    }

    fn publishing(&self) -> Option<TermView> {
        match self.link.as_ref().map(|link| &link.view.standing) {
            Some(Standing::Publishing(term)) => Some(term.clone()),
            _ => None,
        }
    }

    fn published(&mut self, term: &TermView, outcome: Publication) {
        self.command(Command::Published { attempt: term.id.attempt, outcome });
    }

    fn compose(&self, now: Time, lease: &RedisLease, inputs: &Inputs, facts: &Facts) -> Composed {
        let none = RedisLeaseStatus::default();
        let link = self.link.as_ref();
        let quorum = link.and_then(|link| link.quorum.as_ref()).or(inputs.quorum.as_ref());
        let current = facts.quorum.open.as_ref();
        let view: Option<&View> = link.map(|link| &link.view);
        let takeover_risk = self.spec.valid.as_deref().and_then(takeover::risk);
        compose(&status::Inputs {
            previous: lease.status.as_ref().unwrap_or(&none),
            generation: lease.metadata.generation,
            now: facts.wall,
            cluster: &self.identity.cluster,
            namespace: &self.identity.namespace,
            lease: &self.identity.name,
            view,
            observed_terms: &self.terms,
            withheld: inputs.blocked,
            obstacle: inputs.obstacle.as_ref().map(|(reason, message)| Obstacle { reason: *reason, message }),
            electorate: inputs.electorate.as_deref().filter(|_| facts.pods_listed),
            quorum: quorum
                .filter(|quorum| current.is_some_and(|now| now.id == quorum.id && facts.quorum.evaluated))
                .map(|quorum| QuorumOutlook {
                    name: &quorum.name,
                    fingerprint: &quorum.fingerprint,
                    up: facts.quorum.up,
                    majority: quorum.quorum.majority(),
                    mismatch: facts.quorum.mismatch.as_deref(),
                }),
            leaderless: self.unheld_since.map(|since| now.since(since).into()),
            takeover_risk: takeover_risk.as_deref(),
            start: self.start.waits(),
            handover: self.handover.as_ref().map(|handover| handover.outlook()),
        })
    }

    /// Metrics do not wait for the API server: a loss is counted at once, and only once.
    fn count(&mut self, lease: &RedisLease, composed: &Composed) {
        let before = lease.status.as_ref().and_then(|status| status.attempt.clone());
        if let Some(end) = composed.ended
            && self.status.counted_end != before
        {
            self.emit(Effect::Measure(Measure::Ended(end)));
            self.status.counted_end = before;
        }
        let shown = self.shown(lease, composed);
        let mut hasher = DefaultHasher::new();
        shown.hash(&mut hasher);
        let fingerprint = hasher.finish();
        if self.status.shown != Some(fingerprint) {
            self.status.shown = Some(fingerprint);
            self.emit(Effect::Measure(Measure::Shown(Box::new(shown))));
        }
    }

    /// An unpublished term has no holder: the previous holder's term has ended.
    fn shown(&self, lease: &RedisLease, composed: &Composed) -> Shown {
        let none = RedisLeaseStatus::default();
        let stored = lease.status.as_ref().unwrap_or(&none);
        let status = if composed.began { stored } else { &composed.status };
        let active = !composed.began && status.says(ConditionType::Active, ConditionStatus::True);
        let holder = status.holder.as_ref().filter(|_| !composed.began);
        Shown {
            active,
            held: active || (!composed.began && status.says(ConditionType::Ready, ConditionStatus::True)),
            waiting: self.unheld_since.is_some(),
            holder: holder
                .map(|holder| [holder.cluster.clone(), holder.pod.clone(), holder.node.clone().unwrap_or_default()]),
            token: status.fencing_token.unwrap_or(0),
            candidates: status.candidates.as_ref().map_or([0, 0], |candidates| {
                [i64::from(candidates.eligible), i64::from(candidates.total - candidates.eligible)]
            }),
            conditions: status.conditions.iter().map(|one| (one.type_.clone(), one.status.clone())).collect(),
        }
    }
}

/// The outcome of a publication, if the status already shows it.
fn publication_outcome(lease: &RedisLease, term: &TermView) -> Option<Publication> {
    if Recorded::of(lease).is_some_and(|recorded| recorded.attempt == term.id.attempt) {
        Some(Publication::Written)
    } else if latest_token(lease) >= term.id.token {
        Some(Publication::Superseded)
    } else {
        None
    }
}

/// How urgent the write of this status is. Only a status that shows a term, before or after the write, decides whether a pod
/// may be active: thousands of new leases without a candidate delay no end of a term.
fn priority(lease: &RedisLease, composed: &Composed) -> Priority {
    let active = |status: &RedisLeaseStatus| {
        let shown = status.condition(ConditionType::Active);
        shown.filter(|active| active.status != ConditionStatus::False.as_str()).map(|active| active.reason.clone())
    };
    if composed.began {
        Priority::Publication
    } else if lease.status.as_ref().and_then(active) == active(&composed.status) {
        Priority::Counts
    } else {
        Priority::End
    }
}

/// Whether a pending write contradicts the new status about the term: then it must not be sent.
fn contradicts(waiting: &RedisLeaseStatus, now: &RedisLeaseStatus) -> bool {
    let active = |status: &RedisLeaseStatus| {
        status.condition(ConditionType::Active).map(|one| (one.status.clone(), one.reason.clone()))
    };
    waiting.attempt != now.attempt || active(waiting) != active(now)
}

/// Whether the two differ only in the candidate counts and their condition.
fn only_counts(lease: &RedisLease, status: &RedisLeaseStatus) -> bool {
    lease.status.as_ref().is_some_and(|stored| without_counts(stored) == without_counts(status))
}

fn without_counts(status: &RedisLeaseStatus) -> RedisLeaseStatus {
    let mut status = RedisLeaseStatus { candidates: None, ..status.clone() };
    status.conditions.retain(|condition| condition.type_ != ConditionType::CandidatesAvailable.as_str());
    status
}
