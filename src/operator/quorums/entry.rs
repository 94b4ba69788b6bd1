//! One quorum: its resource, its connections, and why it cannot be used.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use redislease_core::time::Time;
use redislease_lock::clock;
use redislease_lock::nodes::StartError;
use redislease_plan::api::conditions::{LeaseReady, QuorumReady};
use redislease_plan::api::quorum::NodeState;
use redislease_plan::api::{RedisQuorum, ValidQuorum};
use redislease_plan::plan::{Authority, QuorumFacts, QuorumStatusWriter};

use super::connection::{Connection, evaluated, mismatch, up};
use super::secret::{Login, Read, Secrets};
use super::{QuorumUpdate, show};
use crate::operator::kube_api::CallError;
use crate::operator::leadership::{Election, ElectionInputs, ElectionRequests, Replica};
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

/// The last update that was sent to the engine.
#[derive(Debug, PartialEq)]
struct SentUpdate {
    facts: Option<Arc<QuorumFacts>>,
    retiring: Option<u64>,
}

/// One quorum.
pub(super) struct QuorumEntry {
    election: Election,
    resource: Option<RedisQuorum>,
    /// The last valid spec.
    valid: Option<Arc<ValidQuorum>>,
    /// Why the spec is not valid, or cannot be opened as it is.
    problem: Option<String>,
    /// Why the operating system did not let this process open the quorum. It is tried again.
    unopened: Option<String>,
    /// The secrets that the spec names.
    secrets: Secrets,
    connection: Option<Arc<Connection>>,
    /// Whether the connection is for another configuration, or the resource is deleted: no lease is opened on it any
    /// more.
    retiring: bool,
    sent: Option<SentUpdate>,
    status_writer: QuorumStatusWriter,
    /// The last answer of [`is_behind`](Self::is_behind): the others may lose the quorum for a moment.
    fell_behind: bool,
}

impl QuorumEntry {
    /// Creates an entry without facts.
    pub fn new(replica: Replica) -> Self {
        Self {
            election: Election::new(replica),
            resource: None,
            valid: None,
            problem: None,
            unopened: None,
            secrets: Secrets::default(),
            connection: None,
            retiring: false,
            sent: None,
            status_writer: QuorumStatusWriter::default(),
            fell_behind: false,
        }
    }

    /// Gives the election one turn. `wake` requests another one.
    pub fn elect(&mut self, wake: impl Fn() + Clone + Send + Sync + 'static) -> ElectionRequests {
        // A quorum whose secret was not read yet will be opened later.
        if !self.is_read() {
            return ElectionRequests::default();
        }
        let statuses = self.connection.as_ref().map(|connection| connection.statuses()).unwrap_or_default();
        let named = leader(self.resource.as_ref());
        let is_lost = match &self.connection {
            Some(connection) => evaluated(&statuses) && up(&statuses) < connection.quorum.quorum.majority(),
            // The leader may have opened the quorum before its secret or its spec became unusable.
            None => named.is_some(),
        };
        let inputs = ElectionInputs { connection: self.connection.as_ref(), is_lost, named };
        let requests = self.election.turn(clock::now(), &inputs, wake);
        if !inputs.is_lost {
            self.status_writer.withdraw_claim();
        } else if requests.claim {
            self.status_writer.claim();
        }
        requests
    }

    /// When the election needs a turn. It has none while the secret is unread, whose read causes the next one.
    pub fn elect_at(&self) -> Option<Time> {
        self.election.next_deadline().filter(|_| self.is_read())
    }

    /// Begins the election again, after a panic in a turn of this quorum.
    pub fn restart_election(&mut self) {
        self.election.restart();
        self.status_writer.withdraw_claim();
    }

    /// The election of this replica.
    pub const fn election(&self) -> &Election {
        &self.election
    }

    /// Takes the resource that was read for the election.
    pub fn quorum_read(&mut self, read: Result<Option<RedisQuorum>, String>) {
        let Ok(resource) = read else { return self.election.quorum_read(clock::now(), Err(())) };
        let named = leader(resource.as_ref()).map(str::to_owned);
        if let Some(resource) = resource {
            self.take(resource, false);
        }
        self.election.quorum_read(clock::now(), Ok(named));
    }

    /// Releases the lock, because this process is about to end.
    pub fn stop(&mut self) {
        self.election.stop(clock::now());
    }

    /// Takes the observed resource. A listed one counts even with a lower version: etcd may have been restored from a
    /// backup.
    pub fn take(&mut self, resource: RedisQuorum, listed: bool) {
        let same = |known: &&RedisQuorum| known.meta().uid == resource.meta().uid;
        if !listed && self.resource.as_ref().filter(same).is_some_and(|known| version(known) > version(&resource)) {
            return;
        }
        match ValidQuorum::try_from(&resource) {
            Ok(valid) => {
                self.problem = None;
                self.secrets.follow(&valid);
                self.valid = Some(Arc::new(valid));
            }
            Err(invalid) => self.problem = Some(invalid.to_string()),
        }
        self.resource = Some(resource);
    }

    /// The resource is deleted. Its leases continue while this process runs.
    pub fn resource_gone(&mut self) {
        self.resource = None;
        self.retiring = self.connection.is_some();
    }

    /// Whether the resource exists.
    pub const fn exists(&self) -> bool {
        self.resource.is_some()
    }

    pub const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether this connection is to be closed when nothing uses it.
    pub fn is_retiring(&self, id: u64) -> bool {
        self.retiring && self.connection.as_ref().is_some_and(|connection| connection.quorum.id == id)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.connection = None;
        self.retiring = false;
    }

    /// The names of the secrets, which are read periodically.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.names().filter(|_| self.exists())
    }

    /// Takes the result of reading a secret. Returns whether it has changed.
    pub fn secret_read(&mut self, namespace: &str, name: &str, read: &Read) -> bool {
        self.secrets.take(namespace, name, read)
    }

    /// The next step. Applies the settings that can change in an open quorum.
    pub fn next_step(&mut self) -> Step {
        let Some(valid) = self.valid.clone().filter(|_| self.exists() && self.problem.is_none()) else {
            return Step::None;
        };
        if let Some(name) = self.secrets.next_unread() {
            return Step::ReadSecret(name);
        }
        match &self.connection {
            Some(connection) if connection.is_of(&valid) => {
                // The resource was created again with the same configuration: its leases continue.
                self.retiring = false;
                connection.log_in_with(&self.secrets);
                connection.update(&valid);
                Step::None
            }
            Some(_) => {
                self.retiring = true;
                Step::None
            }
            None if self.unopened.is_some() => Step::None,
            None => self.secrets.login().map_or(Step::None, |login| Step::Open(valid, login)),
        }
    }

    /// The nodes that are misconfigured according to the status.
    pub fn misconfigured(&self) -> Vec<String> {
        let nodes =
            self.resource.iter().filter_map(|resource| resource.status.as_ref()).flat_map(|status| &status.nodes);
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
            Err(error @ StartError::System { .. }) => self.unopened = Some(error.to_string()),
            Err(error) => self.problem = Some(error.to_string()),
        }
        None
    }

    /// Lets the next step open the quorum again after the operating system did not. Returns whether it did not.
    pub fn open_again(&mut self) -> bool {
        self.unopened.take().is_some()
    }

    /// Whether the resource and its secrets have been read.
    pub fn is_read(&self) -> bool {
        !self.exists() || self.connection.is_some() || self.problem.is_some() || self.secrets.are_read()
    }

    /// Whether a connection to every node succeeded or failed at least once.
    pub fn is_evaluated(&self) -> bool {
        !self.exists()
            || self.obstacle().is_some()
            || self.connection.as_ref().is_some_and(|connection| evaluated(&connection.statuses()))
    }

    /// Whether another process reaches a majority, as the status has shown, and this one has not reached any since. A rollout must not
    /// replace that one by this one. A process that decides without a majority is the last one.
    pub fn is_behind(&mut self) -> bool {
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        let shows = status.is_some_and(|status| {
            let votes = status.nodes.iter().filter(|node| node.state == NodeState::Up).count();
            votes * 2 > status.nodes.len()
        });
        let reaches = |connection: &Arc<Connection>| up(&connection.statuses()) >= connection.quorum.quorum.majority();
        let decides = matches!(self.election.grant().authority(clock::now()), Authority::Lead | Authority::End);
        self.fell_behind |= shows;
        self.fell_behind &= !decides && self.exists() && !self.connection.as_ref().is_some_and(reaches);
        self.fell_behind
    }

    /// Why no lease can be acquired.
    fn obstacle(&self) -> Option<(QuorumReady, &str)> {
        if let Some(problem) = &self.problem {
            return Some((QuorumReady::InvalidSpec, problem));
        }
        if let Some(problem) = &self.unopened {
            return Some((QuorumReady::QuorumUnavailable, problem));
        }
        if self.retiring {
            let message = "it was replaced by one of another configuration: leases are ended on the old nodes first";
            return Some((QuorumReady::QuorumUnavailable, message));
        }
        self.secrets.problem().map(|problem| (QuorumReady::InvalidReference, problem))
    }

    /// The update for the engine, if something has changed.
    pub fn update(&mut self, name: &str, namespace: &str) -> Option<QuorumUpdate> {
        let connection = self.connection.as_ref().filter(|_| !self.retiring);
        let retiring = self.connection.as_ref().filter(|_| self.retiring).map(|connection| connection.quorum.id);
        let sent = SentUpdate { facts: self.facts(name, namespace), retiring };
        if self.sent.as_ref() == Some(&sent) {
            return None;
        }
        let facts = sent.facts.clone();
        let (connection, grant) = (connection.cloned(), self.election.grant().clone());
        let update = QuorumUpdate { name: name.to_owned(), facts, connection, retiring, grant };
        self.sent = Some(sent);
        Some(update)
    }

    fn facts(&self, name: &str, namespace: &str) -> Option<Arc<QuorumFacts>> {
        self.resource.as_ref()?;
        let connection = self.connection.as_ref().filter(|_| !self.retiring);
        let statuses = connection.map(|connection| connection.statuses()).unwrap_or_default();
        let obstacle = self.obstacle().map(|(reason, message)| {
            let reason = match reason {
                QuorumReady::QuorumUnavailable => LeaseReady::QuorumUnavailable,
                _ => LeaseReady::InvalidReference,
            };
            (reason, format!("RedisQuorum {namespace}/{name} cannot be used: {message}"))
        });
        Some(Arc::new(QuorumFacts {
            read: self.is_read(),
            open: connection.map(|connection| connection.open_quorum()),
            valid: self.valid.clone(),
            obstacle,
            denied: false,
            replaced: self.retiring,
            up: up(&statuses),
            evaluated: connection.is_some() && evaluated(&statuses),
            mismatch: mismatch(&statuses).map(str::to_owned),
        }))
    }

    /// When the status must be compared again.
    pub fn show_at(&self) -> Option<Time> {
        self.status_writer.next_deadline().filter(|_| self.exists())
    }

    /// Returns the resource with the status to write now. Reports the events of an unanswered write that the resource shows.
    pub fn next_status(&mut self, writer: &Writer) -> Option<RedisQuorum> {
        let obstacle = self.obstacle().map(|(reason, message)| (reason, message.to_owned()));
        let (now, resource) = (clock::now(), self.resource.as_ref()?);
        for notice in self.status_writer.shown(now, resource.status.as_ref()) {
            writer.report(&notice, &resource.object_ref(&()));
        }
        let compose = |leads: bool| {
            let statuses = self.connection.as_ref().map(|connection| connection.statuses()).unwrap_or_default();
            let fingerprint = self.connection.as_ref().map(|connection| connection.quorum.fingerprint.as_str());
            let leader = leads.then(|| self.election.instance());
            let obstacle = obstacle.as_ref().map(|(reason, message)| (*reason, message.as_str()));
            show::compose(resource, self.valid.as_deref(), fingerprint, &statuses, obstacle, leader)
        };
        let grant = (self.election.grant().authority(now), self.election.has_lock());
        let status = self.status_writer.next(now, grant, resource.status.as_ref(), compose)?;
        let mut next = resource.clone();
        next.status = Some(status);
        next.metadata.managed_fields = None;
        Some(next)
    }

    /// Takes the outcome of the status write.
    pub fn status_written(&mut self, outcome: Result<Box<RedisQuorum>, CallError>, writer: &Writer) {
        let events = self.status_writer.ended(clock::now(), outcome.as_ref().map(|_| ()));
        // A conflict, or a deleted resource: the watch delivers the current state.
        let Ok(answered) = outcome else { return };
        let object = answered.object_ref(&());
        for notice in events {
            writer.report(&notice, &object);
        }
        let same = |known: &&mut RedisQuorum| known.meta().uid == answered.meta().uid;
        if let Some(known) = self.resource.as_mut().filter(same)
            && version(known) < version(&answered)
        {
            *known = *answered;
        }
    }
}

/// The instance that the status names.
fn leader(quorum: Option<&RedisQuorum>) -> Option<&str> {
    Some(quorum?.status.as_ref()?.leader.as_ref()?.instance.as_str())
}

fn version(quorum: &RedisQuorum) -> Option<u64> {
    quorum.resource_version().and_then(|version| version.parse().ok())
}
