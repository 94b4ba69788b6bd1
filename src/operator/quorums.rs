//! The quorums that leases may be held on: each RedisQuorum of the operator's namespace, opened once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kube::{Api, Client, Resource, ResourceExt};
use redislease_core::marker::Membership;
use redislease_core::time::Millis;
use tokio::sync::{Notify, watch};

use super::events::Reporter;
use super::kube_api::{self, CallError, call};
use super::pace::Pace;
use super::secret::SecretRead;
use crate::api::conditions::{LeaseReady, QuorumReady};
use crate::api::quorum::NodeState as ShownState;
use crate::api::{RedisQuorum, RedisQuorumStatus, ValidQuorum};
use crate::clock;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::{OperatorMetrics, WriteKind};
use crate::nodes::{Config, Credentials, Misconfiguration, NodeConfig, NodeState, NodeStatus, Nodes};
use crate::status::{NodeReport, QuorumInputs, compose_quorum};

/// The generation of every configuration, until the set of nodes can change.
const GENERATION: u64 = 1;

/// How often a secret is read again: a password that was changed is used by the next connection.
pub const SECRET_EVERY: Duration = Duration::from_secs(15);

/// A quorum with its connections. It lives as long as somebody holds on it, also when its resource is gone.
#[derive(Debug)]
pub struct OpenQuorum {
    /// The name of the RedisQuorum.
    pub name: String,
    /// Its nodes.
    pub nodes: Nodes,
    /// Names of nodes, majority and longest lease.
    pub fingerprint: String,
    key_prefix: String,
}

impl OpenQuorum {
    fn is_the_same_as(&self, valid: &ValidQuorum) -> bool {
        self.fingerprint == valid.fingerprint().as_str() && self.key_prefix == valid.key_prefix
    }
}

/// What a lease finds under a quorum's name.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The quorum as it is configured now.
    pub quorum: Option<(Arc<OpenQuorum>, ValidQuorum)>,
    /// Why no new term may begin on it.
    pub obstacle: Option<(LeaseReady, String)>,
    /// The name stands for another configuration now: what is held on the old one is to end.
    pub replaced: bool,
}

/// What became of a look at a quorum's status.
#[derive(Debug)]
pub enum Shown {
    /// It says what it should, or there is nothing to say yet.
    InOrder,
    /// It was written: this is what the API server answered.
    Written(Box<RedisQuorum>),
    /// It is to be looked at again: somebody else wrote meanwhile, or contradicts it too often.
    Later,
}

/// Whose nodes, and how they are.
type NodeWatch = (Weak<OpenQuorum>, watch::Receiver<Vec<NodeStatus>>);

/// A pause where nothing is to be waited for.
const AFTER_THE_END: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Entry {
    valid: Option<ValidQuorum>,
    open: Option<Arc<OpenQuorum>>,
    /// `open` is of an older configuration, and somebody still holds on it.
    replaced: bool,
    obstacle: Option<(QuorumReady, String)>,
}

/// All quorums by name.
pub struct Quorums {
    client: Client,
    namespace: String,
    nodes: NodeMetrics,
    writes: OperatorMetrics,
    reporter: Reporter,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Quorums whose resource is gone: leases may still stand on them.
    former: Mutex<BTreeMap<String, Weak<OpenQuorum>>>,
    /// Whether every quorum there was at the start has been read once.
    read: AtomicBool,
    /// Counts the changes, for those who wait for one.
    changes: watch::Sender<u64>,
    let_go: Notify,
    /// The task that keeps the quorums follows their nodes through these.
    node_watches: tokio::sync::Mutex<BTreeMap<String, NodeWatch>>,
}

impl Quorums {
    /// No quorum yet.
    pub fn new(
        client: Client,
        namespace: String,
        nodes: NodeMetrics,
        writes: OperatorMetrics,
        reporter: Reporter,
    ) -> Self {
        let (entries, former, changes) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        let read = AtomicBool::new(false);
        let node_watches = tokio::sync::Mutex::default();
        Self {
            client,
            namespace,
            nodes,
            writes,
            reporter,
            entries,
            former,
            read,
            changes,
            let_go: Notify::new(),
            node_watches,
        }
    }

    /// Follows the changes: a quorum came, went, or one of its nodes did something of note.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is known under `name`.
    pub fn find(&self, name: &str) -> Found {
        let entries = self.lock();
        let Some(entry) = entries.get(name) else {
            let message = format!(
                "spec.quorumRef names RedisQuorum {}/{name}, which does not exist: create it there, or create this lease again with another quorumRef",
                self.namespace
            );
            return Found { obstacle: Some((LeaseReady::InvalidReference, message)), ..Found::default() };
        };
        let obstacle = entry.obstacle.as_ref().map(|(_, message)| {
            (LeaseReady::InvalidReference, format!("RedisQuorum {}/{name} cannot be used: {message}", self.namespace))
        });
        let quorum = entry.open.clone().zip(entry.valid.clone()).filter(|_| !entry.replaced);
        Found { quorum, obstacle, replaced: entry.replaced }
    }

    /// Brings one quorum up to date with its resource. Whether that is done: a secret may be unread, or an older
    /// configuration still in use.
    pub async fn apply(&self, quorum: &RedisQuorum) -> bool {
        let name = quorum.name_any();
        match ValidQuorum::try_from(quorum) {
            Ok(valid) => {
                let secret = SecretRead::of(&valid, self.client.clone(), &self.namespace).await;
                if let SecretRead::Unread(message) = &secret {
                    tracing::warn!(quorum = %name, "{message}");
                }
                let read = !matches!(secret, SecretRead::Unread(_));
                self.open(valid, secret) && read
            }
            Err(invalid) => {
                self.with(&name, |entry| {
                    entry.obstacle = Some((QuorumReady::InvalidSpec, invalid.to_string()));
                });
                true
            }
        }
    }

    /// Whether every quorum there was at the start has been read: before, that one is missing says nothing.
    pub fn are_read(&self) -> bool {
        self.read.load(Ordering::Acquire)
    }

    /// Every quorum there was at the start has been read.
    pub fn all_read(&self) {
        if !self.read.swap(true, Ordering::AcqRel) {
            self.changed();
        }
    }

    /// The resource is gone. Leases on it live on while this process does.
    pub fn forget(&self, name: &str) {
        if let Some(open) = self.lock().remove(name).and_then(|entry| entry.open) {
            let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
            former.retain(|_, open| open.strong_count() > 0);
            former.insert(name.to_owned(), Arc::downgrade(&open));
        }
        self.changed();
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        let entry = entries.entry(name.to_owned()).or_insert(Entry {
            valid: None,
            open: None,
            replaced: false,
            obstacle: None,
        });
        let before = (entry.obstacle.clone(), entry.replaced);
        change(entry);
        let changed = (entry.obstacle.clone(), entry.replaced) != before;
        drop(entries);
        if changed {
            self.changed();
        }
    }

    /// Whether the name stands for this configuration now.
    fn open(&self, valid: ValidQuorum, secret: SecretRead) -> bool {
        let name = valid.name.clone();
        let (mut opened, mut is_current) = (false, true);
        let former = self.former.lock().unwrap_or_else(PoisonError::into_inner).get(&name).and_then(Weak::upgrade);
        self.with(&name, |entry| {
            // Created again: what stands on the old one goes on, if it is the same.
            entry.open = entry.open.take().or(former);
            // A quorum of another configuration is opened once nobody holds on the old one any more.
            let stale = entry.open.take_if(|open| !open.is_the_same_as(&valid));
            if let Some(stale) = stale
                && let Err(in_use) = Arc::try_unwrap(stale)
            {
                entry.open = Some(in_use);
                entry.replaced = true;
                let message =
                    "it was replaced by one of another configuration: leases are ended on the old nodes first";
                entry.obstacle = Some((QuorumReady::InvalidSpec, message.to_owned()));
                is_current = false;
                return;
            }
            entry.replaced = false;
            entry.obstacle = secret.obstacle(entry.open.is_some(), entry.obstacle.take());
            if let Some(open) = &entry.open {
                if let SecretRead::Found(credentials) = secret {
                    open.nodes.set_credentials(credentials);
                }
                open.nodes.set_command_timeout(Millis::from(valid.command_timeout));
                for (node, now) in open.nodes.quorum().nodes().zip(&valid.nodes) {
                    open.nodes.set_address(node, &now.address.to_string());
                }
            } else {
                let credentials = if let SecretRead::Found(credentials) = secret { credentials } else { None };
                match self.start(&valid, credentials) {
                    Ok(open) => {
                        entry.open = Some(Arc::new(open));
                        opened = true;
                    }
                    Err(message) => entry.obstacle = Some((QuorumReady::InvalidSpec, message)),
                }
            }
            entry.valid = Some(valid);
        });
        if opened {
            self.changed();
        }
        is_current
    }

    /// A lease does not stand on a quorum any more: another of the name may be waiting for it.
    pub fn let_go(&self) {
        self.let_go.notify_one();
    }

    /// Returns when a lease has let go of a quorum since the last call.
    pub async fn is_let_go(&self) {
        self.let_go.notified().await;
    }

    fn start(&self, valid: &ValidQuorum, credentials: Option<Credentials>) -> Result<OpenQuorum, String> {
        let fingerprint = valid.fingerprint().as_str().to_owned();
        let config = Config {
            quorum: valid.name.clone(),
            nodes: valid
                .nodes
                .iter()
                .map(|node| NodeConfig { name: node.name.clone(), address: node.address.to_string() })
                .collect(),
            key_prefix: valid.key_prefix.clone(),
            membership: Membership { generation: GENERATION, fingerprint: fingerprint.as_str().into() },
            longest_lease: Millis::from(valid.max_lease),
            command_timeout: Millis::from(valid.command_timeout),
            credentials,
            wait_for_floor: false,
        };
        let nodes = Nodes::start(&config, &self.nodes).map_err(|error| error.to_string())?;
        Ok(OpenQuorum { name: valid.name.clone(), nodes, fingerprint, key_prefix: valid.key_prefix.clone() })
    }

    /// The namespace in which quorums are honoured.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns when a node of any quorum did something of note since the last call.
    pub async fn any_node_moves(&self) {
        let mut watches = self.node_watches.lock().await;
        {
            let entries = self.lock();
            let open = |name: &String| entries.get(name).and_then(|entry| entry.open.as_ref());
            watches.retain(|name, (watched, _)| open(name).is_some_and(|open| Arc::downgrade(open).ptr_eq(watched)));
            for (name, entry) in entries.iter() {
                if let Some(open) = entry.open.as_ref().filter(|_| !watches.contains_key(name)) {
                    let mut watch = open.nodes.watch();
                    // What happened before it was followed counts too.
                    watch.mark_changed();
                    watches.insert(name.clone(), (Arc::downgrade(open), watch));
                }
            }
        }
        let moves: Vec<_> = watches.values_mut().map(|(_, watch)| Box::pin(watch.changed())).collect();
        if moves.is_empty() {
            std::future::pending::<()>().await;
        }
        let (first, ..) = futures::future::select_all(moves).await;
        if first.is_err() {
            // The nodes of a quorum have ended; whoever calls again follows the new ones.
            tokio::time::sleep(AFTER_THE_END).await;
        }
    }

    /// Brings the resource's status up to date with the quorum.
    ///
    /// # Errors
    /// When the API server did not take the status: to be tried again.
    pub async fn show(&self, quorum: &RedisQuorum, pace: &mut Pace<RedisQuorumStatus>) -> Result<Shown, CallError> {
        let name = quorum.name_any();
        let (valid, open, obstacle) = {
            let entries = self.lock();
            let Some(entry) = entries.get(&name) else { return Ok(Shown::InOrder) };
            (entry.valid.clone(), entry.open.clone(), entry.obstacle.clone())
        };
        let statuses = open.as_ref().map(|open| open.nodes.watch().borrow().clone()).unwrap_or_default();
        if obstacle.is_none() && !evaluated(&statuses) {
            // That a node was not tried yet is no news; what becomes of it will be.
            return Ok(Shown::InOrder);
        }
        let reports: Vec<NodeReport<'_>> = statuses.iter().map(report).collect();
        let mismatch = mismatch(&statuses);
        let none = RedisQuorumStatus::default();
        let composed = compose_quorum(&QuorumInputs {
            previous: quorum.status.as_ref().unwrap_or(&none),
            generation: quorum.metadata.generation,
            now: jiff::Timestamp::now(),
            fingerprint: open.as_ref().map(|open| open.fingerprint.as_str()),
            nodes: &reports,
            majority: valid.as_ref().map_or(0, ValidQuorum::majority),
            evaluated: evaluated(&statuses),
            obstacle: obstacle.as_ref().map(|(reason, message)| (*reason, message.as_str())),
            mismatch,
            leader: None,
        });
        let now = clock::now();
        if quorum.status.as_ref() == Some(&composed.status) {
            return Ok(Shown::InOrder);
        }
        if now < pace.due(&composed.status) {
            return Ok(Shown::Later);
        }
        let status = composed.status.clone();
        let mut next = quorum.clone();
        next.status = Some(composed.status);
        next.metadata.managed_fields = None;
        let quorums: Api<RedisQuorum> = Api::namespaced(self.client.clone(), &self.namespace);
        let written = call(quorums.replace_status(&name, &kube::api::PostParams::default(), &next)).await;
        self.writes.wrote(WriteKind::QuorumStatus, kube_api::result(&written));
        let answered = match written {
            // Gone: the watch shows it in a moment.
            Err(CallError::NotFound) => return Ok(Shown::InOrder),
            // Somebody else changed it: the watch shows that too, but it may say what it said before.
            Err(CallError::Conflict) => return Ok(Shown::Later),
            Err(error) => return Err(error),
            Ok(answered) => answered,
        };
        pace.wrote(now, &status);
        for notice in composed.events {
            self.reporter.report(notice, quorum.object_ref(&()));
        }
        Ok(Shown::Written(Box::new(answered)))
    }

    /// Whether every node of every quorum was reached or tried in vain once.
    pub fn evaluated(&self) -> bool {
        self.lock().values().all(|entry| {
            let open = entry.open.as_ref();
            entry.obstacle.is_some() || open.is_some_and(|open| evaluated(&open.nodes.watch().borrow()))
        })
    }

    /// Tells everybody who waits that something about a quorum changed.
    pub fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // An entry is whole between any two statements that change it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many nodes vote.
pub fn up(statuses: &[NodeStatus]) -> usize {
    statuses.iter().filter(|node| node.state == NodeState::Up).count()
}

/// What is said of the first node whose marker names another configuration.
pub fn mismatch(statuses: &[NodeStatus]) -> Option<&str> {
    let mismatched = NodeState::Misconfigured(Misconfiguration::ConfigMismatch);
    statuses.iter().find(|node| node.state == mismatched).map(|node| node.message.as_str())
}

/// Whether every node was reached or tried in vain once.
pub fn evaluated(statuses: &[NodeStatus]) -> bool {
    statuses.iter().all(|node| node.state != NodeState::Down || node.reason.is_some())
}

fn report(node: &NodeStatus) -> NodeReport<'_> {
    let (state, message) = match node.state {
        NodeState::Up => (ShownState::Up, None),
        NodeState::Down => (ShownState::Down, Some(node.message.clone())),
        NodeState::Quarantined { until } => {
            let until = jiff::Timestamp::try_from(clock::wall(until)).unwrap_or_default();
            let second = until.round(jiff::Unit::Second).unwrap_or(until);
            (ShownState::Quarantined, Some(format!("{}; it votes again from {second}", node.message)))
        }
        NodeState::Misconfigured(_) => (ShownState::Misconfigured, Some(node.message.clone())),
    };
    let version = Some(node.version.as_str()).filter(|version| !version.is_empty());
    NodeReport { name: &node.name, state, version, clock_offset_millis: node.clock_offset_ms, message }
}
