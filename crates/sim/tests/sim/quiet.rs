//! The end of a run: every fault is healed, and then the world must be as good as new, in time.

use std::collections::BTreeMap;

use redislease_core::op::Attempt;

use crate::api::{Mode, PodState};
use crate::clock::{MILLI, Micros, SECOND};
use crate::fault::Fault;
use crate::net::Link;
use crate::process::Life;
use crate::server::Memory;
use crate::trace::Note;
use crate::world::{Event, World};

/// What is tried in the quiet, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All faults end.
    Heal,
    /// Wall clocks are synchronised, once everybody has seen the steps.
    Clocks,
    /// I6: everything is held. A holder is deleted and stops.
    Settled,
    /// I6: the next one holds, soon after the proof. That one is deleted by force.
    Released,
    /// I6: the next one holds, after the rest of the TTL. The resource is deleted.
    Expired,
    /// I7: nothing is left of it.
    Gone,
    /// I4, once a second.
    Watch,
}

/// The holder whose end is watched.
#[derive(Clone, Copy, Debug)]
struct Subject {
    of: (usize, usize),
    attempt: Attempt,
    pod: u32,
}

#[derive(Default)]
pub struct Quiet {
    subject: Option<Subject>,
    proof: Option<Micros>,
    /// Statuses that name a term nobody believes in, and since when.
    stale: BTreeMap<(usize, usize), (Attempt, Micros)>,
}

impl Quiet {
    /// A process acted on the proof that this pod stopped.
    pub fn proof_seen(&mut self, now: Micros, pod: u32) {
        if self.subject.is_some_and(|subject| subject.pod == pod) {
            self.proof.get_or_insert(now);
        }
    }
}

impl World {
    pub fn quiet_stage(&mut self, stage: Stage) {
        if stage != Stage::Watch {
            self.note(Note::Quiet(stage as u8));
        }
        let ttl = self.swarm.lease.ttl.0 * MILLI;
        let retry = self.swarm.lease.backoff.max.0 * MILLI;
        let burst = if self.swarm.lease.backoff.limit.is_some() { ttl + ttl / 50 } else { 0 };
        let vacancy = self.swarm.key_life() + retry + burst + 3 * SECOND;
        match stage {
            Stage::Heal => {
                self.heal_all();
                self.after(5 * SECOND, Event::Quiet(Stage::Clocks));
                self.after(5 * SECOND, Event::Quiet(Stage::Watch));
            }
            Stage::Clocks => {
                let residue = if self.swarm.knows(Fault::Step) { 25 * SECOND } else { 0 };
                self.synchronise();
                // A holder may be in the middle of a deletion without a proof.
                let blocked = self.swarm.quarantine().max(12 * SECOND) + 2 * SECOND;
                self.after(residue + blocked + vacancy, Event::Quiet(Stage::Settled));
            }
            Stage::Settled => {
                self.everything_is_held("after the quarantine and the rest of the TTL");
                self.choose_subject();
                if let Some(subject) = self.quiet.subject {
                    self.remove_pod(subject.of.0, subject.pod, false);
                }
                self.after(5 * SECOND, Event::Quiet(Stage::Released));
            }
            Stage::Released => {
                self.next_holds_soon();
                self.choose_subject();
                if let Some(subject) = self.quiet.subject {
                    self.remove_pod(subject.of.0, subject.pod, true);
                }
                self.after(vacancy, Event::Quiet(Stage::Expired));
            }
            Stage::Expired => {
                self.everything_is_held("one TTL after the forced deletion of a holder");
                self.delete_resource(0, 0);
                let rest = 2 * self.swarm.lease.command_timeout.0 * MILLI + SECOND;
                self.after(rest + self.swarm.key_life(), Event::Quiet(Stage::Gone));
            }
            Stage::Gone => {
                self.nothing_is_left();
                self.done = true;
            }
            Stage::Watch => {
                self.no_stale_status(self.swarm.key_life() + retry + 2 * SECOND);
                self.after(SECOND, Event::Quiet(Stage::Watch));
            }
        }
    }

    fn heal_all(&mut self) {
        self.chaos = false;
        self.epoch += 1;
        for node in 0..self.servers.len() {
            self.start_server(node, Memory::Full);
            self.continue_server(node);
        }
        for cluster in 0..self.apis.len() {
            if self.apis[cluster].mode != Mode::Up {
                self.restore_api(cluster);
            }
            for place in 0..self.swarm.keys.len() {
                self.create_resource(cluster, place);
                self.suspend_lease(cluster, place, false);
                let candidates = |pod: &&crate::api::Pod| pod.resource == place && pod.state == PodState::Running;
                for _ in self.apis[cluster].world.pods.values().filter(candidates).count()..2 {
                    self.pod_comes(cluster, place);
                }
            }
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

    fn synchronise(&mut self) {
        if !self.swarm.knows(Fault::Step) {
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
            if !self.check.held(self.now, self.swarm.keys[place]) {
                self.check.fail(format!("I6: {when} nobody holds the keys {:#b}", self.swarm.keys[place]));
            }
        }
    }

    fn choose_subject(&mut self) {
        let now = self.now;
        let mut last = self.check.last.iter().filter(|(_, last)| now < last.until);
        self.quiet.subject = last.find_map(|(&of, last)| {
            let live = self.check.live.iter().find(|live| live.attempt == last.attempt)?;
            Some(Subject { of, attempt: last.attempt, pod: live.pod })
        });
        self.quiet.proof = None;
    }

    /// With one contender the next one holds a quarter of a second after the proof; rivals may meet a few times.
    fn next_holds_soon(&mut self) {
        let Some(subject) = self.quiet.subject else { return };
        let alone = self.swarm.processes.len() == 1 && self.swarm.keys.len() == 1;
        let bound = if alone { 250 * MILLI } else { 3 * SECOND };
        let Some(proof) = self.quiet.proof else {
            let text = format!("I6: nobody acted on the proof that pod {} stopped", subject.pod);
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
                let resource = self.apis[cluster].world.resources[place].as_ref().filter(|resource| resource.active);
                let named = resource.and_then(|resource| resource.term.as_ref()).map(|term| term.attempt);
                let live = |attempt: &Attempt| {
                    self.check.live.iter().any(|live| live.attempt == *attempt && self.now < live.until)
                };
                let Some(attempt) = named.filter(|attempt| !live(attempt)) else {
                    self.quiet.stale.remove(&(cluster, place));
                    continue;
                };
                let entry = self.quiet.stale.entry((cluster, place)).or_insert((attempt, self.now));
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

    fn nothing_is_left(&mut self) {
        let resources = self.apis.iter().flat_map(|api| api.world.resources.iter().flatten());
        let alive: Vec<u32> = resources.map(|resource| resource.uid).collect();
        for (node, server) in self.servers.iter().enumerate() {
            let millis = server.clock.millis(self.now);
            for key in 0..8 {
                let Some(entry) = server.node.entry(&key, millis) else { continue };
                let uid = self.check.resource_of(entry.value.attempt);
                if uid.is_some_and(|uid| !alive.contains(&uid)) {
                    let text = format!("I7: node {node} still has {} of deleted resource {uid:?}", entry.value);
                    return self.check.fail(text);
                }
            }
        }
    }
}
