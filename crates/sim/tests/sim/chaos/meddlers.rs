//! Others who write to the same objects: admission webhooks that change what is stored, policies that keep what is to be stopped, a
//! fighter that undoes each write, an owner who takes the consent of a workload back, or names it in another lease, and an
//! administrator who restores etcd.

use redislease_plan::api::names;

use crate::api::objects;
use crate::api::server::{Mode, Mutation, Policy};
use crate::chaos::fault::Fault;
use crate::event::{Event, Heal};
use crate::operator::state::{Life, Process};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

const MINUTE: Micros = 60 * SECOND;

impl World {
    /// Returns whether something has changed.
    pub fn meddle(&mut self, cluster: usize, fault: Fault) -> bool {
        let place = self.rng.index(self.swarm.keys.len());
        match fault {
            Fault::StripsLabel | Fault::Clamps => {
                let mutation = if fault == Fault::StripsLabel { Mutation::StripsLabel } else { Mutation::Clamps };
                self.apis[cluster].mutation = Some(mutation);
                self.heal_later(Heal::Mutation(cluster));
            }
            Fault::KeepsPods | Fault::KeepsReplicas | Fault::RefusesStatuses => {
                let policy = match fault {
                    Fault::KeepsPods => Policy::RefusesDeletions,
                    Fault::RefusesStatuses => Policy::RefusesStatuses,
                    _ => self.rng.pick(&[Policy::RefusesReplicas, Policy::RestoresReplicas]),
                };
                self.apis[cluster].policy = Some((policy, self.now));
                self.heal_later(Heal::Policy(cluster));
            }
            Fault::Fight => {
                let until = self.now + self.while_it_lasts();
                self.after(0, Event::Fight { cluster, place, until });
            }
            Fault::SharedWorkload => {
                let namespace = objects::namespace(place);
                let is_clustered =
                    |place: usize| self.specs[cluster][place].clustered && objects::namespace(place) == namespace;
                let others: Vec<usize> =
                    (0..self.swarm.keys.len()).filter(|&other| other != place && is_clustered(other)).collect();
                let exists = self.apis[cluster].workload_of(place).is_some();
                if !is_clustered(place) || !exists || others.is_empty() {
                    return false;
                }
                let other = self.rng.pick(&others);
                self.specs[cluster][place].workload = Some(other);
                self.write_spec(cluster, place);
                if self.rng.percent(50) {
                    self.set_consent(cluster, other, Some(place));
                }
                self.heal_later(Heal::Workload(cluster, place));
            }
            Fault::WebhookHangs => {
                let until = self.now + self.rng.between(SECOND, MINUTE);
                self.apis[cluster].hangs_until.insert(objects::namespace(place), until);
            }
            Fault::RestoreEtcd => return self.restore_or_back_up(cluster),
            Fault::Orphan => {
                if !self.orphan_pods((cluster, place)) {
                    return false;
                }
                self.heal_later(Heal::Orphaned(cluster, place));
            }
            _ => {
                if !self.set_consent(cluster, place, None) {
                    return false;
                }
                self.heal_later(Heal::Consent(cluster, place));
            }
        }
        true
    }

    /// Makes a backup if there is none. Returns whether etcd was restored from it. That takes some time, which a process must notice:
    /// one that was paused all the time, or whose watch nobody closed, must be started again.
    fn restore_or_back_up(&mut self, cluster: usize) -> bool {
        let mut of_cluster = self.processes.iter().filter(|process| process.cluster == cluster);
        let notices = |process: &Process| process.life != Life::Frozen && process.api_cut == 0;
        if self.apis[cluster].mode != Mode::Up || !of_cluster.all(notices) {
            return false;
        }
        let Some(backup) = self.backups[cluster].take() else {
            self.backups[cluster] = Some(self.back_up(cluster));
            return false;
        };
        let away = self.rng.between(2, 30) * SECOND;
        self.restore_etcd(cluster, backup, away);
        true
    }

    /// Undoes a write to one object of the lease, and again soon.
    pub fn fight(&mut self, cluster: usize, place: usize, until: Micros) {
        if !self.chaos || self.now >= until {
            return;
        }
        self.running.disturbed(cluster, self.now);
        if self.specs[cluster][place].clustered {
            let replicas = self.rng.pick(&[0, 1, objects::RUNNING]);
            self.set_replicas(cluster, place, replicas);
        } else {
            let label = names::role_label(&objects::lease_name(place));
            let pods = &self.apis[cluster].state.pods;
            let labelled: Vec<u32> =
                pods.iter().filter(|(_, pod)| pod.labels.contains_key(&label)).map(|(pod, _)| *pod).collect();
            if !labelled.is_empty() {
                let pod = self.rng.pick(&labelled);
                self.change_pod(cluster, pod, |pod| drop(pod.labels.remove(&label)));
            }
        }
        let delay = self.rng.between(20 * MILLI, SECOND);
        self.after(delay, Event::Fight { cluster, place, until });
    }

    /// The lease names its own workload again, and the owner of the other workload gives the consent to its own lease.
    pub fn name_own_workload(&mut self, cluster: usize, place: usize) {
        if let Some(other) = self.specs[cluster][place].workload.take() {
            self.write_spec(cluster, place);
            self.set_consent(cluster, other, Some(other));
        }
    }

    /// The owner of a workload gives its consent to a lease, or takes it back. Returns whether it has changed.
    pub fn set_consent(&mut self, cluster: usize, place: usize, to: Option<usize>) -> bool {
        let name = to.map(objects::lease_name);
        let changes = self.change_workload(cluster, place, |workload| {
            workload.annotations.set(names::ACTIVATED_BY_ANNOTATION, name.as_deref());
        });
        if changes {
            self.consent_changes((cluster, place), to);
        }
        changes
    }
}
