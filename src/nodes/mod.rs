//! The Redis nodes of a quorum: one task a node, which owns its connection, its scripts and its admission.
//!
//! A [`Nodes`] is asked with [`Nodes::send`] and answers every request with exactly one vote, at the latest when the
//! asker gives up. Requests to one node reach its server in the order in which they were sent.
//! What is known about the nodes is in [`Nodes::watch`].

mod calls;
mod connection;
mod info;
mod keyspace;
mod node;
mod pipe;
pub(crate) mod random;
mod reason;
mod request;
pub mod script;
mod seeding;
mod show;
mod status;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redislease_core::marker::Membership;
use redislease_core::op::{Token, Vote};
use redislease_core::quorum::{MAX_NODES, Node, Quorum};
use redislease_core::time::Millis;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use keyspace::Keyspace;
pub use reason::Reason;
pub use request::Request;
pub use status::{Misconfiguration, NodeState, NodeStatus};

use crate::metrics::nodes::{NodeMetrics, Registration};
use connection::{Address, Secrets};
use node::{Message, NodeTask};
use request::Reply;
use status::Board;

/// What a process must know to use a quorum.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the quorum in metrics.
    pub quorum: String,
    /// The nodes, in the order in which [`Node`] counts them.
    pub nodes: Vec<NodeConfig>,
    /// What every key begins with.
    pub key_prefix: String,
    /// The configuration under which the nodes vote.
    pub membership: Membership,
    /// The longest lease anybody may hold on this quorum.
    pub longest_lease: Millis,
    /// After how long without an answer a connection is given up.
    pub command_timeout: Millis,
    /// How to log in.
    pub credentials: Option<Credentials>,
    /// No counter is seeded before [`Nodes::floor_complete`].
    pub wait_for_floor: bool,
}

/// One node of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name: what the node is, wherever it is.
    pub name: String,
    /// `host:port`; an IPv6 address in brackets.
    pub address: String,
}

/// How to log in to a node.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; none for the password of the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// The year 2112 in microseconds: half of what tokens can reach.
const INSANE_TOKEN: u64 = Token::END / 2;

/// Why a quorum cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There are no nodes, or too many.
    #[error("quorum {quorum}: {count} nodes: a quorum has 1 to {MAX_NODES}")]
    Size {
        /// The quorum.
        quorum: String,
        /// How many it names.
        count: usize,
    },
    /// An address cannot be understood.
    #[error("quorum {quorum}: node {node}: address `{address}` is not `host:port`")]
    Address {
        /// The quorum.
        quorum: String,
        /// The node.
        node: String,
        /// What stands there.
        address: String,
    },
    /// The operating system gave no timer or no randomness.
    #[error("quorum {quorum}: cannot set up a timer: {source}")]
    System {
        /// The quorum.
        quorum: String,
        /// The answer of the system.
        source: io::Error,
    },
}

/// The nodes of one quorum. Clones are the same nodes; the last one to be dropped closes the connections.
#[derive(Clone, Debug)]
pub struct Nodes {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

/// What ends with the last [`Nodes`]. Not in [`Shared`], which the tasks hold a moment longer: by then a quorum of the
/// same name may have begun.
#[derive(Debug)]
struct Alive {
    _tasks: DropGuard,
    _registration: Registration,
}

/// What the tasks of one quorum share.
#[derive(Debug)]
struct Shared {
    quorum: Quorum,
    keyspace: Keyspace,
    longest_lease: Millis,
    /// In milliseconds.
    command_timeout: AtomicU64,
    /// By node. A task asks the others for their fences here.
    inboxes: Vec<mpsc::UnboundedSender<Message>>,
    board: Board,
    /// The highest token any status showed: counters are seeded above it.
    floor: AtomicU64,
    floor_complete: watch::Sender<bool>,
    secrets: watch::Sender<Secrets>,
}

impl Shared {
    fn command_timeout(&self) -> Millis {
        Millis(self.command_timeout.load(Ordering::Relaxed))
    }
}

impl Nodes {
    /// Starts a task for each node. Needs a running tokio runtime.
    ///
    /// # Errors
    /// [`StartError`] names what is wrong; nothing was started then.
    pub fn start(config: &Config, metrics: &NodeMetrics) -> Result<Self, StartError> {
        let count = config.nodes.len();
        let quorum = u8::try_from(count).ok().and_then(Quorum::of);
        let quorum = quorum.ok_or_else(|| StartError::Size { quorum: config.quorum.clone(), count })?;

        let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
        let kinds = Reason::ALL.map(Reason::as_str);
        let (series, registration) = metrics.quorum(&config.quorum, &names, quorum.majority(), &kinds);
        let of_nodes = series.nodes().to_vec();
        let (inboxes, outlets): (Vec<_>, Vec<_>) = config.nodes.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Arc::new(Shared {
            quorum,
            keyspace: Keyspace::new(&config.key_prefix),
            longest_lease: config.longest_lease,
            command_timeout: AtomicU64::new(config.command_timeout.0),
            inboxes,
            board: Board::new(&config.nodes, series),
            floor: AtomicU64::new(0),
            floor_complete: watch::Sender::new(!config.wait_for_floor),
            secrets: watch::Sender::new(Secrets::new(config.credentials.clone())),
        });
        let tasks = quorum.nodes().zip(&config.nodes).zip(outlets).zip(of_nodes);
        let tasks = tasks
            .map(|(((node, named), inbox), series)| NodeTask::new(node, named, config, shared.clone(), inbox, series))
            .collect::<Result<Vec<_>, _>>()?;
        let stop = CancellationToken::new();
        for task in tasks {
            let stopped = stop.clone().cancelled_owned();
            tokio::spawn(async move {
                tokio::select! {
                    () = stopped => {}
                    () = task.run() => {}
                }
            });
        }
        Ok(Self { shared, _alive: Arc::new(Alive { _tasks: stop.drop_guard(), _registration: registration }) })
    }

    /// How many nodes there are, and what a majority of them is.
    pub fn quorum(&self) -> Quorum {
        self.shared.quorum
    }

    /// How long a node that forgot has no vote: no key may live for longer.
    pub fn longest_lease(&self) -> Millis {
        self.shared.longest_lease
    }

    /// How long one request may take.
    pub fn command_timeout(&self) -> Millis {
        self.shared.command_timeout()
    }

    /// The names of keys on this quorum.
    pub fn keyspace(&self) -> &Keyspace {
        &self.shared.keyspace
    }

    /// Asks `node`. `reply` is called exactly once, at the latest at `request.give_up_at`, then with
    /// [`Vote::Unknown`]; it must not block.
    ///
    /// A node that has no vote or that there is no connection to abstains at once: it was not asked. A release needs no
    /// vote: it is sent to every node that can be reached.
    pub fn send(&self, node: Node, request: Request, reply: impl FnOnce(Vote) + Send + 'static) {
        // A message that cannot be delivered is dropped, which answers it.
        if let Some(inbox) = self.shared.inboxes.get(node.index()) {
            let _ = inbox.send(Message::Vote(request, Reply::new(reply)));
        } else {
            reply(Vote::Unknown);
        }
    }

    /// How the nodes are, by [`Node`]. Changes when something of note did.
    pub fn watch(&self) -> watch::Receiver<Vec<NodeStatus>> {
        self.shared.board.subscribe()
    }

    /// Tells the highest token that any status of this quorum showed. It only goes up.
    ///
    /// Tokens begin at Unix time in microseconds. One that no clock shows before the next century was written by a hand,
    /// and is left aside: every token after it would be as great, and the nodes never forget it.
    pub fn raise_floor(&self, token: Token) {
        if token.0 >= INSANE_TOKEN {
            tracing::error!(%token, least = INSANE_TOKEN, "a status shows a fencing token that no node can have given: it is left aside");
            return;
        }
        self.shared.floor.fetch_max(token.0, Ordering::Relaxed);
    }

    /// The highest token told so far.
    pub fn floor(&self) -> Token {
        Token(self.shared.floor.load(Ordering::Relaxed))
    }

    /// Every status of this quorum has been read: counters may be seeded.
    pub fn floor_complete(&self) {
        self.shared.floor_complete.send_replace(true);
    }

    /// From now on, a connection is given up after so long without an answer.
    pub fn set_command_timeout(&self, timeout: Millis) {
        self.shared.command_timeout.store(timeout.0, Ordering::Relaxed);
    }

    /// Looks for `node` at `address` from now on, `host:port`; one that cannot be understood changes nothing.
    pub fn set_address(&self, node: Node, address: &str) {
        if let (Some(inbox), Some(address)) = (self.shared.inboxes.get(node.index()), Address::parse(address)) {
            // Without a task there is nobody to move.
            let _ = inbox.send(Message::Move(address));
        }
    }

    /// Logs in with `credentials` from now on. Open connections stay, and where the new credentials are not accepted
    /// yet, the ones before them are tried once.
    pub fn set_credentials(&self, credentials: Option<Credentials>) {
        self.shared.secrets.send_if_modified(|secrets| secrets.replace(credentials));
    }
}
