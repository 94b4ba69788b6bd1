//! What can change next, and when at the earliest. Pure: no client, no clock.
//!
//! For a held lease, it asks the election what the operator would decide with the facts that were read, and what it would
//! decide at the next timeout. The operator counts timeouts from its own observations, so the times are approximate.

use jiff::Timestamp;
use redislease_core::lease::{Standing, TermId, TermView, View};
use redislease_core::op::{self, Attempt};
use redislease_core::time::{Drift, Millis, Time};
use redislease_plan::api::conditions::{ConditionType, LeaseCandidates, LeaseReady};
use redislease_plan::api::lease_status::{HandoverState, HandoverStatus, Holder};
use redislease_plan::api::quorum::NodeState;
use redislease_plan::api::validated::Readiness;
use redislease_plan::api::{Duration, RedisLeaseStatus, ValidLease, ValidQuorum};
use redislease_plan::election::{
    self, Decision, Electorate, EndCause, HandoverTarget, PodFacts, PodObject, Sighting, Situation, Step, decide,
};
use redislease_plan::plan::HANDOVER_HEAD_START;
use redislease_plan::status::{REFUSED_START, TermEnd};

use super::facts::{Facts, HolderPod, TermState};

/// What ends the term of another cluster.
const UNTIL_RELEASED: &str = "This cluster can acquire the lease when the other cluster releases it, or when its keys expire. \
    Run this command in the other cluster to see when that can be.";

/// What Ready says of a holder that waits for an earlier pod.
const WAITS: &str = " is not started";

/// What can change next.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    pub sentences: Vec<String>,
    /// The earliest time of the change, as far as it can be known.
    pub at: Option<Timestamp>,
}

impl Outlook {
    fn say(sentence: impl Into<String>) -> Self {
        Self { sentences: vec![sentence.into()], at: None }
    }

    fn and(mut self, sentence: impl Into<String>) -> Self {
        self.sentences.push(sentence.into());
        self
    }

    fn at(self, at: Timestamp) -> Self {
        Self { at: Some(at), ..self }
    }
}

/// What can change next. `electorate` is `None` if the candidates could not be read.
pub(super) fn of(facts: &Facts, electorate: Option<&Electorate>) -> Outlook {
    let Ok(spec) = &facts.spec else {
        return Outlook::say("The operator starts no term until the spec is valid.");
    };
    match facts.state() {
        TermState::NoStatus => Outlook::say("Nothing changes until the operator processes the lease."),
        TermState::Held(holder) => held(facts, spec, holder, electorate),
        TermState::Unconfirmed(holder) => {
            let term = Outlook::say(format!(
                "If a majority of the Redis nodes confirms the term, {} continues with the same fencing token. If no \
                 majority does so within about {}, the lease counts as lost.",
                holder.pod,
                text(Drift::STANDARD.most(ttl(spec)))
            ));
            match blocked(facts) {
                // These end the term.
                Some(blocked) if is_unwanted(facts) => blocked,
                Some(blocked) => blocked.sentences.into_iter().fold(term, Outlook::and),
                None => term,
            }
        }
        TermState::Ending(holder) if !facts.has_reason(LeaseReady::HeldByPeerCluster) => {
            ending(facts, spec, holder, electorate)
        }
        TermState::Ending(_) | TermState::HeldByPeer => Outlook::say(UNTIL_RELEASED),
        TermState::Unheld if facts.is_held_by_peer() && facts.lease.metadata.deletion_timestamp.is_none() => {
            unheld(facts, electorate).and(UNTIL_RELEASED)
        }
        TermState::Unheld => unheld(facts, electorate),
    }
}

fn held(facts: &Facts, spec: &ValidLease, holder: &Holder, electorate: Option<&Electorate>) -> Outlook {
    if let Some(needed) = missing_votes(facts).filter(|needed| *needed > 0) {
        let least = Drift::STANDARD.least(ttl(spec)).saturating_sub(Millis::from(spec.stop_budget()));
        let nodes = if needed == 1 { "node" } else { "nodes" };
        let outlook = Outlook::say(format!(
            "The lease cannot be renewed without a majority, and {needed} more Redis {nodes} must vote. Otherwise {} loses it {} after its last renewal.",
            holder.pod,
            text(least)
        ));
        return with_majority(outlook, facts);
    }
    let none = Electorate::default();
    let term = term(facts, holder);
    let seen;
    let pod = match &facts.holder {
        HolderPod::Here { pod, candidate } => {
            seen = sighting(pod, starts_at(facts, spec), facts.message(ConditionType::Ready).contains(WAITS));
            // While the candidates are unknown, every pod counts as one.
            election::HolderPod::Here { sighting: &seen, candidate: *candidate || facts.candidates.is_err() }
        }
        HolderPod::Gone => election::HolderPod::Gone { stopped: false },
        HolderPod::Unknown => election::HolderPod::Unseen,
    };
    let situation = |now: Time| Situation {
        now,
        view: &term,
        holder: pod,
        electorate: electorate.unwrap_or(&none),
        handover: None,
        readiness: spec.readiness,
        grace_period: spec.grace_period,
        may_begin: true,
        revoked: revoked(facts, spec),
        fresh: true,
    };
    // A refused start ends this term only.
    let is_refused =
        facts.has_reason(LeaseReady::Forbidden) && facts.message(ConditionType::Ready).contains(REFUSED_START);
    let blocked = blocked(facts).filter(|_| !is_unwanted(facts) && !is_refused);
    let next = if spec.cluster.is_some() {
        Some("another cluster".to_owned())
    } else {
        standby(facts, holder, electorate).filter(|_| blocked.is_none())
    };
    let next = next.as_deref();
    let outlook = match decide(&situation(time(facts.now))) {
        Decision { step: Step::End { proof, cause, .. }, .. } => ends(spec, facts.now, proof, cause, next),
        Decision { again_at: Some(at), .. } => match decide(&situation(at)).step {
            Step::End { proof, cause, .. } => ends(spec, timestamp(at), proof, cause, next).at(timestamp(at)),
            _ => stays(spec, holder, next, blocked.is_some()),
        },
        Decision { .. } => stays(spec, holder, next, blocked.is_some()),
    };
    let unknown = facts.quorum.is_err().then(|| {
        "Whether a majority of the Redis nodes votes is not known here: without one, the lease cannot be renewed."
            .to_owned()
    });
    blocked.into_iter().flat_map(|blocked| blocked.sentences).chain(unknown).fold(outlook, Outlook::and)
}

/// The term continues, and no timeout is running.
fn stays(spec: &ValidLease, holder: &Holder, next: Option<&str>, is_blocked: bool) -> Outlook {
    if spec.cluster.is_some() {
        return Outlook::say(format!(
            "No change is due. When the term of {} has ended, another cluster can acquire the lease as soon as its keys expire.",
            holder.pod
        ));
    }
    let Some(next) = next else {
        let why = if is_blocked { "as long as what follows is so" } else { "because none can be elected" };
        return Outlook::say(format!("No change is due. No other pod can take over, {why}."));
    };
    let pod = &holder.pod;
    let outlook = Outlook::say(format!(
        "No change is due. If {pod} is deleted and its containers stop, {next} can acquire the lease at once."
    ));
    match spec.readiness {
        Readiness { required: true, unhealthy_after } => outlook.and(format!(
            "If {pod} is not Ready for {}, the operator ends its term, and {next} can acquire the lease at most {} later.",
            text(Millis::from(unhealthy_after)),
            text(Drift::STANDARD.most(ttl(spec)))
        )),
        Readiness { required: false, .. } => outlook,
    }
}

/// The operator ends the term at `at`.
fn ends(spec: &ValidLease, at: Timestamp, proof: bool, cause: EndCause, next: Option<&str>) -> Outlook {
    let why = TermEnd::Decided(cause).explanation();
    let outlook = if matches!(cause, EndCause::StopOverdue | EndCause::HolderUnhealthy) {
        Outlook::say(format!("If nothing changes, the operator ends the term at about {}: {why}.", second(at)))
    } else {
        Outlook::say(format!("The operator ends the term now: {why}."))
    };
    match next {
        // No pod takes over: the operator elects none.
        _ if cause == EndCause::Suspended => outlook.and(until_resumed(Some(spec))),
        _ if cause == EndCause::Deleted => outlook,
        None => outlook.and("No other pod can be elected."),
        Some(next) if proof => outlook.and(format!("Then {next} can acquire the lease at once.")),
        Some(next) => {
            // A workload is never proven to have stopped.
            let stopped = if spec.cluster.is_some() { "" } else { ", or when the pod is proven to have stopped" };
            let most = text(Drift::STANDARD.most(ttl(spec)));
            outlook
                .and(format!("Then {next} can acquire the lease when the keys expire, at most {most} later{stopped}."))
        }
    }
}

fn ending(facts: &Facts, spec: &ValidLease, holder: &Holder, electorate: Option<&Electorate>) -> Outlook {
    if let Some(outlook) = blocked(facts) {
        return outlook;
    }
    if let Some(outlook) = yields(facts, spec) {
        return outlook;
    }
    let next = if spec.cluster.is_some() {
        Some("this or another cluster".to_owned())
    } else {
        standby(facts, holder, electorate)
    };
    let next = next.map_or_else(
        || "the operator elects the first pod that can be elected".into(),
        |next| format!("{next} can acquire the lease"),
    );
    let ended = facts.status().and_then(|status| status.history.first()).map(|past| past.end_time.0);
    let Some(expire) = ended.map(|ended| timestamp(time(ended) + Drift::STANDARD.most(ttl(spec)))) else {
        return Outlook::say(format!("When the keys have expired, {next}."));
    };
    let outlook = with_majority(
        Outlook::say(format!(
            "When the keys expire, at about {} at the latest, or as soon as {} is proven to have stopped, {next}.",
            second(expire),
            holder.pod
        )),
        facts,
    );
    Outlook { at: outlook.at.or(Some(expire)), ..outlook }
}

fn unheld(facts: &Facts, electorate: Option<&Electorate>) -> Outlook {
    let has = |reason: LeaseReady| facts.has_reason(reason);
    let spec = facts.spec.as_ref().ok();
    let elects = elects(spec);
    if let Some(outlook) = blocked(facts) {
        outlook
    } else if has(LeaseReady::Starting) {
        Outlook::say(format!("{elects} when the candidates are known."))
    } else if missing_votes(facts).is_some_and(|needed| needed > 0) {
        with_majority(Outlook::default(), facts)
    } else if let Some(outlook) = spec.and_then(|spec| yields(facts, spec)) {
        outlook
    } else if has(LeaseReady::KeyHeldByOtherLease) {
        Outlook::say(format!("{elects} when the key is free."))
    } else if spec.is_some_and(|spec| spec.cluster.is_some()) {
        Outlook::say(if has(LeaseReady::NoCandidate) {
            "This cluster can acquire the lease when it has a candidate."
        } else {
            "The operator tries to acquire the lease for this cluster."
        })
    } else {
        let first =
            electorate.and_then(|electorate| first(facts, electorate, "")).filter(|_| !has(LeaseReady::NoCandidate));
        Outlook::say(match first {
            Some(first) => format!("The operator tries to acquire the lease for {}.", first.name),
            None => "The operator elects the first pod that can be elected.".to_owned(),
        })
    }
}

/// The subject of what can happen when an obstacle is gone. With granularity Cluster, no pod is elected.
fn elects(spec: Option<&ValidLease>) -> &'static str {
    if spec.is_some_and(|spec| spec.cluster.is_some()) {
        "This cluster can acquire the lease"
    } else {
        "The operator elects a pod"
    }
}

/// What ends a suspension.
fn until_resumed(spec: Option<&ValidLease>) -> String {
    format!("{} when spec.suspend is false.", elects(spec))
}

/// The handover whose term has ended, until a pod holds the lease again.
fn handover(facts: &Facts) -> Option<&HandoverStatus> {
    let shown = facts.status()?.handover.as_deref()?;
    (shown.state == HandoverState::Running).then_some(shown)
}

/// What is said while this cluster leaves the lease to the target of a handover.
fn yields(facts: &Facts, spec: &ValidLease) -> Option<Outlook> {
    let handover = handover(facts)?;
    let HandoverTarget::Cluster(cluster) = HandoverTarget::of(handover.to.as_deref()).ok()? else { return None };
    let expire = time(handover.time.0) + Drift::STANDARD.most(ttl(spec));
    let (expire, until) = (timestamp(expire), timestamp(expire + HANDOVER_HEAD_START));
    let outlook = Outlook::say(format!(
        "The cluster {cluster} can acquire the lease when the keys are released or expire, at about {} at the latest. This \
         cluster makes no attempt before about {}.",
        second(expire),
        second(until)
    ));
    let next = if expire > facts.now { expire } else { until };
    (until > facts.now).then(|| outlook.at(next))
}

/// The pod that is elected next, other than the one with this UID.
fn first<'a>(facts: &Facts, electorate: &'a Electorate, holder: &str) -> Option<&'a PodFacts> {
    let mut others = electorate.eligible.iter().filter(|pod| pod.uid != holder);
    let Some(HandoverStatus { from, to, .. }) = handover(facts) else { return others.next().map(|pod| &**pod) };
    let target = HandoverTarget::of(to.as_deref()).ok();
    let order = |pod: &PodFacts| match &target {
        Some(HandoverTarget::Pod(name)) if *name == pod.name => 0,
        _ if from.as_ref() != Some(&pod.name) => 1,
        _ => 2,
    };
    others.min_by_key(|pod| order(pod)).map(|pod| &**pod)
}

/// Whether the operator ends every term of the lease.
fn is_unwanted(facts: &Facts) -> bool {
    let suspended =
        facts.has_reason(LeaseReady::Suspended) || facts.spec.as_ref().is_ok_and(|spec| is_suspended(facts, spec));
    suspended || facts.lease.metadata.deletion_timestamp.is_some()
}

/// Whether the operator ends every term because of `spec.suspend`. It keeps the term of what it must not or cannot stop.
fn is_suspended(facts: &Facts, spec: &ValidLease) -> bool {
    let goes_on = [LeaseReady::ActivationNotAllowed, LeaseReady::Forbidden];
    spec.suspended && !goes_on.into_iter().any(|reason| facts.has_reason(reason))
}

/// What must change before the operator elects a pod, whatever becomes of the last term; `None` if nothing must.
fn blocked(facts: &Facts) -> Option<Outlook> {
    let has = |reason: LeaseReady| facts.has_reason(reason);
    let spec = facts.spec.as_ref().ok();
    let errors = [
        LeaseReady::InvalidReference,
        LeaseReady::InvalidSpec,
        LeaseReady::ActivationNotAllowed,
        LeaseReady::NotPermitted,
        LeaseReady::Forbidden,
    ];
    if facts.lease.metadata.deletion_timestamp.is_some() {
        Some(Outlook::say("The operator elects no pod for a lease that is being deleted."))
    } else if is_unwanted(facts) {
        Some(Outlook::say(until_resumed(spec)))
    } else if errors.into_iter().any(has) {
        Some(Outlook::say(format!("{} when the error above is corrected.", elects(spec))))
    } else if has(LeaseReady::QuorumUnavailable) {
        let outlook = with_majority(Outlook::default(), facts);
        // A majority can vote and the quorum still not be usable: for example, for one hour after it was replaced.
        let until = format!("{} when the cause of QuorumUnavailable above has ended.", elects(spec));
        Some(if outlook.sentences.is_empty() { outlook.and(until) } else { outlook })
    } else {
        None
    }
}

/// Adds when a majority can vote, if none votes now.
fn with_majority(outlook: Outlook, facts: &Facts) -> Outlook {
    let Some(needed) = missing_votes(facts).filter(|needed| *needed > 0) else { return outlook };
    let quarantined = facts.quorum.iter().filter_map(|quorum| quorum.status.as_ref()).flat_map(|status| &status.nodes);
    let mut times: Vec<Timestamp> =
        quarantined.filter_map(redislease_plan::api::quorum::NodeStatus::votes_again_at).collect();
    times.sort_unstable();
    match times.get(needed - 1) {
        Some(at) => outlook.and(format!("A majority of the Redis nodes can vote again from {}.", second(*at))).at(*at),
        None => outlook.and(format!(
            "No pod can acquire the lease until {needed} more Redis {} and the quarantine of new or restarted nodes has ended.",
            if needed == 1 { "node answers" } else { "nodes answer" }
        )),
    }
}

/// How many more nodes must vote; `None` if that is unknown.
fn missing_votes(facts: &Facts) -> Option<usize> {
    let quorum = facts.quorum.as_ref().ok()?;
    let majority = ValidQuorum::try_from(quorum).ok()?.majority();
    let nodes = &quorum.status.as_ref()?.nodes;
    let up = nodes.iter().filter(|node| node.state == NodeState::Up).count();
    (!nodes.is_empty()).then(|| majority.saturating_sub(up))
}

/// The pod that is elected after the holder; `None` if none can be elected. Without the pods, the status says whether there is one.
fn standby(facts: &Facts, holder: &Holder, electorate: Option<&Electorate>) -> Option<String> {
    let Some(electorate) = electorate else {
        let none = [LeaseCandidates::OnlyHolder, LeaseCandidates::NoCandidate];
        let known = facts.has_reason(LeaseCandidates::StandbyAvailable);
        let another = if known { "another pod" } else { "another pod, if one can be elected," };
        return (!none.into_iter().any(|reason| facts.has_reason(reason))).then(|| another.to_owned());
    };
    first(facts, electorate, &holder.pod_uid).map(|pod| pod.name.clone())
}

fn revoked(facts: &Facts, spec: &ValidLease) -> Option<EndCause> {
    let deleting = facts.lease.metadata.deletion_timestamp.is_some();
    deleting.then_some(EndCause::Deleted).or_else(|| is_suspended(facts, spec).then_some(EndCause::Suspended))
}

/// The view of a lock layer that holds the term in status.
fn term(facts: &Facts, holder: &Holder) -> View {
    let status = facts.status();
    let attempt = status.and_then(|status| status.attempt.as_deref()).and_then(|attempt| attempt.parse().ok());
    let id = TermId {
        attempt: attempt.unwrap_or(Attempt(0)),
        token: status.map(RedisLeaseStatus::token).unwrap_or_default(),
        holder: op::Holder(holder.pod.as_str().into()),
    };
    let held = TermView { id, valid_until: None, stop_at: None, failed_rounds: 0 };
    View { standing: Standing::Held(held), ..View::default() }
}

/// The earliest time at which the holder could start: the beginning of its term, if only the elected pod starts.
fn starts_at(facts: &Facts, spec: &ValidLease) -> Option<Timestamp> {
    let acquired = facts.status().and_then(|status| status.acquire_time.as_ref());
    acquired.filter(|_| spec.gated).map(|acquired| acquired.0)
}

/// The pod, and since when it is not Ready or is being deleted, by its own timestamps. A holder that still has its gate could
/// start at `starts_at`, unless it waits for an earlier pod.
fn sighting(pod: &PodObject, starts_at: Option<Timestamp>, waits: bool) -> Sighting {
    let facts = PodFacts::from(pod);
    let since = |own: Option<Timestamp>| {
        let since = if facts.gates.is_empty() { own.max(starts_at) } else { starts_at.filter(|_| !waits) };
        since.map(time)
    };
    let changed = pod.condition("Ready").and_then(|ready| ready.last_transition_time.as_ref()).map(|changed| changed.0);
    let grace = facts.deletion_grace.map(Millis::from);
    let deadline = pod.metadata.deletion_timestamp.as_ref().map(|deadline| time(deadline.0));
    Sighting {
        not_ready_since: since(changed.or(facts.created)).filter(|_| !facts.ready),
        not_running_since: since(facts.created).filter(|_| !facts.running),
        terminating_since: deadline.zip(grace).map(|(deadline, grace)| deadline - grace),
        facts: facts.into(),
    }
}

fn ttl(spec: &ValidLease) -> Millis {
    Millis::from(spec.lease_duration)
}

/// A duration as in a spec, in whole seconds if it is long.
fn text(span: Millis) -> String {
    let rounded = if span.0 >= 1000 { span.0.div_ceil(1000) * 1000 } else { span.0 };
    Duration::from(core::time::Duration::from_millis(rounded)).as_str().to_owned()
}

/// Milliseconds of Unix time stand for the operator's clock.
fn time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_millisecond()).unwrap_or_default())
}

fn timestamp(at: Time) -> Timestamp {
    i64::try_from(at.0).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(Timestamp::MAX)
}

/// The time without the fraction of its second.
pub(super) fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
