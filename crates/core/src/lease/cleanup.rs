//! Releases: they delete the keys of a failed attempt, or of a holder that has stopped.
//!
//! A release may keep the keys until a time, and lets them end then: see [`Command::Release`](super::Command::Release).
//!
//! Safety does not depend on a release, and nothing waits for one: keys that are not deleted end by their TTL. A node that
//! did not answer is asked again. It may execute the acquire late, and that grant would block the node for one TTL.

use alloc::vec::Vec;

use crate::ballot::{Ballot, Ballots};
use crate::lease::context::Context;
use crate::lease::event::Round;
use crate::op::{Attempt, Op, Stages, Vote};
use crate::quorum::Node;
use crate::time::Time;

#[cfg(feature = "check")]
#[path = "../check/rebase/cleanup.rs"]
mod rebase;

/// How many releases are repeated at most: the oldest and the newest. A lease that is acquired and released thousands of times
/// while a node does not answer has one for each term; every input looks at all of them.
const MOST: usize = 16;

/// What is released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Release {
    pub attempt: Attempt,
    pub stages: Stages,
    /// The nodes that may have keys are outstanding.
    pub ballots: Ballots,
    /// When the last of the keys has ended.
    pub until: Time,
    /// Until then the keys are kept.
    pub keep_until: Option<Time>,
    /// Round 1 of the attempt, if answers to it can still arrive.
    pub acquire: Option<Round>,
}

/// A release that is repeated until every node has answered or the keys have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cleanup {
    release: Release,
    round: Round,
    repeat_at: Time,
}

impl Cleanup {
    fn done(&self) -> bool {
        let ballots = &self.release.ballots;
        ballots.count(Ballot::Outstanding) + ballots.count(Ballot::Unknown) == 0
    }

    /// Asks the nodes that have not answered.
    fn ask(&mut self, context: &mut Context, now: Time) {
        let Release { attempt, stages, keep_until, ref mut ballots, .. } = self.release;
        self.repeat_at = now + context.config.retry_pace();
        for node in context.config.quorum.nodes() {
            if matches!(ballots.of(node), Ballot::Outstanding | Ballot::Unknown) {
                ballots.set(node, Ballot::Outstanding);
                let op = match keep_until {
                    Some(until) => Op::Keep { attempt, ttl: until.since(now) },
                    None => Op::Release { attempt, stages },
                };
                context.send(now, self.round, node, op);
            }
        }
    }
}

/// The releases of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cleanups(Vec<Cleanup>);

impl Cleanups {
    pub fn begin(&mut self, context: &mut Context, now: Time, release: Release) {
        if release.ballots.count(Ballot::Outstanding) == 0 {
            return;
        }
        if self.0.len() >= MOST {
            // A key of the oldest may be what stands on a node since it went away: nothing that followed was granted there.
            self.0.remove(MOST / 2);
        }
        let mut cleanup = Cleanup { release, round: context.new_round(), repeat_at: now };
        cleanup.ask(context, now);
        self.0.push(cleanup);
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a release deletes the keys of this term.
    pub fn frees(&self, attempt: Attempt) -> bool {
        self.0
            .iter()
            .map(|cleanup| &cleanup.release)
            .any(|release| release.attempt == attempt && release.stages == Stages::All && release.keep_until.is_none())
    }

    /// Takes an answer, if it is one to a release.
    pub fn vote(&mut self, round: Round, node: Node, vote: &Vote) -> bool {
        if let Some(cleanup) = self.0.iter_mut().find(|cleanup| cleanup.round == round) {
            let done = matches!(vote, Vote::Released(_));
            cleanup.release.ballots.set(node, if done { Ballot::Yes } else { Ballot::Unknown });
            return true;
        }
        // A late answer to round 1: a node that refused or abstained has no key of the attempt, so it is not asked again.
        if matches!(vote, Vote::Refused { .. } | Vote::Abstained) {
            for cleanup in self.0.iter_mut().filter(|cleanup| cleanup.release.acquire == Some(round)) {
                cleanup.release.ballots.set(node, Ballot::NotAsked);
            }
        }
        false
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.0.iter().map(|cleanup| cleanup.release.until.min(cleanup.repeat_at)).min()
    }

    pub fn expire(&mut self, now: Time) {
        self.0.retain(|cleanup| now < cleanup.release.until && !cleanup.done());
    }

    pub fn advance(&mut self, context: &mut Context, now: Time) {
        for cleanup in self.0.iter_mut().filter(|cleanup| now >= cleanup.repeat_at) {
            cleanup.ask(context, now);
        }
    }
}
