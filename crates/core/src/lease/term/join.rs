//! Joining the nodes that do not hold a term.
//!
//! A node grants again, then a whole round of extension that **began after that grant was answered** must succeed, and
//! only then is the grant confirmed. A grant that is confirmed earlier could complete a majority across a gap in which
//! another attempt held the keys.

use alloc::vec;
use alloc::vec::Vec;

use crate::lease::context::Context;
use crate::lease::event::Round;
use crate::lease::view::TermId;
use crate::op::{Attempt, Grant, Op, Stage, Token, Vote};
use crate::quorum::{Node, Quorum};
use crate::time::{Millis, Time};

/// What one node is known to hold of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeState {
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
    fn after_extension(self, now: Time, vote: &Vote, attempt: Attempt) -> Self {
        let value = match vote {
            Vote::Extended => return Self::Holding,
            Vote::Miss(value) => value,
            _ => return self,
        };
        let is_granted = |grant: Grant| {
            value.as_ref().is_some_and(|value| {
                value.stage == grant.stage() && value.attempt == attempt && value.number == grant.number()
            })
        };
        match self {
            Self::Granted { grant, .. } if is_granted(grant) => self,
            Self::Refused { .. } => self,
            Self::Joining { give_up_at, .. } | Self::Confirming { give_up_at, .. } if now < give_up_at => self,
            _ => Self::Missing,
        }
    }

    /// The state after the node's answer to `round`, if that was a step of its join to the term `id`, or a late answer to
    /// round 1 of its attempt. `next` is the number of the next round, `pace` the time until a node that refused is asked again.
    fn after_step(self, now: Time, round: Round, vote: &Vote, id: &TermId, next: Round, pace: Millis) -> Option<Self> {
        let state = match (self, vote) {
            (Self::Joining { round: asked, .. } | Self::Confirming { round: asked, .. }, _) if asked != round => {
                return None;
            }
            // The node took the token that became the term's. Its counter was lower, so it was in no later term.
            (Self::Joining { .. }, Vote::Granted(grant)) if grant.is_term(id.token) => Self::Holding,
            (Self::Joining { .. }, Vote::Granted(grant)) => Self::Granted { grant: *grant, after: next },
            // The node had taken a token that was replaced, and the answer was lost. It is a grant as any other.
            (Self::Joining { .. }, Vote::Refused { by, .. })
                if (by.attempt, by.stage) == (id.attempt, Stage::Term) && by.number != id.token.0 =>
            {
                Self::Granted { grant: Grant::Proposed(Token(by.number)), after: next }
            }
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

/// The nodes of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Joins(pub(super) Vec<NodeState>);

impl Joins {
    pub fn all_hold(quorum: Quorum) -> Self {
        Self(vec![NodeState::Holding; quorum.size()])
    }

    pub fn of(nodes: impl Iterator<Item = NodeState>) -> Self {
        Self(nodes.collect())
    }

    /// When the next node that refused is asked again.
    pub fn next_at(&self) -> Option<Time> {
        let again_at = |state: &NodeState| match state {
            NodeState::Refused { again_at } => Some(*again_at),
            _ => None,
        };
        self.0.iter().filter_map(again_at).min()
    }

    /// Whether a node has granted and is not asked to confirm yet.
    pub fn has_grants(&self) -> bool {
        self.0.iter().any(|state| matches!(state, NodeState::Granted { .. }))
    }

    /// No grant counts any more.
    pub fn void_grants(&mut self) {
        for state in self.0.iter_mut().filter(|state| matches!(state, NodeState::Granted { .. })) {
            *state = NodeState::Missing;
        }
    }

    /// Takes the answer to an extension.
    pub fn extended(&mut self, now: Time, node: Node, vote: &Vote, attempt: Attempt) {
        if let Some(state) = self.0.get_mut(node.index()) {
            *state = state.after_extension(now, vote, attempt);
        }
    }

    /// Takes the answer to a step of a join. Returns whether the node has granted.
    pub fn vote(&mut self, context: &Context, now: Time, round: Round, node: Node, vote: &Vote, id: &TermId) -> bool {
        let Some(state) = self.0.get_mut(node.index()) else { return false };
        let after = state.after_step(now, round, vote, id, context.next_round, context.config.retry_pace());
        *state = after.unwrap_or(*state);
        matches!(after, Some(NodeState::Granted { .. }))
    }

    /// Asks the nodes that refused and are due. Returns whether a node was asked for a grant.
    pub fn ask_refused(&mut self, context: &mut Context, now: Time, id: &TermId) -> bool {
        self.step(context, now, id, |state| matches!(state, NodeState::Refused { again_at } if now >= *again_at))
    }

    /// After a round that succeeded: the next step of the join of every node that does not hold the term. Returns whether a node
    /// was asked for a grant.
    pub fn advance(&mut self, context: &mut Context, now: Time, id: &TermId, proven: Option<Round>) -> bool {
        let any_round = breaks!(context.rules, JoinConfirmedAtOnce | JoinConfirmedByEarlierRound);
        self.step(context, now, id, |state| match state {
            NodeState::Missing => true,
            NodeState::Granted { after, .. } => any_round || proven.is_some_and(|round| round >= *after),
            _ => false,
        })
    }

    /// Sends the next step of the join, an acquire or a confirm, to each node that is `due`. Returns whether it sent an acquire.
    fn step(&mut self, context: &mut Context, now: Time, id: &TermId, due: impl Fn(&NodeState) -> bool) -> bool {
        let give_up_at = now + context.config.command_timeout;
        let TermId { attempt, token, .. } = *id;
        let mut acquires = false;
        for (node, state) in context.config.quorum.nodes().zip(&mut self.0).filter(|(_, state)| due(state)) {
            let round = context.new_round();
            let op = if let NodeState::Granted { grant, .. } = *state {
                *state = NodeState::Confirming { round, give_up_at };
                Op::Confirm { attempt, grant, token }
            } else {
                *state = NodeState::Joining { round, give_up_at };
                acquires = true;
                // At most as long as the nodes that granted first keep the term.
                Op::Acquire { attempt, proposal: None, ttl: context.life(), holder: id.holder.clone() }
            };
            context.send(now, round, node, op);
        }
        acquires
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Holder, Stored};

    const NOW: Time = Time(1000);
    const ATTEMPT: Attempt = Attempt(7);
    const TOKEN: Token = Token(12);
    const NEXT: Round = Round(5);
    const PACE: Millis = Millis(2500);
    const GRANTED: NodeState = NodeState::Granted { grant: Grant::Numbered(9), after: Round(3) };

    fn id() -> TermId {
        TermId { attempt: ATTEMPT, token: TOKEN, holder: Holder("pod".into()) }
    }

    /// A join under way that is given up after `left` ms: waiting for the grant, and waiting for the confirmation.
    fn joins(left: u64) -> [NodeState; 2] {
        let (round, give_up_at) = (Round(4), NOW + Millis(left));
        [NodeState::Joining { round, give_up_at }, NodeState::Confirming { round, give_up_at }]
    }

    fn missed(stage: Stage, attempt: Attempt, number: u64) -> Vote {
        Vote::Miss(Some(Stored { stage, attempt, number, metadata: "pod".into() }))
    }

    #[test]
    fn a_node_that_misses_an_extension_is_joined_unless_a_step_of_its_join_is_under_way() {
        let refused = NodeState::Refused { again_at: NOW };
        let after = |state: NodeState, vote: &Vote| state.after_extension(NOW, vote, ATTEMPT);
        let [joining, confirming] = joins(1);
        for state in [NodeState::Holding, NodeState::Missing, refused, GRANTED, joining, confirming] {
            assert_eq!(after(state, &Vote::Extended), NodeState::Holding);
            assert_eq!((after(state, &Vote::Unknown), after(state, &Vote::Abstained)), (state, state));
        }
        for state in [refused, joining, confirming] {
            assert_eq!(after(state, &Vote::Miss(None)), state);
        }
        for state in [NodeState::Holding, NodeState::Missing, GRANTED].into_iter().chain(joins(0)) {
            assert_eq!(after(state, &Vote::Miss(None)), NodeState::Missing, "{state:?}");
        }
    }

    #[test]
    fn a_grant_waits_for_its_confirmation_while_the_node_shows_it() {
        let after = |vote: &Vote| GRANTED.after_extension(NOW, vote, ATTEMPT);
        assert_eq!(after(&missed(Stage::Pending, ATTEMPT, 9)), GRANTED);
        for other in [
            missed(Stage::Sealed, ATTEMPT, 9),
            missed(Stage::Pending, Attempt(8), 9),
            missed(Stage::Pending, ATTEMPT, 10),
        ] {
            assert_eq!(after(&other), NodeState::Missing, "{other:?}");
        }
    }

    #[test]
    fn an_answer_to_a_step_of_a_join_leads_to_the_next_step() {
        let after = |state: NodeState, vote: &Vote| state.after_step(NOW, Round(4), vote, &id(), NEXT, PACE);
        let [joining, confirming] = joins(500);
        let granted = NodeState::Granted { grant: Grant::Numbered(9), after: NEXT };
        let refused = NodeState::Refused { again_at: NOW + PACE };
        let (grant, confirmed) = (Vote::Granted(Grant::Numbered(9)), Vote::Confirmed { ttl_left: Millis(9) });
        let by = Stored { stage: Stage::Term, attempt: Attempt(8), number: 1, metadata: "pod".into() };
        assert_eq!(after(joining, &grant), Some(granted));
        assert_eq!(after(confirming, &confirmed), Some(NodeState::Holding));
        let proposed = |token| Vote::Granted(Grant::Proposed(token));
        assert_eq!(after(joining, &proposed(TOKEN)), Some(NodeState::Holding), "it took the token of the term");
        let other = NodeState::Granted { grant: Grant::Proposed(Token(11)), after: NEXT };
        assert_eq!(after(joining, &proposed(Token(11))), Some(other), "round 2 chose a greater one");
        let own = Stored { stage: Stage::Term, attempt: ATTEMPT, number: 11, metadata: "pod".into() };
        let refused_by = |by: &Stored| Vote::Refused { ttl_left: Millis(9), by: by.clone() };
        assert_eq!(after(joining, &refused_by(&own)), Some(other), "the answer to its take was lost");
        assert_eq!(
            after(joining, &refused_by(&Stored { number: 12, ..own })),
            Some(refused),
            "an extension will show it"
        );
        assert_eq!(after(joining, &Vote::Refused { ttl_left: Millis(9), by }), Some(refused));
        assert_eq!(after(confirming, &Vote::Miss(None)), Some(refused));
        for (state, vote) in [(joining, Vote::Unknown), (confirming, Vote::Abstained), (joining, confirmed.clone())] {
            assert_eq!(after(state, &vote), Some(NodeState::Missing), "{state:?}: {vote:?}");
        }
        for state in [NodeState::Holding, NodeState::Missing, refused, granted] {
            assert_eq!(after(state, &grant), None, "{state:?} waits for no answer");
        }
        for (state, vote) in [(joining, grant), (confirming, confirmed)] {
            assert_eq!(state.after_step(NOW, Round(3), &vote, &id(), NEXT, PACE), None, "an answer to another round");
        }
    }
}
