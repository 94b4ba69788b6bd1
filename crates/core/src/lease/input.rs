//! What each input does.

use alloc::boxed::Box;

use super::Lease;
use crate::invariants;
use crate::lease::acquire::Want;
use crate::lease::term::Term;
use crate::lease::{Command, Config, EndReason, Fresh, Input, Publication, TermId, View};
use crate::op::Attempt;
use crate::rules::Rules;
use crate::time::{Millis, Time};

impl Lease {
    /// Takes one input. Local deadlines come first: a late answer does not revive what time has ended.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Input::Command(command, fresh) = input {
            return self.command(now, command, fresh);
        }
        self.expire(now);
        match input {
            Input::Vote { round, node, vote } => self.vote(now, round, node, &vote),
            Input::ClockJumped => self.void(now),
            Input::NodeReturned { ask_by } => self.node_returned(ask_by),
            Input::Command(..) | Input::Wake => {}
        }
        self.finish(now);
    }

    fn finish(&mut self, now: Time) {
        self.expire(now);
        self.advance(now);
        self.emit_view();
        // A checker that plants a bug must find it by itself.
        if self.context.rules == Rules::NONE
            && let Err(violation) = invariants::local(now, &self.shown)
        {
            debug_assert!(false, "{violation}: {self:?}");
            self.start_over(now, violation);
        }
    }

    fn command(&mut self, now: Time, command: Command, fresh: Option<Fresh>) {
        let mut shown = None;
        match &command {
            // The term that is let go is the one that was shown last, also if its deadline has just passed. After a loss, the
            // holder has stopped only now, and a node may still have keys.
            Command::Release { .. } => shown = self.shown_term(),
            // A process that has lost leadership must not seal at a deadline that passes at this instant.
            Command::Configure(config) => self.context.config.deadline = config.deadline,
            Command::KeepKeysFor(life) => return self.context.least_life = *life,
            // Not even a term whose deadline has passed is ended: it is left for the next process.
            Command::Close => return self.abandon(now),
            _ => {}
        }
        self.expire(now);
        match command {
            Command::Want(holder) => {
                if let Some(fresh) = fresh {
                    self.want(now, Want { holder, fresh });
                }
            }
            Command::Forget | Command::Retire => self.forget(now),
            Command::TryNow => {
                self.retry.reset(now);
                if let Some(term) = &mut self.term {
                    term.try_now(now);
                }
            }
            Command::ReadKeys => self.read_keys(now),
            Command::Adopt(id) => self.adopt(now, id, false),
            Command::AdoptOverrun(id) => self.adopt(now, id, true),
            Command::UnconfirmedShown(attempt) => {
                if let Some(term) = self.term_of(attempt) {
                    term.unconfirmed_shown(now);
                }
            }
            Command::KeptElsewhere(attempt) => {
                let lease = self.context.config.longest_life();
                if let Some(term) = self.term_of(attempt) {
                    term.kept_elsewhere(now, lease);
                }
            }
            Command::End { term, proof } => self.end(now, term, proof, None),
            Command::Release { keep_until } => {
                self.forget(now);
                if let Some(term) = shown {
                    self.end(now, term, true, keep_until);
                }
            }
            Command::Published { attempt, outcome } => self.published(now, attempt, outcome),
            // A round of this millisecond may have begun before the command, and a second one could not be told from it.
            Command::Prove => self.node_returned(now + Millis(1)),
            // The nodes stay: ballots and terms are recorded for each of them.
            Command::Configure(config) => {
                self.context.config = Config { quorum: self.context.config.quorum, ..*config };
            }
            Command::KeepKeysFor(_) | Command::Close => {}
        }
        self.finish(now);
    }

    fn shown_term(&self) -> Option<TermId> {
        let View { standing, ending, .. } = &self.shown;
        let running = standing.term().map(|term| &term.id);
        running.or_else(|| ending.as_ref().map(|ending| &ending.id)).cloned()
    }

    fn forget(&mut self, now: Time) {
        self.wanted = None;
        self.retry.forget_refusal();
        self.abandon(now);
        #[cfg(feature = "check")]
        if breaks!(self.context.rules, ForgetReleasesPublishing) {
            self.release_unpublished(now);
        }
    }

    fn node_returned(&mut self, ask_by: Time) {
        if let Some(acquiring) = &mut self.acquiring {
            acquiring.node_returned = true;
        }
        if let Some(term) = &mut self.term {
            term.node_returned(ask_by);
        }
    }

    fn term_of(&mut self, attempt: Attempt) -> Option<&mut Term> {
        self.term.as_mut().filter(|term| term.id().attempt == attempt)
    }

    fn want(&mut self, now: Time, want: Want) {
        if self.term.is_some() {
            return;
        }
        if self.acquiring.as_ref().is_some_and(|acquiring| acquiring.want.holder != want.holder) {
            self.abandon(now);
        }
        self.wanted = Some(Box::new(want));
    }

    fn published(&mut self, now: Time, attempt: Attempt, outcome: Publication) {
        #[cfg(feature = "check")]
        let rules = self.context.rules;
        let Some(term) = self.term_of(attempt).filter(|term| term.is_publishing()) else { return };
        match outcome {
            Publication::Written => term.written(),
            #[cfg(feature = "check")]
            Publication::Unknown if breaks!(rules, UnknownWriteReleased) => self.release_unpublished(now),
            Publication::Unknown => {}
            Publication::Superseded => self.give_up(now, EndReason::Superseded),
        }
    }
}
