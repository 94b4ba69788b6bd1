//! What the decision about the holder and the next one is based on.

use redislease_core::lease::Standing;

use super::facts::PodKnowledge;
use super::handover::Handovers;
use super::inputs::{Inputs, Turn};
use super::keeper_link::KeeperLink;
use super::recorded::{Recorded, latest_token};
use crate::api::RedisLease;
use crate::election::{Electorate, EndCause, HandoverOrder, HolderName, HolderPod, Sighting};

/// What is known about the holder. `waiting` replaces what was seen of a pod that may not start yet.
pub(super) fn holder_pod<'a>(
    knowledge: &'a PodKnowledge,
    waiting: Option<&'a Sighting>,
    name: Option<&HolderName>,
    inputs: &Inputs,
) -> HolderPod<'a> {
    match knowledge {
        PodKnowledge::Unseen => HolderPod::Unseen,
        PodKnowledge::Here(sighting) => {
            let sighting = waiting.unwrap_or(sighting);
            HolderPod::Here { sighting, candidate: inputs.is_candidate(&sighting.facts.uid) }
        }
        PodKnowledge::Workload => {
            HolderPod::Workload { candidate: name.is_some_and(|holder| inputs.is_candidate(&holder.pod_uid)) }
        }
        PodKnowledge::Gone { stopped } => HolderPod::Gone { stopped: *stopped },
    }
}

/// Why a running term must end regardless of its holder's state.
///
/// `overdue`: it could not be published in time.
pub(super) fn revoked(turn: &Turn<'_>, link: &KeeperLink, handover: &Handovers, overdue: bool) -> Option<EndCause> {
    let Turn { lease, inputs, .. } = turn;
    if inputs.deleting {
        return Some(EndCause::Deleted);
    }
    if inputs.suspended {
        return Some(EndCause::Suspended);
    }
    if inputs.denied {
        return Some(EndCause::NamespaceNotAllowed);
    }
    if inputs.refused || inputs.forbidden {
        return Some(EndCause::NoLongerCandidate);
    }
    if inputs.replaces(link) {
        return Some(EndCause::QuorumChanged);
    }
    if overdue {
        return Some(EndCause::NotPublished);
    }
    let running = link.view.standing.term()?;
    let recorded = Recorded::of(lease);
    let ours = recorded.as_ref().is_some_and(|recorded| recorded.attempt == running.id.attempt);
    let ended = ours && recorded.is_some_and(|recorded| !recorded.active);
    // The status names another term with at least this token, or none: another process has ended this term.
    let passed =
        !matches!(link.view.standing, Standing::Publishing(_)) && !ours && latest_token(lease) >= running.id.token;
    if ended || passed {
        return Some(EndCause::EndedElsewhere);
    }
    handover.ends(running.id.attempt).then_some(EndCause::HandoverRequested)
}

/// After a term whose pod was never started, another pod goes first.
pub(super) fn never_started<'a>(lease: &'a RedisLease, electorate: &Electorate) -> Option<HandoverOrder<'a>> {
    let past = lease.status.as_ref()?.history.first()?;
    let waits = electorate.eligible.iter().any(|pod| pod.name == past.pod && !pod.running);
    (waits && past.reason == EndCause::HolderUnhealthy.as_str()).then_some(HandoverOrder { to: None, from: &past.pod })
}
