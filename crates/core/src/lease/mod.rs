//! The life of one lease in one process: take it, publish it, keep it, end it.
//!
//! The machine is fed with [`Input`]s and drained of [`Effect`]s. It has no clock, no randomness and no socket: `now`
//! and random words are arguments, so the same inputs replay the same run.
//!
//! ```text
//!   Want ──▶ acquiring ──▶ publishing ──▶ held ──┐ deadline, misses, End
//!              │ failed      │ superseded        ▼
//!              ▼             └─────────────▶  ending (sealed until its keys end)
//!            back-off          Adopt ──▶ adopting ──▶ held
//! ```

mod acquire;
mod cleanup;
mod ending;
#[cfg(feature = "reference")]
mod rebase;
mod schedule;
mod term;
mod view;

#[cfg(test)]
mod rebase_tests;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[cfg(feature = "reference")]
pub use rebase::Renumbering;
pub use view::{EndReason, EndingView, Standing, TermView, View};

use crate::backoff::{Backoff, Entropy};
use crate::mutant::Mutant;
use crate::op::{Attempt, Holder, Op, Stages, Stored, Token, Vote};
use crate::quorum::{Node, Quorum};
use crate::time::{Drift, Millis, Time};
use acquire::Acquiring;
use cleanup::Cleanup;
use ending::Ending;
use term::Term;

/// What a lease is kept by. It may change while the lease is held: the next extension begun after that uses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The configured nodes. Never changes.
    pub quorum: Quorum,
    /// How long a node keeps the keys after the last extension.
    pub ttl: Millis,
    /// From the start of a good round to the start of the next.
    pub renew_interval: Millis,
    /// How long before the end of validity this process gives up: what the holder needs to stop.
    pub stop_budget: Millis,
    /// How long one request to one node may take.
    pub command_timeout: Millis,
    /// How far clocks may run apart.
    pub drift: Drift,
    /// Between two tries to acquire.
    pub backoff: Backoff,
    /// The rule to break; `None` outside the checkers.
    pub mutant: Option<Mutant>,
}

impl Config {
    /// From the start of a failed round to the start of the next: often enough for a lost packet to cost nothing,
    /// and no storm when every node is gone.
    pub fn retry_pace(&self) -> Millis {
        let brisk = Millis((self.renew_interval.0 / 2).min(self.ttl.0 / 10));
        self.command_timeout.max(brisk).max(Millis(1))
    }

    /// How long a holder may be believed in after the start of a round with this TTL.
    fn validity(&self, ttl: Millis) -> Millis {
        if self.mutant == Some(Mutant::NoDriftMargin) { ttl } else { self.drift.least(ttl) }
    }
}

/// Numbers the groups of requests, so that an answer finds the question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u32);

/// One uninterrupted tenure of one holder, named by attempt and token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermId {
    /// The attempt that took it.
    pub attempt: Attempt,
    /// Its fencing token.
    pub token: Token,
    /// Who holds.
    pub holder: Holder,
}

/// A wish to hold. One want is one attempt: after a failure the driver wants again, with a fresh attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// For whom.
    pub holder: Holder,
    /// 128 fresh random bits.
    pub attempt: Attempt,
    /// The highest token any status of this quorum has shown: the new token will be greater.
    pub floor: Token,
    /// For the delay after a failure.
    pub entropy: Entropy,
}

/// What became of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publication {
    /// The status names this term.
    Written,
    /// No answer, and a later read could not tell: it counts as written, and nobody is told yet.
    Unknown,
    /// The status certainly shows a lower token: write again while there is time.
    NotWritten,
    /// A greater token, another resource of the same name, or no resource: this term is never published.
    Superseded,
}

/// What happens to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Replaces whatever was wanted before. Ignored while a term runs.
    Want(Want),
    /// Nobody is wanted any more. An unpublished attempt is given up.
    Forget,
    /// Something relevant changed: try now instead of waiting for the back-off, or for the next round after one that
    /// failed.
    TryNow,
    /// The status names this term and says that it is active: go on with it. Ignored while a term runs.
    Adopt(TermId),
    /// The status says that the term of this attempt is not confirmed: whoever can confirm it will say so. A term is not
    /// given up for want of a confirmation before that. Ignored unless it is [`Standing::Uncertain`].
    DoubtShown(Attempt),
    /// The status calls the term of this attempt active again, after this process had said there that it cannot confirm
    /// it: another process does. Ignored unless it is being adopted.
    KeptElsewhere(Attempt),
    /// The term is over by decision; also for a term that only the status knows.
    End {
        /// Which.
        term: TermId,
        /// Whether the holder is proven to have stopped: then the keys are released at once, otherwise sealed.
        proof: bool,
    },
    /// The answer to one [`Effect::Send`]. Each has exactly one, at its `give_up_at` at the latest.
    Vote {
        /// Of the request.
        round: Round,
        /// Of the request.
        node: Node,
        /// What the node said.
        vote: Vote,
    },
    /// What became of [`Effect::Publish`] for this attempt.
    Published {
        /// Of the effect.
        attempt: Attempt,
        /// What is known.
        outcome: Publication,
    },
    /// New durations.
    Configure(Config),
    /// Time passed.
    Wake,
}

/// How one round of renewal went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// A majority extended.
    Success {
        /// From the first byte to the deciding answer.
        took: Millis,
        /// What was left of the validity when the round succeeded.
        left: Millis,
    },
    /// Every node answered or failed, and no majority extended.
    NoQuorum,
    /// The time for the round ended without a majority.
    Timeout,
    /// So many nodes do not hold the term that it is lost.
    Lost,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask one node.
    Send {
        /// For the answer.
        round: Round,
        /// Whom.
        node: Node,
        /// What.
        op: Op,
        /// After this instant the node must not act any more, and the answer is [`Vote::Unknown`].
        give_up_at: Time,
    },
    /// Write the term into the status, if its token is greater than the status's. From here on it counts as written.
    Publish(TermId),
    /// A round of renewal ended.
    Renewed(Renewal),
    /// The view changed. One that ends validity comes before any new [`Effect::Send`].
    Changed(View),
}

/// One lease in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    config: Config,
    wanted: Option<Want>,
    acquiring: Option<Acquiring>,
    term: Option<Term>,
    ending: Option<Ending>,
    cleanups: Vec<Cleanup>,
    /// Failed tries of the present burst.
    tries: u32,
    not_before: Time,
    /// By the driver, see [`Lease::hold`].
    held_until: Time,
    refused_by: Option<Stored>,
    next_round: Round,
    shown: View,
    effects: VecDeque<Effect>,
}

impl Lease {
    /// A lease that nobody wants yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            wanted: None,
            acquiring: None,
            term: None,
            ending: None,
            cleanups: Vec::new(),
            tries: 0,
            not_before: Time(0),
            held_until: Time(0),
            refused_by: None,
            next_round: Round(0),
            shown: View::default(),
            effects: VecDeque::new(),
        }
    }

    /// What it is kept by.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What the last [`Effect::Changed`] said.
    pub const fn view(&self) -> &View {
        &self.shown
    }

    /// Whether an attempt for `holder` is under way or waits for its turn, or a term runs, for whomever.
    pub fn is_taken_for(&self, holder: &Holder) -> bool {
        let wanted = self.acquiring.as_ref().map(|acquiring| &acquiring.want).or(self.wanted.as_ref());
        self.term.is_some() || wanted.is_some_and(|want| want.holder == *holder)
    }

    /// Whether nothing is left to do until somebody asks for it.
    pub fn is_quiet(&self) -> bool {
        let idle = self.wanted.is_none() && self.acquiring.is_none() && self.term.is_none();
        idle && self.ending.is_none() && self.cleanups.is_empty()
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // Most leases wait most of the time: the buffer would double what one takes.
            self.effects = VecDeque::new();
        }
        effect
    }

    /// When to wake the machine, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        let start = self.next_attempt_at().map(|at| at.max(self.held_until));
        let acquiring = self.acquiring.as_ref().map(|acquiring| acquiring.next_deadline(&self.config));
        let term = self.term.as_ref().map(|term| term.next_deadline(&self.config, self.held_until));
        let ending = self.ending.as_ref().map(Ending::next_deadline);
        let cleanups = self.cleanups.iter().map(Cleanup::next_deadline).min();
        [start, acquiring, term, ending, cleanups].into_iter().flatten().min()
    }

    /// Takes one input. Local deadlines come first: what time has ended, no late answer revives.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.expire(now);
        match input {
            Input::Want(want) => self.want(now, want),
            Input::Forget => {
                self.wanted = None;
                self.refused_by = None;
                self.abandon(now);
            }
            Input::TryNow => {
                self.tries = 0;
                self.not_before = now;
                if let Some(term) = &mut self.term {
                    term.try_now(now);
                }
            }
            Input::Adopt(id) => self.adopt(now, id),
            Input::DoubtShown(attempt) => self.doubt_shown(now, attempt),
            Input::KeptElsewhere(attempt) => self.kept_elsewhere(now, attempt),
            Input::End { term, proof } => self.end(now, term, proof),
            Input::Vote { round, node, vote } => self.vote(now, round, node, vote),
            Input::Published { attempt, outcome } => self.published(now, attempt, outcome),
            // The nodes stay: ballots and sites are theirs.
            Input::Configure(config) => self.config = Config { quorum: self.config.quorum, ..config },
            Input::Wake => {}
        }
        self.expire(now);
        self.advance(now);
        self.show();
        debug_assert_eq!(crate::invariants::lease(self), Ok(()));
    }

    /// Gives up an attempt that was never sent for publication; for a process that shuts down.
    /// Published terms are left for the next process.
    pub fn abandon(&mut self, now: Time) {
        if let Some(acquiring) = self.acquiring.take() {
            self.release_failed(now, &acquiring);
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.config.mutant == Some(mutant)
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

    fn vote(&mut self, now: Time, round: Round, node: Node, vote: Vote) {
        if let Some(ending) = &mut self.ending
            && ending.round == Some(round)
        {
            ending.vote(now, &self.config, node, &vote);
            return;
        }
        if let Some(cleanup) = self.cleanups.iter_mut().find(|cleanup| cleanup.round == round) {
            cleanup.vote(node, &vote);
            return;
        }
        for cleanup in &mut self.cleanups {
            cleanup.late_vote(round, node, &vote);
        }
        if self.term.is_some() {
            self.term_vote(now, round, node, vote);
        } else if self.acquiring.is_some() {
            self.acquire_vote(now, round, node, &vote);
        }
    }

    /// Ends whatever time has ended.
    fn expire(&mut self, now: Time) {
        self.expire_acquiring(now);
        self.expire_term(now);
        if self.ending.as_ref().is_some_and(|ending| now >= ending.keys_until) {
            self.ending = None;
        }
        self.cleanups.retain(|cleanup| now < cleanup.until && !cleanup.done());
    }

    /// Begins whatever is due.
    fn advance(&mut self, now: Time) {
        self.advance_term(now);
        self.advance_ending(now);
        self.advance_cleanups(now);
        self.begin_acquire(now);
    }

    fn show(&mut self) {
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
        self.release(now, attempt, stages, until, &nodes);
    }

    fn release(&mut self, now: Time, attempt: Attempt, stages: Stages, until: Time, nodes: &[Node]) {
        if nodes.is_empty() {
            return;
        }
        let round = self.new_round();
        self.cleanups.push(Cleanup::new(&self.config, now, round, attempt, stages, until, nodes));
        for &node in nodes {
            self.send(round, node, Op::Release { attempt, stages }, now + self.config.command_timeout);
        }
    }
}
