//! The RedisQuorum as read from the API server.

use std::{fmt, time::Duration};

use serde_json::Value;

use super::installed::Installation;
use super::options::{QUORUM, node_name};
use crate::{Condition, Error, Result, SYSTEM};

/// The RedisQuorum as it was when it was read.
#[derive(Debug, Clone)]
pub struct QuorumState(Value);

impl Installation {
    /// Reads the RedisQuorum.
    ///
    /// # Errors
    /// [`Error::Answer`] when it does not exist or the API server does not answer.
    pub fn quorum(&self) -> Result<QuorumState> {
        let path = format!("/apis/redislease.io/v1alpha1/namespaces/{SYSTEM}/redisquorums/{QUORUM}");
        let found = self.control_plane().get(&path)?;
        found.map(QuorumState).ok_or(Error::Answer { url: path, message: "the object does not exist".to_owned() })
    }

    /// Polls until `wanted` accepts the RedisQuorum, and returns it.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with the last status and the last lines of every operator's log.
    pub fn wait_for_quorum(
        &self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&QuorumState) -> bool,
    ) -> Result<QuorumState> {
        self.wait_for(&format!("RedisQuorum: {what}"), within, || {
            let state = self.quorum()?;
            if wanted(&state) { Ok(state) } else { Err(state.to_string()) }
        })
    }
}

impl QuorumState {
    /// The object in JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<Condition> {
        Condition::of(&self.0, kind)
    }

    /// State and message of the node with this index; both are empty while status does not name it.
    pub fn node(&self, index: usize) -> (&str, &str) {
        let nodes = self.0["status"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let node = nodes.iter().find(|node| node["name"] == node_name(index).as_str());
        let text = |field: &str| node.and_then(|node| node[field].as_str()).unwrap_or_default();
        (text("state"), text("message"))
    }

    /// The replica of the operator that leads on it.
    pub fn leader(&self) -> Option<&str> {
        self.0["status"]["leader"]["instance"].as_str()
    }

    /// The number of changes of the leader.
    pub fn leader_transitions(&self) -> u64 {
        self.0["status"]["leader"]["transitions"].as_u64().unwrap_or_default()
    }

    /// The number of nodes in this state: Up, Down, Quarantined or Misconfigured.
    pub fn count(&self, state: &str) -> usize {
        let nodes = self.0["status"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        nodes.iter().filter(|node| node["state"] == state).count()
    }
}

impl fmt::Display for QuorumState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.0["status"]["nodes"].as_array().into_iter().flatten() {
            let text = |field: &str| node[field].as_str().unwrap_or_default();
            write!(f, "{} {} {}; ", text("name"), text("state"), text("message"))?;
        }
        write!(f, "leader {}, ", self.leader().unwrap_or("none"))?;
        write!(f, "{}, {}", Condition::brief(&self.0, "Ready"), Condition::brief(&self.0, "QuorumHealthy"))
    }
}
