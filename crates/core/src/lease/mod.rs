//! The machine of one lease in one process: take it, publish it, keep it, end it.
//!
//! The machine takes [`Input`]s and gives [`Effect`]s. It has no clock, no randomness and no socket: `now` and random
//! words are arguments, so the same inputs give the same run.
//!
//! ```text
//!   Want ──▶ acquiring ──▶ publishing ──▶ held ──┐ deadline, misses, End
//!              │ failed      │ superseded        ▼
//!              ▼             └─────────────▶  ending (sealed until its keys end)
//!            back-off          Adopt ──▶ adopting ──▶ held
//!                                           ▲           │ deadline noticed late, or OnDeadline::Unconfirm
//!                                           └───────────┘
//! ```
//!
//! [`Input::ClockJumped`] leads from held to adopting too, and ends an attempt.

mod acquire;
#[cfg(feature = "check")]
#[path = "../check/lease.rs"]
mod check;
mod cleanup;
mod config;
mod context;
mod ending;
mod event;
mod input;
mod key_read;
mod retry;
mod schedule;
mod term;
mod view;

#[cfg(test)]
#[path = "../check/rebase_tests.rs"]
mod rebase_tests;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub use config::{Config, LATE_WAKE, OnDeadline};
pub use event::{Broken, Command, Effect, Fresh, Input, Publication, Renewal, Round};
pub use view::{EndReason, EndingView, Refusal, Standing, TermId, TermView, View};

use crate::ballot::Ballots;
use crate::invariants::Violation;
use crate::op::{Attempt, Stages, Stored, Vote};
use crate::quorum::Node;
use crate::rules::Rules;
use crate::time::Time;
use acquire::{Acquiring, Progress, Want};
use cleanup::{Cleanups, Release};
use context::Context;
use ending::Ending;
use key_read::KeyRead;
use retry::Retry;
use term::{Fate, Term};

/// One lease in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    context: Context,
    // Boxed is what most leases do not have most of the time.
    wanted: Option<Box<Want>>,
    acquiring: Option<Box<Acquiring>>,
    term: Option<Term>,
    ending: Option<Box<Ending>>,
    cleanups: Cleanups,
    key_read: Option<Box<KeyRead>>,
    retry: Retry,
    shown: View,
}

impl Lease {
    /// Creates a machine without a term and without a request.
    pub fn new(config: Config) -> Self {
        Self {
            context: Context::new(config),
            wanted: None,
            acquiring: None,
            term: None,
            ending: None,
            cleanups: Cleanups::default(),
            key_read: None,
            retry: Retry::default(),
            shown: View::default(),
        }
    }

    /// The present configuration.
    pub const fn config(&self) -> &Config {
        &self.context.config
    }

    pub(crate) const fn rules(&self) -> Rules {
        self.context.rules
    }

    /// The view of the last [`Effect::Changed`].
    pub const fn view(&self) -> &View {
        &self.shown
    }

    /// Whether nothing is left to do until the next input.
    pub fn is_quiet(&self) -> bool {
        let idle = self.wanted.is_none() && self.acquiring.is_none() && self.term.is_none();
        idle && self.ending.is_none() && self.cleanups.is_empty()
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effects = &mut self.context.effects;
        if breaks!(self.context.rules, EffectRepeated) {
            return effects.front().cloned();
        }
        let effect = effects.pop_front();
        if effect.is_none() {
            // Most leases wait most of the time: an empty buffer would double the memory of one.
            *effects = VecDeque::new();
        }
        effect
    }

    /// When the machine needs [`Input::Wake`], if no other input comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let start = self.next_attempt_at().map(|at| at.max(self.context.held_until));
        let acquiring = self.acquiring.as_ref().map(|acquiring| acquiring.next_deadline(&self.context.config));
        let term = self.term.as_ref().and_then(|term| term.next_deadline(&self.context));
        let ending = self.ending.as_deref().map(Ending::next_deadline);
        [start, acquiring, term, ending, self.cleanups.next_deadline()].into_iter().flatten().min()
    }

    /// When the requested attempt may begin, after its back-off and after the previous term. A delay by
    /// [`hold`](Self::hold) is not included. `None` if no attempt is requested, or if an attempt or a term runs.
    pub(crate) fn next_attempt_at(&self) -> Option<Time> {
        let waits = self.wanted.is_some() && self.acquiring.is_none() && self.term.is_none();
        waits.then(|| self.attempt_allowed_at())
    }

    /// Earliest start of an attempt: after the back-off, and after the last term if its seal is not effective.
    fn attempt_allowed_at(&self) -> Time {
        self.ending.as_deref().map_or(Time(0), Ending::allows_attempts_from).max(self.retry.not_before)
    }

    /// Gives up an attempt that was never sent for publication.
    fn abandon(&mut self, now: Time) {
        if let Some(acquiring) = self.acquiring.take() {
            let release = acquiring.release(&self.context);
            self.cleanups.begin(&mut self.context, now, release);
        }
    }

    fn vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        let context = &mut self.context;
        if self.ending.as_mut().is_some_and(|ending| ending.vote(context, now, round, node, vote))
            || self.cleanups.vote(round, node, vote)
        {
            return;
        }
        if let Some(read) = self.key_read.take_if(|read| read.vote(round, vote) && read.is_over()) {
            if let Ok(term) = read.result(context.config.quorum) {
                self.retry.keys_were_read(term);
            }
        } else if let Some(term) = &mut self.term {
            let fate = term.vote(context, now, round, node, vote);
            self.follow(now, fate);
        } else if let Some(acquiring) = &mut self.acquiring {
            let progress = acquiring.vote(context, now, round, node, vote);
            self.proceed(now, progress);
        }
    }

    /// Ends everything whose time has come.
    fn expire(&mut self, now: Time) {
        if let Some(acquiring) = &mut self.acquiring {
            let progress = acquiring.expire(&mut self.context, now);
            self.proceed(now, progress);
        }
        while let Some(term) = &mut self.term {
            match term.expire(&mut self.context, now) {
                Fate::Runs => break,
                fate => self.follow(now, fate),
            }
        }
        self.ending.take_if(|ending| now >= ending.view().keys_until);
        self.cleanups.expire(now);
    }

    /// Begins everything that is due.
    fn advance(&mut self, now: Time) {
        if let Some(term) = &mut self.term {
            term.advance(&mut self.context, now);
        }
        if let Some(ending) = &mut self.ending {
            ending.advance(&mut self.context, now);
        }
        self.cleanups.advance(&mut self.context, now);
        let from = self.attempt_allowed_at().max(self.context.held_until);
        let free = self.term.is_none() && self.acquiring.is_none() && now >= from;
        if let Some(want) = self.wanted.take_if(|_| free) {
            self.retry.forget_refusal();
            self.key_read = None;
            self.acquiring = Some(Box::new(Acquiring::begin(&mut self.context, now, *want)));
        }
    }

    /// What follows from an answer to an attempt, or from its deadline.
    fn proceed(&mut self, now: Time, progress: Progress) {
        match progress {
            Progress::UnderWay => {}
            Progress::Won(term) => {
                (self.wanted, self.acquiring, self.ending) = (None, None, None);
                self.retry.reset(now);
                self.context.effects.push_back(Effect::Publish(term.id().clone()));
                self.term = Some(term);
            }
            Progress::Failed => {
                let Some(acquiring) = self.acquiring.take() else { return };
                let release = acquiring.release(&self.context);
                self.cleanups.begin(&mut self.context, now, release);
                // A refusal by a term whose keys this process has released since is older than the release.
                let lasts = |by: &Stored| !self.cleanups.frees(by.attempt);
                acquiring.back_off(&self.context.config, &mut self.retry, now, lasts);
                if breaks!(self.context.rules, ReusedAttempt) && self.wanted.is_none() {
                    self.wanted = Some(Box::new(acquiring.want));
                }
            }
        }
    }

    /// What follows for the lease from what becomes of its term.
    fn follow(&mut self, now: Time, fate: Fate) {
        match fate {
            Fate::Runs => {}
            Fate::Unconfirmed => self.show_loss(),
            Fate::Ends(reason) => self.give_up(now, reason),
        }
    }

    /// The view as it is now.
    fn present(&self) -> View {
        let standing = match (&self.term, &self.acquiring) {
            (Some(term), _) => term.standing(),
            (None, Some(acquiring)) => Standing::Acquiring(acquiring.want.fresh.attempt, acquiring.want.holder.clone()),
            (None, None) => Standing::Idle,
        };
        let idle = matches!(standing, Standing::Idle);
        View {
            standing,
            ending: self.ending.as_ref().map(|ending| Box::new(ending.view().clone())),
            retry_at: idle.then(|| self.attempt_allowed_at().max(self.context.held_until)),
            refused_by: self.retry.refused_by.clone(),
            keys_read: self.retry.keys_read,
            refusal: self.retry.refusal,
        }
    }

    fn emit_view(&mut self) {
        // Most inputs change nothing that is shown.
        let View { standing, ending, retry_at: None, refused_by, refusal, .. } = &self.shown else {
            return self.show();
        };
        let same_term = self.term.as_ref().is_some_and(|term| term.is_shown(standing));
        let same_ending = ending.as_deref() == self.ending.as_deref().map(Ending::view);
        if !same_term || !same_ending || (refused_by, refusal) != (&self.retry.refused_by, &self.retry.refusal) {
            self.show();
        }
    }

    fn show(&mut self) {
        let view = self.present();
        if view != self.shown {
            self.shown = view.clone();
            self.context.effects.push_back(Effect::Changed(view));
        }
    }

    /// Readers of the view learn that a term is not held any more before any node does.
    fn show_loss(&mut self) {
        if !breaks!(self.context.rules, ShownLast) {
            self.emit_view();
        }
    }

    /// Releases a term on every node. Its keys may be kept until a time.
    fn release(&mut self, now: Time, attempt: Attempt, stages: Stages, until: Time, keep_until: Option<Time>) {
        let ballots = Ballots::all(self.context.config.quorum);
        let release = Release { attempt, stages, ballots, until, keep_until, acquire: None };
        self.cleanups.begin(&mut self.context, now, release);
    }

    fn read_keys(&mut self, now: Time) {
        if self.term.is_none() && self.acquiring.is_none() {
            self.key_read = Some(Box::new(KeyRead::begin(&mut self.context, now)));
        }
    }

    /// Adopts a term, unless this process runs one or ends this one: then it knows more than the status.
    fn adopt(&mut self, now: Time, id: TermId, is_overrun: bool) {
        let ends = self.ending.as_ref().is_some_and(|ending| ending.view().id.attempt == id.attempt);
        if self.term.is_some() || ends {
            return;
        }
        self.abandon(now);
        (self.wanted, self.key_read) = (None, None);
        let is_overrun = is_overrun && !breaks!(self.context.rules, OverrunForgotten);
        self.term = Some(Term::adopted(&self.context.config, id, now, is_overrun));
    }

    /// Nothing that began before now counts: the clock by which its deadlines were set may have stood still.
    fn void(&mut self, now: Time) {
        if breaks!(self.context.rules, BeliefOutlivesClockJump) {
            return;
        }
        self.wanted = None;
        self.abandon(now);
        if let Some(ending) = &mut self.ending {
            ending.void(now);
        }
        let Some(term) = &mut self.term else { return };
        if term.is_publishing() {
            return self.give_up(now, EndReason::Deadline);
        }
        term.void(&self.context, now);
        self.show_loss();
    }

    /// Ends the term for a reason that this process found itself.
    fn give_up(&mut self, now: Time, reason: EndReason) {
        let Some(term) = self.term.take() else { return };
        let (id, valid_until, keys_until) = term.ends();
        if reason != EndReason::Superseded && breaks!(self.context.rules, ReleaseOnLocalDeadline) {
            return self.release(now, id.attempt, Stages::All, keys_until, None);
        }
        self.seal(now, id, reason, valid_until, keys_until);
    }

    /// Ends a term by decision: the running one, one that is ending already, or one that only the status names. With proof, its
    /// keys may be kept until a time.
    fn end(&mut self, now: Time, id: TermId, proof: bool, keep_until: Option<Time>) {
        self.wanted = None;
        let ending = self.ending.as_ref().filter(|ending| ending.view().id.attempt == id.attempt);
        let ending = ending.map(|ending| ending.view().keys_until);
        let (id, valid_until, keys_until) = match self.term.take_if(|term| term.id().attempt == id.attempt) {
            Some(term) => term.ends(),
            None if self.term.is_some() || (ending.is_some() && !proof) => return,
            None => {
                let until = ending.unwrap_or(now + self.context.config.longest_life());
                (id, until, until)
            }
        };
        if proof {
            // It says nothing about another term, which is still to be sealed.
            self.ending.take_if(|ending| ending.view().id.attempt == id.attempt);
            self.emit_view();
            self.release(now, id.attempt, Stages::All, keys_until, keep_until);
            self.retry.not_before = now;
        } else {
            self.seal(now, id, EndReason::Decided, valid_until, keys_until);
        }
    }

    fn seal(&mut self, now: Time, id: TermId, reason: EndReason, valid_until: Time, keys_until: Time) {
        self.ending = Some(Box::new(Ending::new(&self.context.config, now, id, reason, valid_until, keys_until)));
        self.show_loss();
    }

    /// What follows when the machine breaks a local invariant in a release: it is replaced by a new one that does not hold the
    /// term. What the old one wanted to do is dropped, because it follows from a state that is wrong.
    ///
    /// The term is sealed, and its keys stay until they expire: the holder may still work, so a release would let another one
    /// begin beside it. A process that may not end terms adopts a published term instead, and must confirm it again: another
    /// process may keep it. No release of an earlier attempt is repeated, because it may be the wrong one.
    fn start_over(&mut self, now: Time, violation: Violation) {
        let mut fresh = Self::new(self.context.config.clone());
        // A late answer to the old machine is no answer to the new one, so the rounds are numbered on.
        fresh.context = Context { held_until: Time(0), effects: VecDeque::new(), ..self.context.clone() };
        let old = core::mem::replace(self, fresh);
        self.context.effects.push_back(Effect::Broken(Box::new(Broken { violation, view: old.shown.clone() })));
        self.shown = old.shown;
        if let Some(term) = old.term {
            let is_published = !term.is_publishing();
            let (id, _, keys_until) = term.ends();
            if is_published && self.context.config.deadline == OnDeadline::Unconfirm {
                self.adopt(now, id, false);
            } else {
                // The times of the old machine may be wrong, but no key of the term can last longer than this.
                let until = keys_until.max(now + self.context.config.longest_life());
                self.seal(now, id, EndReason::Defect, until, until);
            }
        }
        self.emit_view();
        self.advance(now);
    }
}
