//! Edits of the resource of the quorum, and of its secret.

use core::time::Duration;
use std::sync::Arc;

use redislease_plan::api::ValidQuorum;
use redislease_plan::plan::OpenQuorum;

use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::event::{Event, Heal, Inside};
use crate::redis::clock::SECOND;
use crate::world::World;

/// The longest command timeout that admission accepts. The renewals of no lease of the swarm are seldom enough for it.
const LONG: Duration = Duration::from_secs(5);

/// The quorum as the API server of one cluster shows it.
#[derive(Clone, Debug)]
pub struct QuorumResource {
    pub no_secret: bool,
    /// It does not allow the namespaces of the leases.
    pub denied: bool,
    long_timeout: bool,
    first: Specs,
    with_long_timeout: Specs,
}

/// The spec, and what the leases and the election know of its connections.
type Specs = (Arc<ValidQuorum>, Arc<OpenQuorum>);

impl QuorumResource {
    pub fn new(valid: ValidQuorum, open: OpenQuorum) -> Self {
        let with_long_timeout = (
            Arc::new(ValidQuorum { command_timeout: LONG, ..valid.clone() }),
            Arc::new(OpenQuorum { command_timeout: LONG.into(), ..open.clone() }),
        );
        let first = (Arc::new(valid), Arc::new(open));
        Self { no_secret: false, denied: false, long_timeout: false, first, with_long_timeout }
    }

    /// The connections keep the timeout of the swarm: the bounds of the checker are those of its requests.
    pub fn specs(&self) -> Specs {
        if self.long_timeout { self.with_long_timeout.clone() } else { self.first.clone() }
    }

    fn state_of(&mut self, fault: Fault) -> &mut bool {
        match fault {
            Fault::NoSecret => &mut self.no_secret,
            Fault::NotAllowed => &mut self.denied,
            _ => &mut self.long_timeout,
        }
    }
}

impl Swarm {
    /// A quorum whose timeout is edited, operators that restart meanwhile and read no other spec, and terms that are lost.
    pub fn with_quorum_edits(mut self, rng: &mut Rng) -> Self {
        if self.clocks_behind || self.keys.len() > u8::BITS as usize {
            return self;
        }
        if rng.percent(60) {
            self.processes = (0..self.processes.len().max(2)).map(|process| process % 2).collect();
            (self.clusters, self.gated, self.clustered, self.excludes) = (2, 0, 0b111, false);
        }
        // Most other faults excuse R1 for a while.
        self.faults.retain(|_| rng.percent(25));
        if rng.percent(75) {
            (self.api_loss, self.stale_lists) = (0, 0);
        }
        self.faults.extend([(Fault::LongTimeout, 10), (Fault::Crash, 5), (Fault::Isolate, 10)]);
        self.chaos = self.chaos.max(120 * SECOND);
        self
    }
}

impl World {
    pub fn harm_quorum(&mut self, cluster: usize, fault: Fault) {
        if !*self.quorum_resources[cluster].state_of(fault) {
            self.hit_cluster(fault, cluster);
        }
        self.edit_quorum(cluster, fault, true);
        if fault == Fault::LongTimeout {
            // Long enough for a restart, the loss of a term, and the next term in the other cluster.
            let delay = self.rng.between(20, 100) * SECOND;
            let (epoch, heal) = (self.epoch, Heal::Quorum(cluster, fault));
            return self.after(delay, Event::Heal { epoch, heal });
        }
        self.heal_later(Heal::Quorum(cluster, fault));
    }

    pub fn heal_quorum(&mut self, cluster: usize, fault: Fault) {
        self.edit_quorum(cluster, fault, false);
    }

    fn edit_quorum(&mut self, cluster: usize, fault: Fault, is_harmed: bool) {
        let state = self.quorum_resources[cluster].state_of(fault);
        if std::mem::replace(state, is_harmed) == is_harmed {
            return;
        }
        for process in 0..self.processes.len() {
            if self.processes[process].cluster == cluster {
                self.later(process, 0, Inside::QuorumSeen);
            }
        }
    }
}
