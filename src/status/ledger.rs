//! The terms in a lease's status: which runs, which has ended, and what is kept of them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use redislease_core::lease::{EndingView, Standing, TermId, View};
use redislease_core::op::Attempt;

use crate::api::RedisLeaseStatus;
use crate::api::conditions::{ConditionStatus, ConditionType};
use crate::api::lease_status::{Holder, MAX_HISTORY, PastTerm, QuorumIdentity, Transition};
use crate::election::{EndCause, HolderName};
use crate::status::{Inputs, Notice, NoticeReason, TermEnd};

/// What has become of the term that the status names, or which one is to be named now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate<'a> {
    /// Nobody of this cluster holds, and the status names nobody.
    Vacant,
    /// A majority confirmed the term to this process: the one that is named, or a later one.
    Held(&'a TermId),
    /// The named term is not confirmed to this process yet, and nothing speaks against it.
    Adopting,
    /// The same for too long, or nobody is there to confirm it.
    Uncertain,
    /// The named term was given up; its keys may still stand.
    Ending(TermEnd),
    /// The named term is over.
    Over(TermEnd),
}

impl<'a> Fate<'a> {
    pub fn of(inputs: &Inputs<'a>) -> Self {
        match Self::judge(inputs) {
            // Only its name tells the next process that there is something to wait out.
            Self::Over(end) if inputs.withheld => Self::Ending(end),
            fate => fate,
        }
    }

    fn judge(inputs: &Inputs<'a>) -> Self {
        let named = named(inputs.previous);
        let given_up = given_up(inputs.previous);
        let Some(view) = inputs.view else {
            return match named {
                None => Fate::Vacant,
                Some(_) if inputs.expired => Fate::Over(TermEnd::Unobserved),
                Some(_) if given_up => Fate::Ending(TermEnd::Unobserved),
                Some(_) => Fate::Uncertain,
            };
        };
        let running = view.standing.term().map(|term| &term.id);
        if let Some(id) = running.filter(|id| named != Some(id.attempt) && !outranked(inputs.previous, id))
            && matches!(view.standing, Standing::Publishing(_) | Standing::Held(_))
        {
            return Fate::Held(id);
        }
        let Some(attempt) = named else { return Fate::Vacant };
        if let Some(id) = running.filter(|id| id.attempt == attempt) {
            return match view.standing {
                // Another process gave it up, and that is never taken back.
                _ if given_up => Fate::Ending(TermEnd::Unobserved),
                Standing::Publishing(_) | Standing::Held(_) => Fate::Held(id),
                Standing::Uncertain(_) => Fate::Uncertain,
                _ => Fate::Adopting,
            };
        }
        Self::without_term(inputs, view, attempt)
    }

    /// The keeper runs no term that the status may name.
    fn without_term(inputs: &Inputs<'a>, view: &'a View, attempt: Attempt) -> Self {
        let cause = inputs.witness.cause(attempt);
        let ending = view.ending.as_ref().filter(|ending| ending.id.attempt == attempt);
        if let Some(EndingView { reason, .. }) = ending {
            return Fate::Ending(TermEnd::of(*reason, cause));
        }
        if inputs.witness.knows(attempt) {
            return Fate::Over(cause.map_or(TermEnd::Unobserved, TermEnd::Decided));
        }
        if given_up(inputs.previous) { Fate::Ending(TermEnd::Unobserved) } else { Fate::Adopting }
    }
}

/// The attempt that the status names.
pub(super) fn named(status: &RedisLeaseStatus) -> Option<Attempt> {
    status.attempt.as_deref().and_then(|attempt| attempt.parse().ok())
}

/// Whether the status says of the term it names that it was given up.
fn given_up(status: &RedisLeaseStatus) -> bool {
    status.says(ConditionType::Active, ConditionStatus::False)
}

/// Whether the status has seen a token that this term must not follow.
fn outranked(status: &RedisLeaseStatus, id: &TermId) -> bool {
    status.fencing_token.is_some_and(|token| token >= number(id))
}

fn number(id: &TermId) -> i64 {
    // Tokens are below 2^53.
    i64::try_from(id.token.0).unwrap_or(i64::MAX)
}

/// What happened to the terms.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub events: Vec<Notice>,
    pub ended: Option<TermEnd>,
    pub began: bool,
}

/// Brings the terms in `status` up to date.
pub(super) fn enter(status: &mut RedisLeaseStatus, fate: Fate<'_>, inputs: &Inputs<'_>, now: Timestamp) -> Entries {
    let mut entries = Entries::default();
    match fate {
        Fate::Ending(end) => record_end(status, end, false, now, &mut entries),
        Fate::Over(end) => {
            record_end(status, end, true, now, &mut entries);
            clear(status, &mut entries);
        }
        Fate::Held(id) if named(status) != Some(id.attempt) => {
            if let Some(before) = named(status) {
                let end = inputs.witness.cause(before).map_or(TermEnd::Unobserved, TermEnd::Decided);
                record_end(status, end, true, now, &mut entries);
                clear(status, &mut entries);
            }
            begin(status, id, inputs, now, &mut entries);
        }
        Fate::Held(_) | Fate::Vacant | Fate::Adopting | Fate::Uncertain => {}
    }
    entries
}

/// Records the end of the named term, once. `free`: its keys are free already, so nobody has to wait for it to stop.
fn record_end(status: &mut RedisLeaseStatus, end: TermEnd, free: bool, now: Timestamp, entries: &mut Entries) {
    let token = status.fencing_token.unwrap_or_default();
    if status.history.first().is_some_and(|past| past.fencing_token == token) {
        return;
    }
    let (cluster, pod) =
        status.holder.as_ref().map_or_else(Default::default, |holder| (holder.cluster.clone(), holder.pod.clone()));
    let who = who(status);
    status.history.insert(
        0,
        PastTerm {
            fencing_token: token,
            cluster,
            pod: pod.clone(),
            acquire_time: status.acquire_time.clone().unwrap_or(Time(now)),
            end_time: Time(now),
            reason: end.as_str().into(),
        },
    );
    status.history.truncate(MAX_HISTORY);
    let what = if end.is_loss() { "was lost" } else { "was ended" };
    status.transitions = status.transitions.saturating_add(1);
    status.last_transition = Some(Transition {
        time: Time(now),
        reason: end.as_str().into(),
        message: format!("The term of {pod} with token {token} {what}: {}.", end.because()),
        from: Some(pod),
        to: None,
    });
    entries.ended = Some(end);
    let reason = match end {
        // Released is told when the holder is cleared, at once in this case.
        TermEnd::Decided(_) if free => return,
        TermEnd::Decided(EndCause::HolderUnhealthy) => NoticeReason::HolderUnhealthy,
        TermEnd::Decided(_) => NoticeReason::Stopping,
        _ => NoticeReason::LeaseLost,
    };
    let note = if end.is_loss() {
        format!("{who} lost the lease: {}", end.because())
    } else {
        format!("{who} must stop: {}; nobody else starts before its keys have ended", end.because())
    };
    entries.events.push(Notice { reason, note, on_pods: on_holder(status) });
}

/// The keys of the named term are free.
fn clear(status: &mut RedisLeaseStatus, entries: &mut Entries) {
    let end = status.history.first().and_then(|past| TermEnd::from_word(&past.reason));
    if let Some(end) = end.filter(|end| !end.is_loss()) {
        let note = format!("{} released the lease (reason {})", who(status), end.as_str());
        entries.events.push(Notice { reason: NoticeReason::Released, note, on_pods: on_holder(status) });
    }
    status.holder = None;
    status.attempt = None;
    status.acquire_time = None;
}

fn begin(status: &mut RedisLeaseStatus, id: &TermId, inputs: &Inputs<'_>, now: Timestamp, entries: &mut Entries) {
    let holder = holder(id, inputs);
    let before = status.history.first();
    let token = number(id);
    status.transitions = status.transitions.saturating_add(1);
    let (reason, after) = before.map_or(("Acquired", String::new()), |past| {
        (past.reason.as_str(), format!(" after {} (reason {})", past.pod, past.reason))
    });
    status.last_transition = Some(Transition {
        time: Time(now),
        reason: reason.into(),
        message: format!("{} took the lease with token {token}{after}.", holder.pod),
        from: before.map(|past| past.pod.clone()),
        to: Some(holder.pod.clone()),
    });
    let was = before.map(|past| {
        let by_status = Duration::try_from(now.duration_since(past.end_time.0)).unwrap_or_default();
        let leaderless = span(inputs.leaderless.unwrap_or(by_status));
        format!(" (was {}, reason {}, leaderless {leaderless})", past.pod, past.reason)
    });
    status.attempt = Some(id.attempt.to_string());
    status.fencing_token = Some(token);
    status.acquire_time = Some(Time(now));
    status.holder = Some(holder);
    if let Some(quorum) = inputs.quorum {
        status.quorum = Some(QuorumIdentity { name: quorum.name.into(), fingerprint: quorum.fingerprint.into() });
    }
    entries.began = true;
    let note = who(status) + &was.unwrap_or_default();
    entries.events.push(Notice { reason: NoticeReason::Acquired, note, on_pods: on_holder(status) });
}

/// The holder as the term's own metadata names it; its node as the pods were last seen.
fn holder(id: &TermId, inputs: &Inputs<'_>) -> Holder {
    let name = id.holder.0.parse().unwrap_or_else(|_| HolderName {
        cluster: inputs.cluster.clone(),
        namespace: inputs.namespace.into(),
        lease: inputs.lease.into(),
        pod: id.holder.to_string(),
        pod_uid: String::new(),
    });
    let pod = inputs.electorate.and_then(|electorate| electorate.find(&name.pod_uid));
    Holder {
        node: pod.and_then(|pod| pod.node.clone()),
        cluster: name.cluster.name,
        namespace: name.namespace,
        pod: name.pod,
        pod_uid: name.pod_uid,
    }
}

/// `term 1795238400000042: invoice-runner-x2x8k in eu-west-1`
fn who(status: &RedisLeaseStatus) -> String {
    let token = status.fencing_token.unwrap_or_default();
    match &status.holder {
        Some(Holder { pod, cluster, .. }) if cluster.is_empty() => format!("term {token}: {pod}"),
        Some(Holder { pod, cluster, .. }) => format!("term {token}: {pod} in {cluster}"),
        None => format!("term {token}"),
    }
}

fn on_holder(status: &RedisLeaseStatus) -> Vec<(String, String)> {
    status.holder.iter().map(|holder| (holder.pod.clone(), holder.pod_uid.clone())).collect()
}

/// A span for people: `1.2s`, `42s`, `3m07s`, `2h05m`.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_as_fine_as_they_are_short() {
        let shown = [(1_234, "1.2s"), (9_999, "9.9s"), (42_900, "42s"), (187_000, "3m07s"), (7_500_000, "2h05m")];
        for (millis, text) in shown {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
