//! The handle of the nodes of a quorum, for other modules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use redislease_core::judge::Judge;
use redislease_core::op::{Token, Vote};
use redislease_core::quorum::{Node, Quorum};
use redislease_core::time::{Drift, Millis, Time};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::access::Access;
use super::address::Address;
use super::board::Board;
use super::context::Context;
use super::floor::Floor;
use super::message::Message;
use super::shared::{Port, Shared};
use super::{
    Config, Credentials, Keyspace, NodeConfig, NodeStatus, NodesObserver, Reply, Request, StartError, Tls, thread,
};
use crate::clock;

/// The nodes of one quorum. Clones refer to the same nodes; dropping the last one closes the connections.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub(super) shared: Arc<Shared>,
    alive: Arc<Alive>,
}

/// A reference to [`Nodes`] that does not keep their connections open.
#[derive(Clone, Debug)]
pub(crate) struct WeakNodes(Weak<Alive>);

impl WeakNodes {
    /// Whether these are the nodes that it refers to.
    pub fn are(&self, nodes: &Nodes) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&nodes.alive))
    }

    /// Whether the last of the [`Nodes`] was dropped.
    pub fn are_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// State that ends with the last [`Nodes`]. It is not in [`Shared`], which the tasks hold slightly longer: by then a
/// quorum with the same name may have been opened.
#[derive(Debug)]
struct Alive {
    runtime: Handle,
    _tasks: DropGuard,
    observer: Arc<dyn NodesObserver>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.observer.closed();
    }
}

impl Nodes {
    /// Starts a thread with a task for each node. `observer` receives their reports.
    ///
    /// # Errors
    /// [`StartError`] if the configuration cannot be used; nothing was started then.
    pub fn start(config: &Config, observer: Arc<dyn NodesObserver>) -> Result<Self, StartError> {
        let quorum_name = || config.quorum.clone();
        let count = config.nodes.len();
        let quorum = u8::try_from(count).ok().and_then(Quorum::of);
        let quorum = quorum.ok_or_else(|| StartError::Size { quorum: quorum_name(), count })?;
        let mut ports = Vec::new();
        for NodeConfig { name, address } in &config.nodes {
            let parsed = Address::parse(address).ok_or_else(|| StartError::Address {
                quorum: quorum_name(),
                node: name.clone(),
                address: address.clone(),
            })?;
            ports.push(Port::new(parsed));
        }

        let shared = Arc::new(Shared {
            quorum,
            keyspace: Keyspace::new(&config.key_prefix),
            longest_lease: config.longest_lease,
            opened_at: clock::now(),
            command_timeout: AtomicU64::new(config.command_timeout.0),
            ports,
            board: Board::new(&config.nodes, observer.clone()),
            servers: Mutex::default(),
            judge: Mutex::new(Judge::new(quorum, config.longest_lease, Drift::STANDARD)),
            void_at: watch::Sender::new(None),
            floor: Floor::new(config.has_statuses),
            proposals: Mutex::default(),
            access: watch::Sender::new(Access::new(config.credentials.clone(), config.tls.clone())),
        });
        let contexts = quorum.nodes().zip(&config.nodes).map(|(node, NodeConfig { name, .. })| {
            Arc::new(Context {
                node,
                name: name.clone(),
                connects_last: config.connect_last.contains(name),
                membership: config.membership.clone(),
                shared: shared.clone(),
                observer: observer.clone(),
                suspect: AtomicBool::new(false),
            })
        });
        let stop = CancellationToken::new();
        let started = thread::start(&config.quorum, contexts.collect(), stop.clone());
        let runtime = started.map_err(|source| StartError::System { quorum: quorum_name(), source })?;
        let alive = Alive { runtime, _tasks: stop.drop_guard(), observer };
        Ok(Self { shared, alive: Arc::new(alive) })
    }

    /// The number of nodes, and the majority of them.
    pub fn quorum(&self) -> Quorum {
        self.shared.quorum
    }

    /// How long a node that lost data has no vote: no key may live longer.
    pub fn longest_lease(&self) -> Millis {
        self.shared.longest_lease
    }

    /// The timeout of one request.
    pub fn command_timeout(&self) -> Millis {
        self.shared.command_timeout()
    }

    /// The names of keys on this quorum.
    pub fn keyspace(&self) -> &Keyspace {
        &self.shared.keyspace
    }

    /// A reference that does not keep the connections open.
    pub(crate) fn downgrade(&self) -> WeakNodes {
        WeakNodes(Arc::downgrade(&self.alive))
    }

    /// Runs `task` on the thread of the nodes, where the leases on them run too. A task that acquires and releases leases there
    /// needs no change of thread. It must not block or compute for long: it would delay every renewal on these nodes. A panic ends
    /// only the task. The task is dropped when the last of these [`Nodes`] is dropped. An open lease keeps them, so a task that
    /// holds a `LeaseHandle` must end by itself.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.alive.runtime.spawn(task);
    }

    /// Sends a request to `node`. `reply` is called exactly once, at the latest at `request.give_up_at`, then with
    /// [`Vote::Unknown`]; it must not block, and may be called before this returns.
    ///
    /// A node that is disconnected or has no vote abstains at once: nothing is sent. A release needs no vote: it is sent
    /// to every connected node.
    pub fn send(&self, node: Node, request: Request, reply: impl FnOnce(Vote) + Send + 'static) {
        let Some(port) = self.shared.ports.get(node.index()) else { return reply(Vote::Unknown) };
        if let Some(vote) = port.vote_at_once(&request.op) {
            return reply(vote);
        }
        // A message that cannot be delivered is dropped, which answers the request.
        let _ = port.inbox.send(Message::Vote(request, Reply::to_function(reply)));
    }

    /// When the clock of this process was last found to have jumped: a longest lease has to pass before the next attempt.
    pub fn jumped_at(&self) -> Option<Time> {
        self.shared.judge().jumped_at()
    }

    /// When the clock of this process jumped last, or may have jumped: every round, attempt and belief from before is void. See
    /// [`redislease_core::judge`].
    pub fn void_at(&self) -> watch::Receiver<Option<Time>> {
        self.shared.void_at.subscribe()
    }

    /// The status of the nodes, by [`Node`]. Changes when a relevant value changes.
    pub fn watch(&self) -> watch::Receiver<Vec<NodeStatus>> {
        self.shared.board.subscribe()
    }

    /// Raises the highest token that any status on this quorum showed. A token that no clock reaches before the next
    /// century is ignored and logged.
    pub fn raise_floor(&self, token: Token) {
        self.shared.floor.raise(token);
    }

    /// The highest token so far.
    pub fn floor(&self) -> Token {
        self.shared.floor.token()
    }

    /// The token that an attempt proposes which begins now.
    pub(crate) fn proposal(&self) -> Option<Token> {
        self.shared.proposals().next(self.floor())
    }

    /// A node has granted.
    pub(crate) fn saw_grant(&self, vote: &Vote) {
        self.shared.proposals().saw(vote);
    }

    /// Reports that every status on this quorum was read: from now on counters may be seeded. Needed once if
    /// [`Config::has_statuses`] is set.
    pub fn floor_complete(&self) {
        self.shared.floor.complete();
    }

    /// The number of requests to read the statuses of all leases again. It grows when all nodes but a minority have lost
    /// their data: they vote again only after [`Nodes::floor_read`].
    pub fn floor_requests(&self) -> watch::Receiver<u64> {
        self.shared.floor.requests()
    }

    /// Reports that all statuses were read after this number of requests, and passed to [`Nodes::raise_floor`].
    pub fn floor_read(&self, request: u64) {
        self.shared.floor.answer(request);
    }

    /// Sets the time without an answer after which a connection is closed.
    pub fn set_command_timeout(&self, timeout: Millis) {
        self.shared.command_timeout.store(timeout.0, Ordering::Relaxed);
    }

    /// Sets the address of `node`, as `host:port`. An address in another form is ignored.
    pub fn set_address(&self, node: Node, address: &str) {
        if let (Some(port), Some(address)) = (self.shared.ports.get(node.index()), Address::parse(address)) {
            let before =
                std::mem::replace(&mut *port.address.lock().unwrap_or_else(PoisonError::into_inner), address.clone());
            if before != address {
                // Another server gets no password that was removed. Each task keeps the one that its server accepts.
                self.shared.access.send_if_modified(|access| {
                    access.credentials.forget_earlier();
                    false
                });
                // A task that has ended needs no address.
                let _ = port.inbox.send(Message::Moved);
            }
        }
    }

    /// Uses `credentials` for new logins. Open connections stay. If the server does not accept the new credentials yet,
    /// the earlier ones are tried once. `None` logs in nowhere: remove the password on the servers first.
    pub fn set_credentials(&self, credentials: Option<Credentials>) {
        self.shared.access.send_if_modified(|access| access.credentials.replace(credentials));
    }

    /// Uses `tls` for new connections. Open connections stay. If TLS with a server fails, the earlier certificates of the client are
    /// tried once, but never a connection without TLS.
    pub fn set_tls(&self, tls: Option<Tls>) {
        self.shared.access.send_if_modified(|access| access.set_tls(tls));
    }
}
