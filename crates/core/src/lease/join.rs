//! Joining the nodes that do not hold a term.
//!
//! A node grants again, then a whole round of extension that **began after that grant was answered** must succeed, and
//! only then is the grant confirmed. A grant that is confirmed earlier could complete a majority across a gap in which
//! another attempt held the keys.

use crate::lease::term::{Phase, Term};
use crate::lease::{Lease, Round, TermId};
use crate::op::{Attempt, Grant, Op, Stage, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// What one node is known to hold of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::lease) enum NodeState {
    /// The term's value, or nothing is known to the contrary.
    Holding,
    /// Not the term's value, or the node did not answer the last step of a join. It is asked for a grant after the next
    /// round that succeeds, so at the pace of renewals: a node that does not answer gets no more requests than one that
    /// answers, however many leases wait for it. When it votes again, the driver lets this round begin earlier.
    Missing,
    /// The node answered and refused to grant or to confirm: another attempt's value stands there, often for an instant
    /// only. It is asked for a grant at `again_at`, which is sooner than the next renewal.
    Refused { again_at: Time },
    /// An acquire was sent.
    Joining { round: Round, give_up_at: Time },
    /// The node granted. A round numbered `after` or later began after its answer.
    Granted { grant: Grant, after: Round },
    /// A confirm was sent.
    Confirming { round: Round, give_up_at: Time },
}

impl NodeState {
    /// The state after the node's answer to an extension.
    pub fn after_extension(self, now: Time, vote: &Vote, attempt: Attempt) -> Self {
        let value = match vote {
            Vote::Extended => return Self::Holding,
            Vote::Miss(value) => value,
            _ => return self,
        };
        let is_granted = |grant: Grant| {
            value.as_ref().is_some_and(|value| {
                value.stage == Stage::Pending && value.attempt == attempt && value.number == grant.0
            })
        };
        match self {
            Self::Granted { grant, .. } if is_granted(grant) => self,
            Self::Refused { .. } => self,
            Self::Joining { give_up_at, .. } | Self::Confirming { give_up_at, .. } if now < give_up_at => self,
            _ => Self::Missing,
        }
    }

    /// The state after the node's answer to `round`, if that was a step of its join. `next` is the number of the next
    /// round, `pace` the time until a node that refused is asked again.
    fn after_join_step(self, now: Time, round: Round, vote: &Vote, next: Round, pace: Millis) -> Option<Self> {
        let state = match (self, vote) {
            (Self::Joining { round: asked, .. } | Self::Confirming { round: asked, .. }, _) if asked != round => {
                return None;
            }
            (Self::Joining { .. }, Vote::Granted(grant)) => Self::Granted { grant: *grant, after: next },
            (Self::Confirming { .. }, Vote::Confirmed { .. }) => Self::Holding,
            (Self::Joining { .. }, Vote::Refused { .. }) | (Self::Confirming { .. }, Vote::Miss(_)) => {
                Self::Refused { again_at: now + pace }
            }
            (Self::Joining { .. } | Self::Confirming { .. }, _) => Self::Missing,
            _ => return None,
        };
        Some(state)
    }
}

impl Term {
    /// When the next node that refused is asked again. A term that is not confirmed, or whose last round failed, joins
    /// no node: if it is lost, the grant blocks that node for one TTL.
    pub fn next_join_at(&self) -> Option<Time> {
        let again_at = |state: &NodeState| match state {
            NodeState::Refused { again_at } => Some(*again_at),
            _ => None,
        };
        let confirmed = self.failed_rounds == 0 && !matches!(self.phase, Phase::Adopting { .. });
        self.nodes.iter().filter_map(again_at).min().filter(|_| confirmed)
    }

    /// Whether a node has granted and is not asked to confirm yet.
    pub fn has_grants(&self) -> bool {
        self.nodes.iter().any(|state| matches!(state, NodeState::Granted { .. }))
    }

    /// Lets the next round begin `soon` if a grant waits for one: until it is confirmed the term may stand on a bare
    /// majority, which the next fault would end. After a round that was for a grant too, and after one that failed, it
    /// begins at the retry pace: nodes that grant and never confirm do not cause one round after the other.
    pub fn prove_grants(&mut self, soon: Time, pace: Millis) {
        if !self.has_grants() {
            return;
        }
        let last = self.extension.as_ref().filter(|last| last.proves || self.failed_rounds > 0);
        let at = last.map_or(soon, |last| last.t0 + pace);
        self.next_round_at = self.next_round_at.min(at);
    }
}

impl Lease {
    /// Asks the nodes that refused and are due.
    pub(super) fn ask_refused(&mut self, now: Time) {
        if self.term.as_ref().and_then(Term::next_join_at).is_some_and(|at| now >= at) {
            self.join(now, |state| matches!(state, NodeState::Refused { again_at } if now >= *again_at));
        }
    }

    /// After a round that succeeded: the next step of the join of every node that does not hold the term.
    pub(super) fn continue_joins(&mut self, now: Time) {
        let any_round = breaks!(self.rules, JoinConfirmedAtOnce | JoinConfirmedByEarlierRound);
        let proven = self.term.as_ref().and_then(|term| term.extension.as_ref()).map(|extension| extension.round);
        self.join(now, |state| match state {
            NodeState::Missing => true,
            NodeState::Granted { after, .. } => any_round || proven.is_some_and(|round| round >= *after),
            _ => false,
        });
    }

    /// Takes the answer to a step of a join.
    pub(super) fn join_vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        let (next, pace) = (self.next_round, self.config.retry_pace());
        let soon = now + self.join_delay;
        let Some(term) = &mut self.term else { return };
        let Some(state) = term.nodes.get_mut(node.index()) else { return };
        let Some(after) = state.after_join_step(now, round, vote, next, pace) else { return };
        *state = after;
        if matches!(after, NodeState::Granted { .. }) {
            term.prove_grants(soon, pace);
            if breaks!(self.rules, JoinConfirmedAtOnce) {
                self.continue_joins(now);
            }
        }
    }

    /// Sends the next step of the join, an acquire or a confirm, to each node that is `due`.
    fn join(&mut self, now: Time, due: impl Fn(&NodeState) -> bool) {
        let give_up_at = now + self.config.command_timeout;
        // At most as long as the nodes that granted first keep the term.
        let life = self.config.ttl.max(self.least_life);
        let mut round = self.next_round;
        let mut sent = alloc::vec::Vec::new();
        let Some(term) = &mut self.term else { return };
        let TermId { attempt, token, holder } = &term.id;
        for (node, state) in self.config.quorum.nodes().zip(&mut term.nodes).filter(|(_, state)| due(state)) {
            let op = if let NodeState::Granted { grant, .. } = *state {
                *state = NodeState::Confirming { round, give_up_at };
                Op::Confirm { attempt: *attempt, grant, token: *token }
            } else {
                *state = NodeState::Joining { round, give_up_at };
                term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(life));
                Op::Acquire { attempt: *attempt, ttl: life, holder: holder.clone() }
            };
            sent.push((round, node, op));
            round = Round(round.0.wrapping_add(1));
        }
        self.next_round = round;
        for (round, node, op) in sent {
            self.send(round, node, op, give_up_at);
        }
    }
}
