//! What the engine learns about a quorum.

use std::sync::Arc;

use redislease_plan::plan::QuorumFacts;

use super::connection::Connection;
use crate::operator::authority::Grant;

/// The new facts about a quorum.
#[derive(Clone, Debug)]
pub struct QuorumUpdate {
    /// The name of the RedisQuorum.
    pub name: String,
    /// `None` if there is no such resource.
    pub facts: Option<Arc<QuorumFacts>>,
    /// The connections behind `facts.open`.
    pub connection: Option<Arc<Connection>>,
    /// Connections on which no lease is opened any more. Their users end or move, and then drop [`InUse`](super::InUse).
    pub retiring: Option<u64>,
    /// The authority of this process over the leases of the quorum.
    pub grant: Arc<Grant>,
}
