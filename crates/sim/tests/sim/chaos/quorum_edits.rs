//! Edits of the resource of the quorum, and of its secret.

use crate::chaos::fault::Fault;
use crate::chaos::rng::Rng;
use crate::chaos::swarm::Swarm;
use crate::event::{Event, Heal, Inside};
use crate::redis::clock::SECOND;
use crate::world::World;

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
        // See [`Swarm::draw_faults`]: no new process can know of a step.
        self.faults.retain(|(fault, _)| !matches!(fault, Fault::Step | Fault::SmallStep));
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
        if self.edit_quorum(cluster, fault, true) {
            self.hit_cluster(fault, cluster);
        }
        if fault == Fault::LongTimeout {
            // Long enough for a restart, the loss of a term, and the next term in the other cluster.
            let delay = self.rng.between(20, 100) * SECOND;
            let (epoch, heal) = (self.epoch, Heal::Quorum(cluster, fault));
            return self.after(delay, Event::Heal { epoch, heal });
        }
        self.heal_later(Heal::Quorum(cluster, fault));
    }

    /// Returns whether something has changed.
    pub fn edit_quorum(&mut self, cluster: usize, fault: Fault, is_harmed: bool) -> bool {
        if !self.quorum_resources[cluster].edit(fault, self.swarm.command_timeout, is_harmed) {
            return false;
        }
        for process in 0..self.processes.len() {
            if self.processes[process].cluster == cluster {
                self.later(process, 0, Inside::QuorumEdited);
            }
        }
        true
    }
}
