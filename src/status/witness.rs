//! What this process has seen of the term that the status names.

use std::collections::VecDeque;

use redislease_core::lease::View;
use redislease_core::op::Attempt;

use crate::election::EndCause;

/// So many terms are remembered: the status names one of the last few, unless it could not be written for long.
const REMEMBERED: usize = 16;

/// One for each keeper, from its start to its end.
///
/// A view that does not show the term which the status names has two meanings: the term is over, or the keeper has not
/// heard of it yet. Taking the second for the first would clear a term that lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    seen: VecDeque<Attempt>,
    decided: VecDeque<Decided>,
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
        let shown = running.or_else(|| view.ending.as_ref().map(|ending| ending.id.attempt));
        if let Some(attempt) = shown.filter(|attempt| !self.seen.contains(attempt)) {
            remember(&mut self.seen, attempt);
        }
    }

    /// To be called when the keeper is told to end the term of `attempt`. The first cause stays; a proof may follow.
    pub fn decided(&mut self, attempt: Attempt, cause: EndCause, proof: bool) {
        match self.decided.iter_mut().find(|before| before.attempt == attempt) {
            Some(before) => before.proof |= proof,
            None => remember(&mut self.decided, Decided { attempt, cause, proof }),
        }
    }

    /// Why the operator ended the term of `attempt`.
    pub(super) fn cause(&self, attempt: Attempt) -> Option<EndCause> {
        self.decided.iter().find(|decided| decided.attempt == attempt).map(|decided| decided.cause)
    }

    /// Whether a view without the term of `attempt` says that it is over.
    pub(super) fn knows(&self, attempt: Attempt) -> bool {
        self.seen.contains(&attempt) || self.decided.iter().any(|decided| decided.attempt == attempt && decided.proof)
    }
}

fn remember<T>(known: &mut VecDeque<T>, new: T) {
    known.push_back(new);
    if known.len() > REMEMBERED {
        known.pop_front();
    }
}
