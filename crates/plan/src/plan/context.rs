//! What the writes of the status and of roles depend on in one turn.

use redislease_core::lease::Refusal;
use redislease_core::time::Time;

use super::contend::Contention;
use super::entitlement::Entitlement;
use super::inputs::Turn;
use super::keeper::Keeper;
use crate::election::HolderName;

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

    /// When the attempt began whose answer says that another cluster or another lease holds the keys, while these still last.
    pub fn held_elsewhere(&self) -> Option<Time> {
        let Self { turn, keeper, .. } = self;
        let view = keeper.view()?;
        let Refusal { asked_at, until } = view.refusal?;
        let name = view.refused_by.as_ref()?.metadata.parse::<HolderName>().ok()?;
        let is_other = name.cluster.uid != turn.identity.cluster.uid
            || (&*name.namespace, &name.lease) != (&*turn.identity.namespace, &turn.identity.name);
        (is_other && turn.now < until).then_some(asked_at)
    }
}
