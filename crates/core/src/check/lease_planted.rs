//! Code that only planted bugs run.

use crate::ballot::Ballot;
use crate::lease::Lease;
use crate::lease::acquire::FirstVote;
use crate::op::{Op, Stages};
use crate::quorum::Node;
use crate::time::Time;

impl Lease {
    /// Sends the token to a node whose grant arrived after the token was chosen.
    pub(super) fn confirm_late_grant(&mut self, now: Time, node: Node) {
        if let Some(acquiring) = &mut self.acquiring
            && let Some(second) = &mut acquiring.second
            && let FirstVote::Granted(grant) = acquiring.votes[node.index()]
        {
            second.ballots.set(node, Ballot::Outstanding);
            let op = Op::Confirm { attempt: acquiring.want.attempt, grant, token: second.token };
            let (round, give_up_at) = (second.round, now + self.config.command_timeout);
            self.send(round, node, op, give_up_at);
        }
    }

    /// Releases a term although its publication was sent.
    pub(super) fn release_unpublished(&mut self, now: Time) {
        if let Some(term) = self.term.take_if(|term| term.phase == super::term::Phase::Publishing) {
            self.release_everywhere(now, term.id.attempt, Stages::Unpublished, term.keys_until);
        }
    }
}
