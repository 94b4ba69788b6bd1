//! What is known about the holder, the direct reads of its pod and its Kubernetes node, and why its term must end.

use redislease_core::lease::{Standing, View};
use redislease_core::op::Attempt;
use redislease_core::time::{Millis, Time};

use super::direct_read::DirectRead;
use super::handover::Handovers;
use super::inputs::Turn;
use super::keeper_link::KeeperLink;
use super::output::Effects;
use super::recorded::{Recorded, latest_token};
use super::workload::is_made_for;
use super::{Effect, PodKnowledge, Read};
use crate::api::validated::{Candidates, WorkloadKind};
use crate::api::{RedisLease, ValidLease, names};
use crate::election::{Electorate, EndCause, HandoverOrder, HolderName, HolderPod, Sighting};

/// The pause before repeating an unanswered read.
const READ_AGAIN: Millis = Millis(1000);
/// The interval between two reads of the Kubernetes node of a vanished holder.
const NODE_AGAIN: Millis = Millis(5000);

/// The state about the holder that is kept between turns.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderReads {
    /// The read of the holder's pod. The turn after the answer uses the result.
    read: DirectRead,
    /// The UID of the pod that is read.
    of: String,
    /// Since when the holder of this term has had a scheduling gate.
    gated_since: Option<(Attempt, Time)>,
    node: DirectRead,
}

impl HolderReads {
    /// The answer to the read of an earlier holder says nothing about this one.
    pub fn holder_read(&mut self, now: Time, uid: &str, answered: bool) {
        if uid == self.of {
            self.read = if answered { DirectRead::Answered } else { DirectRead::AgainAt(now + READ_AGAIN) };
        }
    }

    pub fn node_read(&mut self, now: Time) {
        self.node = DirectRead::AgainAt(now + NODE_AGAIN);
    }

    /// Whether the holder was read just now. The next turn does not count the same read.
    pub fn take_fresh(&mut self) -> bool {
        let is_fresh = self.read == DirectRead::Answered;
        if is_fresh {
            self.read = DirectRead::Unsent;
        }
        is_fresh
    }

    /// A holder with a scheduling gate cannot run. The time in which it must be started begins with its term.
    /// While an earlier pod may still run (`is_held_up`), it is not the holder that fails to start.
    pub fn wait(&mut self, now: Time, view: &View, holder: &PodKnowledge, is_held_up: bool) -> Option<Sighting> {
        let (Standing::Held(term), PodKnowledge::Here(sighting)) = (&view.standing, holder) else {
            self.gated_since = None;
            return None;
        };
        if sighting.facts.gates.is_empty() {
            self.gated_since = None;
            return None;
        }
        let counts = |(attempt, _): &(Attempt, Time)| *attempt == term.id.attempt && !is_held_up;
        let known = self.gated_since.filter(counts);
        let (_, since) = *self.gated_since.insert(known.unwrap_or((term.id.attempt, now)));
        Some(Sighting { not_ready_since: Some(since), not_running_since: Some(since), ..Sighting::clone(sighting) })
    }

    pub fn read_holder(&mut self, now: Time, holder: &HolderName, workload: Option<WorkloadKind>, out: &mut Effects) {
        if self.of != holder.pod_uid {
            (self.read, self.of) = (DirectRead::Unsent, holder.pod_uid.clone());
        }
        if self.read.begin(now, out) {
            out.emit(Effect::Read(Read::Holder { pod: holder.pod.clone(), uid: holder.pod_uid.clone(), workload }));
        }
    }

    /// A pod that vanished without a last event proves nothing; the out-of-service taint on its node does.
    pub fn read_node(&mut self, now: Time, lease: &RedisLease, holder: &HolderName, out: &mut Effects) {
        let shown = lease.status.as_ref().and_then(|status| status.holder.as_ref());
        let shown = shown.filter(|shown| shown.pod_uid == holder.pod_uid);
        let Some(node) = shown.and_then(|shown| shown.node.clone()) else { return };
        if self.node.begin(now, out) {
            out.emit(Effect::Read(Read::Node { node, uid: holder.pod_uid.clone() }));
        }
    }
}

/// What is known about the holder. `waiting` replaces what was seen of a pod that may not start yet.
pub(super) fn holder_pod<'a>(
    knowledge: &'a PodKnowledge,
    waiting: Option<&'a Sighting>,
    name: Option<&HolderName>,
    turn: &Turn<'_>,
) -> HolderPod<'a> {
    let outlasts = || {
        let is_made =
            turn.spec.is_some_and(|spec| spec.cluster.is_some()) && names::created_for(&turn.lease.metadata).is_some();
        is_made && turn.facts.workload().is_none_or(|workload| is_made_for(turn.lease, workload))
    };
    match knowledge {
        PodKnowledge::Unseen => HolderPod::Unseen,
        PodKnowledge::Here(sighting) => {
            let sighting = waiting.unwrap_or(sighting);
            HolderPod::Here { sighting, candidate: turn.is_candidate(&sighting.facts.uid) }
        }
        PodKnowledge::Workload => {
            let is_candidate = name.is_some_and(|holder| turn.is_candidate(&holder.pod_uid));
            HolderPod::Workload { candidate: is_candidate || outlasts() }
        }
        // It may exist: the lease names another workload.
        PodKnowledge::Gone { stopped: false } if name.is_some_and(|holder| names_another(turn.spec, &holder.pod)) => {
            HolderPod::Workload { candidate: false }
        }
        PodKnowledge::Gone { stopped: false } if outlasts() => HolderPod::Workload { candidate: true },
        PodKnowledge::Gone { stopped } => HolderPod::Gone { stopped: *stopped },
    }
}

/// Whether the only candidate is a workload with another name.
fn names_another(spec: Option<&ValidLease>, name: &str) -> bool {
    let spec = spec.filter(|spec| spec.cluster.is_some());
    spec.is_some_and(|spec| matches!(&spec.candidates, Candidates::Workload(workload) if workload.name != name))
}

/// Why a running term must end regardless of its holder's state.
///
/// `overdue`: it could not be published in time.
pub(super) fn revoked(turn: &Turn<'_>, link: &KeeperLink, handover: &Handovers, overdue: bool) -> Option<EndCause> {
    let Turn { lease, inputs, .. } = turn;
    if let Some(cause) = turn.revoked() {
        return Some(cause);
    }
    if inputs.refused || inputs.unstartable {
        return Some(EndCause::NoLongerCandidate);
    }
    if turn.replaces(link) {
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
