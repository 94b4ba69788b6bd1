//! The end of a run: all faults are healed, and every lease must be held again before its deadline.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease::api::RedisLease;
use redislease::api::lease_status::HandoverState;
use redislease::election::PodFacts;
use redislease_core::lease::Standing;
use redislease_core::op::Attempt;

use crate::api::objects;
use crate::api::server::Mode;
use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::operator::process::Life;
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::redis::network::Link;
use crate::redis::server::Memory;
use crate::world::{Event, World};

/// How long the labels may differ from the status after a change of the holder.
const LABELS_FOLLOW: Micros = 8 * SECOND;

/// How often a workload is read that is a candidate itself.
const READ_AGAIN: Micros = 10 * SECOND;

/// The steps of the recovery, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All faults end.
    Heal,
    /// Wall clocks are synchronized, once every process has seen the steps.
    Clocks,
    /// I6: every lease is held. A holder is deleted and stops.
    Settled,
    /// I6: the next one holds, soon after the proof. That one is deleted by force.
    Released,
    /// I6: the next one holds, after the rest of the TTL. A lease is deleted.
    Expired,
    /// I7: nothing is left of it.
    Gone,
    /// I4 and the labels, once a second.
    Watch,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Heal => "heal",
            Self::Clocks => "clocks",
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Watch => "watch",
        }
    }
}

/// The holder whose end is checked.
#[derive(Clone, Copy, Debug)]
struct Subject {
    of: (usize, usize),
    attempt: Attempt,
    pod: u32,
}

#[derive(Default)]
pub struct Recovery {
    subject: Option<Subject>,
    proof: Option<Micros>,
    /// Statuses that name a term that no process treats as held, and since when.
    stale: BTreeMap<(usize, usize), (Attempt, Micros)>,
    /// Labels that differ from the term that is held, and since when.
    mislabelled: BTreeMap<(usize, usize), Micros>,
    /// Pods that run without the lease or do not start, and since when.
    astray: BTreeMap<(usize, usize), Micros>,
    /// Workloads that run without the lease, or do not run with it, and since when.
    misplaced: BTreeMap<(usize, usize), Micros>,
    /// Endpoints that differ from the term that is held (0) or are missing (1), and since when.
    misrouted: BTreeMap<(usize, usize, u8), Micros>,
    /// The cluster whose API server does not come back.
    pub without_api: Option<usize>,
}

impl Recovery {
    /// A process acted on the proof that this pod stopped.
    pub fn proof_seen(&mut self, now: Micros, pod: u32) {
        if self.subject.is_some_and(|subject| subject.pod == pod) {
            self.proof.get_or_insert(now);
        }
    }
}

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

    pub fn recovery_stage(&mut self, stage: Stage) {
        if stage != Stage::Watch {
            self.note(Note::Stage(stage.name()));
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
                self.after(residue + blocked + self.vacancy(), Event::Recovery(Stage::Settled));
            }
            Stage::Settled => {
                self.everything_is_held("after the quarantine and the rest of the TTL");
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
                let election = self.election();
                self.no_stale_status(self.swarm.key_life() + self.swarm.longest_delay() + 2 * SECOND + election);
                self.labels_follow(LABELS_FOLLOW + election);
                self.only_the_holder_runs(LABELS_FOLLOW + election);
                self.endpoints_follow(LABELS_FOLLOW + election);
                self.workloads_follow(LABELS_FOLLOW + READ_AGAIN + election);
                self.after(SECOND, Event::Recovery(Stage::Watch));
            }
        }
    }

    fn heal_all(&mut self) {
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
        self.apis[cluster].refuse_nothing();
        self.apis[cluster].foreign.clear();
        self.set_secret(cluster, true);
        for place in 0..self.swarm.keys.len() {
            self.recreate_lease(cluster, place);
            self.suspend_lease(cluster, place, false);
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

    fn synchronize(&mut self) {
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
            if !self.check.held(self.now, keys) && !self.kept_by_the_cut_off(keys) {
                let without = self
                    .recovery
                    .without_api
                    .map_or_else(String::new, |cluster| format!(", while the API server of cluster {cluster} is away"));
                self.check.fail(format!("I6: {when} no process holds the keys {keys:#b}{without}"));
            }
        }
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
    fn kept_by_the_cut_off(&self, keys: u16) -> bool {
        let Some(cluster) = self.recovery.without_api else { return false };
        let mut machines =
            self.processes.iter().filter(|process| process.cluster == cluster).flat_map(|of| &of.machines);
        machines.any(|machine| machine.bits() & keys != 0 && matches!(machine.lease.view().standing, Standing::Held(_)))
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

    fn no_stale_status(&mut self, bound: Micros) {
        for cluster in 0..self.apis.len() {
            for place in 0..self.swarm.keys.len() {
                let lease = self.apis[cluster].state.leases[place].as_deref();
                let named = lease.and_then(objects::named).filter(|named| named.active == Some(true));
                let live = |attempt: &Attempt| {
                    self.check.live.iter().any(|live| live.attempt == *attempt && self.now < live.until)
                };
                let attempt = named.map(|named| named.attempt).filter(|attempt| !live(attempt));
                let Some(attempt) = attempt.filter(|_| self.recovery.without_api != Some(cluster)) else {
                    self.recovery.stale.remove(&(cluster, place));
                    continue;
                };
                let entry = self.recovery.stale.entry((cluster, place)).or_insert((attempt, self.now));
                if entry.0 != attempt {
                    *entry = (attempt, self.now);
                }
                let since = entry.1;
                if self.now - since > bound {
                    self.check.fail(format!("I4: since {since} µs the status names {attempt:?}, which is over"));
                }
            }
        }
    }

    /// Of the pods that an operator started, only the holder that the status calls active runs, and it was started.
    fn only_the_holder_runs(&mut self, bound: Micros) {
        for cluster in 0..self.apis.len() {
            for place in 0..self.swarm.keys.len() {
                let api = &self.apis[cluster];
                let lease = api.state.leases[place].as_deref();
                let is_checked = self.recovery.without_api != Some(cluster) && self.specs[cluster][place].gated;
                let Some(lease) = lease.filter(|_| is_checked) else {
                    self.recovery.astray.remove(&(cluster, place));
                    continue;
                };
                // A term that is not confirmed may continue.
                let named = objects::named(lease).filter(|named| named.active != Some(false));
                let holder = named.map(|named| named.pod);
                // A pod whose lease was deleted runs on. If it is no candidate, the next lease of this name does not find it.
                let is_known =
                    |pod: &PodFacts| objects::place_of(pod) == Some(place) || objects::role_of(pod, place).0.is_some();
                let runs = |pod: &PodFacts| {
                    objects::was_started(pod, place) && pod.deletion_grace.is_none() && !pod.finished && is_known(pod)
                };
                let lost = api.state.pods.iter().find(|&(&number, pod)| runs(pod) && holder != Some(number));
                let active = named.filter(|named| named.active == Some(true)).map(|named| named.pod);
                let waits = active.and_then(|holder| api.state.pods.get(&holder)).filter(|pod| !pod.gates.is_empty());
                let problem = match (lost, waits) {
                    (Some((pod, _)), _) => format!("pod {pod} runs without the lease"),
                    (None, Some(pod)) => format!("the holder {} is not started", pod.name),
                    (None, None) => {
                        self.recovery.astray.remove(&(cluster, place));
                        continue;
                    }
                };
                let since = *self.recovery.astray.entry((cluster, place)).or_insert(self.now);
                if self.now - since > bound {
                    self.check.fail(format!("gate: since {since} µs, lease {place} of cluster {cluster}: {problem}"));
                }
            }
        }
    }

    /// A workload runs if and only if its cluster holds the lease.
    fn workloads_follow(&mut self, bound: Micros) {
        for cluster in 0..self.apis.len() {
            for place in 0..self.swarm.keys.len() {
                let is_checked = self.recovery.without_api != Some(cluster) && self.specs[cluster][place].clustered;
                let problem = self.misplaced_workload(cluster, place).filter(|_| is_checked);
                let Some(problem) = problem else {
                    self.recovery.misplaced.remove(&(cluster, place));
                    continue;
                };
                let since = *self.recovery.misplaced.entry((cluster, place)).or_insert(self.now);
                if self.now - since > bound {
                    self.check.fail(format!("workload: since {since} µs, in cluster {cluster}: {problem}"));
                }
            }
        }
    }

    /// The holder that the status calls active carries `active`, and no other pod does.
    fn labels_follow(&mut self, bound: Micros) {
        for cluster in 0..self.apis.len() {
            if self.recovery.without_api == Some(cluster) {
                continue;
            }
            for place in 0..self.swarm.keys.len() {
                let api = &self.apis[cluster];
                let named = api.state.leases[place].as_deref().and_then(objects::named);
                let holder = named.filter(|named| named.active == Some(true)).map(|named| named.pod);
                let expected: Vec<u32> = holder.into_iter().filter(|pod| api.state.pods.contains_key(pod)).collect();
                let active: Vec<u32> = api.active_pods(place).collect();
                if active == expected {
                    self.recovery.mislabelled.remove(&(cluster, place));
                    continue;
                }
                let since = *self.recovery.mislabelled.entry((cluster, place)).or_insert(self.now);
                if self.now - since > bound {
                    let text = format!(
                        "labels: since {since} µs pods {active:?} of cluster {cluster} are labelled active for lease \
                         {place}, and the status names {expected:?}"
                    );
                    self.check.fail(text);
                }
            }
        }
    }

    /// The holder that the status calls active is the only endpoint of the Service that its lease names, with its current
    /// address.
    fn endpoints_follow(&mut self, bound: Micros) {
        for cluster in 0..self.apis.len() {
            if self.recovery.without_api == Some(cluster) {
                continue;
            }
            for service in 0..self.swarm.keys.len() {
                let (wrong, missing) = self.misrouted(cluster, service);
                // The operator checks a problem again after 30 s.
                let checked_again = bound + 31 * SECOND;
                for (kind, problem, bound) in [(0, wrong, bound), (1, missing, checked_again)] {
                    let Some(problem) = problem else {
                        self.recovery.misrouted.remove(&(cluster, service, kind));
                        continue;
                    };
                    let since = *self.recovery.misrouted.entry((cluster, service, kind)).or_insert(self.now);
                    if self.now - since > bound {
                        self.check.fail(format!(
                            "endpoints: since {since} µs Service {service} of cluster {cluster}: {problem}"
                        ));
                    }
                }
            }
        }
    }

    /// What is wrong with the endpoints of a Service, and what is missing.
    fn misrouted(&self, cluster: usize, service: usize) -> (Option<String>, Option<String>) {
        let state = &self.apis[cluster].state;
        let name = objects::service_name(service);
        let names_it = |lease: &&RedisLease| lease.spec.active_service.as_ref().is_some_and(|of| of.name == name);
        let leases: Vec<&RedisLease> = state.leases.iter().flatten().map(|lease| &**lease).filter(names_it).collect();
        let active = leases.iter().filter_map(|lease| objects::named(lease)).filter(|named| named.active == Some(true));
        let holders: Vec<&Arc<PodFacts>> = active.filter_map(|named| state.pods.get(&named.pod)).collect();
        let mut wrong = None;
        for slice in self.apis[cluster].slices_of(service) {
            for endpoint in &slice.endpoints {
                let holder = holders.iter().find(|pod| pod.uid == endpoint.uid);
                let has = |address: &String| {
                    holder.is_some_and(|pod| pod.addresses.iter().any(|of| of.to_string() == *address))
                };
                if !endpoint.addresses.iter().all(has) {
                    let holders: Vec<&String> = holders.iter().map(|pod| &pod.uid).collect();
                    wrong = Some(format!("{} has the endpoint {endpoint:?}, the holders are {holders:?}", slice.name));
                }
            }
        }
        // If two leases name the Service, the one that uses it may have no holder.
        let families = &self.apis[cluster].services[service].families;
        let has_endpoint = self.apis[cluster].slices_of(service).any(|slice| !slice.endpoints.is_empty());
        let missing = leases.len() == 1 && !holders.is_empty() && !has_endpoint;
        (wrong, missing.then(|| format!("no slice has an endpoint, its families are {families:?}")))
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
                let uid = self.check.resource_of(entry.value.attempt);
                if uid.is_some_and(|uid| !alive.contains(&uid)) {
                    let text = format!("I7: node {node} still has {} of the deleted lease {uid:?}", entry.value);
                    return self.check.fail(text);
                }
            }
        }
    }
}
