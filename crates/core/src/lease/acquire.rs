//! Taking a lease, in one round or two.
//!
//! Round 1 takes the keys on a majority. It may propose a token. If a majority takes it, the term begins: each of these nodes had a
//! lower counter, and has the token as its counter now. A later term that shares a key needs one of them, so its token is greater; and
//! no such term has this token, because one of them would have given it twice.
//!
//! Otherwise the greatest grant number of a majority becomes the token, and round 2 confirms it on *exactly the nodes from which it
//! was chosen*, each under its own grant: a vote of another node, or under an earlier grant of the same node, could confirm a token
//! that another term has already used.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::cleanup::Release;
use crate::lease::config::Config;
use crate::lease::context::Context;
use crate::lease::event::{Fresh, Round};
use crate::lease::retry::Retry;
use crate::lease::term::{Joins, NodeState, Term};
use crate::lease::view::{Refusal, TermId};
use crate::op::{Grant, Holder, Op, Stage, Stages, Stored, Token, Vote};
use crate::quorum::{Decision, Node, Quorum};
use crate::time::{Millis, Time};

#[cfg(feature = "check")]
#[path = "../check/rebase/acquire.rs"]
mod rebase;

/// How often round 2 is sent. A node that granted and then does not answer twice is more likely down than slow, and a new
/// attempt can succeed without it.
const CONFIRM_ROUNDS: u8 = 2;

/// A request for one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Want {
    pub holder: Holder,
    pub fresh: Fresh,
}

/// The vote of one node in round 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FirstVote {
    Outstanding,
    Granted(Grant),
    Refused {
        free_at: Time,
        by: Stored,
    },
    /// The node executed nothing and reported that.
    Abstained,
    /// No answer: the request may have been executed.
    Silent,
}

impl FirstVote {
    fn is_term(&self, token: Token) -> bool {
        matches!(self, Self::Granted(grant) if grant.is_term(token))
    }
}

/// Round 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SecondRound {
    token: Token,
    round: Round,
    sent: Time,
    rounds: u8,
    ballots: Ballots,
    /// Until when each node that confirmed keeps the keys: the life that it reported, from the send on.
    alive_until: Vec<Time>,
}

/// One attempt under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquiring {
    pub want: Want,
    t0: Time,
    ttl: Millis,
    /// TTL of the keys: `ttl`, or more.
    life: Millis,
    /// End of validity, by the clock of this process.
    valid_until: Time,
    stop_budget: Millis,
    round: Round,
    proposal: Option<Token>,
    votes: Vec<FirstVote>,
    second: Option<SecondRound>,
    /// Whether a node began to vote again after round 1 began.
    pub node_returned: bool,
}

/// How far an attempt is.
#[must_use]
#[expect(clippy::large_enum_variant, reason = "a term is moved to its place at once")]
pub(super) enum Progress {
    UnderWay,
    Failed,
    Won(Term),
}

impl Acquiring {
    /// Begins round 1.
    pub fn begin(context: &mut Context, now: Time, want: Want) -> Self {
        let round = context.new_round();
        let (ttl, life, quorum) = (context.config.ttl, context.life(), context.config.quorum);
        let Fresh { attempt, floor, proposal, .. } = want.fresh;
        let is_above = |token: &Token| *token > floor || breaks!(context.rules, NoStatusFloor);
        let proposal = proposal.filter(|token| quorum.has_proposals() && is_above(token));
        for node in quorum.nodes() {
            let op = Op::Acquire { attempt, proposal, ttl: life, holder: want.holder.clone() };
            context.send(now, round, node, op);
        }
        Self {
            want,
            t0: now,
            ttl,
            life,
            valid_until: now + context.validity(ttl),
            stop_budget: context.config.stop_budget,
            round,
            proposal,
            votes: vec![FirstVote::Outstanding; quorum.size()],
            second: None,
            node_returned: false,
        }
    }

    fn granted(&self) -> usize {
        self.votes.iter().filter(|vote| matches!(vote, FirstVote::Granted(_))).count()
    }

    fn give_up_at(&self, config: &Config) -> Time {
        self.second.as_ref().map_or(self.t0, |second| second.sent) + config.command_timeout
    }

    fn stop_at(&self) -> Time {
        self.valid_until - self.stop_budget
    }

    pub fn next_deadline(&self, config: &Config) -> Time {
        self.give_up_at(config).min(self.stop_at())
    }

    /// Whether enough nodes to prevent a majority show the term of this value.
    fn refusal(&self, by: &Stored, quorum: Quorum) -> Option<Refusal> {
        if by.stage != Stage::Term {
            return None;
        }
        let mut free_at: Vec<Time> = self
            .votes
            .iter()
            .filter_map(|vote| match vote {
                FirstVote::Refused { free_at, by: shown } if (shown.stage, shown.attempt) == (by.stage, by.attempt) => {
                    Some(*free_at)
                }
                _ => None,
            })
            .collect();
        free_at.sort_unstable_by(|a, b| b.cmp(a));
        let until = *free_at.get(quorum.blocking() - 1)?;
        Some(Refusal { asked_at: self.t0, until })
    }

    /// Whether a value that refused belongs to a term. Where attempts propose tokens, nodes may show a `t` of an attempt that too few of
    /// them have taken, and that is released at once. So a majority must show it.
    fn is_of_term(&self, by: &Stored, quorum: Quorum) -> Decision {
        match by.stage {
            Stage::Pending => return Decision::No,
            Stage::Term if quorum.has_proposals() => {}
            Stage::Term | Stage::Sealed => return Decision::Yes,
        }
        let (mut yes, mut no, mut outstanding) = (0, 0, 0);
        for vote in &self.votes {
            match vote {
                FirstVote::Refused { by: other, .. } if other.attempt == by.attempt => yes += 1,
                FirstVote::Refused { .. } | FirstVote::Granted(_) => no += 1,
                FirstVote::Outstanding => outstanding += 1,
                FirstVote::Abstained | FirstVote::Silent => {}
            }
        }
        quorum.decide(yes, no, outstanding)
    }

    /// The values that refused, and whether each belongs to a term.
    fn refusals(&self, quorum: Quorum) -> impl Iterator<Item = (Time, &Stored, Decision)> + Clone {
        self.votes.iter().filter_map(move |vote| match vote {
            FirstVote::Refused { free_at, by } => Some((*free_at, by, self.is_of_term(by, quorum))),
            _ => None,
        })
    }

    /// Acts on the deadlines that have come.
    pub fn expire(&mut self, context: &mut Context, now: Time) -> Progress {
        if now >= self.stop_at() {
            return Progress::Failed;
        }
        if now < self.give_up_at(&context.config) {
            return Progress::UnderWay;
        }
        match &mut self.second {
            Some(second) => second.ballots.close(),
            None => {
                for vote in self.votes.iter_mut().filter(|vote| **vote == FirstVote::Outstanding) {
                    *vote = FirstVote::Silent;
                }
            }
        }
        self.proceed(context, now)
    }

    /// Takes the answer of one node.
    pub fn vote(&mut self, context: &mut Context, now: Time, round: Round, node: Node, vote: &Vote) -> Progress {
        if round == self.round
            && let Some(slot) = self.votes.get_mut(node.index())
            && *slot == FirstVote::Outstanding
        {
            *slot = match vote {
                Vote::Granted(grant) => FirstVote::Granted(*grant),
                // The key exists while the node's clock shows its last millisecond.
                Vote::Refused { ttl_left, by } => {
                    FirstVote::Refused { free_at: now + *ttl_left + Millis(1), by: by.clone() }
                }
                Vote::Abstained => FirstVote::Abstained,
                _ => FirstVote::Silent,
            };
            #[cfg(feature = "check")]
            if breaks!(context.rules, ConfirmOutsideFirstRound) {
                self.confirm_late_grant(context, now, node);
            }
        }
        if let Some(second) = &mut self.second
            && second.round == round
            && second.ballots.of(node) == Ballot::Outstanding
        {
            let ballot = match vote {
                Vote::Confirmed { ttl_left } => {
                    second.alive_until[node.index()] = second.sent + context.config.drift.least(*ttl_left);
                    Ballot::Yes
                }
                Vote::Miss(_) => Ballot::No,
                Vote::Abstained if breaks!(context.rules, AbstentionIsNo) => Ballot::No,
                _ => Ballot::Unknown,
            };
            second.ballots.set(node, ballot);
        }
        self.proceed(context, now)
    }

    /// Whether the outstanding answers can show that a value that refused belongs to a term.
    fn may_learn_more(&self, quorum: Quorum) -> bool {
        self.refusals(quorum).any(|(.., term)| term == Decision::Open)
    }

    fn proceed(&mut self, context: &mut Context, now: Time) -> Progress {
        let majority = context.config.quorum.majority();
        let Some(second) = &self.second else {
            let granted = self.granted();
            let outstanding = self.votes.iter().filter(|vote| **vote == FirstVote::Outstanding).count();
            return if let Some((token, ballots)) = self.taken(context) {
                self.skip_confirm(context, now, token, ballots)
            } else if granted >= majority {
                self.begin_confirm(context, now)
            } else if granted + outstanding < majority && !self.may_learn_more(context.config.quorum) {
                Progress::Failed
            } else {
                Progress::UnderWay
            };
        };
        let yes = second.ballots.count(Ballot::Yes);
        let outstanding = second.ballots.count(Ballot::Outstanding);
        let silent = second.ballots.count(Ballot::Unknown);
        if yes >= majority {
            self.finish(context, now)
        } else if yes + outstanding >= majority {
            Progress::UnderWay
        } else if yes + outstanding + silent >= majority && second.rounds < CONFIRM_ROUNDS {
            self.repeat_confirm(context, now)
        } else {
            Progress::Failed
        }
    }

    /// The proposed token, and the nodes that have taken it, if they are a majority.
    fn taken(&self, context: &Context) -> Option<(Token, Ballots)> {
        let (token, quorum) = (self.proposal?, context.config.quorum);
        let any = breaks!(context.rules, ProposalTakenByTooFew) && self.votes.iter().any(|vote| vote.is_term(token));
        let mut ballots = Ballots::none(quorum);
        for (node, vote) in quorum.nodes().zip(&self.votes) {
            if vote.is_term(token) || any && matches!(vote, FirstVote::Granted(_)) {
                ballots.set(node, Ballot::Yes);
            }
        }
        (ballots.decide() == Decision::Yes).then_some((token, ballots))
    }

    /// A majority has taken the proposed token, which needs no second round.
    fn skip_confirm(&mut self, context: &mut Context, now: Time, token: Token, ballots: Ballots) -> Progress {
        let alive_until = vec![self.t0 + context.config.drift.least(self.life); context.config.quorum.size()];
        self.second = Some(SecondRound { token, round: self.round, sent: self.t0, rounds: 1, ballots, alive_until });
        self.finish(context, now)
    }

    fn begin_confirm(&mut self, context: &mut Context, now: Time) -> Progress {
        let one_round = breaks!(context.rules, OneRound);
        let round = context.new_round();
        let quorum = context.config.quorum;
        let greatest = self.votes.iter().filter_map(|vote| match vote {
            FirstVote::Granted(grant) => Some(grant.number()),
            _ => None,
        });
        let floor = if breaks!(context.rules, NoStatusFloor) { 0 } else { self.want.fresh.floor.0.saturating_add(1) };
        let token = Token(greatest.max().unwrap_or(0).max(floor));
        if token.0 >= Token::END {
            // No node may receive it: the counters would never come back into the range.
            return Progress::Failed;
        }
        let mut ballots = Ballots::none(quorum);
        for (node, vote) in quorum.nodes().zip(&self.votes) {
            if matches!(vote, FirstVote::Granted(_)) {
                ballots.set(node, if one_round { Ballot::Yes } else { Ballot::Outstanding });
            }
        }
        let alive_until = vec![self.t0 + context.config.drift.least(self.ttl); quorum.size()];
        self.second = Some(SecondRound { token, round, sent: now, rounds: 1, ballots, alive_until });
        if one_round {
            return self.finish(context, now);
        }
        self.send_confirms(context, now)
    }

    fn repeat_confirm(&mut self, context: &mut Context, now: Time) -> Progress {
        let round = context.new_round();
        let Some(second) = &mut self.second else { return Progress::UnderWay };
        second.rounds += 1;
        second.round = round;
        second.sent = now;
        for node in context.config.quorum.nodes() {
            if second.ballots.of(node) == Ballot::Unknown {
                second.ballots.set(node, Ballot::Outstanding);
            }
        }
        self.send_confirms(context, now)
    }

    fn send_confirms(&self, context: &mut Context, now: Time) -> Progress {
        let Some(second) = &self.second else { return Progress::UnderWay };
        for (node, vote) in context.config.quorum.nodes().zip(&self.votes) {
            if let (FirstVote::Granted(grant), Ballot::Outstanding) = (vote, second.ballots.of(node)) {
                let op = Op::Confirm { attempt: self.want.fresh.attempt, grant: *grant, token: second.token };
                context.send(now, second.round, node, op);
            }
        }
        Progress::UnderWay
    }

    /// A majority has confirmed the token: the term begins, if there is time for it.
    fn finish(&self, context: &Context, now: Time) -> Progress {
        let quorum = context.config.quorum;
        let Some(second) = &self.second else { return Progress::UnderWay };
        // A majority keeps the keys until the q-th latest end.
        let mut ends: Vec<Time> = quorum
            .nodes()
            .filter(|&node| second.ballots.of(node) == Ballot::Yes)
            .map(|node| second.alive_until[node.index()])
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let by_nodes = ends.get(quorum.majority() - 1).copied().unwrap_or(now);
        let mut valid_until = self.valid_until.min(by_nodes);
        if breaks!(context.rules, DeadlineFromReply) {
            valid_until = now + context.validity(self.ttl);
        }
        if breaks!(context.rules, NoDriftMargin | ConfirmLifeIgnored) {
            valid_until = self.valid_until;
        }
        let stop_at = valid_until - self.stop_budget;
        if now >= stop_at {
            return Progress::Failed;
        }
        let give_up_at = self.give_up_at(&context.config);
        let nodes = quorum.nodes().zip(&self.votes).map(|(node, vote)| match (second.ballots.of(node), vote) {
            (Ballot::Yes, _) => NodeState::Holding,
            (Ballot::Outstanding, _) => NodeState::Confirming { round: second.round, give_up_at },
            (_, FirstVote::Granted(grant)) => NodeState::Granted { grant: *grant, after: context.next_round },
            (_, FirstVote::Outstanding) => NodeState::Joining { round: self.round, give_up_at },
            // A contender that failed releases its grant about now. Until the node is joined, the term exists on a bare
            // majority, which the next fault would end.
            (_, FirstVote::Refused { .. }) => NodeState::Refused { again_at: now + context.join_delay },
            _ => NodeState::Missing,
        });
        let id = TermId { attempt: self.want.fresh.attempt, token: second.token, holder: self.want.holder.clone() };
        let keys_until = context.keys_end(self.t0, self.life);
        let times = (self.t0, valid_until, stop_at);
        let mut term = Term::acquired(&context.config, id, Joins::of(nodes), times, keys_until);
        term.prove_grants(context, now);
        if self.node_returned {
            term.renew_by(now + context.join_delay);
        }
        Progress::Won(term)
    }

    /// What is to be released of an attempt that failed. Only its own process may do this, and only before it sends the
    /// publication.
    pub fn release(&self, context: &Context) -> Release {
        let mut ballots = Ballots::all(context.config.quorum);
        for (node, vote) in context.config.quorum.nodes().zip(&self.votes) {
            // A node that refused or abstained keeps nothing of this attempt.
            if matches!(vote, FirstVote::Refused { .. } | FirstVote::Abstained) {
                ballots.set(node, Ballot::NotAsked);
            }
        }
        Release {
            attempt: self.want.fresh.attempt,
            stages: if self.second.is_some() || self.proposal.is_some() {
                Stages::Unpublished
            } else {
                Stages::Pending
            },
            ballots,
            until: context.keys_end(self.t0, self.life),
            keep_until: None,
            acquire: Some(self.round),
        }
    }

    /// Decides when the next attempt may begin. Of the values that refused, `lasts` says which of them stay until their keys end.
    pub fn back_off(&self, config: &Config, retry: &mut Retry, now: Time, lasts: impl Fn(&Stored) -> bool) {
        let refusals = self.refusals(config.quorum).filter(|(_, by, term)| *term == Decision::Yes && lasts(by));
        let mut free_at: Vec<Time> = refusals.clone().map(|(free_at, ..)| free_at).collect();
        free_at.resize(config.quorum.size(), now);
        free_at.sort_unstable();
        // If several terms refused it, the one whose keys last longest is shown.
        let (last_end, by) =
            refusals.max_by_key(|(free_at, ..)| *free_at).map(|(free_at, by, _)| (free_at, by)).unzip();
        retry.refused_by = by.cloned().map(Box::new);
        // Too few nodes have answered to tell whether a value belongs to a term.
        retry.keys_read = by.is_some() || self.refusals(config.quorum).all(|(.., term)| term != Decision::Unknown);
        retry.refusal = by.and_then(|by| self.refusal(by, config.quorum));
        let split = self.votes.iter().any(|vote| matches!(vote, FirstVote::Granted(_) | FirstVote::Refused { .. }));
        retry.failed(config, now, free_at[config.quorum.majority() - 1], last_end, split, self.want.fresh.entropy);
    }
}
