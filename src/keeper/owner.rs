//! The owner of one lease.

use redislease_core::backoff::Entropy;
use redislease_core::lease::{Effect, Input, Lease, Round, View, Want};
use redislease_core::op::{Attempt, Holder, Token, Vote};
use redislease_core::quorum::Node;
use redislease_core::time::{Millis, Time};
use tokio::sync::{mpsc, watch};

use super::{Command, Observer, Setup};
use crate::clock::{self, Alarm};
use crate::nodes::random::Random;
use crate::nodes::{NodeState, NodeStatus, Nodes, Request};

/// How long a process that ends waits for the answers to what it gives back.
const LAST_WORDS: Millis = Millis(2000);

/// The owner's side: the machine, and everything its effects need.
pub(super) struct Owner {
    lease: Lease,
    nodes: Option<Nodes>,
    keys: std::sync::Arc<[String]>,
    observer: Box<dyn Observer>,
    /// For whom the next term is taken. Each try begins with a fresh attempt.
    desired: Option<Holder>,
    retiring: bool,
    /// Requests whose vote has not come back.
    outstanding: usize,
    inbox: mpsc::UnboundedReceiver<Command>,
    votes: mpsc::UnboundedReceiver<(Round, Node, Vote)>,
    ballot_box: mpsc::UnboundedSender<(Round, Node, Vote)>,
    shown: watch::Sender<View>,
    alarm: Alarm,
    random: Random,
}

enum Event {
    Command(Option<Command>),
    Vote(Round, Node, Vote),
    Majority,
    Time,
}

impl Owner {
    pub fn new(
        setup: Setup,
        inbox: mpsc::UnboundedReceiver<Command>,
        shown: watch::Sender<View>,
        alarm: Alarm,
        random: Random,
    ) -> Self {
        let Setup { nodes, keys, config, observer } = setup;
        let (ballot_box, votes) = mpsc::unbounded_channel();
        Self {
            lease: Lease::new(config),
            nodes,
            keys,
            observer,
            desired: None,
            retiring: false,
            outstanding: 0,
            inbox,
            votes,
            ballot_box,
            shown,
            alarm,
            random,
        }
    }

    pub async fn run(mut self) {
        let mut nodes = self.nodes.as_ref().map_or_else(|| watch::channel(Vec::new()).1, Nodes::watch);
        let mut had_majority = self.has_majority(&nodes.borrow_and_update());
        loop {
            if let Err(error) = self.alarm.set(self.lease.next_deadline()) {
                // Without a timer the term cannot be given up in time: then it is given up now.
                tracing::error!(%error, "a lease is given up: its timer cannot be set");
                return self.stop().await;
            }
            let event = tokio::select! {
                command = self.inbox.recv() => Event::Command(command),
                Some((round, node, vote)) = self.votes.recv() => Event::Vote(round, node, vote),
                Ok(()) = nodes.changed() => Event::Majority,
                _ = self.alarm.ring() => Event::Time,
            };
            let input = match event {
                Event::Command(Some(Command::Stop) | None) => return self.stop().await,
                Event::Command(Some(command)) => self.obey(command),
                Event::Vote(round, node, vote) => {
                    self.outstanding -= 1;
                    Input::Vote { round, node, vote }
                }
                Event::Majority => {
                    // Tries that failed for want of a quorum must not keep the next one waiting.
                    let before = std::mem::replace(&mut had_majority, self.has_majority(&nodes.borrow_and_update()));
                    if had_majority && !before && !self.was_refused() { Input::TryNow } else { Input::Wake }
                }
                Event::Time => Input::Wake,
            };
            self.handle(input);
            self.want();
            if self.retiring && self.lease.is_quiet() {
                return;
            }
        }
    }

    /// A refusal says when the keys can be free, and nothing else makes them so.
    fn was_refused(&self) -> bool {
        self.lease.view().refused_by.is_some()
    }

    fn has_majority(&self, nodes: &[NodeStatus]) -> bool {
        nodes.iter().filter(|node| node.state == NodeState::Up).count() >= self.lease.config().quorum.majority()
    }

    fn obey(&mut self, command: Command) -> Input {
        match command {
            Command::Want(holder) => {
                self.desired = Some(holder);
                Input::Wake
            }
            Command::Adopt(term) => Input::Adopt(term),
            Command::DoubtShown(attempt) => Input::DoubtShown(attempt),
            Command::KeptElsewhere(attempt) => Input::KeptElsewhere(attempt),
            Command::End { term, proof } => {
                self.desired = None;
                Input::End { term, proof }
            }
            Command::Published { attempt, outcome } => Input::Published { attempt, outcome },
            Command::Configure(config) => Input::Configure(config),
            Command::TryNow => Input::TryNow,
            Command::Forget | Command::Stop => {
                self.desired = None;
                Input::Forget
            }
            Command::Retire => {
                self.desired = None;
                self.retiring = true;
                Input::Forget
            }
        }
    }

    /// Hands the machine one attempt for each wish. One that does not begin at once is dropped.
    fn want(&mut self) {
        let Some(holder) = self.desired.take() else { return };
        if self.lease.is_taken_for(&holder) {
            return;
        }
        let floor = self.nodes.as_ref().map_or(Token(0), Nodes::floor);
        let attempt = Attempt(self.random.nonce());
        let entropy = Entropy(self.random.word());
        self.handle(Input::Want(Want { holder, attempt, floor, entropy }));
        if self.lease.view().standing == redislease_core::lease::Standing::Idle {
            self.handle(Input::Forget);
        }
    }

    fn handle(&mut self, input: Input) {
        self.lease.handle(clock::now(), input);
        while let Some(effect) = self.lease.poll_effect() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { round, node, op, give_up_at } => {
                self.outstanding += 1;
                let ballot_box = self.ballot_box.clone();
                let reply = move |vote| {
                    let _ = ballot_box.send((round, node, vote));
                };
                match &self.nodes {
                    Some(nodes) => nodes.send(node, Request { keys: self.keys.clone(), op, give_up_at }, reply),
                    None => reply(Vote::Abstained),
                }
            }
            // Whoever publishes sees it in the view, which stays at Publishing until the write is answered.
            Effect::Publish(_) => {}
            Effect::Renewed(renewal) => self.observer.renewed(&renewal, self.lease.config().ttl.0),
            Effect::Changed(view) => {
                self.observer.changed(&view);
                self.shown.send_replace(view);
            }
        }
    }

    /// Gives back what nobody knows of, and waits until the nodes have heard it, but not for a node that is silent.
    async fn stop(mut self) {
        self.lease.abandon(clock::now());
        while let Some(effect) = self.lease.poll_effect() {
            self.carry_out(effect);
        }
        let give_up_at: Time = clock::now() + self.lease.config().command_timeout.min(LAST_WORDS);
        while self.outstanding > 0 {
            tokio::select! {
                _ = self.votes.recv() => self.outstanding -= 1,
                _ = clock::sleep_until(give_up_at) => return,
            }
        }
    }
}
