//! The end of a run: all faults are healed, and every lease must be held again before its deadline.

use std::sync::Arc;

use redislease_core::lease::Standing;
use redislease_plan::api::lease_status::HandoverState;
use redislease_plan::election::PodFacts;

use crate::api::objects::{self, Keys};
use crate::api::server::Mode;
use crate::chaos::fault::Fault;
use crate::chaos::swarm::Swarm;
use crate::check::coverage::Sight;
use crate::check::state::{Of, Subject};
use crate::check::trace::Note;
use crate::event::{Event, Stage};
use crate::operator::state::Life;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::redis::link::Link;
use crate::redis::server::Memory;
use crate::world::World;

impl World {
    /// How long a lease may be without a holder, from the last time its keys may have been set.
    fn vacancy(&self) -> Micros {
        let ttl = self.swarm.ttl() * MILLI;
        let limited = self.swarm.specs.iter().any(|spec| spec.limit.is_some());
        let burst = if limited { ttl + ttl / 50 } else { 0 };
        // A cluster that handed the lease over to another one makes no attempt for a while. The next request waits for the
        // result of this one, and ends the term again.
        let yields = if self.swarm.has(Fault::Handover) { 2 * 10 * SECOND + self.swarm.key_life() } else { 0 };
        self.swarm.key_life() + self.swarm.longest_delay() + burst + yields + 3 * SECOND
    }

    /// How long no replica may lead. Nodes in quarantine may prevent a majority for or against the lock of the replicas.
    /// Until they vote and the lock's keys have ended, no replica may write a status or a label.
    fn election(&self) -> Micros {
        if self.swarm.elects { self.swarm.quarantine() + 6 * SECOND } else { 0 }
    }

    /// How long a write may still wait that others refused or undid until the faults ended: webhooks, a fighter, or an owner who
    /// scales a workload with each change of its lease.
    pub fn back_off(&self, of: Of) -> Micros {
        let spec = &self.specs[of.0][of.1];
        let own: &[Fault] = match (spec.clustered, spec.gated) {
            (true, _) => &[Fault::Clamps, Fault::KeepsReplicas, Fault::ChangeSpec],
            (false, true) => &[Fault::KeepsPods],
            (false, false) => &[],
        };
        let mut faults = own.iter().chain(&[Fault::StripsLabel, Fault::Fight]);
        if faults.any(|fault| self.swarm.has(*fault)) { 5 * 60 * SECOND } else { 0 }
    }

    /// How long repeated stops, whose answers were lost before the faults ended, may still hold every place for calls of a
    /// process: then it publishes nothing. The limits of the operator always leave places for other calls. With the few places of
    /// some seeds, they do not. All leases of these seeds have the same namespace.
    fn without_places(&self) -> Micros {
        let leave_places = self.swarm.calls.calls > self.swarm.calls.unsure_of_tenant;
        if leave_places { 0 } else { self.recovery.waits_until.saturating_sub(self.now) }
    }

    pub fn recovery_stage(&mut self, stage: Stage) {
        if stage != Stage::Watch {
            self.note(Note::Stage(stage));
        }
        match stage {
            Stage::Heal => {
                self.heal_all();
                self.after(5 * SECOND, Event::Recovery(Stage::Clocks));
                self.after(5 * SECOND, Event::Recovery(Stage::Watch));
            }
            Stage::Clocks => {
                let residue = if self.swarm.has(Fault::Step) { 25 * SECOND } else { 0 };
                self.synchronize();
                // A process that stopped gracefully just before the end of the faults would start later.
                for process in 0..self.processes.len() {
                    self.start(process);
                }
                // A holder may be in the middle of a deletion without a proof. A process that could not publish a term does
                // not contend until its keys have ended and one more second has passed: `vacancy` covers that.
                let blocked = self.swarm.quarantine().max(12 * SECOND) + 2 * SECOND;
                let begins = (residue + blocked).max(self.without_places());
                self.after(begins + self.vacancy(), Event::Recovery(Stage::Settled));
            }
            Stage::Settled => {
                self.everything_is_held("after the quarantine and the rest of the TTL");
                self.scale_all_workloads();
                self.choose_subject();
                if let Some(subject) = self.recovery.subject {
                    self.delete_pod(subject.of.0, subject.pod);
                }
                self.after(5 * SECOND, Event::Recovery(Stage::Released));
            }
            Stage::Released => {
                self.next_holds_soon();
                self.choose_subject();
                if let Some(subject) = self.recovery.subject {
                    self.kill_pod(subject.of.0, subject.pod);
                }
                self.after(self.vacancy(), Event::Recovery(Stage::Expired));
            }
            Stage::Expired => {
                self.everything_is_held("one TTL after the forced deletion of a holder");
                self.terms_are_at_their_phases();
                self.handovers_are_over();
                let cluster = usize::from(self.recovery.without_api == Some(0));
                self.delete_lease(cluster, 0);
                let rest = 2 * self.swarm.command_timeout.0 * MILLI + SECOND;
                self.after(rest + self.swarm.key_life(), Event::Recovery(Stage::Gone));
            }
            Stage::Gone => {
                self.nothing_is_left();
                self.done = true;
            }
            Stage::Watch => {
                self.check_what_follows(self.election());
                self.after(SECOND, Event::Recovery(Stage::Watch));
            }
        }
    }

    pub fn heal_all(&mut self) {
        self.chaos = false;
        self.epoch += 1;
        for node in 0..self.servers.len() {
            self.start_server(node, Memory::Full, Fault::RestartFull);
            self.continue_server(node);
        }
        for cluster in 0..self.apis.len() {
            self.heal_cluster(cluster);
        }
        if let Some(cluster) = self.swarm.stays_away {
            self.coverage.saw(Sight::ApiAwayInRecovery);
            self.recovery.without_api = Some(cluster);
            self.apis[cluster].mode = if self.rng.percent(50) { Mode::Refusing } else { Mode::Hanging };
        }
        for process in 0..self.processes.len() {
            self.links[process].fill(Link::default());
            self.processes[process].api_cut = 0;
            let boot = self.processes[process].boot;
            match self.processes[process].life {
                Life::Down => self.start(process),
                Life::Frozen => self.resume(process, boot),
                Life::Running => {}
            }
        }
    }

    fn heal_cluster(&mut self, cluster: usize) {
        if self.apis[cluster].mode != Mode::Up {
            self.restore_api(cluster);
        }
        if self.swarm.has(Fault::RestoreEtcd) {
            self.serve_restored(cluster);
        }
        self.apis[cluster].refuses_writes = false;
        let now = self.now;
        self.apis[cluster].hangs_until.values_mut().for_each(|until| *until = now.min(*until));
        (self.apis[cluster].mutation, self.apis[cluster].policy) = (None, None);
        for fault in [Fault::NotAllowed, Fault::NoSecret, Fault::LongTimeout] {
            self.edit_quorum(cluster, fault, false);
        }
        for place in 0..self.swarm.keys.len() {
            self.recreate_lease(cluster, place);
            self.suspend_lease(cluster, place, cluster == 1 && self.stays_suspended());
            self.recreate_workload((cluster, place));
            self.name_own_workload(cluster, place);
            self.set_consent(cluster, place, Some(place));
            let unready: Vec<u32> =
                self.apis[cluster].state.pods.iter().filter(|(_, pod)| !pod.ready).map(|(&pod, _)| pod).collect();
            for pod in unready {
                self.change_pod(cluster, pod, |pod| {
                    pod.ready = pod.deletion_grace.is_none() && !pod.finished && pod.node.is_some();
                });
            }
            let candidate = |pod: &&Arc<PodFacts>| {
                objects::place_of(pod) == Some(place) && pod.deletion_grace.is_none() && !pod.finished
            };
            if self.specs[cluster][place].clustered {
                continue;
            }
            let candidates = self.apis[cluster].state.pods.values().filter(candidate).count();
            for _ in candidates..2 {
                let pod = self.new_uid();
                self.create_pod(cluster, place, pod);
            }
        }
    }

    /// Whether the leases of the second cluster stay suspended: its status still says who holds them.
    fn stays_suspended(&self) -> bool {
        let Swarm { clusters, clustered, stays_away, .. } = self.swarm;
        let others_suffice = clusters == 2 && clustered == 0 && stays_away.is_none();
        // A suspended lease takes no request for a handover.
        others_suffice && !self.swarm.has(Fault::Handover) && self.now.is_multiple_of(2)
    }

    /// Somebody else scales each workload to what it must never be. The operator corrects it: [`Kind::Workload`] says how soon.
    ///
    /// [`Kind::Workload`]: crate::check::lasting::Kind::Workload
    fn scale_all_workloads(&mut self) {
        for cluster in 0..self.apis.len() {
            for place in 0..self.swarm.keys.len() {
                if self.specs[cluster][place].clustered {
                    self.set_replicas(cluster, place, 1);
                }
            }
        }
    }

    pub fn synchronize(&mut self) {
        if !self.swarm.has(Fault::Step) {
            return;
        }
        let wall = self.processes[0].wall.micros(self.now);
        for server in &mut self.servers {
            let off = wall as i64 - server.clock.micros(self.now) as i64;
            if off.unsigned_abs() > 4 * SECOND {
                server.clock.step(self.now, off);
            }
        }
    }

    fn everything_is_held(&mut self, when: &str) {
        for place in 0..self.swarm.keys.len() {
            let keys = self.swarm.keys[place];
            if self.kept_by_the_cut_off(keys) {
                continue;
            }
            if !self.check.held(self.now, keys) {
                let without = self
                    .recovery
                    .without_api
                    .map_or_else(String::new, |cluster| format!(", while the API server of cluster {cluster} is away"));
                self.check.fail(format!("I6: {when} no process holds the keys {keys:#b}{without}"));
            } else if !self.is_shown(keys) {
                self.check.fail(format!("I6: {when} no status calls a term with the keys {keys:#b} active"));
            }
        }
    }

    /// Whether a status calls a term active that a process treats as held on one of the keys.
    fn is_shown(&self, keys: Keys) -> bool {
        let mut live = self.check.live.iter().filter(|live| live.keys & keys != 0 && self.now < live.until);
        live.any(|live| {
            let cluster = self.processes[live.process].cluster;
            let mut active = (0..self.swarm.keys.len()).filter_map(|place| self.apis[cluster].active(place));
            Some(cluster) == self.recovery.without_api || active.any(|named| named.attempt == live.attempt)
        })
    }

    /// The last request for a handover of each lease has a result.
    fn handovers_are_over(&mut self) {
        let answers = |cluster: &usize| Some(*cluster) != self.recovery.without_api;
        for cluster in (0..self.apis.len()).filter(answers).collect::<Vec<_>>() {
            for lease in self.apis[cluster].state.leases.clone().into_iter().flatten() {
                let requested = objects::requested_handover(&lease);
                let shown = objects::handover(Some(&lease));
                let is_over = shown.is_some_and(|(id, state)| Some(id) == requested && state != HandoverState::Running);
                if requested.is_some() && !is_over {
                    let name = lease.metadata.name.as_deref().unwrap_or_default();
                    self.check.fail(format!(
                        "the handover {requested:?} of {name} in cluster {cluster} is not over: {shown:?}"
                    ));
                }
            }
        }
    }

    /// A published term of a pod that has stopped is renewed until the API server of its cluster reports the stop.
    fn kept_by_the_cut_off(&self, keys: Keys) -> bool {
        let Some(cluster) = self.recovery.without_api else { return false };
        let mut machines =
            self.processes.iter().filter(|process| process.cluster == cluster).flat_map(|of| &of.machines);
        machines
            .any(|machine| machine.bits() & keys != 0 && matches!(machine.driver.view().standing, Standing::Held(_)))
    }

    /// A holder in a cluster whose API server answers.
    fn choose_subject(&mut self) {
        let now = self.now;
        let away = self.recovery.without_api;
        let mut last = self.check.last.iter().filter(|(of, last)| now < last.until && Some(of.0) != away);
        self.recovery.subject = last.find_map(|(&of, last)| {
            let live = self.check.live.iter().find(|live| live.attempt == last.attempt)?;
            if self.specs[of.0][of.1].clustered {
                return None;
            }
            Some(Subject { of, attempt: last.attempt, pod: live.pod })
        });
        self.recovery.proof = None;
    }

    /// With one contender the next pod holds the lease within 250 ms after the proof; several contenders may collide a few
    /// times.
    fn next_holds_soon(&mut self) {
        let Some(subject) = self.recovery.subject else { return };
        let alone = self.swarm.processes.len() == 1 && self.swarm.keys.len() == 1;
        let bound = if alone { 250 * MILLI } else { 3 * SECOND };
        let Some(proof) = self.recovery.proof else {
            let text = format!("I6: no process acted on the proof that pod {} stopped", subject.pod);
            return self.check.fail(text);
        };
        let keys = self.swarm.keys[subject.of.1];
        let next = self.check.live.iter().filter(|live| live.keys & keys != 0 && live.attempt != subject.attempt);
        let took = next.map(|live| live.from.saturating_sub(proof)).min();
        if took.is_none_or(|took| took > bound) {
            self.check
                .fail(format!("I6: after the proof that pod {} stopped the next held in {took:?} µs", subject.pod));
        }
    }

    fn nothing_is_left(&mut self) {
        let leases = self.apis.iter().flat_map(|api| api.state.leases.iter().flatten());
        let alive: Vec<u32> = leases.map(|lease| objects::uid_of(lease)).collect();
        for (node, server) in self.servers.iter().enumerate() {
            let millis = server.clock.millis(self.now);
            for key in 0..8 {
                let Some(entry) = server.node.entry(&key, millis) else { continue };
                // Without its API server, an operator does not learn that a lease was deleted.
                let is_cut_off =
                    |cluster| entry.value.metadata.contains(&format!("/{}/", objects::cluster(cluster).uid));
                if self.recovery.without_api.is_some_and(is_cut_off) {
                    continue;
                }
                let uid = self.check.resources.get(&entry.value.attempt);
                if uid.is_some_and(|uid| !alive.contains(uid)) {
                    let text = format!("I7: node {node} still has {} of the deleted lease {uid:?}", entry.value);
                    return self.check.fail(text);
                }
            }
        }
    }
}
