//! A quorum with its connections, opened once for each configuration.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use redislease_core::marker::Membership;
use redislease_core::time::Millis;
use redislease_lock::nodes::{Config, NodeConfig, NodeStatus, Nodes, StartError};
use redislease_plan::api::ValidQuorum;
use redislease_plan::api::validated::ValidNode;
use redislease_plan::plan::OpenQuorum;
use tokio::sync::mpsc::UnboundedSender;

use super::secret::{Login, Secrets};
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::renewals::{QuorumRenewals, RenewalMetrics};

/// The generation of every configuration. It stays constant until the set of nodes can be changed.
const GENERATION: u64 = 1;

/// A quorum with its connections. It exists as long as a lease uses it, even after its resource is deleted.
#[derive(Debug)]
pub struct Connection {
    /// The quorum as leases use it.
    pub quorum: Arc<OpenQuorum>,
    /// The connections to its Redis servers.
    pub nodes: Nodes,
    /// Renewals, their failures and ended terms, for the metrics.
    pub renewals: Arc<QuorumRenewals>,
    in_use: Mutex<Weak<InUse>>,
    unused: UnboundedSender<u64>,
}

/// A reference held by each user of a connection. Dropping the last one notifies the quorums' controller.
#[derive(Debug)]
pub struct InUse {
    id: u64,
    unused: UnboundedSender<u64>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        // At the end of the process, the receiver is gone.
        let _ = self.unused.send(self.id);
    }
}

impl Connection {
    /// Opens a quorum.
    ///
    /// # Errors
    /// One sentence when its configuration cannot be used.
    pub fn open(
        id: u64,
        valid: &ValidQuorum,
        connect_last: Vec<String>,
        login: Login,
        node_metrics: &NodeMetrics,
        renewal_metrics: &RenewalMetrics,
        unused: UnboundedSender<u64>,
    ) -> Result<Self, StartError> {
        let fingerprint = valid.fingerprint();
        let node = |node: &ValidNode| NodeConfig { name: node.name.clone(), address: node.address.to_string() };
        let config = Config {
            quorum: valid.name.clone(),
            nodes: valid.nodes.iter().map(node).collect(),
            key_prefix: valid.key_prefix.clone(),
            membership: Membership { generation: GENERATION, fingerprint: fingerprint.as_str().into() },
            longest_lease: Millis::from(valid.max_lease),
            command_timeout: Millis::from(valid.command_timeout),
            credentials: login.credentials,
            tls: login.tls,
            has_statuses: true,
            connect_last,
        };
        let nodes = Nodes::start(&config, node_metrics.quorum(&config))?;
        let quorum = OpenQuorum {
            id,
            name: valid.name.clone(),
            fingerprint,
            quorum: nodes.quorum(),
            longest_lease: nodes.longest_lease(),
            command_timeout: nodes.command_timeout(),
        };
        let (quorum, renewals) = (Arc::new(quorum), renewal_metrics.quorum(&valid.name));
        Ok(Self { quorum, nodes, renewals, in_use: Mutex::default(), unused })
    }

    /// A reference to hold while the connection is used.
    pub fn in_use(&self) -> Arc<InUse> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.upgrade().unwrap_or_else(|| {
            let new = Arc::new(InUse { id: self.quorum.id, unused: self.unused.clone() });
            *in_use = Arc::downgrade(&new);
            new
        })
    }

    /// The current facts for a lease.
    pub fn open_quorum(&self) -> Arc<OpenQuorum> {
        let command_timeout = self.nodes.command_timeout();
        if command_timeout == self.quorum.command_timeout {
            return self.quorum.clone();
        }
        Arc::new(OpenQuorum { command_timeout, ..OpenQuorum::clone(&self.quorum) })
    }

    /// Uses the credentials and certificates for new connections to the servers. A secret that is missing or cannot be
    /// used must not stop the renewal of held leases: its last content stays in use.
    pub fn log_in_with(&self, secrets: &Secrets) {
        if let Ok(tls) = secrets.tls() {
            self.nodes.set_tls(tls);
        }
        if let Ok(credentials) = secrets.credentials() {
            self.nodes.set_credentials(credentials);
        }
    }

    /// Applies the settings that may change without a new connection.
    pub fn update(&self, valid: &ValidQuorum) {
        self.nodes.set_command_timeout(Millis::from(valid.command_timeout));
        for (node, now) in self.nodes.quorum().nodes().zip(&valid.nodes) {
            self.nodes.set_address(node, &now.address.to_string());
        }
    }

    /// The status of its nodes.
    pub fn statuses(&self) -> Vec<NodeStatus> {
        self.nodes.watch().borrow().clone()
    }
}
