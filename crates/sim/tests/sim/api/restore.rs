//! etcd of a cluster is restored from a backup: versions go back, and what was written since is lost.

use crate::api::objects;
use crate::api::server::{Backup, Mode};
use crate::api::workloads::replicas;
use crate::event::{Event, Heal};
use crate::redis::clock::Micros;
use crate::world::World;

impl World {
    pub fn back_up(&self, cluster: usize) -> Backup {
        let api = &self.apis[cluster];
        Backup { state: api.state.clone(), workloads: api.workloads.clone(), specs: self.specs[cluster].clone() }
    }

    /// The API server stops, and after `away` it serves what the backup contains.
    pub fn restore_etcd(&mut self, cluster: usize, backup: Backup, away: Micros) {
        self.set_api(cluster, Mode::Refusing);
        self.specs[cluster] = backup.specs;
        let api = &mut self.apis[cluster];
        api.hanging.clear();
        let before = std::mem::replace(&mut api.state, backup.state);
        api.workloads = backup.workloads;
        api.forget_past();
        let names = |(place, lease): (usize, Option<_>)| Some((place, objects::named(lease?)?.token));
        let leases = before.leases.iter().map(Option::as_deref);
        self.running.versions_go_back(cluster, leases.enumerate().filter_map(names));
        let epoch = self.epoch;
        self.after(away, Event::Heal { epoch, heal: Heal::Restored(cluster) });
    }

    /// The API server serves again. The replicas of the workloads are what the backup says.
    pub fn serve_restored(&mut self, cluster: usize) {
        self.set_api(cluster, Mode::Up);
        self.check.statuses_go_back(self.now, cluster);
        for place in 0..self.swarm.keys.len() {
            if let Some(workload) = self.apis[cluster].workload_of(place) {
                let replicas = replicas(workload);
                self.replicas_change((cluster, place), replicas, None);
                self.tell_workload(cluster, place);
            } else {
                // The status may be older than the term for which its pods run.
                self.nobody_stops((cluster, place));
            }
        }
    }
}
