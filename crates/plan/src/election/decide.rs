//! Decides the next step for a lease.
//!
//! - A term ends only for a reason that is certain.
//! - Its keys are released only on proof that the holder has stopped. Without proof they are sealed, and expire.
//! - A timeout, such as `unhealthyAfter`, ends a term only after a fresh read from the API server. While the API server
//!   does not answer, the holder may have recovered without notice, so the term continues.

use core::time::Duration;
use std::sync::Arc;

use redislease_core::lease::{Standing, TermId, View};
use redislease_core::time::{Millis, Time};

use crate::api::validated::Readiness;
use crate::election::{Electorate, HolderName, PodFacts, Sighting};

/// What is known about the pod that holds the running or the ending term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HolderPod<'a> {
    /// Neither an event nor a list has shown the pod yet. It may exist.
    Unseen,
    /// The pod exists.
    Here {
        /// The latest facts about it.
        sighting: &'a Sighting,
        /// Whether it still is a candidate of the lease.
        candidate: bool,
    },
    /// The holder is a workload, which exists.
    Workload {
        /// Whether it still is the candidate of the lease.
        candidate: bool,
    },
    /// The pod does not exist any more.
    Gone {
        /// Whether it is proven that its processes have ended.
        stopped: bool,
    },
}

/// The input of a decision.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// Now.
    pub now: Time,
    /// The lease as the lock layer of this process sees it.
    pub view: &'a View,
    /// The pod that holds the running term of `view`, or else its ending term.
    pub holder: HolderPod<'a>,
    /// The eligible pods in the order of the election, and the others; or one workload.
    pub electorate: &'a Electorate,
    /// Which of them is elected first because of a requested handover.
    pub handover: Option<HandoverOrder<'a>>,
    /// Whether readiness matters.
    pub readiness: Readiness,
    /// The lease's grace period: how long a holder has to stop.
    pub grace_period: Duration,
    /// Whether a new term can begin: the lease is neither suspended nor deleted, the quorum is usable, and no waiting period
    /// is running.
    pub may_begin: bool,
    /// The reason to end the running term regardless of its holder's state.
    pub revoked: Option<EndCause>,
    /// Whether `holder` was read from the API server just now.
    pub fresh: bool,
}

/// The order of the next election after a requested handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverOrder<'a> {
    /// The name of the pod that is elected if it is eligible.
    pub to: Option<&'a str>,
    /// The name of the pod whose term was ended. It is elected only if no other pod is eligible.
    pub from: &'a str,
}

impl HandoverOrder<'_> {
    fn first<'e>(&self, electorate: &'e Electorate) -> Option<&'e Arc<PodFacts>> {
        let find = |wanted: &dyn Fn(&str) -> bool| electorate.eligible.iter().find(|pod| wanted(&pod.name));
        let target = self.to.and_then(|to| find(&|name| name == to));
        target.or_else(|| find(&|name| name != self.from)).or_else(|| electorate.eligible.first())
    }
}

/// Why the operator ends a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// The holder is proven to have stopped.
    HolderStopped,
    /// The holder's pod does not exist any more and nothing proves that its processes have stopped, for example after a forced
    /// deletion.
    HolderVanished,
    /// The holder's pod was deleted and did not stop within its deletion grace period plus the lease's grace period.
    StopOverdue,
    /// The holder was not Ready, or did not run, for `unhealthyAfter`.
    HolderUnhealthy,
    /// The holder is not a candidate any more, or is excluded.
    NoLongerCandidate,
    /// A handover was requested.
    HandoverRequested,
    /// The lease is suspended.
    Suspended,
    /// The lease is deleted.
    Deleted,
    /// The RedisQuorum was replaced by one with another configuration.
    QuorumChanged,
    /// The RedisQuorum does not allow the lease's namespace any more.
    NamespaceNotAllowed,
    /// Another replica of the operator ended the term; the status shows it.
    EndedElsewhere,
    /// The API server did not accept the status that names the term within one lease duration.
    NotPublished,
}

words!(
    EndCause: HolderStopped, HolderVanished, StopOverdue, HolderUnhealthy, NoLongerCandidate, HandoverRequested, Suspended,
    Deleted, QuorumChanged, NamespaceNotAllowed, EndedElsewhere, NotPublished
);

/// The next step.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Step<'a> {
    /// Do nothing: the term continues.
    Keep,
    /// Acquire the lease for this pod or workload.
    Want { name: &'a str, uid: &'a str },
    /// Do not acquire the lease. Give up an attempt that is not published.
    Forget,
    /// End this term.
    End {
        term: TermId,
        /// Whether its holder is proven to have stopped.
        proof: bool,
        cause: EndCause,
    },
    /// Read the holder's pod from the API server, then decide again: a timeout alone does not end a term.
    LookAgain,
}

/// The next step, and when to decide again.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'a> {
    /// The next step.
    pub step: Step<'a>,
    /// When the decision can change without any event, because a timeout is reached.
    pub again_at: Option<Time>,
}

/// Decides the next step.
pub fn decide<'a>(situation: &Situation<'a>) -> Decision<'a> {
    if let Some(term) = situation.view.standing.term() {
        return check_holder(situation, &term.id);
    }
    if let Some(ending) = &situation.view.ending
        && stopped(situation.holder)
    {
        return end(&ending.id, true, EndCause::HolderStopped);
    }
    Decision { step: next_holder(situation), again_at: None }
}

const fn keep<'a>(until: Option<Time>) -> Decision<'a> {
    Decision { step: Step::Keep, again_at: until }
}

fn end<'a>(term: &TermId, proof: bool, cause: EndCause) -> Decision<'a> {
    Decision { step: Step::End { term: term.clone(), proof, cause }, again_at: None }
}

fn next_holder<'a>(situation: &Situation<'a>) -> Step<'a> {
    let electorate = situation.electorate;
    if !situation.may_begin {
        return Step::Forget;
    }
    if let Some(workload) = electorate.lasting_workload() {
        return Step::Want { name: &workload.name, uid: &workload.uid };
    }
    let first = match &situation.handover {
        Some(order) => order.first(electorate),
        None => electorate.eligible.first(),
    };
    let Some(first) = first else { return Step::Forget };
    let want = |pod: &'a PodFacts| Step::Want { name: &pod.name, uid: &pod.uid };
    // An attempt continues for its pod while that pod is eligible, even if a better candidate appears meanwhile.
    if let Standing::Acquiring(_, holder) = &situation.view.standing
        && let Ok(HolderName { pod_uid, .. }) = holder.0.parse()
        && let Some(present) = situation.electorate.eligible.iter().find(|pod| pod.uid == pod_uid)
    {
        return want(present);
    }
    want(first)
}

/// Whether the running term continues.
fn check_holder<'a>(situation: &Situation<'_>, term: &TermId) -> Decision<'a> {
    if let Some(cause) = situation.revoked {
        return end(term, stopped(situation.holder), cause);
    }
    let (sighting, candidate) = match situation.holder {
        HolderPod::Unseen | HolderPod::Workload { candidate: true } => return keep(None),
        HolderPod::Gone { stopped: true } => return end(term, true, EndCause::HolderStopped),
        HolderPod::Gone { stopped: false } => return end(term, false, EndCause::HolderVanished),
        HolderPod::Workload { candidate: false } => return end(term, false, EndCause::NoLongerCandidate),
        HolderPod::Here { sighting, candidate } => (sighting, candidate),
    };
    // A timeout ends the term if a fresh read confirms the holder's state.
    let check_timeout = |at: Time, cause| match situation.now >= at {
        false => keep(Some(at)),
        true if situation.fresh => end(term, false, cause),
        true => Decision { step: Step::LookAgain, again_at: None },
    };
    let pod = &sighting.facts;
    if pod.stopped {
        end(term, true, EndCause::HolderStopped)
    } else if pod.finished {
        end(term, false, EndCause::HolderVanished)
    } else if !candidate || pod.annotations.excludes() {
        end(term, false, EndCause::NoLongerCandidate)
    } else if let (Some(since), Some(grace)) = (sighting.terminating_since, pod.deletion_grace) {
        let allowed = Millis::from(grace) + Millis::from(situation.grace_period);
        check_timeout(since + allowed, EndCause::StopOverdue)
    } else {
        let Readiness { required, unhealthy_after } = situation.readiness;
        let since = if required { sighting.not_ready_since } else { sighting.not_running_since };
        since
            .map_or(keep(None), |since| check_timeout(since + Millis::from(unhealthy_after), EndCause::HolderUnhealthy))
    }
}

fn stopped(holder: HolderPod<'_>) -> bool {
    match holder {
        HolderPod::Unseen | HolderPod::Workload { .. } => false,
        HolderPod::Here { sighting, .. } => sighting.facts.stopped,
        HolderPod::Gone { stopped } => stopped,
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
