//! Rounds of strict extension.
//!
//! A round that reaches a majority of exact `t:attempt:token` continues the term, whichever process sends it and
//! whatever the time: keys that all still exist were never free in between.

use crate::ballot::{Ballot, Ballots};
use crate::lease::context::Context;
use crate::lease::event::Round;
use crate::lease::view::TermId;
use crate::op::{Op, Vote};
use crate::quorum::{Decision, Node};
use crate::time::{Millis, Time};

/// One round of extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extension {
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

impl Extension {
    /// Begins a round.
    pub fn begin(context: &mut Context, now: Time, id: &TermId, proves: bool) -> Self {
        let round = context.new_round();
        let (ttl, stop_budget, quorum) = (context.config.ttl, context.config.stop_budget, context.config.quorum);
        for node in quorum.nodes() {
            context.send(now, round, node, Op::Extend { attempt: id.attempt, token: id.token, ttl });
        }
        Self {
            round,
            t0: now,
            valid_until: now + context.validity(ttl),
            stop_budget,
            ballots: Ballots::all(quorum),
            proves,
            node_returned: false,
            outcome: None,
        }
    }

    pub const fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Takes an answer.
    pub fn vote(&mut self, context: &Context, node: Node, vote: &Vote) {
        let ballot = match vote {
            Vote::Extended => Ballot::Yes,
            Vote::Miss(_) => Ballot::No,
            Vote::Abstained if breaks!(context.rules, AbstentionIsNo) => Ballot::No,
            _ => Ballot::Unknown,
        };
        if self.ballots.of(node) == Ballot::Outstanding {
            self.ballots.set(node, ballot);
        }
    }

    /// Ends the round if it is open and its time is over.
    pub fn expires(&mut self, context: &Context, now: Time) -> bool {
        let expires = self.is_open() && now >= self.t0 + context.config.command_timeout;
        if expires {
            self.ballots.close();
        }
        expires
    }

    /// Decides the round if its ballots allow. With a decision come the end of validity and `stop_at` if it is yes.
    pub fn settle(&mut self, context: &Context, now: Time) -> Option<(Decision, Time, Time)> {
        let mut decision = self.ballots.decide();
        let mut valid_until = self.valid_until;
        if breaks!(context.rules, DeadlineFromReply) {
            valid_until = now + valid_until.since(self.t0);
        }
        if breaks!(context.rules, ConfigureInFlight) {
            valid_until = self.t0 + context.config.drift.least(context.config.ttl);
        }
        let stop_at = valid_until - self.stop_budget;
        if decision == Decision::Yes && now >= stop_at {
            decision = Decision::Unknown;
        }
        self.outcome = (decision != Decision::Open).then_some(decision);
        self.outcome.map(|decision| (decision, valid_until, stop_at))
    }
}
