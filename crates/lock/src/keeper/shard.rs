//! One shard: a task that drives the machines of its leases.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::vec::IntoIter;

use redislease_core::driver::{Command, Input, LeaseId, Turns, concerned};
use redislease_core::time::{Millis, Time};
use tokio::task::AbortHandle;

use super::Setup;
use super::handle::{FirstAttempt, Message, Shared};
use super::linger::Linger;
use super::machine::{Machine, Outcome, Tools};
use super::returns::watch_nodes;
use super::slots::Slots;
use super::timers::Timers;
use crate::PanicObserver;
use crate::clock::{self, Alarm};
use crate::contain::contained;
use crate::mailbox::Mailbox;
use crate::nodes::random::Random;
use crate::nodes::{Ballot, Outbox};

/// The polling interval of a shard that has no system timer.
const POLL: Duration = Duration::from_millis(50);
/// How many votes, commands, timers and leases of a broadcast are handled before the other tasks on this thread run.
const AT_ONCE: usize = 1000;
/// How many times new events are handled before the requests are sent. Between them the other tasks on this thread run. A task
/// that uses a lease needs three: its term is confirmed; it publishes and ends the term; it wants the next one.
const PASSES: usize = 3;

/// The nodes of the shard's leases, while there are any.
struct Quorum {
    outbox: Outbox,
    watcher: AbortHandle,
}

pub(super) struct Shard {
    shared: Arc<Shared>,
    pub slots: Slots<Machine>,
    timers: Timers,
    /// `None` if the operating system cannot create one.
    alarm: Option<Alarm>,
    tools: Tools,
    quorum: Option<Quorum>,
    messages: VecDeque<Message>,
    /// Inputs for many leases, and the leases that have not got them.
    broadcasts: VecDeque<(Input, IntoIter<LeaseId>)>,
    received: Vec<Message>,
    ballots: VecDeque<Ballot>,
    received_ballots: Vec<Ballot>,
    pub ends_when_empty: bool,
    /// The last reading of the clock.
    now: Time,
    /// The work since the other tasks had their turn, in leases.
    handled: usize,
    linger: Linger,
}

impl Shard {
    pub fn new(shared: Arc<Shared>, panics: Arc<dyn PanicObserver>) -> Self {
        Self {
            shared,
            slots: Slots::new(),
            timers: Timers::default(),
            alarm: None,
            tools: Tools { ballots: Arc::new(Mailbox::new()), turns: Turns::new(), random: Random::new(), panics },
            quorum: None,
            messages: VecDeque::new(),
            broadcasts: VecDeque::new(),
            received: Vec::new(),
            ballots: VecDeque::new(),
            received_ballots: Vec::new(),
            ends_when_empty: false,
            now: Time(0),
            handled: 0,
            linger: Linger::default(),
        }
    }

    pub async fn run(&mut self, alarm: io::Result<Alarm>) {
        self.alarm = alarm.map_err(|error| no_timer(&error)).ok();
        loop {
            let more = self.handle().await;
            self.send();
            if self.ends_when_empty && self.slots.len() == 0 {
                return;
            }
            if more {
                // The tasks of the nodes and the watcher of the quorum run on this thread too.
                tokio::task::yield_now().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// Handles all events, and those that the tasks on this thread cause then: a release and the acquire that follows it are
    /// sent together. Returns whether there are more.
    async fn handle(&mut self) -> bool {
        self.handled = 0;
        for pass in 1..=PASSES {
            let before = self.handled;
            self.now = clock::now();
            let more_ballots = self.take_ballots();
            self.take_messages();
            self.take_broadcasts();
            let more_timers = more_ballots || self.take_timers();
            let has_work = !self.messages.is_empty() || !self.broadcasts.is_empty();
            if has_work || more_timers || self.handled >= AT_ONCE {
                return true;
            }
            if self.handled == before || pass == PASSES {
                break;
            }
            other_tasks().await;
        }
        false
    }

    /// Returns when there may be work.
    async fn wait(&mut self) {
        let (ballots, inbox) = (&self.tools.ballots, &self.shared.inbox);
        if self.linger.wait(|| !inbox.is_empty(), || !ballots.is_empty()).await {
            return;
        }
        let next = self.timers.next();
        if let Some(Err(error)) = self.alarm.as_mut().map(|alarm| alarm.set_no_later(next)) {
            no_timer(&error);
            self.alarm = None;
        }
        let alarm = &mut self.alarm;
        let timer = async {
            if let Some(alarm) = alarm {
                return alarm.expired().await;
            }
            tokio::time::sleep(POLL).await;
            Ok(())
        };
        tokio::select! {
            biased;
            () = self.tools.ballots.filled() => {}
            // It is also told of what was taken before.
            () = self.shared.inbox.filled() => if !self.shared.inbox.is_empty() {
                self.linger.answered();
            },
            waited = timer => if let Err(error) = waited {
                no_timer(&error);
                self.alarm = None;
            },
        }
    }

    /// Votes are handled before timers, so that a process that was paused does not treat votes that have already arrived
    /// as missing. Returns whether there are more.
    fn take_ballots(&mut self) -> bool {
        if self.ballots.is_empty() {
            self.tools.ballots.take(&mut self.received_ballots);
            self.ballots.extend(self.received_ballots.drain(..));
            self.received_ballots.shrink_to(AT_ONCE);
        }
        for _ in 0..AT_ONCE {
            let Some(ballot) = self.ballots.pop_front() else { break };
            self.linger.voted();
            let Ballot { lease, round, node, vote } = ballot;
            self.with(lease, Input::Vote { round, node, vote });
        }
        if self.ballots.is_empty() {
            self.ballots.shrink_to(AT_ONCE);
        }
        !self.ballots.is_empty()
    }

    fn take_messages(&mut self) {
        self.shared.inbox.take(&mut self.received);
        if !self.received.is_empty() {
            // Another thread may have sent a command at a later time than the last reading: `retry_at`, for example.
            self.now = clock::now();
        }
        self.messages.extend(self.received.drain(..));
        self.received.shrink_to(AT_ONCE);
        for _ in 0..AT_ONCE {
            match self.messages.pop_front() {
                Some(Message::Open(id, setup, first)) => self.open(id, *setup, first),
                Some(Message::Command(id, command)) => self.with(id, Input::Command(command, None)),
                Some(Message::All(input)) => self.tell_all(input),
                Some(Message::EndWhenEmpty) => self.ends_when_empty = true,
                Some(Message::ShutDown) => self.shut_down(),
                #[cfg(test)]
                Some(Message::Run(planted)) => planted(),
                None => break,
            }
        }
        if self.messages.is_empty() {
            self.messages.shrink_to(AT_ONCE);
        }
    }

    /// Whether there may be more.
    fn take_timers(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            let now = self.now;
            let Some(slot) = self.timers.pop(now) else { return false };
            let Some((id, machine)) = self.slots.get(slot) else { continue };
            let (id, deadline) = (*id, machine.driver.next_deadline());
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.with(id, Input::Wake);
            } else {
                self.timers.arm(slot, deadline);
            }
        }
        true
    }

    /// Gives an input to one lease. A panic ends only this lease.
    fn with(&mut self, to: LeaseId, input: Input) {
        self.handled += 1;
        // Leases handled together share one clock reading. An older reading delays a deadline slightly and never lengthens
        // a validity.
        if self.handled.is_multiple_of(32) {
            self.now = clock::now();
        }
        let now = self.now;
        let Some(mut entry) = self.slots.take(to.slot) else { return };
        let machine = &mut entry.1;
        let outbox = self.quorum.as_mut().map(|quorum| &mut quorum.outbox);
        let tools = &mut self.tools;
        match contained(|| machine.handle(now, to, input, outbox, tools)) {
            Ok(Outcome::Keep) => {
                // Without this, a deadline in the past would cause a busy loop.
                let deadline = machine.driver.next_deadline().map(|deadline| deadline.max(now + Millis(1)));
                self.timers.arm(to.slot, deadline);
                self.slots.put(entry);
            }
            Ok(Outcome::Remove) => self.end(entry),
            Err(panicked) => {
                self.tools.panics.panicked();
                tracing::error!(keys = ?machine.keys(), "the task of a lease or lock panicked; it is not renewed any more and expires with its TTL. Report this bug: {panicked}");
                self.end(entry);
            }
        }
    }

    fn open(&mut self, id: LeaseId, setup: Setup, first: Option<FirstAttempt>) {
        if self.quorum.is_none() {
            // All leases of a shard are on the same nodes, or on none.
            self.quorum = setup.nodes.clone().map(|nodes| {
                let watcher = tokio::spawn(watch_nodes(&nodes, self.shared.clone())).abort_handle();
                Quorum { outbox: Outbox::new(nodes), watcher }
            });
        }
        let machine = Machine::new(id, setup, &mut self.tools.turns);
        let entry = Box::new((id, machine));
        if self.ends_when_empty {
            // It was opened beside the shutdown, which has closed the others.
            return self.end(entry);
        }
        self.slots.put(entry);
        let Some(FirstAttempt { holder, least_life }) = first else { return };
        if least_life > Millis::ZERO {
            self.with(id, Input::Command(Command::KeepKeysFor(least_life), None));
        }
        self.with(id, Input::Command(Command::Want(holder), None));
    }

    fn end(&mut self, entry: Box<(LeaseId, Machine)>) {
        let (id, Machine { driver, observer, .. }) = *entry;
        driver.leave(&mut self.tools.turns);
        self.shared.give_back(id);
        // The observer is code of the caller and may panic.
        if let Err(panicked) = contained(|| observer.ended()).and_then(|()| contained(|| drop(observer))) {
            self.tools.panics.panicked();
            tracing::error!("the observer of an ended lease or lock panicked. Report this bug: {panicked}");
        }
    }

    /// Gives an input to the leases that it concerns.
    fn tell_all(&mut self, input: Input) {
        let drivers = self.slots.iter().map(|(_, machine)| &machine.driver);
        let leases = concerned(self.now, &input, drivers, &mut self.tools.turns).into_iter();
        if input == Input::ClockJumped {
            // Everything that began before now is void. All leases are told in one go.
            leases.for_each(|id| self.with(id, Input::ClockJumped));
        } else {
            self.broadcasts.push_back((input, leases));
        }
    }

    fn take_broadcasts(&mut self) {
        for _ in 0..AT_ONCE {
            let Some((input, leases)) = self.broadcasts.front_mut() else { break };
            match leases.next() {
                Some(id) => {
                    let input = input.clone();
                    self.with(id, input);
                }
                None => _ = self.broadcasts.pop_front(),
            }
        }
    }

    /// The wait of a lease for the answers to its releases begins when it is closed. Closing thousands of others does not
    /// shorten it.
    fn shut_down(&mut self) {
        self.ends_when_empty = true;
        let all: Vec<LeaseId> = self.slots.iter().map(|(id, _)| *id).collect();
        self.broadcasts.push_back((Input::Command(Command::Close, None), all.into_iter()));
    }

    /// Sends the gathered requests, and drops the nodes when no lease uses them.
    fn send(&mut self) {
        if let Some(quorum) = &mut self.quorum {
            quorum.outbox.flush();
        }
        if self.slots.len() == 0 {
            self.drop_nodes();
        }
    }

    fn drop_nodes(&mut self) {
        if let Some(quorum) = self.quorum.take() {
            quorum.watcher.abort();
        }
    }

    /// Drops every lease without touching its machine, also those that were not opened yet. A request to end stays.
    pub fn abandon(&mut self) {
        for message in std::mem::take(&mut self.messages) {
            match message {
                Message::Open(_, setup, _) => _ = contained(|| setup.observer.ended()),
                Message::EndWhenEmpty | Message::ShutDown => self.ends_when_empty = true,
                _ => {}
            }
        }
        let ids: Vec<LeaseId> = self.slots.iter().map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(entry) = self.slots.take(id.slot) {
                self.end(entry);
            }
        }
        self.drop_nodes();
    }
}

/// Returns after the tasks on this thread that are ready now.
async fn other_tasks() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        // Unlike `yield_now`, this does not wait for the next poll of the sockets.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn no_timer(error: &io::Error) {
    tracing::error!(%error, every_ms = POLL.as_millis(), "cannot create a timer, so the clock is polled: raise the limit of open files");
}

#[cfg(test)]
#[path = "shard_tests.rs"]
mod tests;
