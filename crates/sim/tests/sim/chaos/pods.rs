//! What users, kubelets and administrators do to pods and leases.

use std::sync::Arc;
use std::time::Duration;

use redislease_plan::api::names;
use redislease_plan::election::PodFacts;

use crate::api::objects::{self, LeaseSpec, RUNNING};
use crate::api::server::Change;
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::chaos::orphans::make_for_workload;
use crate::check::trace::Note;
use crate::event::{Event, Heal, PodStep};
use crate::redis::clock::{MILLI, SECOND};
use crate::world::World;

impl World {
    /// Returns whether the fault changed the pod.
    pub fn harm_pod(&mut self, cluster: usize, pod: u32, fault: Fault) -> bool {
        let (is_scheduled, version) = (self.is_scheduled(cluster, pod), self.apis[cluster].state.version);
        if fault == Fault::Unready && !is_scheduled {
            return false;
        }
        let runs = is_scheduled && !self.check.has_stopped(pod);
        match fault {
            Fault::DeletePod => self.delete_pod(cluster, pod),
            Fault::KillPod => self.kill_pod(cluster, pod),
            Fault::NodeOff => {
                self.note(Note::Pod(pod, "its node dies"));
                self.pod_step(cluster, pod, PodStep::LosesPower);
                let delay = self.rng.pick(&[10, 1000, 10_000]) * MILLI;
                self.after(delay, Event::Pod { cluster, pod, step: PodStep::Leaves });
                let later = delay + self.rng.pick(&[1, 500, 8000]) * MILLI;
                self.after(later, Event::Pod { cluster, pod, step: PodStep::NodeMarked });
            }
            Fault::Unready => {
                self.note(Note::Pod(pod, "is not Ready"));
                self.change_pod(cluster, pod, |pod| pod.ready = false);
                self.heal_later(Heal::Ready(cluster, pod));
            }
            _ => {
                self.note(Note::Pod(pod, "is no candidate any more"));
                let place = self.apis[cluster].state.pods.get(&pod).and_then(|pod| objects::place_of(pod));
                self.change_pod(cluster, pod, objects::relabel);
                if let Some(place) = place {
                    self.after(SECOND, Event::PodComes { cluster, place });
                }
            }
        }
        // The loss of a node changes the object later.
        if fault == Fault::NodeOff { runs } else { self.apis[cluster].state.version > version }
    }

    /// A pod is deleted, and stops within its grace period or later.
    pub fn delete_pod(&mut self, cluster: usize, pod: u32) {
        self.note(Note::Pod(pod, "is being deleted"));
        if !self.is_scheduled(cluster, pod) {
            return self.pod_step(cluster, pod, PodStep::Leaves);
        }
        let grace = Duration::from_secs(5);
        self.running.pod_must_stop(pod, self.now + 5 * SECOND);
        self.change_pod(cluster, pod, |pod| (pod.deletion_grace, pod.ready) = (Some(grace), false));
        let stops_after = if self.chaos { self.rng.pick(&[10, 500, 4000, 20_000]) } else { 500 };
        self.after(stops_after * MILLI, Event::Pod { cluster, pod, step: PodStep::Stops });
    }

    /// The object is removed at once, and its process still runs.
    pub fn kill_pod(&mut self, cluster: usize, pod: u32) {
        self.note(Note::Pod(pod, "is deleted by force"));
        self.running.pod_ended(pod);
        self.pod_step(cluster, pod, PodStep::Leaves);
    }

    pub fn pod_step(&mut self, cluster: usize, pod: u32, step: PodStep) {
        match step {
            PodStep::Starts => {
                self.note(Note::Pod(pod, "starts"));
                self.pod_begins(cluster, pod);
                self.change_pod(cluster, pod, objects::start);
            }
            PodStep::Stops => {
                self.check.pod_stopped(self.now, pod);
                self.running.pod_ended(pod);
                self.note(Note::Pod(pod, "has stopped"));
                self.change_pod(cluster, pod, |pod| (pod.finished, pod.stopped, pod.ready) = (true, true, false));
                self.after(100 * MILLI, Event::Pod { cluster, pod, step: PodStep::Leaves });
            }
            PodStep::LosesPower => {
                self.check.pod_stopped(self.now, pod);
                self.running.pod_ended(pod);
            }
            PodStep::NodeMarked => {
                self.apis[cluster].nodes_off.insert(pod);
            }
            PodStep::Owned => {
                let Some(facts) = self.apis[cluster].state.pods.get(&pod).cloned() else { return };
                let released = !self.is_selected(&facts) && !self.is(Bug::ReleaseUnseen);
                self.change_pod(cluster, pod, |pod| pod.released = released);
                self.replace_later(cluster, objects::place_of(&facts));
            }
            PodStep::Leaves => {
                if !self.is_scheduled(cluster, pod) {
                    self.check.pod_stopped(self.now, pod);
                }
                let change = self.apis[cluster].delete_pod(pod);
                let Some(Change::Pod { facts, .. }) = &change else { return };
                let place = objects::place_of(facts);
                self.tell(cluster, change);
                self.replace_later(cluster, place);
            }
        }
    }

    fn replace_later(&mut self, cluster: usize, place: Option<usize>) {
        if let Some(place) = place {
            let delay = self.rng.pick(&[10, 500, 3000]) * MILLI;
            self.after(delay, Event::PodComes { cluster, place });
        }
    }

    /// The role label of a pod that its controller selects.
    fn selected_label(&self, place: usize) -> Option<(String, String)> {
        let role = self.swarm.selected?;
        Some((names::role_label(&objects::lease_name(place)), role.as_str().to_owned()))
    }

    /// Whether its controller selects the pod, also by its label.
    fn is_selected(&self, pod: &PodFacts) -> bool {
        let label = objects::place_of(pod).and_then(|place| self.selected_label(place));
        label.is_none_or(|(label, role)| pod.labels.get(&label) == Some(&role))
    }

    /// The controller of a pod sees that it has changed.
    pub fn controller_sees(&mut self, cluster: usize, change: &Change) {
        if let Change::Pod { facts, deleted: false, .. } = change
            && facts.released == self.is_selected(facts)
        {
            let (pod, delay) = (objects::number(&facts.uid), self.rng.between(1, 50) * MILLI);
            self.after(delay, Event::Pod { cluster, pod, step: PodStep::Owned });
        }
    }

    pub fn pod_comes(&mut self, cluster: usize, place: usize) {
        if self.specs[cluster][place].clustered {
            return;
        }
        let of_place = |pod: &&Arc<PodFacts>| objects::place_of(pod) == Some(place) && self.is_selected(pod);
        if self.apis[cluster].state.pods.values().filter(of_place).count() > self.swarm.pods {
            return;
        }
        let pod = self.new_uid();
        self.create_pod(cluster, place, pod);
    }

    pub fn create_pod(&mut self, cluster: usize, place: usize, pod: u32) {
        let mut facts = objects::pod(pod, place, self.specs[cluster][place].gated, self.now);
        facts.labels.extend(self.selected_label(place));
        let change = self.apis[cluster].create_pod(pod, facts);
        self.tell(cluster, Some(change));
    }

    /// Whether a kubelet runs the pod. A pod that does not exist counts as scheduled.
    fn is_scheduled(&self, cluster: usize, pod: u32) -> bool {
        self.apis[cluster].state.pods.get(&pod).is_none_or(|pod| pod.node.is_some())
    }

    pub fn change_pod(&mut self, cluster: usize, pod: u32, change: impl FnOnce(&mut PodFacts)) {
        let change = self.apis[cluster].change_pod(pod, change);
        self.tell(cluster, change);
    }

    /// Returns whether the fault changed a lease.
    pub fn harm_lease(&mut self, cluster: usize, fault: Fault) -> bool {
        let place = self.rng.index(self.swarm.keys.len());
        let Some(lease) = &self.apis[cluster].state.leases[place] else { return false };
        let is_ending = lease.metadata.deletion_timestamp.is_some();
        match fault {
            Fault::SuspendLease => {
                let changes = !self.specs[cluster][place].suspend;
                self.suspend_lease(cluster, place, true);
                self.heal_later(Heal::Suspension(cluster, place));
                changes
            }
            Fault::Handover => {
                let pods = self.apis[cluster].state.pods.values();
                let spec = &self.specs[cluster][place];
                let candidates = pods.filter(|pod| objects::is_candidate(pod, place, spec));
                let mut targets: Vec<String> = candidates.map(|pod| format!("pod/{}", pod.name)).collect();
                targets.extend([0, 1].map(|number| format!("cluster/{}", objects::cluster(number).name)));
                targets.extend([String::new(), "nonsense".to_owned()]);
                let to = self.rng.index(targets.len());
                let id = self.now.to_string();
                let change = self.apis[cluster].request_handover(place, &id, &targets[to]);
                self.tell(cluster, change);
                true
            }
            Fault::ChangeSpec => {
                let spec = self.rng.index(self.swarm.specs.len());
                let before = self.specs[cluster][place].clone();
                self.specs[cluster][place] = LeaseSpec {
                    suspend: before.suspend,
                    excludes: before.excludes,
                    gated: before.gated,
                    clustered: before.clustered,
                    workload: before.workload,
                    ..self.swarm.specs[spec].clone()
                };
                let keys = self.swarm.keys[place];
                let changes = self.specs[cluster][place].object(place, keys) != before.object(place, keys);
                let replicas = self.rng.pick(&[0, 1, RUNNING]);
                self.set_replicas(cluster, place, replicas);
                self.write_spec(cluster, place);
                changes
            }
            _ => {
                // A finalizer keeps the lease, or it is gone at once.
                let is_kept = self.rng.percent(40);
                if is_kept {
                    let change = self.apis[cluster].begin_deletion(place, self.now);
                    self.running.lease_deleted((cluster, place));
                    self.tell(cluster, change);
                    let epoch = self.epoch;
                    let delay = self.while_it_lasts();
                    self.after(delay, Event::Heal { epoch, heal: Heal::Recreate(cluster, place) });
                } else {
                    self.delete_lease(cluster, place);
                    self.heal_later(Heal::Recreate(cluster, place));
                }
                !(is_kept && is_ending)
            }
        }
    }

    pub fn write_spec(&mut self, cluster: usize, place: usize) {
        let spec = self.specs[cluster][place].clone();
        let change = self.apis[cluster].set_spec(place, self.swarm.keys[place], &spec);
        self.tell(cluster, change);
    }

    pub fn suspend_lease(&mut self, cluster: usize, place: usize, suspend: bool) {
        if self.specs[cluster][place].suspend != suspend {
            self.specs[cluster][place].suspend = suspend;
            self.write_spec(cluster, place);
        }
    }

    pub fn delete_lease(&mut self, cluster: usize, place: usize) {
        let before = self.apis[cluster].named(place);
        let change = self.apis[cluster].delete_lease(place);
        let version = self.apis[cluster].state.version;
        self.running.status_changes((cluster, place), version, before, None);
        self.running.lease_deleted((cluster, place));
        self.tell(cluster, change);
    }

    pub fn create_lease(&mut self, cluster: usize, place: usize) {
        if self.apis[cluster].state.leases[place].is_some() {
            return;
        }
        let uid = self.new_uid();
        self.note(Note::Lease(uid, "is created"));
        let mut lease = objects::lease(place, uid, self.swarm.keys[place], &self.specs[cluster][place], self.now);
        if self.is_made(place) {
            make_for_workload(&mut lease, place);
        }
        let change = self.apis[cluster].put_lease(place, lease);
        self.tell(cluster, Some(change));
    }

    /// A lease that was deleted, or is being deleted, is created again.
    pub fn recreate_lease(&mut self, cluster: usize, place: usize) {
        let lease = self.apis[cluster].state.leases[place].as_ref();
        if lease.is_some_and(|lease| lease.metadata.deletion_timestamp.is_some()) {
            self.delete_lease(cluster, place);
        }
        self.create_lease(cluster, place);
    }
}
