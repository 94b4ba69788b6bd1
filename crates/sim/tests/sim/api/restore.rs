//! etcd of a cluster is restored from a backup: versions go back, and what was written since is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_plan::election::WorkloadFacts;

use crate::api::server::{ApiServer, Mode, State};
use crate::redis::clock::Micros;
use crate::world::{Event, World};

/// What etcd contained.
pub struct Backup {
    state: State,
    workloads: BTreeMap<u32, Arc<WorkloadFacts>>,
}

impl ApiServer {
    pub fn back_up(&self) -> Backup {
        Backup { state: self.state.clone(), workloads: self.workloads.clone() }
    }

    fn take_back(&mut self, backup: Backup) {
        (self.state, self.workloads) = (backup.state, backup.workloads);
        self.forget_past();
    }
}

impl World {
    /// The API server stops, and after `away` it serves what the backup contains.
    pub fn restore_etcd(&mut self, cluster: usize, backup: Backup, away: Micros) {
        self.set_api(cluster, Mode::Refusing);
        self.apis[cluster].hanging.clear();
        self.apis[cluster].take_back(backup);
        self.running.versions_go_back(cluster);
        let epoch = self.epoch;
        self.after(away, Event::Heal { epoch, heal: crate::chaos::nemesis::Heal::Restored(cluster) });
    }

    /// The API server serves again. The replicas of the workloads are what the backup says.
    pub fn serve_restored(&mut self, cluster: usize) {
        self.set_api(cluster, Mode::Up);
        for place in 0..self.swarm.keys.len() {
            if let Some(workload) = self.apis[cluster].workload_of(place) {
                let replicas = crate::api::workloads::replicas(workload);
                self.replicas_change((cluster, place), replicas, None);
                self.tell_workload(cluster, place);
            }
        }
    }
}
