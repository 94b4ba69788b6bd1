//! The invariants, in one place: the simulator, the model checker, the unit tests and the debug assertions share them.

use core::fmt;

use crate::lease::{Standing, View};
use crate::op::{Attempt, Token};
use crate::quorum::Quorum;
use crate::time::{Drift, Millis, Time};

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// I1: at one true time two terms that share a key are believed in.
    TwoHolders,
    /// I2: two terms that share a key have one token.
    EqualTokens,
    /// I2: a term began after another had completed, with a token that is not greater.
    TokenNotAbove,
    /// A machine believes in a term for longer than a majority of the nodes keeps its keys.
    BeliefOutlivesKeys,
    /// A machine believes in a term after its own deadline for it.
    BeliefPastDeadline,
    /// A machine shows an end of validity for a term that no majority has confirmed to it.
    UnconfirmedBelief,
    /// A machine runs and ends the same term.
    TwoTermsAtOnce,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoHolders => "I1: two terms that share a key are live at once",
            Self::EqualTokens => "I2: two terms that share a key have one token",
            Self::TokenNotAbove => "I2: a later term's token is not greater",
            Self::BeliefOutlivesKeys => "a machine believes in a term for longer than a majority keeps its keys",
            Self::BeliefPastDeadline => "a machine believes in a term after its own deadline",
            Self::UnconfirmedBelief => "a machine believes in a term that no majority has confirmed",
            Self::TwoTermsAtOnce => "a machine runs a term and ends it at once",
        })
    }
}

impl core::error::Error for Violation {}

/// The time in which a process believes in a term, on the true time line. It runs from the confirmation to the earliest
/// of the end of validity by the process's own clock, the release, and the loss that the process knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The attempt of the term.
    pub attempt: Attempt,
    /// The fencing token that its holder shows to others.
    pub token: Token,
    /// True time of its confirmation.
    pub from: Time,
    /// True time of its end, which is not part of it.
    pub until: Time,
}

/// I1 over the claims on key sets that overlap: at any true time all live claims belong to one term.
///
/// # Errors
/// [`Violation::TwoHolders`].
pub fn one_holder(claims: &[Claim]) -> Result<(), Violation> {
    let overlap = |a: &Claim, b: &Claim| a.attempt != b.attempt && a.from < b.until && b.from < a.until;
    let broken = claims.iter().enumerate().any(|(at, a)| claims[at + 1..].iter().any(|b| overlap(a, b)));
    if broken { Err(Violation::TwoHolders) } else { Ok(()) }
}

/// I2 for a term that completes now. `completed` are the tokens of the earlier terms that share a key with it, and
/// `before_it_began` is the greatest token that was completed before its first request.
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

/// The belief in a term ends before its keys do, on a majority of the nodes.
///
/// `lives` comes from the nodes and not from the machine: for each node that holds every key of the term, the least
/// remaining life of these keys at `now`, on the node's clock. The rule holds from the confirmation on, for as long as
/// no process released the keys and no node lost its memory.
///
/// # Errors
/// [`Violation::BeliefOutlivesKeys`].
pub fn belief_within_keys(
    quorum: Quorum,
    drift: Drift,
    now: Time,
    valid_until: Time,
    lives: impl IntoIterator<Item = Millis>,
) -> Result<(), Violation> {
    let lasting = lives.into_iter().filter(|&life| now + drift.least(life) >= valid_until).count();
    if now >= valid_until || lasting >= quorum.majority() { Ok(()) } else { Err(Violation::BeliefOutlivesKeys) }
}

/// All invariants that one machine can check by itself: its view after an input at `now`. They cost about 30 instructions an
/// input, 2.5 % of what the machine needs for a renewal, so a release checks them too: see
/// [`lease::Effect::Broken`](crate::lease::Effect::Broken).
///
/// # Errors
/// Those of [`lease`], and [`Violation::BeliefPastDeadline`].
pub fn local(now: Time, view: &View) -> Result<(), Violation> {
    lease(view)?;
    // A machine that took an input at `now` does not believe in a term whose deadline has come.
    let overdue = |deadline: Option<Time>| deadline.is_some_and(|deadline| now >= deadline);
    match view.standing.term() {
        Some(term) if overdue(term.stop_at) || overdue(term.valid_until) => Err(Violation::BeliefPastDeadline),
        _ => Ok(()),
    }
}

/// The rules for the view of one machine, which hold after every input.
///
/// # Errors
/// [`Violation::TwoTermsAtOnce`] and [`Violation::UnconfirmedBelief`].
pub fn lease(view: &View) -> Result<(), Violation> {
    let Some(term) = view.standing.term() else { return Ok(()) };
    if view.ending.as_ref().is_some_and(|ending| ending.id.attempt == term.id.attempt) {
        return Err(Violation::TwoTermsAtOnce);
    }
    let confirmed = matches!(view.standing, Standing::Publishing(_) | Standing::Held(_));
    if term.valid_until.is_some() == confirmed && term.stop_at.is_some() == confirmed {
        Ok(())
    } else {
        Err(Violation::UnconfirmedBelief)
    }
}
