//! Rounds of strict extension.
//!
//! A round that reaches a majority of exact `t:attempt:token` continues the term, whichever process sends it and
//! whatever the time: keys that all still exist were never free in between.

use crate::ballot::{Ballot, Ballots};
use crate::lease::term::Phase;
use crate::lease::{Effect, EndReason, Lease, Renewal, Round};
use crate::op::{Op, Vote};
use crate::quorum::{Decision, Node};
use crate::time::{Millis, Time};

/// One round of extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::lease) struct Extension {
    pub round: Round,
    /// Start of the round, before its first request.
    pub t0: Time,
    /// End of validity if the round succeeds.
    pub valid_until: Time,
    stop_budget: Millis,
    pub ballots: Ballots,
    /// Whether a node had granted before the round began, so that it is to prove this grant.
    pub proves: bool,
    /// Whether a node began to vote again after the round began.
    pub node_returned: bool,
    /// The result of the round. `None` while it is open.
    pub outcome: Option<Decision>,
}

impl Lease {
    /// Begins what is due: joins, and the next round if none is open.
    pub(super) fn advance_term(&mut self, now: Time) {
        self.ask_refused(now);
        let due = self.next_round_at().is_some_and(|at| now >= at.max(self.held_until));
        if !due {
            return;
        }
        let round = self.new_round();
        let (ttl, stop_budget, quorum) = (self.config.ttl, self.config.stop_budget, self.config.quorum);
        let valid_until = now + self.validity(ttl);
        let give_up_at = now + self.config.command_timeout;
        let Some(term) = &mut self.term else { return };
        term.extension = Some(Extension {
            round,
            t0: now,
            valid_until,
            stop_budget,
            ballots: Ballots::all(quorum),
            proves: term.has_grants(),
            node_returned: false,
            outcome: None,
        });
        term.keys_until = term.keys_until.max(give_up_at + self.config.drift.most(ttl));
        let (attempt, token) = (term.id.attempt, term.id.token);
        for node in quorum.nodes() {
            self.send(round, node, Op::Extend { attempt, token, ttl }, give_up_at);
        }
    }

    /// A node votes again: see [`Input::NodeReturned`](crate::lease::Input::NodeReturned).
    pub(super) fn node_returned(&mut self, ask_by: Time) {
        if let Some(acquiring) = &mut self.acquiring {
            acquiring.node_returned = true;
        }
        let Some(term) = self.term.as_mut().filter(|term| term.failed_rounds == 0) else { return };
        match term.extension.as_mut().filter(|extension| extension.outcome.is_none()) {
            // The node abstained from this round, or the round will show what it holds. It is not known which.
            Some(extension) => extension.node_returned = true,
            None => term.next_round_at = term.next_round_at.min(ask_by),
        }
    }

    /// Takes the answer of one node, to an extension or to a step of its join.
    pub(super) fn term_vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        let abstention_is_no = breaks!(self.rules, AbstentionIsNo);
        let Some(term) = &mut self.term else { return };
        let Some(extension) = term.extension.as_mut().filter(|extension| extension.round == round) else {
            return self.join_vote(now, round, node, vote);
        };
        let ballot = match vote {
            Vote::Extended => Ballot::Yes,
            Vote::Miss(_) => Ballot::No,
            Vote::Abstained if abstention_is_no => Ballot::No,
            _ => Ballot::Unknown,
        };
        if extension.ballots.of(node) == Ballot::Outstanding {
            extension.ballots.set(node, ballot);
        }
        let outcome = extension.outcome;
        if let Some(state) = term.nodes.get_mut(node.index()) {
            *state = state.after_extension(now, vote, term.id.attempt);
        }
        match outcome {
            None => self.settle_round(now, Renewal::NoQuorum),
            Some(Decision::Yes) => self.continue_joins(now),
            Some(_) => {}
        }
    }

    /// Ends an open round whose time is over.
    pub(super) fn expire_round(&mut self, now: Time) {
        let timeout = self.config.command_timeout;
        if let Some(extension) = self.term.as_mut().and_then(|term| term.extension.as_mut())
            && extension.outcome.is_none()
            && now >= extension.t0 + timeout
        {
            extension.ballots.close();
            self.settle_round(now, Renewal::Timeout);
        }
    }

    /// Decides the round if its ballots allow. `undecided` is the outcome when neither a majority extended nor N-q+1
    /// nodes missed.
    fn settle_round(&mut self, now: Time, undecided: Renewal) {
        let Some(term) = &mut self.term else { return };
        let Some(extension) = &mut term.extension else { return };
        let mut decision = extension.ballots.decide(self.config.quorum);
        let mut valid_until = extension.valid_until;
        if breaks!(self.rules, DeadlineFromReply) {
            valid_until = now + valid_until.since(extension.t0);
        }
        if breaks!(self.rules, ConfigureInFlight) {
            valid_until = extension.t0 + self.config.drift.least(self.config.ttl);
        }
        let stop_at = valid_until - extension.stop_budget;
        if decision == Decision::Yes && now >= stop_at {
            decision = Decision::Unknown;
        }
        if decision == Decision::Open {
            return;
        }
        extension.outcome = Some(decision);
        let node_returned = core::mem::take(&mut extension.node_returned);
        let (t0, pace) = (extension.t0, self.config.retry_pace());
        match decision {
            Decision::Yes => {
                term.valid_until = Some(valid_until);
                term.stop_at = Some(stop_at);
                term.failed_rounds = 0;
                term.next_round_at = t0 + self.config.renew_interval;
                if matches!(term.phase, Phase::Adopting { .. }) {
                    term.phase = Phase::Held;
                }
                let (took, left) = (now.since(t0), valid_until.since(now));
                self.effects.push_back(Effect::Renewed(Renewal::Success { took, left }));
                self.continue_joins(now);
                let soon = now + self.join_delay;
                if let Some(term) = &mut self.term {
                    if node_returned {
                        term.next_round_at = term.next_round_at.min(soon);
                    }
                    term.prove_grants(soon, pace);
                }
            }
            Decision::No => {
                self.effects.push_back(Effect::Renewed(Renewal::Lost));
                self.give_up(now, EndReason::Misses);
            }
            Decision::Unknown | Decision::Open => {
                let ends = term.note_failure();
                term.next_round_at = t0 + pace;
                self.effects.push_back(Effect::Renewed(undecided));
                if ends {
                    self.give_up(now, EndReason::Deadline);
                }
            }
        }
    }
}
