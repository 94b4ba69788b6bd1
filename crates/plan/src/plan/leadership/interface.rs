//! What goes into and comes out of an election between the replicas.

use std::sync::Arc;

use redislease_core::lease::Config;
use redislease_core::time::Time;

use crate::plan::{Authority, Command, OpenQuorum};

/// The inputs of a turn, in addition to the recorded state.
#[derive(Clone, Debug, Default)]
pub struct LeadershipFacts {
    /// The quorum, as long as this process is connected to it.
    pub quorum: Option<Arc<OpenQuorum>>,
    /// Whether fewer than a majority of its nodes vote according to this process, after each was tried; or this process
    /// cannot open the quorum, and `named` is another replica that may have opened it.
    pub quorum_lost: bool,
    /// The instance in `RedisQuorum.status.leader`, from the newest watch event, write or read.
    pub named: Option<String>,
    /// Whether that replica has only claimed the name, see [`Leader::claimed`](crate::api::quorum::Leader).
    pub is_claimed: bool,
    /// When a call to the API server was last answered.
    pub api_answered_at: Option<Time>,
}

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadershipEffect {
    /// Start a machine for the lock, instead of an earlier one. Its key is derived from the cluster.
    Open {
        /// Where the key is.
        quorum: Arc<OpenQuorum>,
        /// TTL, renew interval, stop budget, timeouts and retries.
        config: Config,
    },
    /// Send a command to the machine of the lock.
    Keeper(Command),
    /// Make sure that the API server is asked.
    Probe,
    /// Read the `RedisQuorum`.
    ReadQuorum,
    /// Write this process into `RedisQuorum.status.leader`, with the resource version that was read.
    Claim,
    /// The authority over the quorum's leases has changed.
    Authority(Authority),
}

impl From<Command> for LeadershipEffect {
    fn from(command: Command) -> Self {
        Self::Keeper(command)
    }
}
