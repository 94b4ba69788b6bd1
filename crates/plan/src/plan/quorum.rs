//! One RedisQuorum in one replica: the spec in use, why no lease can be acquired, the election, and the writes of the status.
//!
//! The caller holds the connections, the secrets and the lock. It passes what they are as [`ObservedQuorum`], and carries out the
//! [`LeadershipEffect`]s of each turn.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use redislease_core::time::Time;

use super::calls::CallError;
use super::leadership::{Leadership, LeadershipEffect, LeadershipFacts, QuorumStatusWriter};
use super::{Authority, News, OpenQuorum, QuorumFacts};
use crate::api::conditions::{LeaseReady, QuorumReady};
use crate::api::quorum::{Leader, NodeState, NodeStatus};
use crate::api::{RedisQuorum, RedisQuorumStatus, ValidQuorum};
use crate::election::Cluster;
use crate::status::{Notice, QuorumInputs, compose_quorum};

/// What this process knows about a quorum beside its resource.
#[derive(Clone, Debug, Default)]
pub struct ObservedQuorum {
    /// The quorum, as long as this process is connected to it.
    pub open: Option<Arc<OpenQuorum>>,
    /// The nodes of the connection.
    pub nodes: Vec<NodeStatus>,
    /// See [`all_tried`].
    pub tried: bool,
    /// The message about a node whose marker names another configuration.
    pub mismatch: Option<String>,
    /// Whether the secrets of the spec have been read.
    pub secrets_read: bool,
    /// Why a secret cannot be used.
    pub secret_problem: Option<String>,
}

/// Whether a connection to each node succeeded or failed at least once. `nodes`: the states, and whether a connection has failed.
pub fn all_tried(nodes: impl IntoIterator<Item = (NodeState, bool)>) -> bool {
    nodes.into_iter().all(|(state, has_failed)| state != NodeState::Down || has_failed)
}

impl ObservedQuorum {
    fn up(&self) -> usize {
        up(&self.nodes)
    }

    fn has_majority(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.up() >= open.quorum.majority())
    }
}

/// A change that the engine must learn.
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumChange {
    /// The facts for leases; `None` if there is no such resource.
    pub facts: Option<Arc<QuorumFacts>>,
    /// The number of the open quorum on which no lease is opened any more.
    pub retiring: Option<u64>,
}

/// One RedisQuorum in one replica.
#[derive(Clone, Debug)]
pub struct QuorumReconciler {
    leadership: Leadership,
    status_writer: QuorumStatusWriter,
    resource: Option<RedisQuorum>,
    /// The last valid spec.
    valid: Option<Arc<ValidQuorum>>,
    /// Why the spec is not valid, or cannot be opened as it is.
    problem: Option<String>,
    /// Why the operating system did not let this process open the quorum. It is tried again.
    unopened: Option<String>,
    /// Whether the connection is for another configuration, or the resource is deleted: no lease is opened on it any more.
    retiring: bool,
    sent: Option<QuorumChange>,
    /// Whether another process reached a majority and this one did not: the others may lose it for a moment.
    fell_behind: bool,
}

impl QuorumReconciler {
    /// Without a resource. `instance` names this replica, `process` identifies this run of it.
    pub fn new(cluster: Cluster, instance: String, process: String) -> Self {
        Self {
            leadership: Leadership::new(cluster, instance, process),
            status_writer: QuorumStatusWriter::default(),
            resource: None,
            valid: None,
            problem: None,
            unopened: None,
            retiring: false,
            sent: None,
            fell_behind: false,
        }
    }

    /// The election of this replica.
    pub const fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// The newest version of the resource.
    pub const fn resource(&self) -> Option<&RedisQuorum> {
        self.resource.as_ref()
    }

    /// The nodes in the status.
    pub fn shown_nodes(&self) -> &[NodeStatus] {
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        status.map(|status| &*status.nodes).unwrap_or_default()
    }

    /// The spec, unless it cannot be used.
    pub fn usable_spec(&self) -> Option<&Arc<ValidQuorum>> {
        self.valid.as_ref().filter(|_| self.resource.is_some() && self.problem.is_none())
    }

    /// Takes the observed resource. A listed one counts even with a lower version: etcd may have been restored from a
    /// backup.
    pub fn take(&mut self, resource: RedisQuorum, listed: bool) {
        let same = |known: &&RedisQuorum| known.meta().uid == resource.meta().uid;
        if !listed && self.resource.as_ref().filter(same).is_some_and(|known| version(known) > version(&resource)) {
            return;
        }
        match ValidQuorum::try_from(&resource) {
            Ok(valid) => (self.problem, self.valid) = (None, Some(Arc::new(valid))),
            Err(invalid) => self.problem = Some(invalid.to_string()),
        }
        self.resource = Some(resource);
    }

    /// The resource is deleted. Its leases continue while this process runs.
    pub fn deleted(&mut self) {
        self.resource = None;
        self.retiring = true;
    }

    /// Returns the spec to open the quorum with, or to update the open one with: `fingerprint` is that of the connection.
    pub fn next_step(&mut self, fingerprint: Option<&str>) -> Option<Arc<ValidQuorum>> {
        let valid = self.usable_spec()?.clone();
        // If the resource was created again with the same configuration, its leases continue.
        self.retiring = fingerprint.is_some_and(|fingerprint| fingerprint != valid.fingerprint());
        let is_possible = !self.retiring && (fingerprint.is_some() || self.unopened.is_none());
        is_possible.then_some(valid)
    }

    /// The spec cannot be opened as it is.
    pub fn invalid(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// The operating system did not let this process open the quorum.
    pub fn not_opened(&mut self, problem: String) {
        self.unopened = Some(problem);
    }

    /// Lets the next step open the quorum again after the operating system did not. Returns whether it did not.
    pub fn open_again(&mut self) -> bool {
        self.unopened.take().is_some()
    }

    /// Whether a connection is to be closed when nothing uses it.
    pub const fn is_retiring(&self) -> bool {
        self.retiring
    }

    /// Whether the resource and its secrets have been read. Before that, the quorum may be opened later, and the election needs no turn.
    pub const fn is_read(&self, is_connected: bool, secrets_read: bool) -> bool {
        self.resource.is_none() || is_connected || self.problem.is_some() || secrets_read
    }

    /// Whether this process can replace others in a rollout: it has tried every node, and does not lack a majority that another
    /// process reaches, as the status has shown, while this one has not reached any since. A process that decides without a majority is
    /// the last one.
    pub fn is_ready(&mut self, authority: Authority, observed: &ObservedQuorum) -> bool {
        let decides = authority.decides();
        self.fell_behind |= shows_majority(self.shown_nodes());
        self.fell_behind &= !decides && self.resource.is_some() && !observed.has_majority();
        let is_evaluated =
            self.resource.is_none() || self.obstacle(observed).is_some() || (observed.open.is_some() && observed.tried);
        is_evaluated && !self.fell_behind
    }

    /// Why no lease can be acquired.
    fn obstacle<'a>(&'a self, observed: &'a ObservedQuorum) -> Option<(QuorumReady, &'a str)> {
        if let Some(problem) = &self.problem {
            return Some((QuorumReady::InvalidSpec, problem));
        }
        if let Some(problem) = &self.unopened {
            return Some((QuorumReady::QuorumUnavailable, problem));
        }
        if self.retiring && observed.open.is_some() {
            let message = "it was replaced by one of another configuration: leases are ended on the old nodes first";
            return Some((QuorumReady::QuorumUnavailable, message));
        }
        observed.secret_problem.as_deref().map(|problem| (QuorumReady::InvalidReference, problem))
    }

    /// What the engine must learn, if something has changed.
    pub fn change(&mut self, observed: &ObservedQuorum) -> Option<QuorumChange> {
        let retiring = observed.open.as_ref().filter(|_| self.retiring).map(|open| open.id);
        let change = QuorumChange { facts: self.facts(observed), retiring };
        if self.sent.as_ref() == Some(&change) {
            return None;
        }
        Some(self.sent.insert(change).clone())
    }

    fn facts(&self, observed: &ObservedQuorum) -> Option<Arc<QuorumFacts>> {
        let resource = self.resource.as_ref()?;
        let obstacle = self.obstacle(observed).map(|(reason, message)| {
            let reason = match reason {
                QuorumReady::QuorumUnavailable => LeaseReady::QuorumUnavailable,
                _ => LeaseReady::InvalidReference,
            };
            let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
            (reason, format!("RedisQuorum {namespace}/{name} cannot be used: {message}"))
        });
        let open = observed.open.clone().filter(|_| !self.retiring);
        let is_open = open.is_some();
        Some(Arc::new(QuorumFacts {
            read: self.is_read(observed.open.is_some(), observed.secrets_read),
            open,
            valid: self.valid.clone(),
            obstacle,
            denied: false,
            replaced: self.retiring && observed.open.is_some(),
            up: if is_open { observed.up() } else { 0 },
            evaluated: is_open && observed.tried,
            mismatch: observed.mismatch.clone().filter(|_| is_open),
        }))
    }

    /// Gives the election one turn, with the `news` from the machine of the lock.
    pub fn turn(&mut self, now: Time, news: News, observed: &ObservedQuorum, api_answered_at: Option<Time>) {
        let named = leader(self.resource.as_ref());
        let quorum_lost = match observed.open {
            Some(_) => observed.tried && !observed.has_majority(),
            // The leader may have opened the quorum before its secret or its spec became unusable.
            None => named.is_some(),
        };
        let is_claimed = named_leader(self.resource.as_ref()).is_some_and(|leader| leader.claimed);
        let facts = LeadershipFacts { quorum: observed.open.clone(), quorum_lost, named, is_claimed, api_answered_at };
        self.leadership.turn(now, news, &facts);
        if !quorum_lost {
            self.status_writer.withdraw_claim();
        }
    }

    /// The next effect of the election. A claim is noted here: then the status is to be written.
    pub fn poll_effect(&mut self) -> Option<LeadershipEffect> {
        let effect = self.leadership.poll_effect();
        if effect == Some(LeadershipEffect::Claim) && self.leadership.quorum_is_lost() {
            self.status_writer.claim();
        }
        effect
    }

    /// Takes the resource that was read for the election.
    pub fn quorum_read(&mut self, now: Time, read: Result<Option<Box<RedisQuorum>>, String>) {
        let named = read.map_err(drop).and_then(|resource| {
            let named = leader(resource.as_deref());
            if let Some(resource) = resource {
                // The watch shows creations. An answer may be older than a deletion that it has shown.
                let known = self.resource.as_ref().filter(|known| known.meta().uid == resource.meta().uid);
                known.ok_or(())?;
                self.take(*resource, false);
            }
            Ok(named)
        });
        self.leadership.quorum_read(now, named);
    }

    /// Releases the lock, because this process is about to end.
    pub fn stop(&mut self) {
        self.leadership.stop();
    }

    /// Begins the election again as a follower, after a panic: its state may be inconsistent.
    pub fn restart_election(&mut self) {
        self.leadership = self.leadership.restarted();
        self.status_writer.withdraw_claim();
    }

    /// When the election needs a turn, and when the status must be compared again. There is no turn while a secret is unread, whose
    /// read causes the next one.
    pub fn deadlines(&self, is_connected: bool, secrets_read: bool) -> [Option<Time>; 2] {
        let turn = self.leadership.next_deadline().filter(|_| self.is_read(is_connected, secrets_read));
        [turn, self.status_writer.next_deadline().filter(|_| self.resource.is_some())]
    }

    /// Returns the resource with the status to write now, and the events to report: those of an unanswered write that the resource shows.
    pub fn next_status(
        &mut self,
        now: Time,
        wall: Timestamp,
        authority: Authority,
        observed: &ObservedQuorum,
    ) -> (Vec<Notice>, Option<RedisQuorum>) {
        let obstacle = self.obstacle(observed).map(|(reason, message)| (reason, message.to_owned()));
        let Some(resource) = &self.resource else { return (Vec::new(), None) };
        let notices = self.status_writer.shown(now, resource.status.as_ref());
        let compose = |leads: Option<bool>| {
            // A node that was not tried yet is reported after its first connection attempt.
            let known = obstacle.is_some() || observed.tried;
            let composed = known.then(|| {
                compose_quorum(&QuorumInputs {
                    previous: resource.status.as_ref().unwrap_or(&RedisQuorumStatus::default()),
                    generation: resource.meta().generation,
                    now: wall,
                    fingerprint: observed.open.as_ref().map(|open| open.fingerprint.as_str()),
                    nodes: &observed.nodes,
                    majority: self.valid.as_ref().map_or(0, |valid| valid.majority()),
                    evaluated: observed.tried,
                    obstacle: obstacle.as_ref().map(|(reason, message)| (*reason, message.as_str())),
                    mismatch: observed.mismatch.as_deref(),
                    leader: leads.map(|claims| (self.leadership.instance(), claims)),
                })
            });
            composed.filter(|composed| resource.status.as_ref() != Some(&composed.status))
        };
        let grant = (authority, self.leadership.has_lock());
        let status = self.status_writer.next(now, grant, resource.status.as_ref(), compose);
        let written = status.map(|status| {
            let mut next = RedisQuorum { status: Some(status), ..resource.clone() };
            next.metadata.managed_fields = None;
            next
        });
        (notices, written)
    }

    /// Takes the outcome of the status write. Returns the events to report.
    pub fn status_written(&mut self, now: Time, outcome: Result<Box<RedisQuorum>, CallError>) -> Vec<Notice> {
        let notices = self.status_writer.ended(now, outcome.as_ref().map(|_| ()));
        // A conflict, or a deleted resource: the watch delivers the current state.
        let Ok(answered) = outcome else { return notices };
        let same = |known: &&mut RedisQuorum| known.meta().uid == answered.meta().uid;
        if let Some(known) = self.resource.as_mut().filter(same)
            && version(known) < version(&answered)
        {
            *known = *answered;
        }
        notices
    }
}

fn named_leader(quorum: Option<&RedisQuorum>) -> Option<&Leader> {
    quorum?.status.as_ref()?.leader.as_ref()
}

/// The instance that the status names.
fn leader(quorum: Option<&RedisQuorum>) -> Option<String> {
    Some(named_leader(quorum)?.instance.clone())
}

fn up(nodes: &[NodeStatus]) -> usize {
    nodes.iter().filter(|node| node.state == NodeState::Up).count()
}

fn shows_majority(nodes: &[NodeStatus]) -> bool {
    up(nodes) * 2 > nodes.len()
}

fn version(quorum: &RedisQuorum) -> Option<u64> {
    quorum.resource_version().and_then(|version| version.parse().ok())
}
