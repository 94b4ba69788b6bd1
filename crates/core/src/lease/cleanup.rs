//! Releases: they delete the keys of a failed attempt, or of a holder that has stopped.
//!
//! A release may keep the keys until a time, and lets them end then: see [`Input::Keep`](super::Input::Keep).
//!
//! Safety does not depend on a release, and nothing waits for one: keys that are not deleted end by their TTL. A node that
//! did not answer is asked again. It may execute the acquire late, and that grant would block the node for one TTL.

use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::{Config, Effect, Lease, Round};
use crate::op::{Attempt, Op, Stages, Vote};
use crate::quorum::Node;
use crate::time::{Millis, Time};

/// How many releases are repeated at most: the oldest and the newest. A lease that is acquired and released thousands of times
/// while a node does not answer has one for each term; every input looks at all of them.
pub(super) const MOST: usize = 16;

/// The release of one attempt on several nodes. It is repeated until every node has answered or the keys have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cleanup {
    pub attempt: Attempt,
    pub stages: Stages,
    /// Until then the keys are kept.
    pub keep_until: Option<Time>,
    pub round: Round,
    /// When the last of the keys has ended.
    pub until: Time,
    /// Round 1 of the attempt, if answers to it can still arrive.
    pub acquire: Option<Round>,
    pub ballots: Ballots,
    pub repeat_at: Time,
}

impl Cleanup {
    pub fn new(
        config: &Config,
        now: Time,
        round: Round,
        attempt: Attempt,
        stages: Stages,
        until: Time,
        nodes: &[Node],
    ) -> Self {
        let mut ballots = Ballots::none(config.quorum);
        for &node in nodes {
            ballots.set(node, Ballot::Outstanding);
        }
        let repeat_at = now + config.retry_pace() + Millis(1);
        Self { attempt, stages, keep_until: None, round, until, acquire: None, ballots, repeat_at }
    }

    /// What is asked of a node at `now`.
    pub fn op(&self, now: Time) -> Op {
        let Self { attempt, stages, .. } = *self;
        match self.keep_until {
            Some(until) if now < until => Op::Keep { attempt, ttl: until.since(now) },
            _ => Op::Release { attempt, stages },
        }
    }

    /// Whether it deletes the keys of a term at `now`.
    pub fn frees(&self, now: Time, attempt: Attempt) -> bool {
        self.attempt == attempt && self.stages == Stages::All && self.keep_until.is_none_or(|until| now >= until)
    }

    pub fn after_acquire(&mut self, round: Round) {
        self.acquire = Some(round);
    }

    /// Takes a late answer to round 1. A node that refused or abstained has no key of the attempt, so it is not asked again.
    pub fn late_vote(&mut self, round: Round, node: Node, vote: &Vote) {
        if self.acquire == Some(round) && matches!(vote, Vote::Refused { .. } | Vote::Abstained) {
            self.ballots.set(node, Ballot::NotAsked);
        }
    }

    pub fn vote(&mut self, node: Node, vote: &Vote) {
        let done = matches!(vote, Vote::Released(_));
        self.ballots.set(node, if done { Ballot::Yes } else { Ballot::Unknown });
    }

    pub fn done(&self) -> bool {
        self.ballots.count(Ballot::Outstanding) + self.ballots.count(Ballot::Unknown) == 0
    }

    pub fn next_deadline(&self) -> Time {
        self.until.min(self.repeat_at)
    }
}

impl Lease {
    pub(super) fn advance_cleanups(&mut self, now: Time) {
        let give_up_at = now + self.config.command_timeout;
        let (quorum, pace) = (self.config.quorum, self.config.retry_pace());
        for cleanup in self.cleanups.iter_mut().filter(|cleanup| now >= cleanup.repeat_at) {
            cleanup.repeat_at = now + pace + Millis(1);
            let silent: Vec<Node> = quorum
                .nodes()
                .filter(|&node| matches!(cleanup.ballots.of(node), Ballot::Outstanding | Ballot::Unknown))
                .collect();
            for node in silent {
                cleanup.ballots.set(node, Ballot::Outstanding);
                let op = cleanup.op(now);
                self.effects.push_back(Effect::Send { round: cleanup.round, node, op, give_up_at });
            }
        }
    }
}
