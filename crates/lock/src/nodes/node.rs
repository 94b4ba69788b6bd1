//! The task of one node: its connection, its admission, and its requests.
//!
//! A connection is kept while all replies are consistent. A missing reply, an invalid reply, or a reply that shows
//! another server ends the connection and discards the state learned on it. So every failure is recovered in the same way
//! as the first start.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::{RedisResult, Value};
use redislease_core::admission::{self, Admission};
use redislease_core::backoff::Backoff;
use redislease_core::time::{Beat, Drift, Millis, Time};
use redislease_core::wire::{Input, Limits};
use tokio::sync::watch;

use super::Reason;
use super::access::{Accepted, Access};
use super::address::Address;
use super::connection::{Opened, Opening};
use super::context::Context;
use super::failure::Failure;
use super::info::Process;
use super::link::{End, Link, Open, Pending, Trial, Wire};
use super::message::{Call, Message};
use super::random::{Random, nonce};
use super::status::{Misconfiguration, NodeState};
use crate::clock::{self, Alarm};

/// How often the marker is read. While nothing else happens, also how long it can take to notice that the clock of a node, or of
/// this process, has jumped.
const HEARTBEAT: Millis = Millis(1000);
/// The interval for reading INFO and testing for refusals: both can change while the server runs.
const INFO_EVERY: Millis = Millis(5000);
/// The same interval while the server refuses commands.
const CHECK_AGAIN: Millis = Millis(1000);
/// The pause before a reconnect. [`Random::jitter`] shortens it.
pub(super) const RECONNECT: Backoff = Backoff::exponential(50, 1000, 0);

/// How long after the others a node connects that an earlier process has found misconfigured.
const CONNECTS_LAST: Millis = Millis(1000);

/// A connection that lasts as long as this has not failed: the next one is opened without a long pause.
const LASTING: Millis = Millis(1000);

/// How many answers are taken before the requests that they cause are sent.
const AT_ONCE: usize = 1000;

pub(super) struct NodeTask {
    pub context: Arc<Context>,
    pub address: Address,
    access: watch::Receiver<Access>,
    pub wire: Wire,
    pub alarm: Alarm,
    pub random: Random,
    pub link: Link,
    pub failures: u32,
    pub last_process: Option<Process>,
    /// What the server currently refuses.
    pub refusal: Option<Failure>,
    /// Why the current password or certificate does not serve for the connection, which uses an earlier one.
    pub outdated: Option<Failure>,
    /// The credentials and certificates that the server accepted last.
    pub accepted: Option<Accepted>,
    pub trial: Trial,
    /// Whether a heartbeat was answered since the alarm was moved.
    pub beat_answered: bool,
    received: Vec<Message>,
}

enum Event {
    Opened(Box<Result<Opened, Failure>>),
    Answer(RedisResult<RedisResult<Value>>),
    Seeding(admission::Input),
    Messages,
    AccessChanged,
    Tried(Result<Accepted, Failure>),
    Alarm(io::Result<()>),
}

/// Waits for the end of `work`; never returns if there is none.
async fn finished<T>(work: &mut Option<Pending<T>>) -> T {
    match work {
        Some(work) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

/// When the server is next asked for INFO, and whether it refuses commands.
fn info_due(context: &Context, now: Time, refuses: bool) -> Time {
    let every = if refuses { CHECK_AGAIN } else { INFO_EVERY };
    Beat { every, phase: context.shared.opened_at }.after(now)
}

impl NodeTask {
    /// # Errors
    /// The operating system cannot create a timer.
    pub fn new(context: Arc<Context>) -> io::Result<Self> {
        let first = if context.connects_last { clock::now() + CONNECTS_LAST } else { Time(0) };
        let admission = Admission::new(admission::Config {
            membership: context.membership.clone(),
            quorum: context.shared.quorum,
            has_statuses: context.shared.floor.has_statuses(),
            longest_lease: context.shared.longest_lease,
            drift: Drift::STANDARD,
            heartbeat: Beat { every: HEARTBEAT, phase: context.shared.opened_at },
        });
        Ok(Self {
            address: context.address(),
            access: context.shared.access.subscribe(),
            wire: Wire::new(admission, Limits::STANDARD, context.shared.command_timeout()),
            alarm: Alarm::new()?,
            random: Random::new(),
            link: Link::Pause(first),
            failures: 0,
            last_process: None,
            refusal: None,
            outdated: None,
            accepted: None,
            trial: Trial::default(),
            beat_answered: false,
            received: Vec::new(),
            context,
        })
    }

    /// Runs until it is dropped.
    ///
    /// # Errors
    /// The operating system cannot set the timer.
    pub async fn run(mut self) -> io::Error {
        loop {
            self.flush();
            self.set_reach();
            if let Err(error) = self.set_alarm() {
                return error;
            }
            match self.next_event().await {
                Event::Opened(opened) => self.opened(*opened),
                Event::Answer(answer) => self.take_answers(answer),
                Event::Seeding(answer) => self.answer_admission(answer),
                Event::Messages => self.receive(),
                Event::AccessChanged => self.access_changed(),
                Event::Tried(result) => self.tried(result),
                Event::Alarm(Ok(())) => self.tick(),
                Event::Alarm(Err(error)) => return error,
            }
        }
    }

    /// The alarm stays at the timeout of a request that was answered, because requests are many and reading the clock at an alarm costs
    /// little. After a heartbeat it is moved: an idle process would wake for it once more in each second.
    fn set_alarm(&mut self) -> io::Result<()> {
        let at = self.next_deadline();
        if self.beat_answered && self.wire.oldest().is_none() {
            self.beat_answered = false;
            return self.alarm.set(at);
        }
        self.alarm.set_no_later(at)
    }

    /// All requests that have arrived are known to the wire.
    fn flush(&mut self) {
        self.wire.set_timeout(self.context.shared.command_timeout());
        self.feed(clock::now(), Input::Flush);
    }

    /// Answers are handled before the timer, so that a process that was paused does not treat answers that have already
    /// arrived as missing. The timer is handled before new requests, so that many requests do not delay timeouts.
    async fn next_event(&mut self) -> Event {
        let link = async {
            match &mut self.link {
                Link::Pause(_) => std::future::pending().await,
                Link::Opening(opening) => Event::Opened(Box::new(opening.as_mut().await)),
                Link::Open(open) => {
                    let Open { client, seeding, .. } = open.as_mut();
                    tokio::select! {
                        biased;
                        answer = poll_fn(|context| client.poll_reply(context)) => Event::Answer(answer),
                        answer = finished(seeding) => Event::Seeding(answer),
                    }
                }
            }
        };
        tokio::select! {
            biased;
            event = link => event,
            expired = self.alarm.expired() => Event::Alarm(expired),
            Ok(()) = self.access.changed() => Event::AccessChanged,
            result = finished(&mut self.trial.running) => Event::Tried(result),
            () = self.context.inbox().filled() => Event::Messages,
        }
    }

    /// Takes an answer, and those that arrived with it.
    fn take_answers(&mut self, first: RedisResult<RedisResult<Value>>) {
        let mut next = Some(first);
        let mut count = 0;
        while let Some(answer) = next.take() {
            let taken = match answer {
                Ok(answer) => self.answered(answer),
                Err(error) => Err(Failure::of("the connection is lost", &error).into()),
            };
            if let Err(end) = taken {
                return self.close(end);
            }
            count += 1;
            if count < AT_ONCE
                && let Link::Open(open) = &mut self.link
            {
                next = open.client.received().transpose();
            }
        }
    }

    pub(super) fn set_reach(&self) {
        self.context.reach().set(matches!(self.link, Link::Open(_)), self.wire.admission().marker().is_some());
    }

    fn receive(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        self.context.inbox().take(&mut received);
        let now = clock::now();
        for message in received.drain(..) {
            match message {
                Message::Vote(request, reply) => self.feed(now, Input::Request(request, reply)),
                Message::Fence(answer) => self.call(Call::Fence(answer)),
                Message::Read(reading) => self.call(Call::Read(reading)),
                Message::Clock(finding) => self.take_finding(finding),
                Message::Moved => self.move_to(self.context.address()),
            }
        }
        // Frees the memory that a peak of requests took.
        received.shrink_to(1024);
        self.received = received;
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.link {
            Link::Pause(until) => Some(*until),
            Link::Opening(_) => None,
            Link::Open(open) => {
                let judged = self.context.shared.judgement_due();
                let own = [self.wire.next_deadline(), Some(open.info_due), judged, self.trial.due];
                own.into_iter().flatten().min()
            }
        }
    }

    fn tick(&mut self) {
        let now = clock::now();
        match &mut self.link {
            Link::Pause(until) if now >= *until => self.open(),
            Link::Pause(_) | Link::Opening(_) => {}
            Link::Open(_) => {
                self.feed(now, Input::Wake);
                let Link::Open(open) = &mut self.link else { return };
                if now >= open.info_due {
                    open.info_due = info_due(&self.context, now, self.refusal.is_some());
                    self.call(Call::Info);
                    self.call(Call::Check);
                }
                self.try_if_due(now);
                self.judge_in_time(now);
            }
        }
    }

    fn open(&mut self) {
        self.trial = Trial::default();
        match self.opening() {
            Ok(opening) => self.link = Link::Opening(Box::pin(opening.open())),
            Err(error) => self.close(Failure::system(&error).into()),
        }
    }

    /// # Errors
    /// The operating system provides no random numbers.
    pub(super) fn opening(&mut self) -> io::Result<Opening> {
        let shared = &self.context.shared;
        let mut access = self.access.borrow_and_update().clone();
        if let Some(accepted) = self.accepted.clone() {
            access.try_also(accepted);
        }
        Ok(Opening {
            address: self.address.clone(),
            access,
            timeout: shared.command_timeout(),
            keyspace: shared.keyspace.clone(),
            membership: self.context.membership.clone(),
            nonce: nonce()?,
        })
    }

    fn opened(&mut self, opened: Result<Opened, Failure>) {
        let now = clock::now();
        let Opened { client, info, run_id, refusal, refused, accepted } = match opened {
            Ok(opened) => opened,
            Err(failure) => return self.close(failure.into()),
        };
        self.accepted = Some(accepted);
        if self.last_process.as_ref().is_some_and(|last| *last != info.process) {
            self.context.observer.restarted(self.context.node);
        }
        self.last_process = Some(info.process.clone());
        self.context.update(|status| status.version.clone_from(&info.version));
        let taken = self.server_is_taken(now, &info.process);
        if let Some((why, sentence)) = info.misconfiguration.or(taken) {
            return self.close(End::Misconfigured(why, sentence));
        }
        self.connected_with(now, refused);
        let info_due = info_due(&self.context, now, refusal.is_some());
        self.link = Link::Open(Box::new(Open {
            client,
            process: info.process,
            run_id: run_id.clone(),
            seeding: None,
            since: now,
            info_due,
        }));
        self.feed(now, Input::Opened);
        self.refused(refusal);
        self.feed_admission(admission::Input::Connected(run_id));
        if self.context.suspect.swap(false, Ordering::Relaxed) {
            // The marker may have outlived leases, as after a clock step, so it does not count.
            self.feed_admission(admission::Input::Stepped);
        }
    }

    /// The server votes for another node.
    fn server_is_taken(&self, now: Time, process: &Process) -> Option<(Misconfiguration, String)> {
        let Context { node, shared, .. } = &*self.context;
        let taken = shared.servers().reached(now, *node, &process.server(), shared.longest_lease).err()?;
        let other = shared.board.named(taken.by);
        let sentence = if taken.has_left {
            format!(
                "leads to the server that voted for node {other} shortly before: it has no vote until those votes have ended"
            )
        } else {
            format!("leads to the same server as node {other}: use a separate server for each node")
        };
        Some((Misconfiguration::SharedServer, sentence))
    }

    /// Nothing more is sent to the old address.
    fn move_to(&mut self, address: Address) {
        if address == self.address {
            return;
        }
        self.address = address;
        self.context.shared.servers().moved(clock::now(), self.context.node);
        // Another server gets no password that was removed.
        self.accepted = None;
        self.context.update(|status| status.address = self.address.to_string());
        let text = "its address has changed".to_owned();
        self.close(Failure { reason: Reason::Refused, text }.into());
    }

    /// Records what the server refuses, or that it refuses nothing any more.
    pub(super) fn refused(&mut self, refusal: Option<Failure>) {
        if self.refusal == refusal {
            return;
        }
        self.refusal = refusal;
        if let Some(refusal) = &self.refusal {
            self.context.update(|status| status.last_refusal = Some(refusal.text.clone()));
        }
        self.show(&self.wire.admission().standing().clone());
        self.feed(clock::now(), Input::Refuses(self.refusal.is_some()));
    }

    /// Schedules a test whether the server refuses more than one request.
    pub(super) fn check_soon(&mut self) {
        if let Link::Open(open) = &mut self.link {
            open.info_due = open.info_due.min(clock::now() + CHECK_AGAIN);
        }
    }

    /// Closes the connection, or stops connecting. The votes in flight are unknown.
    pub(super) fn close(&mut self, end: End) {
        if matches!(&self.link, Link::Open(open) if clock::now().since(open.since) >= LASTING) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let (pause, suspect, state, reason, text) = match end {
            End::Failure(Failure { reason, text }) => {
                self.context.failed(reason);
                (RECONNECT.delay(self.failures), reason == Reason::ReadOnly, NodeState::Down, Some(reason), text)
            }
            End::Misconfigured(why, sentence) => {
                let suspect = matches!(why, Misconfiguration::Eviction | Misconfiguration::Replica);
                (HEARTBEAT, suspect, NodeState::Misconfigured(why), None, sentence)
            }
        };
        let until = clock::now() + self.random.jitter(pause);
        self.context.suspect.fetch_or(suspect, Ordering::Relaxed);
        if let Link::Open(open) = std::mem::replace(&mut self.link, Link::Pause(until)) {
            drop(open);
            self.feed(clock::now(), Input::Closed);
            self.judge_without_this_node();
        }
        self.refusal = None;
        self.context.stopped(&self.address, state, reason, &text);
    }
}
