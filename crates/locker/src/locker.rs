//! The connections of a program to its servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redislease_lock::keeper::Keeper;
use redislease_lock::nodes::{Config, NodeState, Nodes, StartError};
use tokio_util::sync::CancellationToken;

use crate::deadlines::Deadlines;
use crate::inspect::{self, Inspection};
use crate::local::Local;
use crate::node::{Node, beside_operator};
use crate::observer::{Observed, ObservedNodes};
use crate::{InvalidConfig, NotReady};

/// The connections of a program to its servers, and the thread that renews its locks. Clones share them. The connections are closed
/// when the last clone, request and guard is dropped.
///
/// Create one for a program, not one for a lock. See the example of [`Locker::builder`].
#[derive(Clone)]
pub struct Locker(pub(crate) Arc<Inner>);

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub namespace: String,
    pub nodes: Nodes,
    pub keeper: Keeper,
    pub local: Arc<Local>,
    /// The ends of locks with `max_hold`.
    pub deadlines: Arc<Deadlines>,
    /// The owner of a request that names none.
    pub owner: Arc<str>,
    pub observer: Observed,
    /// The configuration in words, if only an operator lets a server vote that has no data.
    beside: Option<Arc<str>>,
    uses_tls: bool,
    /// Cancelled by [`Locker::shutdown`].
    pub closed: CancellationToken,
}

impl Inner {
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub fn node_list(&self) -> Vec<Node> {
        Node::list(&self.nodes.watch().borrow(), self.beside.as_deref())
    }

    /// Whether a majority votes.
    pub fn has_majority(&self) -> bool {
        let statuses = self.nodes.watch();
        let up = statuses.borrow().iter().filter(|node| node.state == NodeState::Up).count();
        up >= self.nodes.quorum().majority()
    }
}

impl Locker {
    pub(crate) fn start(namespace: String, config: &Config, observer: Observed) -> Result<Self, InvalidConfig> {
        let (beside, uses_tls) = (beside_operator(config).map(Arc::from), config.tls.is_some());
        let of_nodes = ObservedNodes { observer: observer.clone(), beside: beside.clone() };
        let nodes = Nodes::start(config, Arc::new(of_nodes)).map_err(invalid)?;
        let keeper = Keeper::on_nodes(Arc::new(()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let word = redislease_lock::nodes::random::nonce()
            .map_err(|error| InvalidConfig(format!("the operating system provides no random numbers: {error}")))?;
        let owner = format!("{host}/{}/{:08x}", std::process::id(), word & 0xffff_ffff).into();
        let (local, deadlines, closed) = (Arc::default(), Arc::default(), CancellationToken::new());
        Ok(Self(Arc::new(Inner {
            namespace,
            nodes,
            keeper,
            local,
            deadlines,
            owner,
            observer,
            beside,
            uses_tls,
            closed,
        })))
    }

    /// Waits until a majority of the servers votes. On servers that were never used, this takes one
    /// [`longest_lease`](crate::LockerBuilder::longest_lease) and 1 %: they may have been restarted without their data. Without this call,
    /// requests wait for a majority themselves, for as long as [`Request::wait`](crate::Request::wait) says.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// # use redislease_locker::{Node, NodeState, NotReady};
    /// match locker.ready(Duration::from_secs(35)).await {
    ///     Err(NotReady::NoMajority { nodes, .. }) => panic!("no majority votes: {nodes:?}"),
    ///     other => other?,
    /// }
    /// let is_waiting = |node: &Node| matches!(node.state, NodeState::Waits(_));
    /// println!("{} servers will vote later", locker.nodes().into_iter().filter(is_waiting).count());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// After `timeout`: the error names the servers that do not vote, why, and how long they will wait. [`NotReady::Closed`] after
    /// [`shutdown`](Self::shutdown).
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        let mut statuses = self.0.nodes.watch();
        let majority = self.0.nodes.quorum().majority();
        let (mut done, waited) = tokio::sync::oneshot::channel();
        self.0.nodes.spawn(async move {
            let votes = |nodes: &Vec<_>| majority <= nodes.iter().filter(|node| is_up(node)).count();
            let ready = tokio::time::timeout(timeout, statuses.wait_for(votes));
            // The caller may have dropped the future.
            tokio::select! {
                () = done.closed() => {}
                ready = ready => {
                    let _ = done.send(ready.is_ok_and(|ready| ready.is_ok()));
                }
            }
        });
        let ready = tokio::select! {
            biased;
            () = self.0.closed.cancelled() => return Err(NotReady::Closed),
            ready = waited => ready,
        };
        if ready == Ok(true) { Ok(()) } else { Err(NotReady::NoMajority { waited: timeout, nodes: self.nodes() }) }
    }

    /// The [owner](crate::Request::owner) of a request that names none: host, process ID and a random word. See the example of
    /// [`Locker::builder`].
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// Uses the credentials and the certificates of `config` for new connections.
    pub(crate) fn replace_access(&self, config: Config) -> Result<(), InvalidConfig> {
        if config.tls.is_some() != self.0.uses_tls {
            return Err(InvalidConfig("connections change to TLS or from it only with another Locker".to_owned()));
        }
        self.0.nodes.set_tls(config.tls);
        self.0.nodes.set_credentials(config.credentials);
        Ok(())
    }

    /// Asks the servers who holds `key`, at most one [`command_timeout`](crate::LockerBuilder::command_timeout). It is for people and
    /// monitoring: the answer may be old when it arrives. To do something only without another holder, take the lock. It needs no
    /// runtime.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").owner("worker 1").acquire().await?;
    /// match locker.inspect("report").await {
    ///     Inspection::Held { owner, token, .. } => assert_eq!((owner.as_str(), token), ("worker 1", guard.token())),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }) }
    /// ```
    pub async fn inspect(&self, key: &str) -> Inspection {
        if self.0.is_closed() {
            return Inspection::Closed;
        }
        let nodes = &self.0.nodes;
        let answers = nodes.read(&nodes.keyspace().lock(&self.0.namespace, key)).await;
        inspect::decide(nodes.quorum(), &answers)
    }

    /// The servers, in the order of the configuration. See the example of [`ready`](Self::ready).
    pub fn nodes(&self) -> Vec<Node> {
        self.0.node_list()
    }

    /// Ends all requests with [`AcquireError::Closed`](crate::AcquireError::Closed) and all guards with
    /// [`Lost::Closed`](crate::Lost::Closed). After that, [`ready`](Self::ready) and [`inspect`](Self::inspect) say that it is closed.
    /// The keys of a guard that was not released expire with their TTL, because its work may still go on: release guards before. The keys
    /// of requests are deleted. Returns when the servers have answered, 2 s later at the latest. It does not close the connections: they
    /// are closed with the last clone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
    /// # fn main() { with_locker(async |locker| {
    /// let guard = locker.lock("report").acquire().await?;
    /// guard.release().await;
    /// locker.shutdown().await;
    /// assert_eq!(locker.inspect("report").await, Inspection::Closed);
    /// # Ok(()) }) }
    /// ```
    pub async fn shutdown(&self) {
        self.0.closed.cancel();
        self.0.keeper.shutdown().await;
    }
}

/// The same without the words of an operator.
fn invalid(error: StartError) -> InvalidConfig {
    InvalidConfig(match error {
        StartError::Address { node, address, .. } => format!(
            "node {node}: the address `{address}` in its URL is not `host:port`: write a host name, an IPv4 address, or an IPv6 \
             address in brackets, and a port from 1 to 65535"
        ),
        StartError::System { source, .. } => format!("the thread for the connections cannot be started: {source}"),
        other @ StartError::Size { .. } => other.to_string(),
    })
}

fn is_up(node: &redislease_lock::nodes::NodeStatus) -> bool {
    node.state == NodeState::Up
}
