//! What this process has seen of the term that the status names.

use redislease_core::lease::View;
use redislease_core::op::Attempt;

use crate::plan::EndCause;

/// One for each keeper, from its start to its end.
///
/// A view that does not show the term which the status names has two meanings: the term is over, or the keeper has not
/// heard of it yet. Taking the second for the first would clear a term that lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    seen: Option<Attempt>,
    decided: Option<Decided>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decided {
    attempt: Attempt,
    cause: EndCause,
    proof: bool,
}

impl Witness {
    /// To be called with every view, before anything is composed of it.
    pub fn saw(&mut self, view: &View) {
        let running = view.standing.term().map(|term| term.id.attempt);
        if let Some(attempt) = running.or_else(|| view.ending.as_ref().map(|ending| ending.id.attempt)) {
            self.seen = Some(attempt);
        }
    }

    /// To be called when the keeper is told to end the term of `attempt`. The first cause stays; a proof may follow.
    pub fn decided(&mut self, attempt: Attempt, cause: EndCause, proof: bool) {
        match &mut self.decided {
            Some(before) if before.attempt == attempt => before.proof |= proof,
            decided => *decided = Some(Decided { attempt, cause, proof }),
        }
    }

    /// Why the operator ended the term of `attempt`.
    pub(super) fn cause(&self, attempt: Attempt) -> Option<EndCause> {
        self.decided.filter(|decided| decided.attempt == attempt).map(|decided| decided.cause)
    }

    /// Whether a view without the term of `attempt` says that it is over.
    pub(super) fn knows(&self, attempt: Attempt) -> bool {
        self.seen == Some(attempt) || self.decided.is_some_and(|decided| decided.attempt == attempt && decided.proof)
    }
}
