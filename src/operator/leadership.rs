//! The lock for which this replica and the others contend on each quorum, and the identity of this replica.

use std::sync::Arc;

use redislease_core::lease::{Config, Renewal, View};
use redislease_lock::keeper::{Keeper, LeaseHandle, Observer, Setup};
use redislease_plan::election::Cluster;
use redislease_plan::election::takeover::LEADER_LEASE;
use redislease_plan::plan::QuorumReconciler;

use super::quorums::Connection;
use super::slot::Slot;
use super::writer::Writer;

/// The identity of this replica, and the dependencies of its elections.
#[derive(Clone)]
pub struct Replica {
    /// The cluster of this replica.
    pub cluster: Cluster,
    /// The name that `RedisQuorum.status.leader` shows.
    pub instance: String,
    /// Identifies this run of the replica.
    pub process: String,
    /// Renews the locks.
    pub keeper: Arc<Keeper>,
    /// Sends calls to the API server.
    pub writer: Writer,
}

impl Replica {
    /// The machine that decides about one quorum in this replica.
    pub fn machine(&self) -> QuorumReconciler {
        QuorumReconciler::new(self.cluster.clone(), self.instance.clone(), self.process.clone())
    }

    /// Starts a machine for the lock. `wake` requests a turn of the election; it must not block.
    pub fn open_lock(
        &self,
        connection: &Connection,
        config: Config,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (LeaseHandle, Arc<Slot>) {
        let nodes = connection.nodes.clone();
        let key = nodes.keyspace().leader(&self.cluster.uid, &connection.quorum.name);
        let slot = Slot::new(wake);
        let observer = Box::new(Lock(slot.clone()));
        let setup = Setup {
            nodes: Some(nodes),
            keys: [key].into(),
            config,
            policy: None,
            jump_wait: Some(LEADER_LEASE),
            observer,
        };
        (self.keeper.open(setup), slot)
    }
}

/// Passes on the views of the lock's machine.
struct Lock(Arc<Slot>);

impl Observer for Lock {
    fn renewed(&self, _: &Renewal, _: u64) {}

    fn changed(&self, view: &View) {
        self.0.show(view);
    }

    fn ended(&self) {
        self.0.end();
    }
}
