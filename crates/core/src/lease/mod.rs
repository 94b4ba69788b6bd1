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
mod broken;
mod cleanup;
mod config;
mod ending;
mod event;
mod extension;
mod join;
#[cfg(feature = "check")]
#[path = "../check/lease_planted.rs"]
mod planted;
#[cfg(feature = "check")]
#[path = "../check/lease_rebase.rs"]
mod rebase;
mod schedule;
mod term;
mod view;

#[cfg(test)]
#[path = "../check/lease_rebase_tests.rs"]
mod rebase_tests;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use broken::Broken;
pub use config::{Config, LATE_WAKE, OnDeadline};
pub use event::{Effect, Input, Publication, Renewal, Round, TermId, Want};
#[cfg(feature = "check")]
pub use rebase::Renumbering;
pub(crate) use schedule::{Attempts, JOIN_DELAY, Requested};
pub use view::{EndReason, EndingView, Refusal, Standing, TermView, View};

use crate::op::{Attempt, Holder, Op, Stages, Stored, Vote};
use crate::quorum::Node;
use crate::rules::Rules;
use crate::time::{Millis, Time};
use acquire::Acquiring;
use cleanup::Cleanup;
use ending::Ending;
use term::Term;

/// One lease in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    config: Config,
    pub(crate) rules: Rules,
    wanted: Option<Want>,
    acquiring: Option<Acquiring>,
    term: Option<Term>,
    ending: Option<Ending>,
    cleanups: Vec<Cleanup>,
    /// Failed attempts of the present burst.
    tries: u32,
    /// Earliest start of the next attempt, by the back-off.
    not_before: Time,
    /// Earliest start of the next attempt or round, by the driver: see [`Lease::hold`].
    held_until: Time,
    /// See [`Lease::delay_joins`].
    join_delay: Millis,
    /// See [`Lease::keep_keys_for`].
    least_life: Millis,
    refused_by: Option<Stored>,
    refusal: Option<Refusal>,
    next_round: Round,
    shown: View,
    effects: VecDeque<Effect>,
}

impl Lease {
    /// Creates a machine without a term and without a request.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            rules: Rules::NONE,
            wanted: None,
            acquiring: None,
            term: None,
            ending: None,
            cleanups: Vec::new(),
            tries: 0,
            not_before: Time(0),
            held_until: Time(0),
            join_delay: Millis::ZERO,
            least_life: Millis::ZERO,
            refused_by: None,
            refusal: None,
            next_round: Round(0),
            shown: View::default(),
            effects: VecDeque::new(),
        }
    }

    /// The present configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The view of the last [`Effect::Changed`].
    pub const fn view(&self) -> &View {
        &self.shown
    }

    /// Whether an attempt for `holder` is under way or waits for its start, or a term of any holder runs.
    pub fn is_taken_for(&self, holder: &Holder) -> bool {
        let wanted = self.acquiring.as_ref().map(|acquiring| &acquiring.want).or(self.wanted.as_ref());
        self.term.is_some() || wanted.is_some_and(|want| want.holder == *holder)
    }

    /// Whether nothing is left to do until the next input.
    pub fn is_quiet(&self) -> bool {
        let idle = self.wanted.is_none() && self.acquiring.is_none() && self.term.is_none();
        idle && self.ending.is_none() && self.cleanups.is_empty()
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if breaks!(self.rules, EffectRepeated) {
            return self.effects.front().cloned();
        }
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // Most leases wait most of the time: an empty buffer would double the memory of one.
            self.effects = VecDeque::new();
        }
        effect
    }

    /// When the machine needs [`Input::Wake`], if no other input comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let start = self.next_attempt_at().map(|at| at.max(self.held_until));
        let acquiring = self.acquiring.as_ref().map(|acquiring| acquiring.next_deadline(&self.config));
        let term = self.term_deadline();
        let ending = self.ending.as_ref().map(Ending::next_deadline);
        let cleanups = self.cleanups.iter().map(Cleanup::next_deadline).min();
        [start, acquiring, term, ending, cleanups].into_iter().flatten().min()
    }

    /// Earliest start of an attempt: after the back-off, and after the last term if its seal is not effective.
    fn attempt_allowed_at(&self) -> Time {
        match &self.ending {
            Some(ending) if !ending.effective => self.not_before.max(ending.valid_until),
            _ => self.not_before,
        }
    }

    /// What to do with a term that this process cannot keep, from now on. Call it before an input if the right to end terms
    /// depends on the time: a process that was paused may have lost it.
    pub const fn set_on_deadline(&mut self, deadline: OnDeadline) {
        self.config.deadline = deadline;
    }

    /// Takes one input. Local deadlines come first: a late answer does not revive what time has ended.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Input::Configure(config) = &input {
            // A process that has lost leadership must not seal at a deadline that passes at this instant.
            self.config.deadline = config.deadline;
        }
        self.expire(now);
        match input {
            Input::Want(want) => self.want(now, want),
            Input::Forget => {
                self.wanted = None;
                (self.refused_by, self.refusal) = (None, None);
                self.abandon(now);
                #[cfg(feature = "check")]
                if breaks!(self.rules, ForgetReleasesPublishing) {
                    self.release_unpublished(now);
                }
            }
            Input::TryNow => {
                self.tries = 0;
                self.not_before = now;
                if let Some(term) = &mut self.term {
                    term.try_now(now);
                }
            }
            Input::Adopt(id) => self.adopt(now, id),
            Input::UnconfirmedShown(attempt) => self.unconfirmed_shown(now, attempt),
            Input::KeptElsewhere(attempt) => self.kept_elsewhere(now, attempt),
            Input::End { term, proof } => self.end(now, term, proof, None),
            Input::Keep { term, until } => self.end(now, term, true, Some(until)),
            Input::Vote { round, node, vote } => self.vote(now, round, node, &vote),
            Input::Published { attempt, outcome } => self.published(now, attempt, outcome),
            // The nodes stay: ballots and terms are recorded for each of them.
            Input::Configure(config) => self.config = Config { quorum: self.config.quorum, ..config },
            Input::ClockJumped => self.void(now),
            Input::NodeReturned { ask_by } => self.node_returned(ask_by),
            Input::Wake => {}
        }
        self.expire(now);
        self.advance(now);
        self.emit_view();
        // A checker that plants a bug must find it by itself.
        if self.rules == Rules::NONE
            && let Err(violation) = crate::invariants::local(now, self)
        {
            debug_assert!(false, "{violation}: {self:?}");
            self.start_over(now, violation);
        }
    }

    /// Gives up an attempt that was never sent for publication; for a process that shuts down. Published terms are left
    /// for the next process.
    pub fn abandon(&mut self, now: Time) {
        if let Some(acquiring) = self.acquiring.take() {
            self.release_failed(now, &acquiring);
        }
    }

    /// How long a term is valid after the start of a successful round with this TTL.
    fn validity(&self, ttl: Millis) -> Millis {
        if breaks!(self.rules, NoDriftMargin) { ttl } else { self.config.drift.least(ttl) }
    }

    fn want(&mut self, now: Time, want: Want) {
        if self.term.is_some() {
            return;
        }
        if self.acquiring.as_ref().is_some_and(|acquiring| acquiring.want.holder != want.holder) {
            self.abandon(now);
        }
        self.wanted = Some(want);
    }

    fn vote(&mut self, now: Time, round: Round, node: Node, vote: &Vote) {
        if let Some(ending) = &mut self.ending
            && ending.round == Some(round)
        {
            ending.vote(now, &self.config, self.rules, node, vote);
            return;
        }
        if let Some(cleanup) = self.cleanups.iter_mut().find(|cleanup| cleanup.round == round) {
            cleanup.vote(node, vote);
            return;
        }
        for cleanup in &mut self.cleanups {
            cleanup.late_vote(round, node, vote);
        }
        if self.term.is_some() {
            self.term_vote(now, round, node, vote);
        } else if self.acquiring.is_some() {
            self.acquire_vote(now, round, node, vote);
        }
    }

    /// Ends everything whose time has come.
    fn expire(&mut self, now: Time) {
        self.expire_acquiring(now);
        self.expire_term(now);
        if self.ending.as_ref().is_some_and(|ending| now >= ending.keys_until) {
            self.ending = None;
        }
        self.cleanups.retain(|cleanup| now < cleanup.until && !cleanup.done());
    }

    /// Begins everything that is due.
    fn advance(&mut self, now: Time) {
        self.advance_term(now);
        self.advance_ending(now);
        self.advance_cleanups(now);
        self.begin_acquire(now);
    }

    fn emit_view(&mut self) {
        let view = view::of(self);
        if view != self.shown {
            self.shown = view.clone();
            self.effects.push_back(Effect::Changed(view));
        }
    }

    fn new_round(&mut self) -> Round {
        let round = self.next_round;
        self.next_round = Round(round.0.wrapping_add(1));
        round
    }

    fn send(&mut self, round: Round, node: Node, op: Op, give_up_at: Time) {
        self.effects.push_back(Effect::Send { round, node, op, give_up_at });
    }

    fn release_everywhere(&mut self, now: Time, attempt: Attempt, stages: Stages, until: Time) {
        let nodes: Vec<Node> = self.config.quorum.nodes().collect();
        self.release(now, attempt, stages, until, &nodes, None);
    }

    /// Ends a term whose holder has stopped. Its keys may be kept until a time.
    fn release_term(&mut self, now: Time, attempt: Attempt, until: Time, keep_until: Option<Time>) {
        let nodes: Vec<Node> = self.config.quorum.nodes().collect();
        self.release(now, attempt, Stages::All, until, &nodes, keep_until);
    }

    fn release(
        &mut self,
        now: Time,
        attempt: Attempt,
        stages: Stages,
        until: Time,
        nodes: &[Node],
        keep_until: Option<Time>,
    ) {
        if nodes.is_empty() {
            return;
        }
        let round = self.new_round();
        if self.cleanups.len() >= cleanup::MOST {
            // A key of the oldest may be what stands on a node since it went away: nothing that followed was granted there.
            self.cleanups.remove(cleanup::MOST / 2);
        }
        let mut cleanup = Cleanup::new(&self.config, now, round, attempt, stages, until, nodes);
        cleanup.keep_until = keep_until;
        let op = cleanup.op(now);
        self.cleanups.push(cleanup);
        for &node in nodes {
            self.send(round, node, op.clone(), now + self.config.command_timeout);
        }
    }
}
