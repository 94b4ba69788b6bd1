//! The status of a lease, written only on transitions, and its events.
//!
//! A publication is such a write. It names the resource version that was read, so only one process can publish, and no
//! process acts on a term before the API server has stored it. An unanswered write counts as written until a read shows
//! otherwise.

use std::sync::Arc;

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Publication, Standing, TermView};
use redislease_core::time::{Millis, Time};

use super::bucket::Bucket;
use super::contend::Contention;
use super::context::Context;
use super::inputs::Turn;
use super::keeper::Keeper;
use super::output::Effects;
use super::recorded::{Recorded, latest_token};
use super::repeat::{RepeatLimit, fingerprint};
use super::{Command, Effect, Measure, PermitUse, PermitUses, Priority, StatusOutcome, StatusWrite};
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::{RedisLease, RedisLeaseStatus};
use crate::status::{Composed, Notice, NoticeReason};

/// The interval between two writes of a status that change only the candidate counts: many leases may share pods, and a
/// pod's readiness may flap.
const COUNTS: Millis = Millis(5000);
/// The rate of writes that say nothing new about the term: 20 at once, and one more in a second. Conditions can change as often as
/// the quorum and the pods do.
type Others = Bucket<20, 1_000_000>;

/// Among how many statuses a repetition is noticed: a lease can wait for keys that so many others hold.
const REMEMBERED: usize = 8;

/// The number of refusals in a row after which an event tells of them.
const REFUSED: u32 = 3;
/// The pause after refusals in a row. A policy that refuses the status of one lease may refuse that of all.
const AGAIN: Backoff = Backoff::exponential(250, 60_000, 0);
/// The longest of these pauses before a write that shows the end of a term, for which the standby pods wait.
const END_AGAIN: Millis = Millis(10_000);

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
pub(super) struct Publisher {
    /// Most leases write nothing most of the time: a status inside would double the size of the machine.
    writing: Option<Box<SentStatus>>,
    /// Whether the stored status is unknown: it is read before the next write.
    read: StatusRead,
    /// An unanswered write: its events are sent if it turns out to have succeeded.
    unanswered: Option<Box<SentStatus>>,
    /// A write that waits for a permit, and its priority.
    waits: Option<Priority>,
    /// Whether the last write did not succeed. The next one needs no permit, so that writes which never succeed delay no
    /// other lease; the writer delays them.
    failed: bool,
    /// The refusals since the last write that succeeded.
    refused: Option<Refused>,
    repeat: RepeatLimit<u64, REMEMBERED>,
    /// When only the candidate counts were written last.
    counts_written_at: Option<Time>,
    /// The writes that say nothing new about the term.
    others: Others,
    /// A write that waits for the outcome of an attempt.
    held_back: Option<HeldBack>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    since: Time,
    last: Time,
    times: u32,
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
struct SentStatus {
    priority: Priority,
    status: Arc<RedisLeaseStatus>,
    events: Vec<Notice>,
    /// A handover that the write completes: whether it is graceful, and how long no pod held the lease.
    handover: Option<(bool, Millis)>,
    withdrawn: bool,
}

impl Publisher {
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

    /// The pending write is outdated.
    pub fn withdraw(&self, out: &mut Effects) {
        if self.is_writing() {
            out.emit(Effect::WithdrawStatus);
        }
    }

    /// Clears the state. A pending write is still answered.
    pub fn forget(&mut self, out: &mut Effects) {
        self.withdraw(out);
        *self = Self { writing: self.writing.take(), ..Self::default() };
    }

    pub fn write(&mut self, context: &Context<'_>, composed: Composed, out: &mut Effects) {
        let Context { turn: &Turn { now, lease, facts, .. }, keeper, .. } = *context;
        let publishing = keeper.publishing();
        if self.must_wait(&composed, out) {
            return;
        }
        if let Some(term) = publishing {
            if keeper.link().is_some_and(|link| link.was_asked_to_end(term.id.attempt)) {
                return;
            }
            if let Some(outcome) = publication_outcome(lease, term) {
                return out.emit(published(term, outcome));
            }
        }
        if lease.status.as_ref() == Some(&composed.status) {
            self.held_back = None;
            self.refused = None;
            return;
        }
        if let Some(until) = self.held_back_until(context, &composed) {
            return out.wake_at(until);
        }
        let priority = priority(lease, &composed);
        let due = self.due(lease, &composed.status, priority, keeper);
        if now < due {
            return out.wake_at(due);
        }
        let stop_at = facts.stop_at.max(publishing.and_then(|term| term.stop_at));
        if publishing.is_some() && stop_at.is_some_and(|stop_at| now >= stop_at) {
            // Too late to publish: the machine ends the term.
            return;
        }
        let permitted = match priority {
            Priority::Publication => true,
            Priority::End => facts.permitted.end,
            _ => facts.permitted.other,
        };
        if !permitted && !self.failed {
            self.waits = Some(priority);
            return;
        }
        self.send(context, composed, priority, publishing.and(stop_at), out);
    }

    /// Whether an answer must arrive before the next write: that of the pending write, or that of a read.
    fn must_wait(&mut self, composed: &Composed, out: &mut Effects) -> bool {
        if let Some(writing) = &mut self.writing {
            if !writing.withdrawn && contradicts(&writing.status, &composed.status) {
                writing.withdrawn = true;
                out.emit(Effect::WithdrawStatus);
            }
            return true;
        }
        // The answer to a read that was requested earlier may be older than the last write. It causes the next turn.
        if self.read == StatusRead::Needed && !out.is_reading_lease() {
            self.read = StatusRead::UnderWay;
            out.read_lease();
        }
        !self.is_known()
    }

    /// Until when the write waits for an attempt, whose publication includes it. A term that ended without proof is
    /// written at once.
    fn held_back_until(&mut self, context: &Context<'_>, composed: &Composed) -> Option<Time> {
        let Context { turn: &Turn { now, lease, .. }, keeper, contention, .. } = *context;
        let active = lease.status.as_ref().and_then(|status| status.condition(ConditionType::Active));
        let urgent = active.is_some_and(|active| active.status != ConditionStatus::False.as_str())
            && !composed.status.says(ConditionType::Active, ConditionStatus::True)
            && !keeper.last_end_was_proven();
        let turn_at = contention.turn_at();
        let waits = contention.permit() == PermitUse::Waits;
        if composed.began || urgent || (turn_at.is_none() && !context.is_contending() && !waits) {
            self.held_back = None;
            return None;
        }
        let HeldBack { since, until } = self.held_back.get_or_insert(HeldBack { since: now, until: now + HELD_BACK });
        if let Some(turn_at) = turn_at {
            *until = turn_at.max(*since).min(*since + TURN) + HELD_BACK;
        }
        if waits {
            *until = *since + PERMITTED + HELD_BACK;
        }
        let until = *until;
        (now < until).then_some(until)
    }

    fn send(
        &mut self,
        context: &Context<'_>,
        composed: Composed,
        priority: Priority,
        not_after: Option<Time>,
        out: &mut Effects,
    ) {
        let Context { turn: &Turn { now, lease, .. }, keeper, unheld_since, .. } = *context;
        self.held_back = None;
        if only_counts(lease, &composed.status) {
            self.counts_written_at = Some(now);
        }
        let had_a_term = lease.status.as_ref().is_some_and(|status| status.fencing_token.is_some());
        let handover = unheld_since.filter(|_| composed.began && had_a_term);
        let handover = handover.map(|since| (keeper.last_end_was_proven(), now.since(since)));
        let (events, status) = (composed.events, Arc::new(composed.status));
        let writing = SentStatus { priority, status: status.clone(), events, handover, withdrawn: false };
        self.writing = Some(Box::new(writing));
        let version = lease.metadata.resource_version.clone();
        let write = StatusWrite { priority, version, status, not_after };
        out.emit(Effect::WriteStatus(Box::new(write)));
    }

    fn due(&self, lease: &RedisLease, status: &RedisLeaseStatus, priority: Priority, keeper: &Keeper) -> Time {
        let counts = match self.counts_written_at {
            Some(at) if only_counts(lease, status) => at + COUNTS,
            _ if priority == Priority::Counts => self.others.available_at(1),
            _ => Time(0),
        };
        // A write that calls the term unconfirmed, or active again, skips the backoff: other replicas depend on it.
        let active = lease.status.as_ref().is_some_and(|now| now.says(ConditionType::Active, ConditionStatus::True));
        let answers = match keeper.standing() {
            Some(Standing::Held(_)) => !active,
            Some(Standing::Uncertain(_)) => active,
            _ => false,
        };
        let refused = self.refused.map_or(Time(0), |Refused { last, times, .. }| match priority {
            Priority::Publication => Time(0),
            Priority::Counts if !answers => last + AGAIN.delay(times),
            _ => last + AGAIN.delay(times).min(END_AGAIN),
        });
        let due = counts.max(refused);
        if answers { due } else { due.max(self.repeat.due(&fingerprint(status))) }
    }

    pub fn written(
        &mut self,
        now: Time,
        outcome: StatusOutcome,
        keeper: &mut Keeper,
        contention: &mut Contention,
        out: &mut Effects,
    ) {
        let Some(writing) = self.writing.take() else { return };
        let publishing = keeper.publishing();
        if outcome != StatusOutcome::Withdrawn {
            self.failed = !matches!(outcome, StatusOutcome::Written(_));
        }
        self.report_refusal(now, &outcome, out);
        match outcome {
            StatusOutcome::Written(lease) => {
                self.repeat.wrote(now, fingerprint(&writing.status));
                if writing.priority == Priority::Counts {
                    self.others.take(now);
                }
                contention.status_was_written();
                if let Some(term) = publishing
                    && let Some(outcome) = publication_outcome(&lease, term)
                {
                    out.emit(published(term, outcome));
                }
                keeper.reconcile_unconfirmed(now, &lease, out);
                emit_outcome(*writing, out);
            }
            StatusOutcome::Unanswered(_) | StatusOutcome::AtFault(_) => {
                if let Some(term) = publishing {
                    out.emit(published(term, Publication::Unknown));
                }
                self.read = StatusRead::Needed;
                self.unanswered = Some(writing);
            }
            StatusOutcome::Gone => {
                if let Some(term) = publishing {
                    out.emit(published(term, Publication::Superseded));
                }
            }
            StatusOutcome::Conflict | StatusOutcome::Refused(_) => self.read = StatusRead::Needed,
            StatusOutcome::Withdrawn => {}
        }
    }

    /// Reports refusals once: conditions cannot say that they are out of date. An API server that answers no call accepts no event.
    fn report_refusal(&mut self, now: Time, outcome: &StatusOutcome, out: &mut Effects) {
        let (StatusOutcome::Refused(why) | StatusOutcome::AtFault(why)) = outcome else {
            if matches!(outcome, StatusOutcome::Written(_)) {
                self.refused = None;
            }
            return;
        };
        let refused = self.refused.get_or_insert(Refused { since: now, last: now, times: 0 });
        (refused.last, refused.times) = (now, refused.times.saturating_add(1));
        if refused.times == REFUSED {
            let seconds = now.since(refused.since).0.div_ceil(1000);
            let note = format!(
                "The API server has not accepted the status of this RedisLease for {seconds} s, so the status is out of date: {why}"
            );
            out.report(NoticeReason::WriteRefused, note, Vec::new());
        }
    }

    pub fn lease_read(&mut self, read: &Result<Option<Arc<RedisLease>>, String>, keeper: &Keeper, out: &mut Effects) {
        match read {
            Ok(Some(_)) if self.read != StatusRead::UnderWay => {}
            Ok(Some(lease)) => {
                self.read = StatusRead::NotNeeded;
                let shown = lease.status.as_ref();
                if let Some(writing) = self.unanswered.take().filter(|writing| shown == Some(&*writing.status)) {
                    emit_outcome(*writing, out);
                }
            }
            Ok(None) => {
                self.read = StatusRead::NotNeeded;
                if let Some(term) = keeper.publishing() {
                    out.emit(published(term, Publication::Superseded));
                }
            }
            Err(_) => {
                if self.read == StatusRead::UnderWay {
                    self.read = StatusRead::Needed;
                }
            }
        }
    }
}

fn emit_outcome(writing: SentStatus, out: &mut Effects) {
    if let Some((graceful, leaderless)) = writing.handover {
        out.emit(Effect::Measure(Measure::Handover { graceful, leaderless: leaderless.into() }));
    }
    for notice in writing.events {
        out.emit(notice);
    }
}

const fn published(term: &TermView, outcome: Publication) -> Command {
    Command::Published { attempt: term.id.attempt, outcome }
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
