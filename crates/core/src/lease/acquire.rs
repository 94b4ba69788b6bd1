//! Taking a lease, in two rounds.
//!
//! Round 1 takes the keys on a majority and learns each node's grant number. The greatest becomes the token, which
//! round 2 confirms on *exactly the nodes it was chosen from*, each under its own grant number: a vote from elsewhere,
//! or from an earlier grant of the same node, could confirm a token that another term has already used.

use alloc::vec;
use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::term::{Site, Term};
use crate::lease::{Effect, Lease, Round, TermId, Want};
use crate::mutant::Mutant;
use crate::op::{Grant, Op, Stage, Stages, Stored, Token, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

use super::Config;

/// Round 2 is sent so often. A node that granted and then is silent twice is more likely gone than slow, and a fresh
/// attempt may count the others.
const CONFIRM_ROUNDS: u8 = 2;

/// What one node said in round 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum First {
    Outstanding,
    Granted(Grant),
    Refused {
        free_at: Time,
        by: Stored,
    },
    /// It did nothing, and said so.
    Abstained,
    Silent,
}

/// Round 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Second {
    token: Token,
    pub round: Round,
    pub sent: Time,
    rounds: u8,
    pub ballots: Ballots,
    /// Until when each confirmed node keeps the keys, by the life it reported from the send on.
    pub alive_until: Vec<Time>,
}

/// One attempt under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquiring {
    pub want: Want,
    pub t0: Time,
    ttl: Millis,
    stop_budget: Millis,
    pub round: Round,
    pub first: Vec<First>,
    pub second: Option<Second>,
}

impl Acquiring {
    fn granted(&self) -> usize {
        self.first.iter().filter(|first| matches!(first, First::Granted(_))).count()
    }

    fn give_up_at(&self, config: &Config) -> Time {
        self.second.as_ref().map_or(self.t0, |second| second.sent) + config.command_timeout
    }

    fn stop_at(&self, config: &Config) -> Time {
        (self.t0 + config.validity(self.ttl)) - self.stop_budget
    }

    pub fn next_deadline(&self, config: &Config) -> Time {
        self.give_up_at(config).min(self.stop_at(config))
    }

    /// The last instant at which a key of this attempt can stand, when an acquire ran at its own deadline.
    fn keys_until(&self, config: &Config) -> Time {
        self.t0 + config.command_timeout + config.drift.most(self.ttl)
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
        let nodes: Vec<Node> = self.config.quorum.nodes().collect();
        for &node in &nodes {
            let op = Op::Acquire { attempt: want.attempt, ttl, holder: want.holder.clone() };
            self.send(round, node, op, now + self.config.command_timeout);
        }
        let first = vec![First::Outstanding; nodes.len()];
        self.refused_by = None;
        self.acquiring = Some(Acquiring { want, t0: now, ttl, stop_budget, round, first, second: None });
    }

    pub(super) fn expire_acquiring(&mut self, now: Time) {
        let Some(acquiring) = &mut self.acquiring else { return };
        if now >= acquiring.stop_at(&self.config) {
            self.fail(now);
            return;
        }
        if now < acquiring.give_up_at(&self.config) {
            return;
        }
        match &mut acquiring.second {
            Some(second) => second.ballots.close(),
            None => {
                for first in &mut acquiring.first {
                    if *first == First::Outstanding {
                        *first = First::Silent;
                    }
                }
            }
        }
        self.proceed(now);
    }

    pub(super) fn acquire_vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        let abstention_is_no = self.is(Mutant::AbstentionIsNo);
        let Some(acquiring) = &mut self.acquiring else { return };
        if round == acquiring.round {
            let first = match vote {
                Vote::Granted(grant) => First::Granted(*grant),
                // The key lives on while its clock shows the last millisecond.
                Vote::Refused { ttl_left, by } => {
                    First::Refused { free_at: now + *ttl_left + Millis(1), by: by.clone() }
                }
                Vote::Abstained => First::Abstained,
                _ => First::Silent,
            };
            if let Some(slot) = acquiring.first.get_mut(node.index())
                && *slot == First::Outstanding
            {
                *slot = first;
                self.confirm_late_grant(now, node);
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

    /// What must not be done: a node that was no part of the choice of the token confirms it.
    fn confirm_late_grant(&mut self, now: Time, node: Node) {
        if !self.is(Mutant::ConfirmOutsideFirstRound) {
            return;
        }
        if let Some(acquiring) = &mut self.acquiring
            && let Some(second) = &mut acquiring.second
            && let First::Granted(grant) = acquiring.first[node.index()]
        {
            second.ballots.set(node, Ballot::Outstanding);
            let op = Op::Confirm { attempt: acquiring.want.attempt, grant, token: second.token };
            let (round, give_up_at) = (second.round, now + self.config.command_timeout);
            self.send(round, node, op, give_up_at);
        }
    }

    fn proceed(&mut self, now: Time) {
        let majority = self.config.quorum.majority();
        let Some(acquiring) = &self.acquiring else { return };
        let Some(second) = &acquiring.second else {
            let granted = acquiring.granted();
            let outstanding = acquiring.first.iter().filter(|first| **first == First::Outstanding).count();
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
        let one_round = self.is(Mutant::OneRound);
        let round = self.new_round();
        let floor_counts = !self.is(Mutant::NoStatusFloor);
        let Some(acquiring) = &mut self.acquiring else { return };
        let quorum = self.config.quorum;
        let greatest = acquiring.first.iter().filter_map(|first| match first {
            First::Granted(grant) => Some(grant.0),
            _ => None,
        });
        let floor = if floor_counts { acquiring.want.floor.0.saturating_add(1) } else { 0 };
        let token = Token(greatest.max().unwrap_or(0).max(floor));
        if token.0 >= Token::END {
            // No node may hear of it: their counters would never come back into the range.
            self.fail(now);
            return;
        }
        let mut ballots = Ballots::none(quorum);
        for (node, first) in quorum.nodes().zip(&acquiring.first) {
            if matches!(first, First::Granted(_)) {
                ballots.set(node, if one_round { Ballot::Yes } else { Ballot::Outstanding });
            }
        }
        let alive_until = vec![acquiring.t0 + self.config.drift.least(acquiring.ttl); quorum.size()];
        acquiring.second = Some(Second { token, round, sent: now, rounds: 1, ballots, alive_until });
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
        for (node, first) in self.config.quorum.nodes().zip(&acquiring.first) {
            if let (First::Granted(grant), Ballot::Outstanding) = (first, second.ballots.of(node)) {
                let op = Op::Confirm { attempt, grant: *grant, token: second.token };
                self.effects.push_back(Effect::Send { round: second.round, node, op, give_up_at });
            }
        }
    }

    fn succeed(&mut self, now: Time) {
        let quorum = self.config.quorum;
        let Some(acquiring) = self.acquiring.take() else { return };
        let Some(second) = &acquiring.second else { return };
        let t0 = if self.is(Mutant::DeadlineFromReply) { now } else { acquiring.t0 };
        // A majority keeps the keys until the q-th latest of its ends.
        let mut ends: Vec<Time> = quorum
            .nodes()
            .filter(|&node| second.ballots.of(node) == Ballot::Yes)
            .map(|node| second.alive_until[node.index()])
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let by_nodes = ends.get(quorum.majority() - 1).copied().unwrap_or(now);
        let by_us = t0 + self.config.validity(acquiring.ttl);
        let unbounded = self.is(Mutant::DeadlineFromReply) || self.is(Mutant::NoDriftMargin);
        let valid_until = if unbounded { by_us } else { by_us.min(by_nodes) };
        let stop_at = valid_until - acquiring.stop_budget;
        if now >= stop_at {
            self.acquiring = Some(acquiring);
            self.fail(now);
            return;
        }
        let give_up_at = acquiring.give_up_at(&self.config);
        let sites = quorum.nodes().zip(&acquiring.first).map(|(node, first)| match (second.ballots.of(node), first) {
            (Ballot::Yes, _) => Site::Holding,
            (Ballot::Outstanding, _) => Site::Confirming { round: second.round, give_up_at },
            (_, First::Granted(grant)) => Site::Granted { grant: *grant, after: self.next_round },
            (_, First::Outstanding) => Site::Joining { round: acquiring.round, give_up_at },
            _ => Site::Missing,
        });
        let id = TermId { attempt: acquiring.want.attempt, token: second.token, holder: acquiring.want.holder.clone() };
        let term = Term::acquired(
            &self.config,
            id.clone(),
            sites.collect(),
            (acquiring.t0, valid_until, stop_at),
            acquiring.keys_until(&self.config),
        );
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
        if self.is(Mutant::ReusedAttempt) && self.wanted.is_none() {
            self.wanted = Some(acquiring.want);
        }
    }

    /// Only the acquirer itself may do this, and only before it sends the publication.
    pub(super) fn release_failed(&mut self, now: Time, acquiring: &Acquiring) {
        let stages = if acquiring.second.is_some() { Stages::Unpublished } else { Stages::Pending };
        // Who refused or abstained keeps nothing of this attempt.
        let keeps = |first: &First| !matches!(first, First::Refused { .. } | First::Abstained);
        let nodes = self.config.quorum.nodes().zip(&acquiring.first).filter(|(_, first)| keeps(first));
        let nodes: Vec<Node> = nodes.map(|(node, _)| node).collect();
        self.release(now, acquiring.want.attempt, stages, acquiring.keys_until(&self.config), &nodes);
        if let Some(cleanup) = self.cleanups.last_mut().filter(|cleanup| cleanup.attempt == acquiring.want.attempt) {
            cleanup.after_acquire(acquiring.round);
        }
    }

    /// A majority that belongs to running terms says itself when it can be free. Everything else - a rival in its own
    /// first round, a ghost, silence - is waited for at random, so that two rivals do not meet again.
    fn back_off(&mut self, now: Time, acquiring: &Acquiring) {
        let quorum = self.config.quorum;
        let backoff = self.config.backoff;
        let entropy = acquiring.want.entropy;
        let mut free_at: Vec<Time> = acquiring
            .first
            .iter()
            .map(|first| match first {
                First::Refused { free_at, by } if by.stage != Stage::Pending => *free_at,
                _ => now,
            })
            .collect();
        free_at.sort_unstable();
        let free_at = free_at[quorum.majority() - 1];
        let refusals = acquiring.first.iter().filter_map(|first| match first {
            First::Refused { free_at, by } if by.stage != Stage::Pending => Some((free_at, by)),
            _ => None,
        });
        self.refused_by = refusals.max_by_key(|(free_at, _)| **free_at).map(|(_, by)| by.clone());
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
            acquiring.granted() > 0 || acquiring.first.iter().any(|first| matches!(first, First::Refused { .. }));
        let delay =
            if split { entropy.up_to(backoff.delay(self.tries)) } else { backoff.jittered(self.tries, entropy) };
        self.not_before = now + delay.max(Millis(1));
    }
}
