//! The quorums on which leases may be held: each RedisQuorum in the operator's namespace, with one set of connections for
//! each configuration.
//!
//! One task reconciles them with their resources and secrets, sends the facts about them to the engine, and writes their
//! status. It reads the secrets of all quorums concurrently and does not block on them.
//!
//! | module | concept |
//! |---|---|
//! | [`controller`] | the task; its part `follow` takes what the nodes of a connection report and request |
//! | [`entry`] | one quorum: configuration, connections, why it cannot be used |
//! | [`connection`] | the connections of one configuration |
//! | [`secret`] | the credentials and certificates |
//! | [`show`] | the status of the resource |

mod connection;
mod controller;
mod entry;
mod secret;
mod show;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use redislease_plan::plan::QuorumFacts;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::engine::Message;
use super::leadership::{Authorities, Grant, Replica};
use super::writer::Writer;
use crate::http::Part;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::renewals::RenewalMetrics;
pub use connection::{Connection, InUse};
pub use controller::run;
pub use secret::Secrets as QuorumSecrets;

/// The name of this controller in metrics.
pub const CONTROLLER: &str = "quorum";

/// The new facts about a quorum.
#[derive(Clone, Debug)]
pub struct QuorumUpdate {
    /// The name of the RedisQuorum.
    pub name: String,
    /// `None` if there is no such resource.
    pub facts: Option<Arc<QuorumFacts>>,
    /// The connections behind `facts.open`.
    pub connection: Option<Arc<Connection>>,
    /// Connections on which no lease is opened any more. Their users end or move, and then drop [`InUse`].
    pub retiring: Option<u64>,
    /// The authority of this process over the leases of the quorum.
    pub grant: Arc<Grant>,
}

/// The dependencies of the controller.
pub struct Parts {
    /// The namespace of RedisQuorums and their secrets.
    pub namespace: String,
    /// The namespaces whose leases are watched; none means all.
    pub lease_namespaces: Vec<String>,
    /// Sends its calls.
    pub writer: Writer,
    /// The engine.
    pub engine: UnboundedSender<Message>,
    /// The series of nodes.
    pub node_metrics: NodeMetrics,
    /// The series of leases.
    pub renewal_metrics: RenewalMetrics,
    /// Its own series.
    pub metrics: OperatorMetrics,
    /// Takes part in the elections.
    pub replica: Replica,
    /// Gets the results of the elections.
    pub authorities: Authorities,
    /// Signals that the API server has answered a call after [`Writer::await_answer`].
    pub answered: Arc<Notify>,
    /// Completed when a connection to every node of every quorum succeeded or failed at least once.
    pub tried: Part,
    /// Completed when all quorums are listed.
    pub listed: Part,
}
