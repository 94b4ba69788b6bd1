//! The terms in the status of a lease: the current one, the last transition and the history.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use redislease_core::lease::{Standing, TermId, View};
use redislease_core::op::Attempt;

use crate::api::RedisLeaseStatus;
use crate::api::lease_status::{Holder, MAX_HISTORY, PastTerm, Transition};
use crate::election::{EndCause, HolderName};
use crate::status::{Inputs, Notice, NoticeReason, TermEnd};

/// `lastTransition.reason` of the beginning of a term.
const ACQUIRED: &str = "Acquired";

/// The state of the term that status names or must name now.
#[derive(Clone, Copy, Debug)]
pub(super) enum TermState<'a> {
    /// The status names no term, and this process has none to publish.
    NoTerm,
    /// A majority of the nodes confirmed the term to this process: the one in status, or a later one.
    Held(&'a TermId),
    /// The term in status is not confirmed to this process yet, and nothing contradicts it.
    Adopting,
    /// The term in status could not be confirmed for longer than one renewal, or there is no quorum to confirm it on.
    Unconfirmed,
    /// The term in status was ended or lost. Its keys may still exist.
    Ending(TermEnd),
    /// The term in status has ended, and its keys are free.
    Ended(TermEnd),
}

impl<'a> TermState<'a> {
    pub fn of(inputs: &Inputs<'a>) -> Self {
        match Self::from_view(inputs) {
            // The status must name the term until its keys have expired: after a restart, only status tells the operator to wait.
            Self::Ended(end) if inputs.withheld => Self::Ending(end),
            state => state,
        }
    }

    fn from_view(inputs: &Inputs<'a>) -> Self {
        let in_status = inputs.previous.named_attempt();
        // It was ended or lost, or may have been.
        let inactive = !inputs.previous.may_continue();
        let Some(view) = inputs.view else {
            return match in_status {
                None => Self::NoTerm,
                Some(_) if inactive => Self::Ending(TermEnd::Unobserved),
                Some(_) => Self::Unconfirmed,
            };
        };
        let running = view.standing.term().map(|term| &term.id);
        if let Some(id) = running.filter(|id| in_status != Some(id.attempt) && !has_stale_token(inputs.previous, id))
            && matches!(view.standing, Standing::Publishing(_) | Standing::Held(_))
        {
            return Self::Held(id);
        }
        let Some(attempt) = in_status else { return Self::NoTerm };
        if let Some(id) = running.filter(|id| id.attempt == attempt) {
            return match view.standing {
                // Another process ended the term. This is irrevocable.
                _ if inactive => Self::Ending(TermEnd::Unobserved),
                Standing::Publishing(_) | Standing::Held(_) => Self::Held(id),
                Standing::Uncertain(_) => Self::Unconfirmed,
                _ => Self::Adopting,
            };
        }
        Self::not_in_view(inputs, view, attempt)
    }

    /// The view does not contain the term in status as a running term.
    fn not_in_view(inputs: &Inputs<'a>, view: &'a View, attempt: Attempt) -> Self {
        let observed = inputs.observed_terms;
        if let Some(ending) = view.ending.as_ref().filter(|ending| ending.id.attempt == attempt) {
            return Self::Ending(TermEnd::of(ending.reason, observed.cause(attempt)));
        }
        if observed.knows(attempt) {
            return Self::Ended(observed.end(attempt));
        }
        if inputs.previous.may_continue() { Self::Adopting } else { Self::Ending(TermEnd::Unobserved) }
    }
}

/// Whether the status has shown a token that is not smaller than the token of `id`.
fn has_stale_token(status: &RedisLeaseStatus, id: &TermId) -> bool {
    status.fencing_token.is_some_and(|token| token >= token_of(id))
}

pub(super) fn token_of(id: &TermId) -> i64 {
    // Tokens are below 2^53.
    i64::try_from(id.token.0).unwrap_or(i64::MAX)
}

/// What [`update`] has changed.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub events: Vec<Notice>,
    pub ended: Option<TermEnd>,
    pub began: bool,
}

pub(super) fn update(
    status: &mut RedisLeaseStatus,
    term: TermState<'_>,
    inputs: &Inputs<'_>,
    now: Timestamp,
) -> Update {
    let mut changes = Update::default();
    match term {
        TermState::Ending(end) => record_end(status, (end, false), inputs, now, &mut changes),
        TermState::Ended(end) => {
            record_end(status, (end, true), inputs, now, &mut changes);
            remove_holder(status, &mut changes);
        }
        TermState::Held(id) if status.named_attempt() != Some(id.attempt) => {
            if let Some(before) = status.named_attempt() {
                record_end(status, (inputs.observed_terms.end(before), true), inputs, now, &mut changes);
                remove_holder(status, &mut changes);
            }
            record_begin(status, id, inputs, now, &mut changes);
        }
        TermState::NoTerm => clear_term(status),
        TermState::Held(_) | TermState::Adopting | TermState::Unconfirmed => {}
    }
    if matches!(term, TermState::Held(_)) && inputs.term_quorum.is_some() {
        status.quorum.clone_from(&inputs.term_quorum);
    }
    changes
}

/// Records the end of the term in status, once. `free`: whether its keys are free already.
fn record_end(
    status: &mut RedisLeaseStatus,
    (end, free): (TermEnd, bool),
    inputs: &Inputs<'_>,
    now: Timestamp,
    changes: &mut Update,
) {
    let token = status.given_token();
    if status.history.first().is_some_and(|past| past.fencing_token == token) {
        return;
    }
    let (cluster, pod) =
        status.holder.as_ref().map_or_else(Default::default, |holder| (holder.cluster.clone(), holder.pod.clone()));
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
    status.last_transition = Some(Transition {
        time: Time(now),
        reason: end.as_str().into(),
        message: end_message(status, end, inputs),
        from: Some(pod),
        to: None,
    });
    changes.ended = Some(end);
    changes.events.extend(end_event(status, (end, free), inputs));
}

/// The event for the end of the term in status. Without a reason to worry, a term whose keys are free gets the event `Released`
/// only; see [`remove_holder`].
fn end_event(status: &RedisLeaseStatus, (end, free): (TermEnd, bool), inputs: &Inputs<'_>) -> Option<Notice> {
    let who = term_and_holder(status);
    let why = why(status, end, inputs);
    let (reason, note) = match end {
        TermEnd::Decided(EndCause::HolderVanished) if free => {
            (NoticeReason::HolderVanished, format!("{who} vanished: it does not exist any more"))
        }
        TermEnd::Decided(_) if free => return None,
        TermEnd::Decided(EndCause::HolderVanished) => {
            let note = format!("{who} vanished: {why}; another pod can acquire the lease when the keys expire");
            (NoticeReason::HolderVanished, note)
        }
        TermEnd::Decided(cause) => {
            let reason = match cause {
                EndCause::HolderUnhealthy => NoticeReason::HolderUnhealthy,
                EndCause::HandoverRequested => NoticeReason::HandoverRequested,
                _ => NoticeReason::Stopping,
            };
            let until = "no other pod can acquire the lease until the keys expire or the pod is proven to have stopped";
            (reason, format!("{who} must stop: {why}; {until}"))
        }
        _ => (NoticeReason::LeaseLost, format!("{who} lost the lease: {why}; it must stop")),
    };
    Some(Notice { reason, note, on_pods: holder_pods(status) })
}

/// Why the term in status ended, as a clause that follows a colon. A workload that is no candidate any more is not stopped.
fn why(status: &RedisLeaseStatus, end: TermEnd, inputs: &Inputs<'_>) -> &'static str {
    let of_workload = inputs.electorate.is_some_and(|electorate| electorate.workload().is_some())
        && status.holder.as_ref().is_some_and(|holder| holder.node.is_none());
    match end {
        TermEnd::Decided(EndCause::NoLongerCandidate) if of_workload => {
            "the workload is no longer the candidate of the lease; the operator does not stop it, so stop it yourself if it runs"
        }
        _ => end.explanation(),
    }
}

/// One sentence about the end of the term in status.
pub(super) fn end_message(status: &RedisLeaseStatus, end: TermEnd, inputs: &Inputs<'_>) -> String {
    let pod = status.holder.as_ref().map_or("", |holder| &holder.pod);
    let token = status.given_token();
    let why = why(status, end, inputs);
    if end.is_loss() {
        format!("{pod} lost the lease with fencing token {token}: {why}.")
    } else {
        format!("The operator ended the term of {pod} with fencing token {token}: {why}.")
    }
}

/// Removes the holder from status: the keys of its term are free.
fn remove_holder(status: &mut RedisLeaseStatus, changes: &mut Update) {
    let end = status.history.first().and_then(|past| TermEnd::from_word(&past.reason));
    if let Some(end) = end.filter(|end| !end.is_loss()) {
        let note = format!("{} released the lease (reason {})", term_and_holder(status), end.as_str());
        changes.events.push(Notice { reason: NoticeReason::Released, note, on_pods: holder_pods(status) });
    }
    clear_term(status);
}

fn clear_term(status: &mut RedisLeaseStatus) {
    status.holder = None;
    status.attempt = None;
    status.acquire_time = None;
}

fn record_begin(status: &mut RedisLeaseStatus, id: &TermId, inputs: &Inputs<'_>, now: Timestamp, changes: &mut Update) {
    let holder = holder(id, inputs);
    let token = token_of(id);
    let previous = status.history.first();
    let acquired = format!("{} acquired the lease with fencing token {token}.", holder.pod);
    let (message, was) = match previous {
        None => (acquired, String::new()),
        Some(PastTerm { pod, reason, end_time, .. }) => {
            let by_status = Duration::try_from(now.duration_since(end_time.0)).unwrap_or_default();
            let since = match inputs.leaderless {
                None if inputs.previous.says_held_by_peer() => "then held by another cluster".to_owned(),
                leaderless => format!("leaderless {}", format_duration(leaderless.unwrap_or(by_status))),
            };
            (
                format!("{acquired} The previous term, of {pod}, ended with reason {reason}."),
                format!(" (was {pod}, reason {reason}, {since})"),
            )
        }
    };
    status.transitions = status.transitions.saturating_add(1);
    status.last_transition = Some(Transition {
        time: Time(now),
        reason: ACQUIRED.into(),
        message,
        from: previous.map(|past| past.pod.clone()),
        to: Some(holder.pod.clone()),
    });
    status.attempt = Some(id.attempt.to_string());
    status.fencing_token = Some(token);
    status.acquire_time = Some(Time(now));
    status.holder = Some(holder);
    changes.began = true;
    let note = term_and_holder(status) + &was;
    changes.events.push(Notice { reason: NoticeReason::Acquired, note, on_pods: holder_pods(status) });
}

/// The holder of the term: its name from the values on the Redis nodes, its Kubernetes node from the candidates.
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

/// The beginning of an event, such as `term 1795238400000042: invoice-runner-x2x8k in eu-west-1`.
pub(super) fn term_and_holder(status: &RedisLeaseStatus) -> String {
    let token = status.given_token();
    match &status.holder {
        Some(Holder { pod, cluster, .. }) if cluster.is_empty() => format!("term {token}: {pod}"),
        Some(Holder { pod, cluster, .. }) => format!("term {token}: {pod} in {cluster}"),
        None => format!("term {token}"),
    }
}

pub(super) fn holder_pods(status: &RedisLeaseStatus) -> Vec<(String, String)> {
    status.holder.iter().map(|holder| (holder.pod.clone(), holder.pod_uid.clone())).collect()
}

/// A short text for a duration: `1.2s`, `42s`, `3m07s` or `2h05m`.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_are_formatted_with_more_precision() {
        let cases = [(1_234, "1.2s"), (9_999, "9.9s"), (42_900, "42s"), (187_000, "3m07s"), (7_500_000, "2h05m")];
        for (millis, text) in cases {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }
}
