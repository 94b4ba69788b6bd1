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

use redis::{RedisResult, Value};
use redislease_core::admission::{self, Admission, Effect, Input};
use redislease_core::clock::ClockWatch;
use redislease_core::marker::{Marker, Membership, RunId};
use redislease_core::op::Token;
use redislease_core::quorum::Node;
use redislease_core::seed::{FenceReport, Unseedable};
use redislease_core::time::{Drift, Millis, Time};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::{self, Address, Failure, Opened};
use super::info::Info;
use super::pipe::{Pipe, Sent};
use super::random::Random;
use super::request::{Reply, Request};
use super::script::By;
use super::status::{Misconfiguration, NodeState, NodeStatus};
use super::{Config, NodeConfig, Reason, Shared, StartError, seeding};
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
    /// To look for the node elsewhere.
    Move(Address),
    /// For its fence, by the task of a node that is to be admitted. Dropped when it cannot be read.
    Fence(oneshot::Sender<FenceReport>),
}

/// What was sent to the server.
#[derive(Debug)]
pub(super) enum Call {
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

/// Work that goes on beside the loop.
type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) enum Link {
    /// Until the next try.
    Pause(Time),
    Opening(Later<Result<Opened, Failure>>),
    Open(Box<Open>),
}

/// All that dies with a connection.
pub(super) struct Open {
    pub(super) pipe: Pipe<Call>,
    pub(super) run_id: RunId,
    /// When the asker of each vote in flight gives up.
    pub(super) give_up: BTreeSet<(Time, u64)>,
    /// The node's newest TIME in milliseconds, and when the reply that carried it came.
    pub(super) node_time: Option<(u64, Time)>,
    pub(super) seeding: Option<Later<Option<Result<Token, Unseedable>>>>,
    pub(super) info_due: Time,
}

/// Why a connection ends.
pub(super) enum End {
    Failure(Failure),
    Misconfigured(Misconfiguration, String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

pub(super) struct NodeTask {
    pub(super) node: Node,
    pub(super) name: String,
    pub(super) address: Address,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::UnboundedReceiver<Message>,
    pub(super) others: watch::Receiver<Vec<NodeStatus>>,
    pub(super) membership: Membership,
    pub(super) admission: Admission,
    pub(super) clock_watch: ClockWatch,
    pub(super) alarm: Alarm,
    pub(super) random: Random,
    pub(super) series: NodeSeries,
    pub(super) link: Link,
    pub(super) failures: u32,
    pub(super) last_run_id: Option<RunId>,
    /// The server could lose keys and keep its marker: it evicts, or it was a replica and took over another's data.
    pub(super) suspect: bool,
}

enum Event {
    Opened(Result<Opened, Failure>),
    Answer(Sent<Call>, RedisResult<Value>),
    Seed(Option<Result<Token, Unseedable>>),
    Message(Option<Message>),
    OthersChanged,
    Alarm(io::Result<()>),
}

/// The end of `work`, or never if there is none.
async fn later<T>(work: &mut Option<Later<T>>) -> T {
    match work {
        Some(work) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

impl NodeTask {
    /// # Errors
    /// [`StartError`] when the address cannot be understood or the system gives no timer.
    pub fn new(
        node: Node,
        NodeConfig { name, address }: &NodeConfig,
        config: &Config,
        shared: Arc<Shared>,
        inbox: mpsc::UnboundedReceiver<Message>,
        series: NodeSeries,
    ) -> Result<Self, StartError> {
        let quorum = || config.quorum.clone();
        let system = |source| StartError::System { quorum: quorum(), source };
        let admission = Admission::new(admission::Config {
            membership: config.membership.clone(),
            longest_lease: config.longest_lease,
            drift: Drift::STANDARD,
            heartbeat: HEARTBEAT,
        });
        Ok(Self {
            node,
            name: name.clone(),
            address: Address::parse(address).ok_or_else(|| StartError::Address {
                quorum: quorum(),
                node: name.clone(),
                address: address.clone(),
            })?,
            inbox,
            others: shared.board.subscribe(),
            membership: config.membership.clone(),
            admission,
            clock_watch: ClockWatch::default(),
            alarm: Alarm::new().map_err(system)?,
            random: Random::from_system().map_err(system)?,
            series,
            link: Link::Pause(Time(0)),
            failures: 0,
            last_run_id: None,
            suspect: false,
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
                Event::Message(Some(Message::Move(address))) => self.move_to(address),
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
                Link::Open(open) => {
                    let Open { pipe, seeding, .. } = open.as_mut();
                    tokio::select! {
                        biased;
                        (sent, answer) = pipe.answer() => Event::Answer(sent, answer),
                        seed = later(seeding) => Event::Seed(seed),
                    }
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
                let unanswered = open.pipe.oldest().map(|sent| sent + self.shared.command_timeout());
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
                let opening = connection::open(self.address.clone(), secrets, self.shared.command_timeout());
                self.link = Link::Opening(Box::pin(opening));
            }
            Link::Pause(_) | Link::Opening(_) => {}
            Link::Open(open) => {
                while let Some(&(at, id)) = open.give_up.first()
                    && at <= now
                {
                    open.give_up.pop_first();
                    if let Some(Call::Vote(_, reply)) = open.pipe.get_mut(id) {
                        self.series.error(Reason::Timeout.as_str());
                        drop(reply.take());
                    }
                }
                let timeout = self.shared.command_timeout();
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

    pub(super) fn feed(&mut self, input: Input) {
        let nonce = self.random.nonce();
        self.admission.handle(clock::now(), nonce, input);
    }

    /// What the admission wants done, in order.
    fn carry_out(&mut self) {
        while let Some(effect) = self.admission.poll_effect() {
            match effect {
                Effect::Observe { run_id, nonce, stepped } => {
                    self.call(Call::Observe { run_id, nonce, stepped }, By::Hash);
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

    fn opened(&mut self, opened: Result<Opened, Failure>) {
        let now = clock::now();
        let Opened { connection, info } = match opened {
            Ok(opened) => opened,
            Err(failure) => return self.close(failure.into()),
        };
        let Info { run_id, version, misconfiguration } = info;
        if self.last_run_id.as_ref().is_some_and(|last| *last != run_id) {
            self.series.restarts.inc();
        }
        self.last_run_id = Some(run_id.clone());
        self.shared.board.update(self.node, |status| {
            status.version = version;
            status.run_id = Some(run_id.clone());
        });
        if let Some((why, sentence)) = misconfiguration.or_else(|| self.twin()) {
            return self.close(End::Misconfigured(why, sentence));
        }
        self.link = Link::Open(Box::new(Open {
            pipe: Pipe::new(connection),
            run_id: run_id.clone(),
            give_up: BTreeSet::new(),
            node_time: None,
            seeding: None,
            info_due: now + INFO_EVERY,
        }));
        self.feed(Input::Connected(run_id));
        if std::mem::take(&mut self.suspect) {
            // The marker may have outlived leases: it is worth as little as after a step.
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

    /// The node is elsewhere: nothing more is said to the old address.
    fn move_to(&mut self, address: Address) {
        if address == self.address {
            return;
        }
        self.address = address;
        self.shared.board.update(self.node, |status| status.address = self.address.to_string());
        let text = "it has a new address".to_owned();
        self.close(Failure { reason: Reason::Refused, text }.into());
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
        match &end {
            End::Failure(failure) => {
                self.series.error(failure.reason.as_str());
                self.suspect |= failure.reason == Reason::ReadOnly;
            }
            End::Misconfigured(why, _) => {
                self.suspect |= matches!(why, Misconfiguration::Eviction | Misconfiguration::Replica);
            }
        }
        if let Link::Open(open) = std::mem::replace(&mut self.link, Link::Pause(until)) {
            drop(open);
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
                status.state = NodeState::Misconfigured(why);
                status.reason = None;
                status.message = about + &sentence;
            }
        });
    }

    fn give_up_for_good(&mut self, error: &io::Error) {
        let text = format!("no timer: {error}; restart this process");
        self.close(Failure { reason: Reason::Protocol, text }.into());
    }
}
