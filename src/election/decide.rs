//! What to do about a lease now.
//!
//! A holder is asked to leave only for what is certain, and its keys are released only on proof that it has stopped.
//! What only the passing of time calls for is decided on a fresh answer of the API server: while it is away, nobody
//! knows whether the holder has recovered, and the lease stays where it is.

use core::time::Duration;

use redislease_core::lease::{Standing, TermId, View};
use redislease_core::time::{Millis, Time};

use crate::api::validated::Readiness;
use crate::election::candidates::barred;
use crate::election::{Electorate, HolderName, PodFacts, Sighting};

/// What is known about the pod of the running or ending term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HolderPod<'a> {
    /// The pods have not been listed yet: nothing is known.
    Unseen,
    /// It exists.
    Here {
        /// As last seen.
        sighting: &'a Sighting,
        /// Whether the lease's candidates still include it.
        candidate: bool,
    },
    /// It does not exist.
    Gone {
        /// Whether its last event proved that its processes have ended.
        stopped: bool,
    },
}

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// Now.
    pub now: Time,
    /// Where the lease stands in this process.
    pub view: &'a View,
    /// The pod of [`View`]'s running term, else of its ending one.
    pub holder: HolderPod<'a>,
    /// The candidates, judged.
    pub electorate: &'a Electorate,
    /// What readiness means.
    pub readiness: Readiness,
    /// How long a holder gets to stop.
    pub grace_period: Duration,
    /// Whether a new term may begin: not suspended, not deleted, a usable quorum, nothing to wait out.
    pub may_begin: bool,
    /// The running term is to end by decision, whatever its holder does.
    pub revoked: Option<EndCause>,
    /// Whether `holder` is an answer of the API server of just now.
    pub fresh: bool,
}

/// Why the operator ends a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// The holder is proven to have stopped.
    HolderStopped,
    /// The holder is gone without a proof: force-deleted, or missed.
    HolderVanished,
    /// The holder did not stop in the time it was given.
    StopOverdue,
    /// The holder was not Ready for too long.
    HolderUnhealthy,
    /// The holder is no candidate any more.
    NoLongerCandidate,
    /// The lease is suspended.
    Suspended,
    /// The lease is deleted.
    Deleted,
    /// The quorum behind the name is another one.
    QuorumChanged,
    /// The status says that another operator has ended it.
    EndedElsewhere,
    /// The API server did not take it in time.
    NotPublished,
}

impl EndCause {
    /// Every cause.
    pub const ALL: [Self; 10] = [
        Self::HolderStopped,
        Self::HolderVanished,
        Self::StopOverdue,
        Self::HolderUnhealthy,
        Self::NoLongerCandidate,
        Self::Suspended,
        Self::Deleted,
        Self::QuorumChanged,
        Self::EndedElsewhere,
        Self::NotPublished,
    ];

    /// The cause as one word, for `status.lastTransition.reason`, events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HolderStopped => "HolderStopped",
            Self::HolderVanished => "HolderVanished",
            Self::StopOverdue => "StopOverdue",
            Self::HolderUnhealthy => "HolderUnhealthy",
            Self::NoLongerCandidate => "NoLongerCandidate",
            Self::Suspended => "Suspended",
            Self::Deleted => "Deleted",
            Self::QuorumChanged => "QuorumChanged",
            Self::EndedElsewhere => "EndedElsewhere",
            Self::NotPublished => "NotPublished",
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Nothing.
    Keep,
    /// Take the lease for this pod.
    Want(&'a PodFacts),
    /// Take it for nobody.
    Forget,
    /// End this term.
    End {
        /// Which.
        term: TermId,
        /// Whether its holder is proven to have stopped.
        proof: bool,
        /// Why.
        cause: EndCause,
    },
    /// Ask the API server for the holder's pod, then decide again: time alone is no reason.
    LookAgain,
}

/// A step, and when to decide again if nothing happens before.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What comes next.
    pub step: Step<'a>,
    /// When the passing of time alone may change the decision.
    pub again_at: Option<Time>,
}

/// Decides.
pub fn decide<'a>(situation: &Situation<'a>) -> Decision<'a> {
    if let Some(term) = situation.view.standing.term() {
        return match judge_holder(situation) {
            Verdict::Stays { until } => Decision { step: Step::Keep, again_at: until },
            Verdict::Leaves { proof, cause } => end(&term.id, proof, cause),
            Verdict::Overdue { .. } if !situation.fresh => Decision { step: Step::LookAgain, again_at: None },
            Verdict::Overdue { cause } => end(&term.id, false, cause),
        };
    }
    if let Some(ending) = &situation.view.ending
        && stopped(situation.holder)
    {
        return end(&ending.id, true, EndCause::HolderStopped);
    }
    Decision { step: next_holder(situation), again_at: None }
}

fn end<'a>(term: &TermId, proof: bool, cause: EndCause) -> Decision<'a> {
    Decision { step: Step::End { term: term.clone(), proof, cause }, again_at: None }
}

fn next_holder<'a>(situation: &Situation<'a>) -> Step<'a> {
    let first = situation.electorate.eligible.first().filter(|_| situation.may_begin);
    let Some(first) = first else { return Step::Forget };
    // A better candidate that turns up during an attempt waits for the next term: the attempt is nearly done.
    if let Standing::Acquiring(_, holder) = &situation.view.standing
        && let Ok(HolderName { pod_uid, .. }) = holder.0.parse()
        && let Some(present) = situation.electorate.eligible.iter().find(|pod| pod.uid == pod_uid)
    {
        return Step::Want(present);
    }
    Step::Want(first)
}

enum Verdict {
    Stays {
        until: Option<Time>,
    },
    Leaves {
        proof: bool,
        cause: EndCause,
    },
    /// Only the time says so.
    Overdue {
        cause: EndCause,
    },
}

fn judge_holder(situation: &Situation<'_>) -> Verdict {
    if let Some(cause) = situation.revoked {
        return Verdict::Leaves { proof: stopped(situation.holder), cause };
    }
    let (sighting, candidate) = match situation.holder {
        HolderPod::Unseen => return Verdict::Stays { until: None },
        HolderPod::Gone { stopped: true } => return Verdict::Leaves { proof: true, cause: EndCause::HolderStopped },
        HolderPod::Gone { stopped: false } => {
            return Verdict::Leaves { proof: false, cause: EndCause::HolderVanished };
        }
        HolderPod::Here { sighting, candidate } => (sighting, candidate),
    };
    let pod = &sighting.facts;
    if pod.stopped {
        Verdict::Leaves { proof: true, cause: EndCause::HolderStopped }
    } else if pod.finished {
        Verdict::Leaves { proof: false, cause: EndCause::HolderVanished }
    } else if !candidate || barred(pod) {
        Verdict::Leaves { proof: false, cause: EndCause::NoLongerCandidate }
    } else if let (Some(since), Some(grace)) = (sighting.terminating_since, pod.deletion_grace) {
        let allowed = Millis::from(grace) + Millis::from(situation.grace_period);
        overdue(situation.now, since + allowed, EndCause::StopOverdue)
    } else if let (Some(since), Readiness::Required { unhealthy_after }) =
        (sighting.not_ready_since, situation.readiness)
    {
        overdue(situation.now, since + Millis::from(unhealthy_after), EndCause::HolderUnhealthy)
    } else {
        Verdict::Stays { until: None }
    }
}

fn overdue(now: Time, at: Time, cause: EndCause) -> Verdict {
    if now >= at { Verdict::Overdue { cause } } else { Verdict::Stays { until: Some(at) } }
}

fn stopped(holder: HolderPod<'_>) -> bool {
    match holder {
        HolderPod::Unseen => false,
        HolderPod::Here { sighting, .. } => sighting.facts.stopped,
        HolderPod::Gone { stopped } => stopped,
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
