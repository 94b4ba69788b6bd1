//! The last requested handover in the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::RedisLeaseStatus;
use crate::api::lease_status::{HandoverState, HandoverStatus, Holder};
use crate::election::{HandoverTarget, HolderName};
use crate::status::foreign_holder::ForeignHolder;
use crate::status::terms::{TermState, holder_pods};
use crate::status::{HandoverOutlook, HandoverProgress, Inputs, Notice, NoticeReason};

/// Brings `status.handover` up to date after the terms. `began`: whether a term has just begun. Returns the event.
pub(super) fn update(
    status: &mut RedisLeaseStatus,
    term: TermState<'_>,
    foreign_holder: &ForeignHolder,
    inputs: &Inputs<'_>,
    began: bool,
    now: Timestamp,
) -> Option<Notice> {
    let Some(HandoverOutlook { request, progress }) = &inputs.handover else {
        return complete(status, foreign_holder, inputs, began, now);
    };
    let shown = status.handover.as_ref().filter(|shown| shown.id == request.id).map(|shown| shown.state);
    // A term that is still to be confirmed may go on.
    let has_ended = began || matches!(term, TermState::Ending(_) | TermState::Ended(_) | TermState::NoTerm);
    let (state, from, message) = match progress {
        HandoverProgress::Running { from } if shown.is_none() && has_ended => {
            let message = format!("The term of {from} has ended. No pod of this cluster holds the lease yet.");
            (HandoverState::Running, Some(*from), message)
        }
        HandoverProgress::Running { .. } => return complete(status, foreign_holder, inputs, began, now),
        HandoverProgress::Over { state, from, message } => (*state, *from, (*message).to_owned()),
    };
    if shown == Some(state) {
        return None;
    }
    let (id, to, from) = (request.id.clone(), request.to.clone(), from.map(str::to_owned));
    let handover = HandoverStatus { id, to, from, state, time: Time(now), message };
    // The event about the end of the term, or about the new one, says that it runs.
    let event = (state != HandoverState::Running).then(|| notice(&handover, Vec::new()));
    status.handover = Some(Box::new(handover));
    event.or_else(|| complete(status, foreign_holder, inputs, began, now))
}

/// The next holder ends a running handover.
fn complete(
    status: &mut RedisLeaseStatus,
    foreign_holder: &ForeignHolder,
    inputs: &Inputs<'_>,
    began: bool,
    now: Timestamp,
) -> Option<Notice> {
    let pods = holder_pods(status);
    let token = status.given_token();
    let handover = status.handover.as_deref_mut().filter(|handover| handover.state == HandoverState::Running)?;
    let target = HandoverTarget::of(handover.to.as_deref()).unwrap_or(HandoverTarget::NextPod);
    let (held, missed) = match (&status.holder, foreign_holder) {
        (Some(Holder { pod, .. }), _) if began => {
            let missed = match target {
                HandoverTarget::Cluster(cluster) => {
                    Some(format!("The cluster {cluster} did not acquire the lease in time."))
                }
                HandoverTarget::Pod(wanted) if wanted != *pod => {
                    Some(format!("The pod {wanted} could not be elected."))
                }
                HandoverTarget::NextPod if handover.from.as_ref() == Some(pod) => {
                    Some("No other pod could be elected.".to_owned())
                }
                HandoverTarget::Pod(_) | HandoverTarget::NextPod => None,
            };
            (format!("{pod} holds the lease with fencing token {token}."), missed)
        }
        (None, ForeignHolder::PeerCluster(held) | ForeignHolder::SameClusterName(held)) => {
            let missed = match target {
                HandoverTarget::Pod(wanted) => Some(format!("The pod {wanted} did not acquire the lease.")),
                HandoverTarget::Cluster(wanted) if !is_held_by_cluster(inputs, &wanted) => {
                    Some(format!("The cluster {wanted} did not acquire the lease."))
                }
                HandoverTarget::NextPod | HandoverTarget::Cluster(_) => None,
            };
            (held.clone(), missed)
        }
        (None, ForeignHolder::OtherLease(held)) => (held.clone(), Some("No pod could acquire the lease.".to_owned())),
        _ => return None,
    };
    handover.state = if missed.is_some() { HandoverState::Failed } else { HandoverState::Completed };
    handover.message = missed.map_or(held.clone(), |missed| format!("{missed} {held}"));
    handover.time = Time(now);
    Some(notice(handover, if began { pods } else { Vec::new() }))
}

/// Whether the value that refused the last attempt names this cluster.
fn is_held_by_cluster(inputs: &Inputs<'_>, name: &str) -> bool {
    let value = inputs.view.and_then(|view| view.refused_by.as_ref());
    value.and_then(|value| value.metadata.parse().ok()).is_some_and(|holder: HolderName| holder.cluster.name == name)
}

fn notice(handover: &HandoverStatus, on_pods: Vec<(String, String)>) -> Notice {
    let reason = match handover.state {
        HandoverState::Running => NoticeReason::HandoverRequested,
        HandoverState::Completed => NoticeReason::HandoverCompleted,
        HandoverState::Refused | HandoverState::Failed | HandoverState::Unknown => NoticeReason::HandoverFailed,
    };
    Notice { reason, note: format!("handover {}: {}", handover.id, handover.message), on_pods }
}
