//! The task of one node: its connection, its admission, and the requests of the rest of the house.
//!
//! A connection lives as long as everything it showed fits: an answer that does not come, that is none of ours, or
//! that shows another server ends it, and with it all that was learned on it. So there is one way back from every
//! trouble, the same as the way in.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use redis::{RedisError, RedisResult, Value};
use redislease_core::admission::{self, Admission, Effect, Input, Standing};
use redislease_core::clock::{ClockWatch, Reading};
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Op, Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Unseedable};
use redislease_core::time::{Drift, Millis, Time};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::{self, Address, Failure, Opened};
use super::info::Info;
use super::pipe::{Pipe, Sent};
use super::random::Random;
use super::request::{Reply, Request};
use super::script::{self, Answer, By, Garbled};
use super::status::{Misconfiguration, NodeState, NodeStatus};
use super::{Config, Reason, Shared, seeding};
use crate::clock::{self, Alarm};
use crate::metrics::nodes::NodeSeries;

/// How often the marker is looked at.
const HEARTBEAT: Millis = Millis(1000);
/// How often a server is asked what it is: an eviction policy can be set while it runs.
const INFO_EVERY: Millis = Millis(5000);
/// The pause before the first new connection, doubled with every failure.
const BACKOFF: Millis = Millis(50);
/// The longest pause between two tries to connect.
const BACKOFF_MOST: Millis = Millis(1000);

/// What a task is asked.
#[derive(Debug)]
pub(super) enum Message {
    /// For a vote.
    Vote(Request, Reply),
    /// For its fence, by the task of a node that is to be admitted. Dropped when it cannot be read.
    Fence(oneshot::Sender<FenceReport>),
}

/// What was sent to the server.
#[derive(Debug)]
enum Call {
    /// The reply is gone once the asker gave up.
    Vote(Request, Option<Reply>),
    Observe {
        run_id: RunId,
        nonce: u128,
        stepped: Option<Marker>,
    },
    Admit {
        ticket: Marker,
        marker: Marker,
        seed: Token,
    },
    Fence(oneshot::Sender<FenceReport>),
    Info,
}

enum Link {
    /// Until the next try.
    Pause(Time),
    Opening(Pin<Box<dyn Future<Output = Result<Opened, Failure>> + Send>>),
    Open(Open),
}

/// All that dies with a connection.
struct Open {
    pipe: Pipe<Call>,
    run_id: RunId,
    /// When the asker of each vote in flight gives up.
    give_up: BTreeSet<(Time, u64)>,
    /// The node's newest TIME in milliseconds, and when the reply that carried it came.
    node_time: Option<(u64, Time)>,
    seeding: Option<Pin<Box<dyn Future<Output = Option<Result<Token, Unseedable>>> + Send>>>,
    info_due: Time,
}

/// Why a connection ends.
enum End {
    Failure(Failure),
    Misconfigured(Misconfiguration, String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

pub(super) struct NodeTask {
    node: Node,
    name: String,
    address: Address,
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedReceiver<Message>,
    others: watch::Receiver<Vec<NodeStatus>>,
    membership: redislease_core::marker::Membership,
    admission: Admission,
    clock_watch: ClockWatch,
    alarm: Alarm,
    random: Random,
    series: Option<NodeSeries>,
    link: Link,
    failures: u32,
    last_run_id: Option<RunId>,
    /// The server could drop keys while it was looked away from.
    evicted: bool,
}

enum Event {
    Opened(Result<Opened, Failure>),
    Answer(Sent<Call>, RedisResult<Value>),
    Seed(Option<Result<Token, Unseedable>>),
    Message(Option<Message>),
    OthersChanged,
    Alarm(io::Result<()>),
}

impl NodeTask {
    /// # Errors
    /// When the system gives no timer.
    pub fn new(
        node: Node,
        name: String,
        address: Address,
        config: &Config,
        shared: Arc<Shared>,
        inbox: mpsc::UnboundedReceiver<Message>,
        random: Random,
    ) -> io::Result<Self> {
        let admission = Admission::new(admission::Config {
            membership: config.membership.clone(),
            longest_lease: config.longest_lease,
            drift: Drift::STANDARD,
            heartbeat: HEARTBEAT,
            mutant: None,
        });
        Ok(Self {
            node,
            name,
            address,
            inbox,
            others: shared.board.subscribe(),
            membership: config.membership.clone(),
            admission,
            clock_watch: ClockWatch::default(),
            alarm: Alarm::new()?,
            random,
            series: shared.board.series(node),
            link: Link::Pause(Time(0)),
            failures: 0,
            last_run_id: None,
            evicted: false,
            shared,
        })
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.carry_out();
            if let Err(error) = self.alarm.set_no_later(self.next_deadline()) {
                return self.give_up_for_good(&error);
            }
            let event = self.next_event().await;
            match event {
                Event::Opened(opened) => self.opened(opened),
                Event::Answer(sent, answer) => {
                    if let Err(end) = self.answered(sent, answer) {
                        self.close(end);
                    }
                }
                Event::Seed(seed) => self.seeded(seed),
                Event::Message(Some(Message::Vote(request, reply))) => self.vote(request, reply),
                Event::Message(Some(Message::Fence(answer))) => self.fence(answer),
                Event::Message(None) => return,
                Event::OthersChanged => self.look_for_a_twin(),
                Event::Alarm(Ok(())) => self.tick(),
                Event::Alarm(Err(error)) => return self.give_up_for_good(&error),
            }
        }
    }

    /// Answers come before the alarm, so that a process that was paused does not take answers it has for missing;
    /// the alarm before new requests, so that a flood of them delays no timeout.
    async fn next_event(&mut self) -> Event {
        let link = async {
            match &mut self.link {
                Link::Pause(_) => std::future::pending().await,
                Link::Opening(opening) => Event::Opened(opening.as_mut().await),
                Link::Open(Open { pipe, seeding: Some(seeding), .. }) => tokio::select! {
                    biased;
                    (sent, answer) = pipe.answer() => Event::Answer(sent, answer),
                    seed = seeding.as_mut() => Event::Seed(seed),
                },
                Link::Open(Open { pipe, seeding: None, .. }) => {
                    let (sent, answer) = pipe.answer().await;
                    Event::Answer(sent, answer)
                }
            }
        };
        tokio::select! {
            biased;
            event = link => event,
            rang = self.alarm.ring() => Event::Alarm(rang),
            changed = self.others.changed() => changed.map_or(Event::Message(None), |()| Event::OthersChanged),
            message = self.inbox.recv() => Event::Message(message),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.link {
            Link::Pause(until) => Some(*until),
            Link::Opening(_) => None,
            Link::Open(open) => {
                let unanswered = open.pipe.oldest().map(|sent| sent + self.shared.command_timeout);
                let given_up = open.give_up.first().map(|(at, _)| *at);
                [self.admission.next_deadline(), unanswered, given_up, Some(open.info_due)].into_iter().flatten().min()
            }
        }
    }

    fn tick(&mut self) {
        let now = clock::now();
        match &mut self.link {
            Link::Pause(until) if now >= *until => {
                let secrets = self.shared.secrets.borrow().clone();
                let opening = connection::open(self.address.clone(), secrets, self.shared.command_timeout);
                self.link = Link::Opening(Box::pin(opening));
            }
            Link::Pause(_) | Link::Opening(_) => {}
            Link::Open(open) => {
                while let Some(&(at, id)) = open.give_up.first()
                    && at <= now
                {
                    open.give_up.pop_first();
                    if let Some(Call::Vote(_, reply)) = open.pipe.get_mut(id) {
                        count(self.series.as_ref(), Reason::Timeout);
                        drop(reply.take());
                    }
                }
                let timeout = self.shared.command_timeout;
                if open.pipe.oldest().is_some_and(|sent| now >= sent + timeout) {
                    return self.close(Failure::timeout(timeout).into());
                }
                if now >= open.info_due {
                    open.info_due = now + INFO_EVERY;
                    open.pipe.send(redis::cmd("INFO"), now, Call::Info);
                }
                self.feed(Input::Wake);
            }
        }
    }

    fn feed(&mut self, input: Input) {
        let nonce = self.random.nonce();
        self.admission.handle(clock::now(), nonce, input);
    }

    /// What the admission wants done, in order.
    fn carry_out(&mut self) {
        while let Some(effect) = self.admission.poll_effect() {
            match effect {
                Effect::Observe { run_id, nonce, stepped } => {
                    self.call(Call::Observe { run_id, nonce, stepped }, By::Hash)
                }
                Effect::Admit { ticket, marker, seed } => self.call(Call::Admit { ticket, marker, seed }, By::Hash),
                Effect::ReadFences => {
                    if let Link::Open(open) = &mut self.link {
                        open.seeding = Some(Box::pin(seeding::ask(self.shared.clone(), self.node)));
                    }
                }
                Effect::Changed(standing) => self.show(&standing),
            }
        }
    }

    /// Sends a call that is not for a vote.
    fn call(&mut self, call: Call, by: By) {
        let Link::Open(open) = &mut self.link else { return };
        let keyspace = &self.shared.keyspace;
        let command = match &call {
            Call::Observe { run_id, nonce, stepped } => script::observe(by, keyspace, run_id, *nonce, stepped.as_ref()),
            Call::Admit { ticket, marker, seed } => script::admit(by, keyspace, ticket, marker, *seed),
            Call::Fence(_) => script::fence(by, keyspace, &self.membership.marker(open.run_id.clone())),
            Call::Info => redis::cmd("INFO"),
            Call::Vote(..) => return,
        };
        open.pipe.send(command, clock::now(), call);
    }

    fn vote(&mut self, request: Request, reply: Reply) {
        let now = clock::now();
        if request.give_up_at <= now {
            return count(self.series.as_ref(), Reason::Timeout);
        }
        match self.send_vote(now, request, reply, By::Hash) {
            Ok(()) => {}
            Err((reply, vote)) => reply.answer(vote),
        }
    }

    /// Sends it, or says what to answer instead.
    fn send_vote(&mut self, now: Time, request: Request, reply: Reply, by: By) -> Result<(), (Reply, Vote)> {
        let Link::Open(open) = &mut self.link else { return Err((reply, Vote::Unknown)) };
        let release = matches!(request.op, Op::Release { .. });
        let (marker, deadline) = match (self.admission.marker(), open.node_time) {
            _ if release => (String::new(), 0),
            (Some(marker), Some((time, received))) => {
                (marker.to_string(), time.saturating_add(request.give_up_at.since(received).0))
            }
            _ => return Err((reply, Vote::Abstained)),
        };
        let command = script::vote(by, &self.shared.keyspace, &request.keys, &marker, deadline, &request.op);
        let give_up_at = request.give_up_at;
        let id = open.pipe.send(command, now, Call::Vote(request, Some(reply)));
        open.give_up.insert((give_up_at, id));
        Ok(())
    }

    fn fence(&mut self, answer: oneshot::Sender<FenceReport>) {
        // The same server must not be heard twice, under two names.
        if self.shared.board.twin(self.node).is_none() {
            self.call(Call::Fence(answer), By::Hash);
        }
    }

    fn seeded(&mut self, seed: Option<Result<Token, Unseedable>>) {
        if let Link::Open(open) = &mut self.link {
            open.seeding = None;
        }
        if let Some(seed) = seed {
            self.feed(Input::Seed(seed));
        }
    }

    fn opened(&mut self, opened: Result<Opened, Failure>) {
        let now = clock::now();
        let Opened { connection, info } = match opened {
            Ok(opened) => opened,
            Err(failure) => return self.close(failure.into()),
        };
        let Info { run_id, version, misconfiguration } = info;
        if self.last_run_id.as_ref().is_some_and(|last| *last != run_id)
            && let Some(series) = &self.series
        {
            series.restarts.inc();
        }
        self.last_run_id = Some(run_id.clone());
        self.shared.board.update(self.node, |status| {
            status.version = version;
            status.run_id = Some(run_id.clone());
        });
        if let Some((why, sentence)) = misconfiguration.or_else(|| self.twin()) {
            return self.close(End::Misconfigured(why, sentence));
        }
        self.link = Link::Open(Open {
            pipe: Pipe::new(connection),
            run_id: run_id.clone(),
            give_up: BTreeSet::new(),
            node_time: None,
            seeding: None,
            info_due: now + INFO_EVERY,
        });
        self.feed(Input::Connected(run_id));
        if std::mem::take(&mut self.evicted) {
            // The marker may have outlived leases that were evicted: it is worth as little as after a step.
            self.feed(Input::Stepped);
        }
    }

    fn twin(&self) -> Option<(Misconfiguration, String)> {
        let twin = self.shared.board.twin(self.node)?;
        let sentence = format!("leads to the same server as node {twin}: give each node a server of its own");
        Some((Misconfiguration::SharedServer, sentence))
    }

    fn look_for_a_twin(&mut self) {
        if matches!(self.link, Link::Open(_))
            && let Some((why, sentence)) = self.twin()
        {
            self.close(End::Misconfigured(why, sentence));
        }
    }

    /// Takes one answer. What it returns ends the connection.
    fn answered(&mut self, sent: Sent<Call>, answer: RedisResult<Value>) -> Result<(), End> {
        let received = clock::now();
        if let Some(series) = &self.series {
            let seconds = std::time::Duration::from(received.since(sent.at)).as_secs_f64();
            series.duration.observe(seconds);
        }
        let Sent { id, at, call } = sent;
        if let (Link::Open(open), Call::Vote(request, _)) = (&mut self.link, &call) {
            open.give_up.remove(&(request.give_up_at, id));
        }
        let value = match answer {
            Ok(value) => value,
            Err(error) => return self.refused(id, call, &error),
        };
        match call {
            Call::Vote(request, reply) => match script::read_vote(&request.op, value) {
                Ok(answer) => {
                    let vote = self.heard(at, received, answer).map_or(Vote::Unknown, |answer| self.voted(answer));
                    if let Some(reply) = reply {
                        reply.answer(vote);
                    }
                }
                Err(garbled) => {
                    count(self.series.as_ref(), Reason::Protocol);
                    tracing::warn!(node = %self.name, address = %self.address, keys = ?request.keys, "{garbled}");
                }
            },
            Call::Observe { .. } | Call::Admit { .. } => {
                let answer = script::read_marker(value).map_err(garbled)?;
                // A step is told first: the marker in the reply that shows it is not the last word.
                let marker = answer.answer.clone();
                self.heard(at, received, answer);
                self.observed(marker)?;
            }
            Call::Fence(report) => {
                let answer = script::read_fence(value).map_err(garbled)?;
                let clock = answer.time;
                if let Some((admitted, fence)) = self.heard(at, received, answer) {
                    // Nobody may be waiting any more.
                    let _ = report.send(FenceReport { admitted, fence, clock });
                }
            }
            Call::Info => {
                let text: String = redis::from_redis_value(value).map_err(|error| Failure::protocol(error))?;
                self.informed(&Info::parse(&text).map_err(Failure::protocol)?)?;
            }
        }
        Ok(())
    }

    /// Reads the clock in a reply. None when the clock was set: then the reply does not count.
    fn heard<T>(&mut self, sent: Time, received: Time, reply: script::Reply<T>) -> Option<T> {
        let time = reply.time / 1000;
        if let Link::Open(open) = &mut self.link {
            open.node_time = Some((time, received));
        }
        match self.clock_watch.read(time, sent, received) {
            Reading::Steady => Some(reply.answer),
            Reading::Stepped => {
                tracing::warn!(node = %self.name, address = %self.address, "the node's clock was set: it loses its vote");
                self.feed(Input::Stepped);
                None
            }
        }
    }

    fn voted(&mut self, answer: Answer) -> Vote {
        match answer {
            Answer::Vote(vote) => vote,
            Answer::Late => {
                count(self.series.as_ref(), Reason::Late);
                Vote::Abstained
            }
            Answer::NotAdmitted => {
                count(self.series.as_ref(), Reason::NotAdmitted);
                self.feed(Input::NotAdmitted);
                Vote::Abstained
            }
        }
    }

    fn observed(&mut self, marker: Option<Marker>) -> Result<(), End> {
        let Link::Open(open) = &self.link else { return Ok(()) };
        match marker {
            Some(marker) if *marker.run_id() == open.run_id => {
                self.show_clock();
                self.feed(Input::Observed(marker));
                Ok(())
            }
            Some(marker) => Err(Failure::protocol(format!(
                "another server answers on this connection: marker `{marker}` does not name {}",
                open.run_id
            ))
            .into()),
            // Only admit meets this: the ticket was flushed while it was waited for.
            None => {
                count(self.series.as_ref(), Reason::NotAdmitted);
                Err(Failure { reason: Reason::NotAdmitted, text: "its marker is gone: it was flushed".to_owned() }
                    .into())
            }
        }
    }

    fn informed(&mut self, info: &Info) -> Result<(), End> {
        let Link::Open(open) = &self.link else { return Ok(()) };
        if info.run_id != open.run_id {
            let text = format!("another server answers on this connection: {} instead of {}", info.run_id, open.run_id);
            return Err(Failure::protocol(text).into());
        }
        match &info.misconfiguration {
            Some((why, sentence)) => Err(End::Misconfigured(*why, sentence.clone())),
            None => Ok(()),
        }
    }

    /// Takes an error instead of an answer.
    fn refused(&mut self, id: u64, call: Call, error: &RedisError) -> Result<(), End> {
        let reason = Reason::from(error);
        if reason == Reason::NoScript {
            return self.again(id, call);
        }
        // A replica is no node, and an own call is repeated on a new connection.
        let ends = error.is_unrecoverable_error() || reason == Reason::ReadOnly || !matches!(call, Call::Vote(..));
        if ends {
            return Err(Failure::of("an answer was an error", error).into());
        }
        count(self.series.as_ref(), reason);
        tracing::debug!(node = %self.name, address = %self.address, %reason, "{error}");
        Ok(())
    }

    /// The server forgot our scripts, so this one was not run: it is sent again with its text.
    fn again(&mut self, id: u64, call: Call) -> Result<(), End> {
        count(self.series.as_ref(), Reason::NoScript);
        match call {
            Call::Vote(_, None) => {}
            Call::Vote(request, Some(reply)) => {
                let Link::Open(open) = &self.link else { return Ok(()) };
                let attempt = request.op.attempt();
                let same = |call: &Call| matches!(call, Call::Vote(other, _) if other.op.attempt() == attempt);
                // What was sent behind it may run before it: its turn is over.
                if open.pipe.behind(id).any(same) {
                    return Ok(());
                }
                if let Err((reply, vote)) = self.send_vote(clock::now(), request, reply, By::Text) {
                    reply.answer(vote);
                }
            }
            Call::Info => return Err(Failure::protocol("INFO answered NOSCRIPT").into()),
            own => self.call(own, By::Text),
        }
        Ok(())
    }

    /// Ends the connection, or the try to get one. Votes in flight are unknown.
    fn close(&mut self, end: End) {
        let pause = match &end {
            End::Misconfigured(..) => HEARTBEAT,
            End::Failure(_) => {
                let doubled = BACKOFF.0.saturating_mul(1 << self.failures.min(10));
                Millis(doubled).min(BACKOFF_MOST)
            }
        };
        self.failures = self.failures.saturating_add(1);
        let until = clock::now() + self.random.jitter(pause);
        let link = std::mem::replace(&mut self.link, Link::Pause(until));
        if let End::Failure(failure) = &end {
            count(self.series.as_ref(), failure.reason);
        }
        if let Link::Open(open) = link {
            open.pipe.close().for_each(drop);
            self.feed(Input::Disconnected);
        }
        let about = format!("node {} ({}): ", self.name, self.address);
        self.shared.board.update(self.node, |status| match end {
            End::Failure(Failure { reason, text }) => {
                status.state = NodeState::Down;
                status.reason = Some(reason);
                status.message = about + &text;
                status.run_id = None;
            }
            End::Misconfigured(why, sentence) => {
                self.evicted |= why == Misconfiguration::Eviction;
                status.state = NodeState::Misconfigured(why);
                status.reason = None;
                status.message = about + &sentence;
            }
        });
    }

    fn show_clock(&self) {
        let Some(offset) = self.clock_watch.offset() else { return };
        let ours = i128::from(clock::unix_micros() / 1000) - i128::from(clock::now().0);
        let offset = i64::try_from(offset - ours).unwrap_or(i64::MAX);
        self.shared.board.update(self.node, |status| status.clock_offset_ms = Some(offset));
        if let Some(series) = &self.series {
            series.offset.set(
                std::time::Duration::from_millis(offset.unsigned_abs()).as_secs_f64().copysign(if offset < 0 {
                    -1.0
                } else {
                    1.0
                }),
            );
        }
    }

    fn show(&mut self, standing: &Standing) {
        let about = format!("node {} ({}): ", self.name, self.address);
        let (state, message) = match standing {
            // The end of a connection is shown with its reason; the others last no longer than one call.
            Standing::Offline | Standing::Observing | Standing::Seeding(None) => return,
            Standing::Admitted => (NodeState::Up, String::new()),
            Standing::Quarantined { until } => (
                NodeState::Quarantined { until: *until },
                about
                    + "it remembers nothing of this quorum (first start, restart or flush): \
                       it votes again when the longest lease has passed",
            ),
            Standing::Seeding(Some(reason)) => {
                (NodeState::Quarantined { until: clock::now() }, about + &rounded(*reason))
            }
            Standing::Mismatch(marker) => (
                NodeState::Misconfigured(Misconfiguration::ConfigMismatch),
                about + &mismatch(marker, &self.membership.name()),
            ),
        };
        self.failures = 0;
        self.shared.board.update(self.node, |status| {
            // The end of a wait that is over stays what it was.
            let over = matches!((status.state, standing), (NodeState::Quarantined { .. }, Standing::Seeding(_)));
            if !over {
                status.state = state;
            }
            status.reason = None;
            status.message = message;
        });
    }

    fn give_up_for_good(&mut self, error: &io::Error) {
        let text = format!("no timer: {error}; restart this process");
        self.close(Failure { reason: Reason::Protocol, text }.into());
    }
}

fn count(series: Option<&NodeSeries>, reason: Reason) {
    if let Some(series) = series {
        series.error(reason.as_str());
    }
}

fn garbled(garbled: Garbled) -> End {
    Failure::protocol(garbled).into()
}

/// To whole seconds, so that a status does not change with every reading of a clock.
fn rounded(reason: Unseedable) -> String {
    match reason {
        Unseedable::ClocksDisagree { by } => {
            Unseedable::ClocksDisagree { by: Millis(by.0.div_ceil(1000) * 1000) }.to_string()
        }
        exhausted @ Unseedable::Exhausted => exhausted.to_string(),
    }
}

fn mismatch(marker: &Marker, ours: &str) -> String {
    let theirs = marker.to_string();
    let theirs = theirs.split_once(':').map_or(theirs.as_str(), |(_run_id, name)| name);
    format!(
        "its marker names the configuration {theirs}, ours is {ours} (node names, majority, longest lease): \
         restore the old spec, or choose a new keyPrefix, or stop every operator that uses this quorum for its \
         longest lease and then delete the marker on every node"
    )
}
