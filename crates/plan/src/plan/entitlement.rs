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
mod tests {
    use super::*;
    use crate::plan::tests::{adopting, held, publishing, term, uncertain};

    #[test]
    fn which_pod_may_be_active() {
        let who = |view: Option<View>, recorded, known, undecided| {
            Entitlement::of(view.as_ref(), recorded, known, undecided, Token(42))
                .map(|entitlement| entitlement.holder.map(|(uid, _)| uid))
        };
        let term = || term(7, 42, "a");
        let (ours, other) = (Some(Attempt(7)), Some(Attempt(8)));
        let (pod, no_pod, unknown) = (Some(Some("uid-a".to_owned())), Some(None), None);
        let table = [
            (None, None, false, &no_pod, "no keeper, and no term in the status"),
            (None, ours, false, &unknown, "no keeper for the term in the status"),
            (Some(held(term())), ours, true, &pod, "held and named"),
            (Some(held(term())), None, false, &no_pod, "held, and not in the status yet"),
            (Some(held(term())), other, false, &unknown, "the status names a term that is not known"),
            (Some(publishing(term())), None, false, &no_pod, "not published yet"),
            (Some(View::default()), ours, true, &no_pod, "lost, and the status does not say so yet"),
            (Some(View::default()), ours, false, &unknown, "to be adopted"),
            (Some(adopting(term())), ours, true, &unknown, "being adopted"),
        ];
        for (view, recorded, known, expected, what) in table {
            assert_eq!(who(view, recorded, known, true), *expected, "{what}");
        }
        let unconfirmed = || Some(uncertain(term()));
        assert_eq!(who(unconfirmed(), ours, true, true), unknown);
        assert_eq!(who(unconfirmed(), ours, true, false), no_pod, "no replica contradicted it");
    }
}
