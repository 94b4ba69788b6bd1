//! The terms that this process has observed.

use std::collections::VecDeque;

use redislease_core::lease::{EndReason, View};
use redislease_core::op::Attempt;

use crate::election::EndCause;
use crate::status::TermEnd;

/// How many terms are remembered. The status names one of the latest terms, unless it could not be written for a long time.
const REMEMBERED: usize = 16;

/// The terms that this process has observed since it opened the lease, and its decisions to end them.
///
/// A view that does not contain the term in status has two possible meanings: the term has ended, or the lock layer does not
/// know the term yet. This record distinguishes them. Without it, the operator could remove a running term from status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTerms {
    /// With the reason of the end, if a view has shown it: the status may be written long after the keys have expired.
    seen: VecDeque<(Attempt, Option<EndReason>)>,
    decisions: VecDeque<Decision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decision {
    attempt: Attempt,
    cause: EndCause,
    proof: bool,
}

impl ObservedTerms {
    /// Records the term that `view` contains. Call it with every view before [`compose`](crate::status::compose).
    pub fn record_view(&mut self, view: &View) {
        let running = view.standing.term().map(|term| (term.id.attempt, None));
        let shown = running.or_else(|| view.ending.as_ref().map(|ending| (ending.id.attempt, Some(ending.reason))));
        let Some((attempt, reason)) = shown else { return };
        match self.seen.iter_mut().find(|(seen, _)| *seen == attempt) {
            Some((_, known)) => *known = known.or(reason),
            None => push_bounded(&mut self.seen, (attempt, reason)),
        }
    }

    /// Records the decision to end a term. Call it together with the command to the lock layer. The first cause of a term is
    /// kept; `proof` can be added later.
    pub fn record_decision(&mut self, attempt: Attempt, cause: EndCause, proof: bool) {
        match self.decisions.iter_mut().find(|earlier| earlier.attempt == attempt) {
            Some(earlier) => earlier.proof |= proof,
            None => push_bounded(&mut self.decisions, Decision { attempt, cause, proof }),
        }
    }

    /// Why the operator ended the term of `attempt`, if it did.
    pub(super) fn cause(&self, attempt: Attempt) -> Option<EndCause> {
        self.decisions.iter().find(|decision| decision.attempt == attempt).map(|decision| decision.cause)
    }

    /// Why the term of `attempt` ended.
    pub(super) fn end(&self, attempt: Attempt) -> TermEnd {
        let cause = self.cause(attempt);
        let shown = self.seen.iter().find(|(seen, _)| *seen == attempt).and_then(|(_, reason)| *reason);
        shown.map_or_else(|| cause.map_or(TermEnd::Unobserved, TermEnd::Decided), |reason| TermEnd::of(reason, cause))
    }

    /// Whether a view without the term of `attempt` means that the term has ended.
    pub(super) fn knows(&self, attempt: Attempt) -> bool {
        self.seen.iter().any(|(seen, _)| *seen == attempt)
            || self.decisions.iter().any(|decision| decision.attempt == attempt && decision.proof)
    }
}

fn push_bounded<T>(known: &mut VecDeque<T>, new: T) {
    known.push_back(new);
    if known.len() > REMEMBERED {
        known.pop_front();
    }
}
