//! Which pod may be `active`.

use redislease_core::lease::{Standing, View};
use redislease_core::op::{Attempt, Token};

use crate::election::HolderName;

/// Which pod may be `active`, according to the status and the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entitlement {
    /// The UID of the pod and the token of its term; `None` if no pod may be `active`.
    pub holder: Option<(String, Token)>,
    /// The latest token that the status shows.
    pub latest: Token,
}

impl Entitlement {
    /// Which pod may be `active`, by the keeper's view and the term that the status calls active; `None` if unknown. `known`
    /// says whether the keeper knows that term, `undecided` whether another replica may still confirm it.
    pub fn of(
        view: Option<&View>,
        recorded: Option<Attempt>,
        known: bool,
        undecided: bool,
        latest: Token,
    ) -> Option<Self> {
        let no_pod = Self { holder: None, latest };
        // The term in the status continues even if no keeper could be opened for it.
        let Some(view) = view else { return recorded.is_none().then_some(no_pod) };
        let running = view.standing.term().map(|term| term.id.attempt);
        // The status says active, and this process has not observed otherwise.
        if recorded.is_some() && recorded != running && !known {
            return None;
        }
        match &view.standing {
            Standing::Adopting(_) => None,
            Standing::Uncertain(_) if undecided => None,
            Standing::Held(term) if recorded == running => {
                let name: Option<HolderName> = term.id.holder.0.parse().ok();
                Some(Self { holder: name.map(|name| (name.pod_uid, term.id.token)), latest })
            }
            _ => Some(no_pod),
        }
    }

    /// The token of the running term; `None` if no Redis node gave it: after a restart, a term has the token that the status shows.
    pub fn holder_token(&self) -> Option<Token> {
        self.holder.as_ref().map(|(_, token)| *token).filter(|token| token.is_plausible())
    }

    /// The token of the running term, or else of the latest one; `None` before the first term.
    pub fn newest_token(&self) -> Option<Token> {
        self.holder_token().or_else(|| Some(self.latest).filter(|latest| *latest > Token(0)))
    }
}

#[cfg(test)]
#[path = "entitlement_tests.rs"]
mod tests;
