//! Code that only planted bugs run.

use crate::ballot::Ballot;
use crate::invariants::Violation;
use crate::lease::acquire::FirstVote;
use crate::lease::ending::Ending;
use crate::lease::{EndReason, Lease};
use crate::op::{Op, Stages};
use crate::quorum::Node;
use crate::time::Time;

impl Lease {
    /// Breaks a local invariant of the running term, and handles that as a release does.
    pub fn break_invariant(&mut self, now: Time, violation: Violation) {
        if let Some(term) = &mut self.term {
            match violation {
                Violation::BeliefPastDeadline => term.stop_at = Some(now),
                Violation::UnconfirmedBelief => term.valid_until = None,
                _ => {
                    let (id, until) = (term.id.clone(), term.keys_until);
                    self.ending = Some(Ending::new(&self.config, now, id, EndReason::Decided, until, until));
                }
            }
        }
        self.emit_view();
        if let Err(violation) = crate::invariants::local(now, self) {
            self.start_over(now, violation);
        }
    }

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
