//! One lease in a shard: the core machine, and the execution of its effects.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::lease::{
    Attempts, Config, Effect, Input, JOIN_DELAY, Lease, OnDeadline, Renewal, Requested, Round, Standing, Want,
};
use redislease_core::op::{Attempt, Holder, Token, Vote};
use redislease_core::time::{Millis, Time};

use super::pace::{self, Turns};
use super::slots::LeaseId;
use super::timers::Armed;
use super::{Command, MayEnd, Observer, Setup};
use crate::mailbox::Mailbox;
use crate::nodes::random::{Random, nonce};
use crate::nodes::{Ballot, Nodes, Outbox, Reply, Request};

/// How long a closed lease waits for the answers to its releases.
const LAST_ANSWERS: Millis = Millis(2000);

/// State shared by the machines of a shard.
pub(super) struct Tools {
    pub ballots: Arc<Mailbox<Ballot>>,
    pub turns: Turns,
    pub random: Random,
}

/// What happens to a machine after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Keep,
    Remove,
}

pub(super) struct Machine {
    id: LeaseId,
    lease: Lease,
    /// The index of its quorum in the shard.
    pub quorum: Option<u32>,
    keys: Arc<[String]>,
    /// What the configuration says about a term that cannot be kept.
    on_deadline: OnDeadline,
    may_end: Option<Arc<dyn MayEnd>>,
    jump_wait: Option<Millis>,
    pub observer: Box<dyn Observer>,
    pub armed: Armed,
    /// Requests without a vote so far.
    outstanding: u32,
    attempts: Attempts,
    /// It retires when its last key has expired.
    retiring: bool,
    /// It closes when its requests are answered, at this time at the latest.
    closing: Option<Time>,
    /// The round that releases the keys before it closes, and how many nodes have deleted them.
    releasing: Option<(Round, usize)>,
}

impl Machine {
    pub fn new(id: LeaseId, setup: Setup, quorum: Option<u32>) -> Self {
        let Setup { nodes: _, keys, config, may_end, jump_wait, observer } = setup;
        let on_deadline = config.deadline;
        let mut lease = Lease::new(config);
        lease.delay_joins(JOIN_DELAY);
        Self {
            id,
            lease,
            quorum,
            keys,
            on_deadline,
            may_end,
            jump_wait,
            observer,
            armed: Armed::default(),
            outstanding: 0,
            attempts: Attempts::default(),
            retiring: false,
            closing: None,
            releasing: None,
        }
    }

    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    pub fn renew_interval(&self) -> Millis {
        self.lease.config().renew_interval
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.closing.or_else(|| self.lease.next_deadline())
    }

    fn outcome(&self) -> Outcome {
        let done = match self.closing {
            Some(_) => self.outstanding == 0,
            None => self.retiring && self.lease.is_quiet(),
        };
        if done { Outcome::Remove } else { Outcome::Keep }
    }

    pub fn vote(&mut self, now: Time, ballot: Ballot, outbox: Option<&mut Outbox>, tools: &mut Tools) -> Outcome {
        let Ballot { round, node, vote, .. } = ballot;
        self.outstanding = self.outstanding.saturating_sub(1);
        self.count_release(round, &vote);
        if self.closing.is_none() {
            self.handle(now, Input::Vote { round, node, vote }, outbox, tools);
        }
        self.outcome()
    }

    /// Time passed.
    pub fn wake(&mut self, now: Time, outbox: Option<&mut Outbox>, tools: &mut Tools) -> Outcome {
        if let Some(until) = self.closing {
            return if now >= until { Outcome::Remove } else { Outcome::Keep };
        }
        if self.lease.next_round_at().is_some_and(|due| due <= now && self.lease.held_until() < due) {
            self.take_turn(now, tools);
        }
        self.handle(now, Input::Wake, outbox, tools);
        self.outcome()
    }

    pub fn command(&mut self, now: Time, command: Command, outbox: Option<&mut Outbox>, tools: &mut Tools) -> Outcome {
        if self.closing.is_some() {
            return self.outcome();
        }
        match command {
            Command::Want(holder) => {
                let floor = outbox.as_ref().map_or(Token(0), |outbox| outbox.nodes().floor());
                self.want(now, holder, floor, outbox, tools);
            }
            Command::Adopt(term) => self.begin(now, Input::Adopt(term), outbox, tools),
            Command::TryNow if self.running().is_some() => self.begin(now, Input::TryNow, outbox, tools),
            Command::ClockJumped => self.begin(now, Input::ClockJumped, outbox, tools),
            Command::Release { keep_until } => self.release(now, keep_until, outbox, tools),
            Command::KeepKeysFor(life) => self.lease.keep_keys_for(life),
            Command::Close => {
                self.lease.abandon(now);
                self.closing = Some(now + self.lease.config().command_timeout.min(LAST_ANSWERS));
                self.carry_out(now, outbox, tools);
            }
            command => {
                if let Some(input) = self.input(now, command, tools) {
                    self.handle(now, input, outbox, tools);
                }
            }
        }
        self.outcome()
    }

    /// The input of a command that begins no round. `None` for the other commands.
    fn input(&mut self, now: Time, command: Command, tools: &mut Tools) -> Option<Input> {
        Some(match command {
            Command::TryNow => Input::TryNow,
            Command::Prove => Input::NodeReturned { ask_by: now },
            Command::Configure(config) => {
                self.on_deadline = config.deadline;
                tools.turns.remove(self.renew_interval());
                tools.turns.add(config.renew_interval);
                Input::Configure(*config)
            }
            Command::Retire => {
                self.retiring = true;
                Input::Forget
            }
            Command::Forget => Input::Forget,
            Command::UnconfirmedShown(attempt) => Input::UnconfirmedShown(attempt),
            Command::KeptElsewhere(attempt) => Input::KeptElsewhere(attempt),
            Command::End { term, proof } => {
                self.attempts.term_ends(now, &mut self.lease, &term, proof);
                Input::End { term, proof }
            }
            Command::Published { attempt, outcome } => Input::Published { attempt, outcome },
            Command::Want(_)
            | Command::Adopt(_)
            | Command::ClockJumped
            | Command::Release { .. }
            | Command::KeepKeysFor(_)
            | Command::Close => return None,
        })
    }

    /// Releases what exists, or keeps it until a time, and closes.
    fn release(&mut self, now: Time, keep_until: Option<Time>, outbox: Option<&mut Outbox>, tools: &mut Tools) {
        self.releasing = self.running().map(|_| (Round(u32::MAX), 0));
        let input = self.lease.letting_go(keep_until);
        self.handle(now, input, outbox, tools);
        self.closing = Some(now + self.lease.config().command_timeout.min(LAST_ANSWERS));
    }

    /// Reports when a majority has deleted the keys, or set their end.
    fn count_release(&mut self, round: Round, vote: &Vote) {
        let Some((releasing, deleted)) = &mut self.releasing else { return };
        if *releasing == round && matches!(vote, Vote::Released(_)) {
            *deleted += 1;
            if *deleted == self.lease.config().quorum.majority() {
                self.observer.released();
            }
        }
    }

    /// Whether a term runs or an attempt is under way.
    pub fn is_taken(&self) -> bool {
        !matches!(self.lease.view().standing, Standing::Idle)
    }

    /// A node votes again and may not hold the term: the next round, which asks it, gets a turn that may come before the
    /// next renewal.
    pub fn node_returned(&mut self, now: Time, outbox: Option<&mut Outbox>, tools: &mut Tools) -> Outcome {
        if self.closing.is_none() && self.is_taken() {
            // Without a next round, one is under way.
            let turn = self.lease.next_round_at().map_or(Some(now), |due| tools.turns.join(now, due));
            if let Some(ask_by) = turn {
                self.handle(now, Input::NodeReturned { ask_by }, outbox, tools);
            }
        }
        self.outcome()
    }

    /// Handles the return of a majority of nodes: retries the renewal of a term whose last renewal failed, then the
    /// attempts that wait for their backoff, in order of urgency.
    pub fn recovers(&self, now: Time) -> Option<Time> {
        let view = self.lease.view();
        if let Some(term) = view.standing.term() {
            return (term.failed_rounds > 0).then(|| term.stop_at.unwrap_or(Time(0)));
        }
        // After a refusal, the keys are free only at the time that the refusal names.
        let waits = view.refused_by.is_none() && view.retry_at.is_some_and(|retry_at| retry_at > now);
        waits.then_some(Time(u64::MAX))
    }

    /// Makes one attempt, or none: see [`Attempts`].
    fn want(&mut self, now: Time, holder: Holder, floor: Token, mut outbox: Option<&mut Outbox>, tools: &mut Tools) {
        let void_until = outbox.as_ref().and_then(|outbox| self.void_until(outbox.nodes()));
        if let Some(until) = void_until.filter(|until| now < *until && !self.lease.is_taken_for(&holder)) {
            self.lease.hold(until);
            return self.handle(now, Input::Wake, outbox, tools);
        }
        match self.attempts.request(now, &mut self.lease, &holder, || tools.turns.attempt(now)) {
            Requested::Dropped => return,
            Requested::Waits => return self.handle(now, Input::Wake, outbox, tools),
            Requested::Starts => {}
            Requested::StartsWithoutTurn => tools.turns.attempt_started(now),
        }
        let drawn = nonce().and_then(|attempt| Ok((Attempt(attempt), Entropy(tools.random.word()?))));
        let (attempt, entropy) = match drawn {
            Ok(drawn) => drawn,
            Err(error) => {
                tracing::error!(%error, %holder, "cannot start an attempt: the operating system provides no random numbers");
                // The caller does not wait in vain.
                return self.observer.changed(self.lease.view());
            }
        };
        self.handle(now, Input::Want(Want { holder, attempt, floor, entropy }), outbox.as_deref_mut(), tools);
        if self.lease.next_attempt_at().is_some() {
            self.handle(now, Input::Forget, outbox, tools);
        }
    }

    /// Handles an input that makes a round due. The round starts at its reserved time.
    fn begin(&mut self, now: Time, input: Input, mut outbox: Option<&mut Outbox>, tools: &mut Tools) {
        self.lease.hold(Time(u64::MAX));
        self.handle(now, input, outbox.as_deref_mut(), tools);
        self.take_turn(now, tools);
        self.handle(now, Input::Wake, outbox, tools);
    }

    /// Until when no attempt begins, after a jump of this process's clock.
    fn void_until(&self, nodes: &Nodes) -> Option<Time> {
        let wait = self.jump_wait.unwrap_or_else(|| nodes.longest_lease());
        nodes.jumped_at().map(|at| at + self.lease.config().drift.most(wait))
    }

    fn take_turn(&mut self, now: Time, tools: &mut Tools) {
        let due = self.lease.next_round_at().filter(|due| *due <= now);
        let turn = due.map(|_| tools.turns.round(now, self.latest_round(now)));
        self.lease.hold(turn.unwrap_or_default());
    }

    /// How long the next round may wait so that two more fit before the deadline if it fails. The state of an unconfirmed
    /// term is unknown, so its round waits for one retry interval at most.
    fn latest_round(&self, now: Time) -> Time {
        let config = self.lease.config();
        let pace = config.retry_pace();
        let stop_at = self.lease.view().standing.term().and_then(|term| term.stop_at);
        stop_at.map_or(now + pace, |stop_at| stop_at - (pace + pace + config.command_timeout))
    }

    fn handle(&mut self, now: Time, input: Input, outbox: Option<&mut Outbox>, tools: &mut Tools) {
        let may_end = self.may_end.as_ref().is_none_or(|may_end| may_end.may_end(now));
        let on_deadline = if may_end { self.on_deadline } else { OnDeadline::Unconfirm };
        let input = match input {
            Input::Configure(config) => Input::Configure(Config { deadline: on_deadline, ..config }),
            input => input,
        };
        self.lease.set_on_deadline(on_deadline);
        self.lease.handle(now, input);
        self.carry_out(now, outbox, tools);
    }

    fn carry_out(&mut self, now: Time, mut outbox: Option<&mut Outbox>, tools: &mut Tools) {
        while let Some(effect) = self.lease.poll_effect() {
            match effect {
                Effect::Send { round, node, op, give_up_at } => {
                    self.outstanding += 1;
                    if let Some((releasing @ Round(u32::MAX), _)) = &mut self.releasing
                        && op.is_release()
                    {
                        *releasing = round;
                    }
                    let reply = Reply::to_shard(tools.ballots.clone(), self.id.pack(), round, node);
                    match &mut outbox {
                        Some(outbox) => outbox.put(node, Request { keys: self.keys.clone(), op, give_up_at }, reply),
                        None => reply.give(Vote::Abstained),
                    }
                }
                // The view stays at Publishing until the caller has published the term.
                Effect::Publish(id) => self.lease.renew_by(self.next_phase(now, id.attempt)),
                Effect::Renewed(renewal) => {
                    self.spread(now, &renewal);
                    self.observer.renewed(&renewal, self.lease.config().ttl.0);
                }
                Effect::Changed(view) => self.observer.changed(&view),
            }
        }
    }

    fn next_phase(&self, began: Time, attempt: Attempt) -> Time {
        pace::next_phase(began, self.renew_interval(), attempt)
    }

    /// Schedules the next round at the phase of the term, or a retry together with others that are due then.
    fn spread(&mut self, now: Time, renewal: &Renewal) {
        let attempt = self.running();
        let at = match (renewal, attempt, self.lease.next_round_at()) {
            (Renewal::Success { took, .. }, Some(attempt), _) => self.next_phase(now - *took, attempt),
            (_, Some(_), Some(next)) => pace::gathered(next, self.renew_interval(), now),
            _ => return,
        };
        self.lease.renew_by(at);
    }

    /// The attempt of the running term.
    fn running(&self) -> Option<Attempt> {
        self.lease.view().standing.term().map(|term| term.id.attempt)
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
