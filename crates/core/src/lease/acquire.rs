//! Taking a lease, in two rounds.
//!
//! Round 1 takes the keys on a majority and learns the grant number of each node. The greatest becomes the token. Round 2
//! confirms it on *exactly the nodes from which it was chosen*, each under its own grant number: a vote of another node,
//! or under an earlier grant of the same node, could confirm a token that another term has already used.

use alloc::vec;
use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::join::NodeState;
use crate::lease::term::Term;
use crate::lease::{Effect, Lease, Refusal, Round, TermId, Want};
use crate::op::{Grant, Op, Stage, Stages, Stored, Token, Vote};
use crate::quorum::{Node, Quorum};
use crate::time::{Millis, Time};

use super::Config;

/// How often round 2 is sent. A node that granted and then does not answer twice is more likely down than slow, and a new
/// attempt can succeed without it.
const CONFIRM_ROUNDS: u8 = 2;

/// The vote of one node in round 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FirstVote {
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

/// Round 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SecondRound {
    pub token: Token,
    pub round: Round,
    pub sent: Time,
    rounds: u8,
    pub ballots: Ballots,
    /// Until when each node that confirmed keeps the keys: the life that it reported, from the send on.
    pub alive_until: Vec<Time>,
}

/// One attempt under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquiring {
    pub want: Want,
    pub t0: Time,
    ttl: Millis,
    /// TTL of the keys: `ttl`, or more.
    life: Millis,
    /// End of validity, by the clock of this process.
    pub valid_until: Time,
    stop_budget: Millis,
    pub round: Round,
    pub votes: Vec<FirstVote>,
    pub second: Option<SecondRound>,
    /// Whether a node began to vote again after round 1 began.
    pub node_returned: bool,
}

impl Acquiring {
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

    /// The last instant at which a key of this attempt can exist, if an acquire was executed at its deadline.
    fn keys_until(&self, config: &Config) -> Time {
        self.t0 + config.command_timeout + config.drift.most(self.life)
    }
}

impl Lease {
    pub(super) fn begin_acquire(&mut self, now: Time) {
        let from = self.not_before.max(self.held_until);
        let free = self.term.is_none() && self.acquiring.is_none() && now >= from;
        let after_the_last = self.ending.as_ref().is_none_or(|ending| ending.effective || now >= ending.valid_until);
        let Some(want) = self.wanted.take_if(|_| free && after_the_last) else { return };
        let round = self.new_round();
        let (ttl, stop_budget) = (self.config.ttl, self.config.stop_budget);
        let life = ttl.max(self.least_life);
        let nodes: Vec<Node> = self.config.quorum.nodes().collect();
        for &node in &nodes {
            let op = Op::Acquire { attempt: want.attempt, ttl: life, holder: want.holder.clone() };
            self.send(round, node, op, now + self.config.command_timeout);
        }
        let votes = vec![FirstVote::Outstanding; nodes.len()];
        (self.refused_by, self.refusal) = (None, None);
        let valid_until = now + self.validity(ttl);
        self.acquiring = Some(Acquiring {
            want,
            t0: now,
            ttl,
            life,
            valid_until,
            stop_budget,
            round,
            votes,
            second: None,
            node_returned: false,
        });
    }

    pub(super) fn expire_acquiring(&mut self, now: Time) {
        let Some(acquiring) = &mut self.acquiring else { return };
        if now >= acquiring.stop_at() {
            self.fail(now);
            return;
        }
        if now < acquiring.give_up_at(&self.config) {
            return;
        }
        match &mut acquiring.second {
            Some(second) => second.ballots.close(),
            None => {
                for vote in &mut acquiring.votes {
                    if *vote == FirstVote::Outstanding {
                        *vote = FirstVote::Silent;
                    }
                }
            }
        }
        self.proceed(now);
    }

    pub(super) fn acquire_vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        let abstention_is_no = breaks!(self.rules, AbstentionIsNo);
        let Some(acquiring) = &mut self.acquiring else { return };
        if round == acquiring.round {
            let first = match vote {
                Vote::Granted(grant) => FirstVote::Granted(*grant),
                // The key exists while the node's clock shows its last millisecond.
                Vote::Refused { ttl_left, by } => {
                    FirstVote::Refused { free_at: now + *ttl_left + Millis(1), by: by.clone() }
                }
                Vote::Abstained => FirstVote::Abstained,
                _ => FirstVote::Silent,
            };
            if let Some(slot) = acquiring.votes.get_mut(node.index())
                && *slot == FirstVote::Outstanding
            {
                *slot = first;
                #[cfg(feature = "check")]
                if breaks!(self.rules, ConfirmOutsideFirstRound) {
                    self.confirm_late_grant(now, node);
                }
            }
        }
        let Some(acquiring) = &mut self.acquiring else { return };
        if let Some(second) = &mut acquiring.second
            && second.round == round
            && second.ballots.of(node) == Ballot::Outstanding
        {
            let ballot = match vote {
                Vote::Confirmed { ttl_left } => {
                    second.alive_until[node.index()] = second.sent + self.config.drift.least(*ttl_left);
                    Ballot::Yes
                }
                Vote::Miss(_) => Ballot::No,
                Vote::Abstained if abstention_is_no => Ballot::No,
                _ => Ballot::Unknown,
            };
            second.ballots.set(node, ballot);
        }
        self.proceed(now);
    }

    fn proceed(&mut self, now: Time) {
        let majority = self.config.quorum.majority();
        let Some(acquiring) = &self.acquiring else { return };
        let Some(second) = &acquiring.second else {
            let granted = acquiring.granted();
            let outstanding = acquiring.votes.iter().filter(|vote| **vote == FirstVote::Outstanding).count();
            if granted >= majority {
                self.begin_confirm(now);
            } else if granted + outstanding < majority {
                self.fail(now);
            }
            return;
        };
        let yes = second.ballots.count(Ballot::Yes);
        let outstanding = second.ballots.count(Ballot::Outstanding);
        let silent = second.ballots.count(Ballot::Unknown);
        let rounds = second.rounds;
        if yes >= majority {
            self.succeed(now);
        } else if yes + outstanding + silent < majority {
            self.fail(now);
        } else if yes + outstanding < majority {
            if rounds < CONFIRM_ROUNDS { self.repeat_confirm(now) } else { self.fail(now) }
        }
    }

    fn begin_confirm(&mut self, now: Time) {
        let one_round = breaks!(self.rules, OneRound);
        let round = self.new_round();
        let no_floor = breaks!(self.rules, NoStatusFloor);
        let Some(acquiring) = &mut self.acquiring else { return };
        let quorum = self.config.quorum;
        let greatest = acquiring.votes.iter().filter_map(|vote| match vote {
            FirstVote::Granted(grant) => Some(grant.0),
            _ => None,
        });
        let floor = if no_floor { 0 } else { acquiring.want.floor.0.saturating_add(1) };
        let token = Token(greatest.max().unwrap_or(0).max(floor));
        if token.0 >= Token::END {
            // No node may receive it: the counters would never come back into the range.
            self.fail(now);
            return;
        }
        let mut ballots = Ballots::none(quorum);
        for (node, vote) in quorum.nodes().zip(&acquiring.votes) {
            if matches!(vote, FirstVote::Granted(_)) {
                ballots.set(node, if one_round { Ballot::Yes } else { Ballot::Outstanding });
            }
        }
        let alive_until = vec![acquiring.t0 + self.config.drift.least(acquiring.ttl); quorum.size()];
        acquiring.second = Some(SecondRound { token, round, sent: now, rounds: 1, ballots, alive_until });
        if one_round { self.succeed(now) } else { self.send_confirms(now) }
    }

    fn repeat_confirm(&mut self, now: Time) {
        let round = self.new_round();
        let quorum = self.config.quorum;
        let Some(second) = self.acquiring.as_mut().and_then(|acquiring| acquiring.second.as_mut()) else { return };
        second.rounds += 1;
        second.round = round;
        second.sent = now;
        for node in quorum.nodes() {
            if second.ballots.of(node) == Ballot::Unknown {
                second.ballots.set(node, Ballot::Outstanding);
            }
        }
        self.send_confirms(now);
    }

    fn send_confirms(&mut self, now: Time) {
        let Some(acquiring) = &self.acquiring else { return };
        let Some(second) = &acquiring.second else { return };
        let attempt = acquiring.want.attempt;
        let give_up_at = now + self.config.command_timeout;
        for (node, vote) in self.config.quorum.nodes().zip(&acquiring.votes) {
            if let (FirstVote::Granted(grant), Ballot::Outstanding) = (vote, second.ballots.of(node)) {
                let op = Op::Confirm { attempt, grant: *grant, token: second.token };
                self.effects.push_back(Effect::Send { round: second.round, node, op, give_up_at });
            }
        }
    }

    fn succeed(&mut self, now: Time) {
        let quorum = self.config.quorum;
        let Some(acquiring) = self.acquiring.take() else { return };
        let Some(second) = &acquiring.second else { return };
        // A majority keeps the keys until the q-th latest end.
        let mut ends: Vec<Time> = quorum
            .nodes()
            .filter(|&node| second.ballots.of(node) == Ballot::Yes)
            .map(|node| second.alive_until[node.index()])
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let by_nodes = ends.get(quorum.majority() - 1).copied().unwrap_or(now);
        let mut valid_until = acquiring.valid_until.min(by_nodes);
        if breaks!(self.rules, DeadlineFromReply) {
            valid_until = now + self.validity(acquiring.ttl);
        }
        if breaks!(self.rules, NoDriftMargin | ConfirmLifeIgnored) {
            valid_until = acquiring.valid_until;
        }
        let stop_at = valid_until - acquiring.stop_budget;
        if now >= stop_at {
            self.acquiring = Some(acquiring);
            self.fail(now);
            return;
        }
        let give_up_at = acquiring.give_up_at(&self.config);
        let nodes = quorum.nodes().zip(&acquiring.votes).map(|(node, vote)| match (second.ballots.of(node), vote) {
            (Ballot::Yes, _) => NodeState::Holding,
            (Ballot::Outstanding, _) => NodeState::Confirming { round: second.round, give_up_at },
            (_, FirstVote::Granted(grant)) => NodeState::Granted { grant: *grant, after: self.next_round },
            (_, FirstVote::Outstanding) => NodeState::Joining { round: acquiring.round, give_up_at },
            // A contender that failed releases its grant about now. Until the node is joined, the term exists on a bare
            // majority, which the next fault would end.
            (_, FirstVote::Refused { .. }) => NodeState::Refused { again_at: now },
            _ => NodeState::Missing,
        });
        let id = TermId { attempt: acquiring.want.attempt, token: second.token, holder: acquiring.want.holder.clone() };
        let mut term = Term::acquired(
            &self.config,
            id.clone(),
            nodes.collect(),
            (acquiring.t0, valid_until, stop_at),
            acquiring.keys_until(&self.config),
        );
        let soon = now + self.join_delay;
        term.prove_grants(soon, self.config.retry_pace());
        if acquiring.node_returned {
            term.next_round_at = term.next_round_at.min(soon);
        }
        self.tries = 0;
        self.not_before = now;
        self.wanted = None;
        self.ending = None;
        self.term = Some(term);
        self.effects.push_back(Effect::Publish(id));
    }

    fn fail(&mut self, now: Time) {
        let Some(acquiring) = self.acquiring.take() else { return };
        self.release_failed(now, &acquiring);
        self.back_off(now, &acquiring);
        if breaks!(self.rules, ReusedAttempt) && self.wanted.is_none() {
            self.wanted = Some(acquiring.want);
        }
    }

    /// Releases a failed attempt. Only its own process may do this, and only before it sends the publication.
    pub(super) fn release_failed(&mut self, now: Time, acquiring: &Acquiring) {
        let stages = if acquiring.second.is_some() { Stages::Unpublished } else { Stages::Pending };
        // A node that refused or abstained keeps nothing of this attempt.
        let keeps = |vote: &FirstVote| !matches!(vote, FirstVote::Refused { .. } | FirstVote::Abstained);
        let nodes = self.config.quorum.nodes().zip(&acquiring.votes).filter(|(_, vote)| keeps(vote));
        let nodes: Vec<Node> = nodes.map(|(node, _)| node).collect();
        self.release(now, acquiring.want.attempt, stages, acquiring.keys_until(&self.config), &nodes, None);
        if let Some(cleanup) = self.cleanups.last_mut().filter(|cleanup| cleanup.attempt == acquiring.want.attempt) {
            cleanup.after_acquire(acquiring.round);
        }
    }

    /// Sets the earliest start of the next attempt. Nodes with another's term report when they can be free. Everything
    /// else (another attempt in round 1, a grant that nobody confirmed, silence) is waited for at random, so that two
    /// contenders do not meet again. The same applies to a term whose keys this process has released since the attempt
    /// was sent: the refusal is older than the release.
    fn back_off(&mut self, now: Time, acquiring: &Acquiring) {
        let quorum = self.config.quorum;
        let lasts = |by: &Stored| {
            by.stage != Stage::Pending && !self.cleanups.iter().any(|cleanup| cleanup.frees(now, by.attempt))
        };
        let backoff = self.config.backoff;
        let entropy = acquiring.want.entropy;
        let mut free_at: Vec<Time> = acquiring
            .votes
            .iter()
            .map(|vote| match vote {
                FirstVote::Refused { free_at, by } if lasts(by) => *free_at,
                _ => now,
            })
            .collect();
        free_at.sort_unstable();
        let free_at = free_at[quorum.majority() - 1];
        let refusals = acquiring.votes.iter().filter_map(|vote| match vote {
            FirstVote::Refused { free_at, by } if lasts(by) => Some((free_at, by)),
            _ => None,
        });
        self.refused_by = refusals.max_by_key(|(free_at, _)| **free_at).map(|(_, by)| by.clone());
        self.refusal = self.refused_by.as_ref().and_then(|by| acquiring.refusal(by, quorum));
        if free_at > now {
            self.tries = 0;
            self.not_before = free_at + entropy.up_to(backoff.min);
            return;
        }
        self.tries = self.tries.saturating_add(1);
        if backoff.exhausted(self.tries) {
            self.tries = 0;
            self.not_before = now + self.config.ttl;
            return;
        }
        let split =
            acquiring.granted() > 0 || acquiring.votes.iter().any(|vote| matches!(vote, FirstVote::Refused { .. }));
        let delay =
            if split { entropy.up_to(backoff.delay(self.tries)) } else { backoff.jittered(self.tries, entropy) };
        self.not_before = now + delay.max(Millis(1));
    }
}
