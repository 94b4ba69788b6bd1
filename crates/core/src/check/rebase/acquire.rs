use alloc::string::String;
use core::hash::{Hash, Hasher};

use super::{Acquiring, FirstVote};
use crate::ballot::Ballot;
use crate::check::rebase::{Renumbering, Shift, permute};
use crate::lease::Round;
use crate::lease::context::Context;
use crate::op::Op;
use crate::quorum::Node;
use crate::time::Time;

impl Acquiring {
    pub fn rounds(&self) -> impl Iterator<Item = Round> {
        self.second.iter().map(|second| second.round).chain([self.round])
    }

    pub fn rebase(&mut self, shift: &Shift, rounds: &Renumbering) {
        shift.exact(&mut self.t0);
        shift.exact(&mut self.valid_until);
        rounds.apply(&mut self.round);
        for first in &mut self.votes {
            // The life of the refusing value decides nothing but the back-off, and its number nothing.
            if let FirstVote::Refused { free_at, by } = first {
                *free_at = shift.origin;
                (by.number, by.metadata) = (0, String::new());
            }
        }
        if let Some(second) = &mut self.second {
            shift.exact(&mut second.sent);
            rounds.apply(&mut second.round);
            second.alive_until.iter_mut().for_each(|until| shift.due(until));
        }
    }

    pub fn permute(&mut self, order: &[Node]) {
        permute(&mut self.votes, order);
        if let Some(second) = &mut self.second {
            permute(&mut second.alive_until, order);
            second.ballots.permute(order);
        }
    }

    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        self.votes.get(node.index()).hash(state);
        if let Some(second) = &self.second {
            (second.ballots.of(node), second.alive_until.get(node.index())).hash(state);
        }
    }

    /// Planted bug: sends the token to a node whose grant arrived after the token was chosen.
    pub fn confirm_late_grant(&mut self, context: &mut Context, now: Time, node: Node) {
        if let Some(second) = &mut self.second
            && let FirstVote::Granted(grant) = self.votes[node.index()]
        {
            second.ballots.set(node, Ballot::Outstanding);
            let op = Op::Confirm { attempt: self.want.fresh.attempt, grant, token: second.token };
            context.send(now, second.round, node, op);
        }
    }
}
