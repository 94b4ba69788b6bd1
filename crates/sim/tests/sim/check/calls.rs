//! What the servers execute: each request once, and in the order that its lease needs.

use redislease_core::op::{Grant, Op, Vote};
use redislease_core::wire::replies::{self, Answer as Read, NoAnswer};

use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::redis::link::{Address, Batch};
use crate::redis::server::Answer;
use crate::world::World;

impl World {
    /// A server has executed a batch, or refused to.
    pub fn batch_ran(&mut self, from: Address, batch: &Batch, answer: &Answer, repeat: bool, asked: bool) {
        let Answer::Reply(value) = answer else { return };
        let Address { process, node, .. } = from;
        let Some(votes) = votes(batch, value.clone()) else {
            return self.check.fail(format!("node {node} gives an invalid reply to {batch:?}: {value:?}"));
        };
        for (((_, op), vote), of) in batch.requests.iter().zip(&votes).zip(&batch.asked) {
            match vote {
                Read::NotAdmitted => self.coverage.saw(Sight::NotAdmittedAtTheNode),
                Read::Late => self.coverage.saw(Sight::LateAtTheNode),
                Read::Vote(Vote::Granted(_)) if repeat || !asked => self.coverage.saw(Sight::GhostGrant),
                Read::Vote(_) => {}
            }
            match (op, vote) {
                (Op::Acquire { .. }, Read::Vote(Vote::Granted(Grant::Proposed(_)))) => {
                    self.coverage.saw(Sight::ProposalTaken);
                }
                (Op::Acquire { proposal: Some(_), .. }, Read::Vote(Vote::Granted(_))) => {
                    self.coverage.saw(Sight::ProposalTooLow);
                }
                (Op::Confirm { grant: Grant::Proposed(_), .. }, Read::Vote(Vote::Confirmed { .. })) => {
                    self.coverage.saw(Sight::ProposalReplaced);
                }
                _ => {}
            }
            let vote = if let Read::Vote(vote) = vote { vote } else { &Vote::Abstained };
            self.note(Note::Ran { node, process, op, vote, repeat });
            if let Some((number, serial)) = of.filter(|_| !repeat) {
                self.request_ran(from, op, number, serial, asked);
            }
        }
    }

    fn request_ran(&mut self, from: Address, op: &Op, number: u64, serial: u64, asked: bool) {
        if !self.ran.requests.insert(number) {
            self.check.fail(format!("a server executed one request twice: {op:?}"));
        }
        // After the scripts were lost, another process may have loaded them between two calls.
        if !asked || self.current(from).is_none_or(|conn| conn.lost_scripts) {
            return;
        }
        let of = (from.process, from.boot, from.node, from.conn, serial);
        let last = self.ran.votes.entry(of).or_default();
        if matches!(op, Op::Acquire { .. } | Op::Confirm { .. }) {
            *last = number.max(*last);
        } else if op.is_end() && number < *last {
            self.check
                .fail(format!("a server executed {op:?} after a vote on the same lease that was requested later"));
        }
    }
}

/// The vote on each request; `None` if no script returns such a reply.
fn votes(batch: &Batch, value: replies::Value) -> Option<Vec<Read>> {
    let ops = batch.requests.iter().map(|(_, op)| op);
    if !ops.clone().any(Op::is_extend) {
        let answers = replies::read_votes(ops, value).ok()?.answer.into_iter();
        return answers.map(|answer| answer.map_err(|_: NoAnswer| ()).ok()).collect();
    }
    let count = batch.requests.len();
    Some(match replies::read_extend(count, value).ok()?.answer {
        Read::NotAdmitted => vec![Read::NotAdmitted; count],
        Read::Late => vec![Read::Late; count],
        Read::Vote(exceptions) => {
            let mut votes = vec![Read::Vote(Vote::Extended); count];
            for (place, vote) in exceptions {
                votes[place] = Read::Vote(vote);
            }
            votes
        }
    })
}
