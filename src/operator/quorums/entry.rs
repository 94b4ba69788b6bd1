//! One quorum: its connections, its secrets and its lock, around the machine that decides about them. The controller gives it turns.

use std::sync::Arc;

use kube::Resource;
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_lock::keeper::LeaseHandle;
use redislease_lock::nodes::StartError;
use redislease_plan::api::quorum::NodeState;
use redislease_plan::api::{RedisQuorum, ValidQuorum};
use redislease_plan::plan::{
    Authority, Command, Granted, LeadershipEffect, News, ObservedQuorum, QuorumChange, QuorumReconciler, all_tried,
};

use super::connection::{Connection, InUse};
use super::secret::{Login, Secrets};
use super::show::{mismatch, shown};
use crate::operator::authority::Grant;
use crate::operator::kube_api::CallError;
use crate::operator::leadership::Replica;
use crate::operator::slot::Slot;
use crate::operator::writer::Writer;

/// The next step for a quorum.
#[derive(Debug)]
pub(super) enum Step {
    None,
    /// Read the secret of this name.
    ReadSecret(String),
    /// Open the quorum.
    Open(Arc<ValidQuorum>, Login),
}

/// What the election requests from the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ElectionRequests {
    /// The authority has changed.
    pub changed: bool,
    /// Read the RedisQuorum.
    pub read: bool,
    /// Write this replica into the status, although it does not hold the lock.
    pub claim: bool,
}

/// What the engine learns about a quorum.
#[derive(Clone, Debug)]
pub struct QuorumUpdate {
    /// The name of the RedisQuorum.
    pub name: String,
    /// The users of connections that retire end or move, and then drop [`InUse`].
    pub change: QuorumChange,
    /// The connections behind its facts.
    pub connection: Option<Arc<Connection>>,
    /// The authority of this process over the leases of the quorum. The engine reads it each time it decides about one.
    pub grant: Arc<Grant>,
}

/// One quorum.
pub(super) struct QuorumEntry {
    pub machine: QuorumReconciler,
    replica: Replica,
    /// The authority of this process over the leases on the quorum.
    pub grant: Arc<Grant>,
    lock: Option<(LeaseHandle, Arc<Slot>)>,
    /// The secrets that the spec names.
    pub secrets: Secrets,
    pub connection: Option<Arc<Connection>>,
    /// Keeps the connections open while another replica may still renew leases on this quorum, even after its resource
    /// was deleted or replaced: this replica must not decide anything before the other one has finished.
    in_use: Option<Arc<InUse>>,
}

impl QuorumEntry {
    /// Creates an entry without facts, in whose election this replica follows.
    pub fn new(replica: Replica) -> Self {
        Self {
            machine: replica.machine(),
            replica,
            grant: Grant::of(Authority::Follow),
            lock: None,
            secrets: Secrets::default(),
            connection: None,
            in_use: None,
        }
    }

    fn observed(&self) -> ObservedQuorum {
        let statuses = self.connection.as_ref().map(|connection| connection.statuses()).unwrap_or_default();
        let nodes: Vec<_> = statuses.iter().map(|node| shown(node, self.machine.shown_nodes())).collect();
        let have_failed = statuses.iter().map(|node| node.reason.is_some());
        ObservedQuorum {
            open: self.connection.as_ref().map(|connection| connection.open_quorum()),
            tried: all_tried(nodes.iter().map(|node| node.state).zip(have_failed)),
            nodes,
            mismatch: mismatch(&statuses),
            secrets_read: self.secrets.are_read(),
            secret_problem: self.secrets.problem().map(str::to_owned),
        }
    }

    /// Gives the election one turn. `wake` requests another one.
    pub fn elect(&mut self, wake: impl Fn() + Clone + Send + Sync + 'static) -> ElectionRequests {
        // A quorum whose secret was not read yet will be opened later.
        if !self.is_read() {
            return ElectionRequests::default();
        }
        let news = self.lock.as_ref().map_or_else(News::default, |(_, slot)| slot.take());
        if news.ended {
            self.lock = None;
        }
        self.machine.turn(clock::now(), news, &self.observed(), self.replica.writer.answered_at());
        // Before the probe: its answer, or another one, may come at once.
        if self.machine.leadership().awaits_api_answer() {
            self.replica.writer.await_answer();
        }
        let requests = self.carry_out(&wake);
        let connection = self.connection.as_ref().filter(|_| self.machine.leadership().waits_for_another());
        self.in_use = connection.map(|connection| connection.in_use());
        requests
    }

    fn carry_out(&mut self, wake: &(impl Fn() + Clone + Send + Sync + 'static)) -> ElectionRequests {
        let mut requests = ElectionRequests::default();
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                LeadershipEffect::Open { config, .. } => {
                    let connection = self.connection.as_ref();
                    self.lock = connection.map(|open| self.replica.open_lock(open, config, wake.clone()));
                }
                // The handle closes the machine when it is dropped.
                LeadershipEffect::Keeper(Command::Close) => self.lock = None,
                LeadershipEffect::Keeper(command) => {
                    if let Some((lock, _)) = &self.lock {
                        lock.command(command);
                    }
                }
                LeadershipEffect::Probe => self.replica.writer.probe(),
                LeadershipEffect::ReadQuorum => requests.read = true,
                LeadershipEffect::Claim => requests.claim = true,
                LeadershipEffect::Authority(_) => requests.changed = true,
            }
        }
        let lock = self.lock.as_ref().map(|(_, slot)| slot.clone());
        self.grant.set(self.machine.leadership().granted(), lock);
        requests
    }

    /// When the election needs a turn, and when the status must be compared again.
    pub fn deadlines(&self) -> [Option<Time>; 2] {
        self.machine.deadlines(self.is_connected(), self.secrets.are_read())
    }

    /// Begins the election again as a follower, after a panic in a turn of this quorum. The lock is not released and expires, so this
    /// process decides nothing before it holds the lock again.
    pub fn restart_election(&mut self) {
        self.machine.restart_election();
        self.lock = None;
        self.grant.set(Granted::default(), None);
    }

    fn authority(&self) -> Authority {
        self.grant.authority(clock::now())
    }

    /// Whether this replica holds the lock and leads.
    pub fn is_leader(&self) -> bool {
        self.machine.leadership().has_lock() && self.authority() == Authority::Lead
    }

    /// Releases the lock, because this process is about to end.
    pub fn stop(&mut self) {
        self.machine.stop();
        self.carry_out(&|| {});
    }

    /// Whether the resource exists.
    pub const fn exists(&self) -> bool {
        self.machine.resource().is_some()
    }

    pub const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether this connection is to be closed when nothing uses it.
    pub fn is_retiring(&self, id: u64) -> bool {
        self.machine.is_retiring() && self.connection.as_ref().is_some_and(|connection| connection.quorum.id == id)
    }

    /// The names of the secrets, which are read periodically.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.names().filter(|_| self.exists())
    }

    /// The next step. Applies the settings that can change in an open quorum.
    pub fn next_step(&mut self) -> Step {
        let Some(valid) = self.machine.usable_spec() else { return Step::None };
        self.secrets.follow(valid);
        if let Some(name) = self.secrets.next_unread() {
            return Step::ReadSecret(name);
        }
        let fingerprint = self.connection.as_ref().map(|connection| connection.quorum.fingerprint.as_str());
        let Some(valid) = self.machine.next_step(fingerprint) else { return Step::None };
        let Some(connection) = &self.connection else {
            return self.secrets.login().map_or(Step::None, |login| Step::Open(valid, login));
        };
        connection.log_in_with(&self.secrets);
        connection.update(&valid);
        Step::None
    }

    /// The nodes that are misconfigured according to the status.
    pub fn misconfigured(&self) -> Vec<String> {
        let nodes = self.machine.shown_nodes().iter();
        let misconfigured = nodes.filter(|node| node.state == NodeState::Misconfigured);
        misconfigured.map(|node| node.name.clone()).collect()
    }

    /// Takes the connections, or the error. Returns the connections if they are new.
    pub fn opened(&mut self, opened: Result<Connection, StartError>) -> Option<Arc<Connection>> {
        match opened {
            Ok(connection) => {
                self.connection = Some(Arc::new(connection));
                return self.connection.clone();
            }
            Err(error @ StartError::System { .. }) => self.machine.not_opened(error.to_string()),
            Err(error) => self.machine.invalid(error.to_string()),
        }
        None
    }

    /// Whether the resource and its secrets have been read.
    pub fn is_read(&self) -> bool {
        self.machine.is_read(self.is_connected(), self.secrets.are_read())
    }

    /// See [`QuorumReconciler::is_ready`].
    pub fn is_ready(&mut self) -> bool {
        let (authority, observed) = (self.authority(), self.observed());
        self.machine.is_ready(authority, &observed)
    }

    /// The update for the engine, if something has changed.
    pub fn update(&mut self, name: &str) -> Option<QuorumUpdate> {
        let change = self.machine.change(&self.observed())?;
        let connection = self.connection.clone().filter(|_| change.retiring.is_none());
        Some(QuorumUpdate { name: name.to_owned(), change, connection, grant: self.grant.clone() })
    }

    /// Returns the resource with the status to write now. Reports the events of an unanswered write that the resource shows.
    pub fn next_status(&mut self, writer: &Writer) -> Option<RedisQuorum> {
        let (authority, observed) = (self.authority(), self.observed());
        let object = self.machine.resource()?.object_ref(&());
        let (notices, status) = self.machine.next_status(clock::now(), jiff::Timestamp::now(), authority, &observed);
        for notice in notices {
            writer.report(&notice, &object);
        }
        status
    }

    /// Takes the outcome of the status write.
    pub fn status_written(&mut self, outcome: Result<Box<RedisQuorum>, CallError>, writer: &Writer) {
        let object = outcome.as_ref().map(|answered| answered.object_ref(&())).unwrap_or_default();
        for notice in self.machine.status_written(clock::now(), outcome) {
            writer.report(&notice, &object);
        }
    }
}
