//! What must hold, in one place: the simulator, the model checker and the debug assertions all call these.

use core::fmt;

use crate::lease::Lease;
use crate::op::{Attempt, Token};
use crate::time::Time;

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// I1: two terms that share a key are believed in at one true time.
    TwoHolders,
    /// I2: two terms that share a key have one token.
    EqualTokens,
    /// I2: a term began after another had completed, with a token that is not greater.
    TokenNotAbove,
    /// The machine believes for longer than its keys live, or past its own deadline.
    BeliefOutlivesKeys,
    /// The machine runs two things that exclude each other.
    TwoTermsAtOnce,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoHolders => "I1: two terms that share a key are live at once",
            Self::EqualTokens => "I2: two terms that share a key have one token",
            Self::TokenNotAbove => "I2: a later term's token is not greater",
            Self::BeliefOutlivesKeys => "a machine believes past its own deadline",
            Self::TwoTermsAtOnce => "a machine acquires, holds or ends two terms at once",
        })
    }
}

impl core::error::Error for Violation {}

/// A belief in a term, on the true time line: from its confirmation to the earliest of the end of its validity by the
/// believer's own clock, the release, and the loss that the believer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Which term.
    pub attempt: Attempt,
    /// Its token.
    pub token: Token,
    /// True time of its confirmation.
    pub from: Time,
    /// True time of its end; it does not hold at this instant any more.
    pub until: Time,
}

/// I1 over the claims on keys that meet: at any true time all live ones belong to one term.
///
/// # Errors
/// [`Violation::TwoHolders`].
pub fn one_holder(claims: &[Claim]) -> Result<(), Violation> {
    let overlap = |a: &Claim, b: &Claim| a.attempt != b.attempt && a.from < b.until && b.from < a.until;
    let broken = claims.iter().enumerate().any(|(at, a)| claims[at + 1..].iter().any(|b| overlap(a, b)));
    if broken { Err(Violation::TwoHolders) } else { Ok(()) }
}

/// I2 for a term that completes now: `completed` are the tokens of the earlier ones that share a key with it, and
/// `before_it_began` the greatest token completed before its first request.
///
/// # Errors
/// [`Violation::EqualTokens`] and [`Violation::TokenNotAbove`].
pub fn tokens_grow(
    token: Token,
    completed: impl IntoIterator<Item = Token>,
    before_it_began: Option<Token>,
) -> Result<(), Violation> {
    if completed.into_iter().any(|other| other == token) {
        return Err(Violation::EqualTokens);
    }
    if before_it_began.is_some_and(|before| token <= before) {
        return Err(Violation::TokenNotAbove);
    }
    Ok(())
}

/// What one machine must never be in, whatever it was fed.
///
/// # Errors
/// [`Violation::BeliefOutlivesKeys`] and [`Violation::TwoTermsAtOnce`].
pub fn lease(lease: &Lease) -> Result<(), Violation> {
    let view = lease.view();
    let Some(term) = view.standing.term() else { return Ok(()) };
    if view.ending.as_ref().is_some_and(|ending| ending.id.attempt == term.id.attempt) {
        return Err(Violation::TwoTermsAtOnce);
    }
    match (term.stop_at, term.valid_until) {
        (Some(stop_at), Some(valid_until)) if stop_at > valid_until => Err(Violation::BeliefOutlivesKeys),
        _ => Ok(()),
    }
}
