//! The dependencies of the controller of RedisQuorums.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::http::Part;
use crate::metrics::nodes::NodeMetrics;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::renewals::RenewalMetrics;
use crate::operator::authority::Authorities;
use crate::operator::engine::Message;
use crate::operator::leadership::Replica;
use crate::operator::writer::Writer;

/// The name of this controller in metrics.
pub const CONTROLLER: &str = "quorum";

/// The dependencies of the controller.
pub struct Parts {
    /// The namespace of RedisQuorums and their secrets.
    pub namespace: Arc<str>,
    /// The namespaces whose leases are watched; none means all.
    pub lease_namespaces: Arc<[String]>,
    /// Sends its calls.
    pub writer: Writer,
    /// Where facts about the quorum go.
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
    pub tried: Option<Part>,
    /// Completed when all quorums are listed.
    pub listed: Option<Part>,
}
