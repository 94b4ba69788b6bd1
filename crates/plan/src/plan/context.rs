//! What the writes of the status and of roles depend on in one turn.

use redislease_core::time::Time;

use super::contend::Contention;
use super::entitlement::Entitlement;
use super::inputs::Turn;
use super::keeper::Keeper;

/// What the writes of the status and of roles depend on in one turn, after the decision about the term.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub turn: &'a Turn<'a>,
    pub keeper: &'a Keeper,
    pub contention: &'a Contention,
    /// Since when no pod has held the lease.
    pub unheld_since: Option<Time>,
}

impl Context<'_> {
    /// Whether an attempt is due, requested or in progress, or its term is being published.
    pub fn is_contending(&self) -> bool {
        self.contention.is_contending(self.keeper.link())
    }

    /// Whether this process holds the entitled term, and it is not too late to give a right.
    pub fn may_grant(&self, entitlement: &Entitlement) -> bool {
        let token = entitlement.holder.as_ref().map(|(_, token)| *token);
        let holds = self.keeper.held().is_some_and(|term| Some(term.token) == token);
        holds && self.turn.facts.stop_at.is_none_or(|stop_at| self.turn.now < stop_at)
    }
}
