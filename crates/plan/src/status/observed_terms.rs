//! The terms that this process has observed.

use std::collections::VecDeque;

use redislease_core::lease::View;
use redislease_core::op::Attempt;

use crate::election::EndCause;

/// How many terms are remembered. The status names one of the latest terms, unless it could not be written for a long time.
const REMEMBERED: usize = 16;

/// The terms that this process has observed since it opened the lease, and its decisions to end them.
///
/// A view that does not contain the term in status has two possible meanings: the term has ended, or the lock layer does not
/// know the term yet. This record distinguishes them. Without it, the operator could remove a running term from status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTerms {
    seen: VecDeque<Attempt>,
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
        let running = view.standing.term().map(|term| term.id.attempt);
        let shown = running.or_else(|| view.ending.as_ref().map(|ending| ending.id.attempt));
        if let Some(attempt) = shown.filter(|attempt| !self.seen.contains(attempt)) {
            push_bounded(&mut self.seen, attempt);
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

    /// Whether a view without the term of `attempt` means that the term has ended.
    pub(super) fn knows(&self, attempt: Attempt) -> bool {
        self.seen.contains(&attempt)
            || self.decisions.iter().any(|decision| decision.attempt == attempt && decision.proof)
    }
}

fn push_bounded<T>(known: &mut VecDeque<T>, new: T) {
    known.push_back(new);
    if known.len() > REMEMBERED {
        known.pop_front();
    }
}
