//! The canonical form of a lease machine, for checkers that compare states.
//!
//! Two machines behave alike from now on if they differ only in the origin of their time, in the numbers of their rounds,
//! or in the order of the nodes. In canonical form they are equal, so a search visits them as one state.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::ballot::{Ballot, Ballots};
use crate::lease::acquire::{Acquiring, FirstVote};
use crate::lease::ending::Ending;
use crate::lease::join::NodeState;
use crate::lease::term::{Phase, Term};
use crate::lease::{Config, Lease, Round, view};
use crate::op::{Attempt, Stage, Stored};
use crate::quorum::{Node, Quorum};
use crate::time::{Millis, Time};

/// The rounds whose answers can still change a machine, in ascending order. The new number of a round is its index here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renumbering(Vec<Round>);

impl Renumbering {
    /// The new number of a round, or `None` if no answer to it can change the machine any more.
    pub fn of(&self, round: Round) -> Option<Round> {
        self.0.binary_search(&round).ok().and_then(|place| u32::try_from(place).ok()).map(Round)
    }

    fn apply(&self, round: &mut Round) {
        *round = self.of(*round).unwrap_or_default();
    }

    fn next(&self) -> Round {
        Round(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

struct Shift {
    now: Time,
    origin: Time,
}

impl Shift {
    /// Moves an instant from which the machine computes other instants.
    fn exact(&self, instant: &mut Time) {
        *instant = (self.origin + instant.since(self.now)) - self.now.since(*instant);
    }

    /// Moves an instant of which the machine only asks whether it has passed: all past instants become `origin`.
    fn due(&self, instant: &mut Time) {
        *instant = self.origin + instant.since(self.now);
    }
}

impl Lease {
    /// Moves the machine so that `now` becomes `origin`, and numbers its rounds from 0. Drops the number of failures and the
    /// values that refused: they are only shown, or only decide the back-off.
    ///
    /// All effects of the machine must have been polled. The result gives the new round of each request under way.
    pub fn rebase(&mut self, now: Time, origin: Time) -> Renumbering {
        let shift = Shift { now, origin };
        self.cleanups.retain(|cleanup| !cleanup.done());
        let rounds = self.open_rounds();
        let expired_seals_count = breaks!(self.rules, SealVotesExpired);
        if let Some(acquiring) = &mut self.acquiring {
            acquiring.rebase(&shift, &rounds);
        }
        if let Some(term) = &mut self.term {
            term.rebase(&shift, &rounds, &self.config);
        }
        if let Some(ending) = &mut self.ending {
            ending.rebase(&shift, &rounds, self.config.ttl, expired_seals_count);
        }
        for cleanup in &mut self.cleanups {
            shift.due(&mut cleanup.until);
            shift.due(&mut cleanup.repeat_at);
            rounds.apply(&mut cleanup.round);
            cleanup.acquire = cleanup.acquire.and_then(|round| rounds.of(round));
        }
        self.next_round = rounds.next();
        shift.due(&mut self.not_before);
        shift.due(&mut self.held_until);
        self.tries = 0;
        (self.refused_by, self.refusal) = (None, None);
        self.shown = view::of(self);
        rounds
    }

    fn open_rounds(&self) -> Renumbering {
        let acquiring = self.acquiring.iter().flat_map(|acquiring| {
            [Some(acquiring.round), acquiring.second.as_ref().map(|second| second.round)].into_iter().flatten()
        });
        let term = self.term.iter().flat_map(|term| {
            let nodes = term.nodes.iter().filter_map(|state| match state {
                NodeState::Joining { round, .. } | NodeState::Confirming { round, .. } => Some(*round),
                NodeState::Holding | NodeState::Missing | NodeState::Refused { .. } | NodeState::Granted { .. } => None,
            });
            nodes.chain(term.extension.iter().map(|extension| extension.round))
        });
        let ending = self.ending.iter().filter_map(|ending| ending.round);
        let cleanups =
            self.cleanups.iter().flat_map(|cleanup| [Some(cleanup.round), cleanup.acquire].into_iter().flatten());
        let mut rounds: Vec<Round> = acquiring.chain(term).chain(ending).chain(cleanups).collect();
        rounds.sort_unstable();
        rounds.dedup();
        Renumbering(rounds)
    }

    /// Renames the nodes: the state of node `order[i]` becomes the state of node `i`.
    pub fn permute(&mut self, order: &[Node]) {
        if let Some(acquiring) = &mut self.acquiring {
            permute(&mut acquiring.votes, order);
            if let Some(second) = &mut acquiring.second {
                permute(&mut second.alive_until, order);
                permute_ballots(&mut second.ballots, order, self.config.quorum);
            }
        }
        if let Some(term) = &mut self.term {
            permute(&mut term.nodes, order);
            if let Some(extension) = &mut term.extension {
                permute_ballots(&mut extension.ballots, order, self.config.quorum);
            }
        }
        if let Some(ending) = &mut self.ending {
            permute(&mut ending.sealed_until, order);
        }
        for cleanup in &mut self.cleanups {
            permute_ballots(&mut cleanup.ballots, order, self.config.quorum);
        }
    }

    /// Hashes the state of one node. A checker may swap nodes with equal hashes.
    pub fn hash_node<H: Hasher>(&self, node: Node, state: &mut H) {
        if let Some(acquiring) = &self.acquiring {
            acquiring.votes.get(node.index()).hash(state);
            if let Some(second) = &acquiring.second {
                (second.ballots.of(node), second.alive_until.get(node.index())).hash(state);
            }
        }
        if let Some(term) = &self.term {
            term.nodes.get(node.index()).hash(state);
            term.extension.as_ref().map(|extension| extension.ballots.of(node)).hash(state);
        }
        if let Some(ending) = &self.ending {
            ending.sealed_until.get(node.index()).hash(state);
        }
        for cleanup in &self.cleanups {
            cleanup.ballots.of(node).hash(state);
        }
    }
}

impl Acquiring {
    fn rebase(&mut self, shift: &Shift, rounds: &Renumbering) {
        shift.exact(&mut self.t0);
        shift.exact(&mut self.valid_until);
        rounds.apply(&mut self.round);
        for first in &mut self.votes {
            // The refusing value and its life decide nothing but the back-off.
            if let FirstVote::Refused { free_at, by } = first {
                *free_at = shift.origin;
                *by = Stored { stage: Stage::Pending, attempt: Attempt(0), number: 0, metadata: String::new() };
            }
        }
        if let Some(second) = &mut self.second {
            shift.exact(&mut second.sent);
            rounds.apply(&mut second.round);
            second.alive_until.iter_mut().for_each(|until| shift.due(until));
        }
    }
}

impl Term {
    fn rebase(&mut self, shift: &Shift, rounds: &Renumbering, config: &Config) {
        if let Phase::Adopting { unconfirmed_at, ends_at, shown, .. } = &mut self.phase {
            shift.due(unconfirmed_at);
            shift.due(ends_at);
            // The machine only asks whether one interval has passed since.
            if let Some(shown) = shown {
                let since = config.renew_interval.min(shift.now.since(*shown));
                *shown = shift.origin - since;
            }
        }
        let proven = self.extension.as_ref().map(|extension| extension.round);
        for state in &mut self.nodes {
            match state {
                NodeState::Joining { round, give_up_at } | NodeState::Confirming { round, give_up_at } => {
                    rounds.apply(round);
                    shift.due(give_up_at);
                }
                // The machine only asks whether the present round began after the grant.
                NodeState::Granted { after, .. } => {
                    let proven = proven.is_some_and(|round| round >= *after);
                    *after = if proven { Round(0) } else { rounds.next() };
                }
                NodeState::Refused { again_at } => shift.due(again_at),
                NodeState::Holding | NodeState::Missing => {}
            }
        }
        if let Some(extension) = &mut self.extension {
            rounds.apply(&mut extension.round);
            if extension.outcome.is_some() {
                // After a decided round the machine only asks whether the next may begin.
                let began = config.retry_pace().min(shift.now.since(extension.t0));
                extension.t0 = shift.origin - began;
                extension.valid_until = shift.origin;
                extension.ballots = Ballots::none(config.quorum);
            } else {
                shift.exact(&mut extension.t0);
                shift.exact(&mut extension.valid_until);
            }
        }
        self.valid_until.iter_mut().chain(&mut self.stop_at).for_each(|until| shift.due(until));
        shift.due(&mut self.next_round_at);
        shift.due(&mut self.keys_until);
        // The machine only asks whether a round has failed since the last success.
        self.failed_rounds = self.failed_rounds.min(1);
    }
}

impl Ending {
    fn rebase(&mut self, shift: &Shift, rounds: &Renumbering, ttl: Millis, expired_seals_count: bool) {
        self.round.iter_mut().for_each(|round| rounds.apply(round));
        shift.due(&mut self.valid_until);
        shift.due(&mut self.keys_until);
        if self.effective {
            (self.sent, self.next_round_at, self.valid_until) = (shift.origin, shift.origin, shift.origin);
            self.sealed_until.fill(None);
            return;
        }
        // No key lives longer than its TTL, so the answers to an older round cannot count.
        self.sent = self.sent.max(shift.now - ttl);
        shift.exact(&mut self.sent);
        shift.due(&mut self.next_round_at);
        for until in &mut self.sealed_until {
            if until.is_some_and(|until| until <= shift.now) && !expired_seals_count {
                *until = None;
            }
            if let Some(until) = until {
                shift.due(until);
            }
        }
    }
}

fn permute<T: Clone>(values: &mut Vec<T>, order: &[Node]) {
    *values = order.iter().filter_map(|node| values.get(node.index()).cloned()).collect();
}

fn permute_ballots(ballots: &mut Ballots, order: &[Node], quorum: Quorum) {
    let before: Vec<Ballot> = order.iter().map(|&node| ballots.of(node)).collect();
    for (node, ballot) in quorum.nodes().zip(before) {
        ballots.set(node, ballot);
    }
}
