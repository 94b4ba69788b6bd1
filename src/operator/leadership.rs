//! The leader election of this replica on each quorum: runs [`plan::Leadership`](redislease_plan::plan::Leadership) in a process.
//!
//! The controller of RedisQuorums owns one [`Election`] for each quorum and gives it turns. The engine reads the result
//! from a [`Grant`] each time it decides about a lease.

use std::sync::Arc;

use redislease_core::lease::{Config, Renewal, View};
use redislease_core::time::Time;
use redislease_lock::keeper::{Keeper, LeaseHandle, Observer, Setup};
use redislease_plan::election::Cluster;
use redislease_plan::election::takeover::LEADER_LEASE;
use redislease_plan::plan::{
    Authority, Command, Granted, Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts, News,
};

use super::authority::Grant;
use super::quorums::{Connection, InUse};
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

/// The inputs of an election.
pub struct ElectionInputs<'a> {
    /// The quorum, as long as this process is connected to it.
    pub connection: Option<&'a Arc<Connection>>,
    /// See [`LeadershipFacts::quorum_lost`].
    pub is_lost: bool,
    /// The instance that `RedisQuorum.status.leader` names.
    pub named: Option<&'a str>,
}

/// What the election requests from the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionRequests {
    /// The authority has changed.
    pub changed: bool,
    /// Read the RedisQuorum.
    pub read: bool,
    /// Write this replica into the status, although it does not hold the lock.
    pub claim: bool,
}

/// The election of one replica on one quorum.
pub struct Election {
    replica: Replica,
    machine: Leadership,
    grant: Arc<Grant>,
    lock: Option<(LeaseHandle, Arc<Slot>)>,
    /// Keeps the connections open while another replica may still renew leases on this quorum, even after its resource
    /// was deleted or replaced: this replica must not decide anything before the other one has finished.
    in_use: Option<Arc<InUse>>,
}

impl Election {
    /// Creates an election in which this replica follows.
    pub fn new(replica: Replica) -> Self {
        let machine = Leadership::new(replica.cluster.clone(), replica.instance.clone(), replica.process.clone());
        Self { replica, machine, grant: Grant::of(Authority::Follow), lock: None, in_use: None }
    }

    /// Begins again as a follower, after a panic: the state may be inconsistent. The lock is not released and expires, so this
    /// process decides nothing before it holds the lock again.
    pub fn restart(&mut self) {
        let Replica { cluster, instance, process, .. } = &self.replica;
        self.machine = Leadership::new(cluster.clone(), instance.clone(), process.clone());
        self.lock = None;
        self.grant.set(Granted::default(), None);
    }

    /// The authority of this process.
    pub const fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// The name of this replica.
    pub fn instance(&self) -> &str {
        self.machine.instance()
    }

    /// Whether this replica holds the lock, also one that does not lead any more.
    pub const fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether this replica holds the lock and leads.
    pub fn is_leader(&self, now: Time) -> bool {
        self.has_lock() && self.grant.authority(now) == Authority::Lead
    }

    /// The time of the next turn if no event arrives before.
    pub const fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline()
    }

    /// Whether the election needs a turn after the next answer of the API server.
    pub const fn awaits_api_answer(&self) -> bool {
        self.machine.awaits_api_answer()
    }

    /// The RedisQuorum was read: `named` is the leader in its status, or the read was refused.
    pub fn quorum_read(&mut self, now: Time, named: Result<Option<String>, ()>) {
        self.machine.handle(now, LeadershipEvent::QuorumRead(named));
    }

    /// Runs one turn. `wake` requests another one; it must not block.
    pub fn turn(
        &mut self,
        now: Time,
        inputs: &ElectionInputs<'_>,
        wake: impl Fn() + Clone + Send + Sync + 'static,
    ) -> ElectionRequests {
        let news = self.lock.as_ref().map_or_else(News::default, |(_, slot)| slot.take());
        if news.ended {
            self.lock = None;
        }
        let ElectionInputs { connection, is_lost, named } = *inputs;
        let facts = LeadershipFacts {
            quorum: connection.map(|connection| connection.open_quorum()),
            quorum_lost: is_lost,
            named: named.map(str::to_owned),
            api_answered_at: self.replica.writer.answered_at(),
        };
        self.machine.turn(now, news, &facts);
        // Before the probe: its answer, or another one, may come at once.
        if self.machine.awaits_api_answer() {
            self.replica.writer.await_answer();
        }
        let requests = self.carry_out(connection, &wake);
        let decides = matches!(self.machine.authority(), Authority::Lead | Authority::End);
        self.in_use = connection.filter(|_| !decides && !is_lost).map(|connection| connection.in_use());
        requests
    }

    /// Releases the lock: this process is about to end.
    pub fn stop(&mut self, now: Time) {
        self.machine.handle(now, LeadershipEvent::Stop);
        self.carry_out(None, &|| {});
    }

    fn carry_out(
        &mut self,
        connection: Option<&Arc<Connection>>,
        wake: &(impl Fn() + Clone + Send + Sync + 'static),
    ) -> ElectionRequests {
        let mut requests = ElectionRequests::default();
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                LeadershipEffect::Open { config, .. } => self.open(config, connection, wake),
                // The handle closes the machine when it is dropped.
                LeadershipEffect::Keeper(Command::Close) => self.lock = None,
                LeadershipEffect::Keeper(command) => {
                    if let Some((lock, _)) = &self.lock {
                        lock.command(command);
                    }
                }
                LeadershipEffect::Probe => self.replica.writer.probe(),
                LeadershipEffect::ReadQuorum => requests.read = true,
                LeadershipEffect::Claim => requests.claim = true,
                LeadershipEffect::Authority(_) => requests.changed = true,
            }
        }
        let lock = self.lock.as_ref().map(|(_, slot)| slot.clone());
        self.grant.set(self.machine.granted(), lock);
        requests
    }

    fn open(
        &mut self,
        config: Config,
        connection: Option<&Arc<Connection>>,
        wake: &(impl Fn() + Clone + Send + Sync + 'static),
    ) {
        let Some(connection) = connection else { return };
        let nodes = connection.nodes.clone();
        let key = nodes.keyspace().leader(&self.replica.cluster.uid, &connection.quorum.name);
        let slot = Slot::new(wake.clone());
        let observer = Box::new(Lock(slot.clone()));
        let setup = Setup {
            nodes: Some(nodes),
            keys: [key].into(),
            config,
            policy: None,
            jump_wait: Some(LEADER_LEASE),
            observer,
        };
        self.lock = Some((self.replica.keeper.open(setup), slot));
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
