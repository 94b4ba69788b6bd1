use core::hash::{Hash, Hasher};

use super::{Extension, NodeState, Phase, Term};
use crate::check::rebase::{Renumbering, Shift, permute};
use crate::invariants::Violation;
use crate::lease::Round;
use crate::quorum::Node;
use crate::time::Time;

impl Term {
    pub fn rounds(&self) -> impl Iterator<Item = Round> {
        let joins = self.nodes.0.iter().filter_map(|state| match state {
            NodeState::Joining { round, .. } | NodeState::Confirming { round, .. } => Some(*round),
            NodeState::Holding | NodeState::Missing | NodeState::Refused { .. } | NodeState::Granted { .. } => None,
        });
        joins.chain(self.extension.as_ref().map(|extension| extension.round))
    }

    pub fn rebase(&mut self, shift: &Shift, rounds: &Renumbering) {
        if let Phase::Adopting { unconfirmed_at, ends_at, shown, .. } = &mut self.phase {
            shift.due(unconfirmed_at);
            shift.due(ends_at);
            // The machine only asks whether one interval has passed since.
            if let Some(shown) = shown {
                let since = shift.config.renew_interval.min(shift.now.since(*shown));
                *shown = shift.origin - since;
            }
        }
        let proven = self.extension.as_ref().map(|extension| extension.round);
        for state in &mut self.nodes.0 {
            match state {
                NodeState::Joining { round, give_up_at } | NodeState::Confirming { round, give_up_at } => {
                    rounds.apply(round);
                    shift.due(give_up_at);
                }
                // The machine only asks whether the present round began after the grant.
                NodeState::Granted { after, .. } => {
                    let proven = proven.is_some_and(|round| round >= *after);
                    *after = if proven { Round(0) } else { rounds.next() };
                }
                NodeState::Refused { again_at } => shift.due(again_at),
                NodeState::Holding | NodeState::Missing => {}
            }
        }
        self.extension.iter_mut().for_each(|extension| rebase_extension(extension, shift, rounds));
        self.view.valid_until.iter_mut().chain(&mut self.view.stop_at).for_each(|until| shift.due(until));
        shift.due(&mut self.next_round_at);
        shift.due(&mut self.keys_until);
        // The machine only asks whether a round has failed since the last success.
        self.view.failed_rounds = self.view.failed_rounds.min(1);
    }

    pub fn permute(&mut self, order: &[Node]) {
        permute(&mut self.nodes.0, order);
        self.extension.iter_mut().for_each(|extension| extension.ballots.permute(order));
    }

    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        self.nodes.0.get(node.index()).hash(state);
        self.extension.as_ref().map(|extension| extension.ballots.of(node)).hash(state);
    }
}

fn rebase_extension(extension: &mut Extension, shift: &Shift, rounds: &Renumbering) {
    rounds.apply(&mut extension.round);
    if extension.is_open() {
        shift.exact(&mut extension.t0);
        shift.exact(&mut extension.valid_until);
    } else {
        // After a decided round the machine only asks whether the next may begin.
        let began = shift.config.retry_pace().min(shift.now.since(extension.t0));
        extension.t0 = shift.origin - began;
        extension.valid_until = shift.origin;
        extension.ballots.clear();
    }
}

impl Term {
    /// Plants a state that breaks an invariant.
    pub fn break_belief(&mut self, now: Time, violation: Violation) {
        if violation == Violation::BeliefPastDeadline {
            self.view.stop_at = Some(now);
        } else {
            self.view.valid_until = None;
        }
    }
}
