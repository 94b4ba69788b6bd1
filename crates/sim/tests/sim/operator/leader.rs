//! The quorum in one process: the shell around `redislease_plan::plan::QuorumReconciler`.

use redislease_core::time::Time;
use redislease_plan::api::{RedisQuorum, RedisQuorumStatus};
use redislease_plan::engine::{Input, Watched};
use redislease_plan::index::NamespaceFacts;
use redislease_plan::plan::calls::{CallError, Request};
use redislease_plan::plan::{
    Authority, Command, Effect as Planned, Granted, LeadershipEffect, ObservedQuorum, QuorumReconciler, all_tried,
};

use crate::api::objects;
use crate::api::objects::{NAMESPACE, QUORUM, cluster};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::event::{Event, Inside};
use crate::operator::state::{LOCK, Machine, Process, Ticket};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// How often the status of the quorum is compared without an event.
const COMPARED_EVERY: Micros = 15 * SECOND;
/// How long a replica that stops waits for the release of its lock.
const LAST_ANSWERS: Micros = 300 * MILLI;

impl World {
    pub fn new_quorum(&self, process: usize) -> QuorumReconciler {
        let Process { cluster: of, boot, .. } = self.processes[process];
        QuorumReconciler::new(cluster(of), objects::instance(process), format!("start-{boot}"))
    }

    /// What the process knows about the quorum beside its resource.
    fn observed_quorum(&self, process: usize) -> ObservedQuorum {
        let operator = &self.processes[process];
        let resource = &self.quorum_resources[operator.cluster];
        ObservedQuorum {
            open: Some(resource.open.clone()),
            nodes: objects::nodes(operator.peers.iter().map(|peer| peer.shown.0)),
            tried: all_tried(operator.peers.iter().map(|peer| peer.shown)),
            mismatch: None,
            secrets_read: true,
            secret_problem: resource.no_secret.then(|| "its secret is missing".into()),
        }
    }

    /// The authority of this process, and the lock on which it depends.
    pub fn granted(&self, process: usize) -> (Granted, Option<&Machine>) {
        let for_ever = |authority, gains| (Granted { authority, named_until: Some(Time(u64::MAX)), gains }, None);
        let quorum = self.processes[process].quorum.as_ref().filter(|_| self.swarm.elects);
        match quorum.map(QuorumReconciler::leadership) {
            None => for_ever(Authority::Lead, 0),
            Some(leadership) if self.is(Bug::AuthorityDoesNotEnd) => {
                for_ever(leadership.authority(), leadership.granted().gains)
            }
            Some(leadership) => (leadership.granted(), self.processes[process].machine_of(LOCK)),
        }
    }

    /// What this process may decide now.
    pub fn authority(&self, process: usize) -> Authority {
        let (granted, lock) = self.granted(process);
        granted.at(Time(self.local(process)), lock.map(Machine::stop_at))
    }

    /// Until when this process decides about leases.
    pub fn decides_until(&self, process: usize) -> Time {
        let (granted, lock) = self.granted(process);
        granted.decides_until(lock.map(Machine::stop_at))
    }

    pub fn wake_leader(&mut self, process: usize) {
        if self.swarm.elects && !std::mem::replace(&mut self.processes[process].leader_due, true) {
            let delay = self.rng.between(20, 500);
            self.later(process, delay, Inside::LeaderTurn);
        }
    }

    pub fn leader_turn(&mut self, process: usize) {
        let (now, observed) = (Time(self.local(process)), self.observed_quorum(process));
        let operator = &mut self.processes[process];
        let (news, api_answered_at) = (operator.news(LOCK), operator.calls.answered_at());
        operator.leader_due = false;
        if let Some(quorum) = operator.quorum.as_mut().filter(|quorum| quorum.resource().is_some()) {
            quorum.turn(now, news, &observed, api_answered_at);
            self.drain_leader(process);
            self.write_quorum(process);
        }
    }

    pub fn drain_leader(&mut self, process: usize) {
        let (boot, mut again) = (self.processes[process].boot, None);
        while self.polls_on(process, boot, "the election") {
            let Some(quorum) = &mut self.processes[process].quorum else { return };
            let Some(effect) = again.take().or_else(|| quorum.poll_effect()) else { return };
            again = self.is(Bug::LeaderEffectRepeated).then(|| effect.clone());
            self.perform(process, Polled::Leader(effect));
        }
    }

    pub fn carry_out_leader(&mut self, process: usize, effect: LeadershipEffect) {
        self.sees_leadership(process, &effect);
        match effect {
            LeadershipEffect::Open { quorum, config } => {
                let order = Planned::Open { quorum: Some(quorum), keys: Vec::new(), config };
                self.send_order(process, LOCK, order);
            }
            LeadershipEffect::Keeper(command) => self.send_order(process, LOCK, Planned::Keeper(command)),
            LeadershipEffect::Probe => {
                self.processes[process].calls.await_answer();
                self.probe(process);
            }
            LeadershipEffect::ReadQuorum => {
                let request = Request::Quorum { namespace: NAMESPACE.into(), name: QUORUM.into() };
                self.submit(process, request, Ticket::Leader);
            }
            LeadershipEffect::Claim => {}
            LeadershipEffect::Authority(authority) => {
                self.tell_engine(process, Input::Authority(QUORUM.into(), authority));
            }
        }
    }

    pub fn compare_quorum(&mut self, process: usize) {
        self.write_quorum(process);
        self.later(process, COMPARED_EVERY, Inside::CompareQuorum);
    }

    /// Writes the status of the quorum with the version that was seen, if it is to be written now.
    fn write_quorum(&mut self, process: usize) {
        let (now, wall) = (Time(self.local(process)), objects::timestamp(self.now));
        let (authority, observed) = (self.authority(process), self.observed_quorum(process));
        let Some(quorum) = &mut self.processes[process].quorum else { return };
        if let (_, Some(written)) = quorum.next_status(now, wall, authority, &observed) {
            self.submit(process, Request::QuorumStatus(Box::new(written)), Ticket::Leader);
        }
    }

    pub fn quorum_written(&mut self, process: usize, outcome: Result<Box<RedisQuorum>, CallError>) {
        let now = Time(self.local(process));
        let Some(quorum) = &mut self.processes[process].quorum else { return };
        quorum.status_written(now, outcome);
        self.wake_leader(process);
    }

    /// All quorums have been read. No namespace has labels.
    pub fn quorum_read(&mut self, process: usize) {
        if self.processes[process].quorum.as_ref().is_some_and(|quorum| quorum.resource().is_none()) {
            self.quorum_seen(process, (0, RedisQuorumStatus::default()), false);
        }
        for place in 0..self.swarm.keys.len() {
            let facts = NamespaceFacts::unlabelled(objects::namespace(place));
            self.tell_engine(process, Input::Namespace(Watched::Seen(Box::new(facts))));
        }
        self.tell_engine(process, Input::QuorumsRead);
    }

    /// Takes a version of the `RedisQuorum`.
    pub fn quorum_seen(&mut self, process: usize, seen: (u64, RedisQuorumStatus), listed: bool) {
        let operator = &mut self.processes[process];
        let spec = self.quorum_resources[operator.cluster].spec.clone();
        let Some(quorum) = &mut operator.quorum else { return };
        quorum.take(objects::quorum(spec, seen), listed);
        self.quorum_changed(process);
        self.wake_leader(process);
    }

    pub fn quorum_edited(&mut self, process: usize) {
        let quorum = self.processes[process].quorum.as_ref();
        if let Some(seen) = quorum.and_then(QuorumReconciler::resource).map(objects::status_of) {
            self.quorum_seen(process, seen, false);
        }
    }

    /// The engine learns what has changed.
    pub fn quorum_changed(&mut self, process: usize) {
        let observed = self.observed_quorum(process);
        let quorum = self.processes[process].quorum.as_mut().filter(|quorum| quorum.resource().is_some());
        if let Some(change) = quorum.and_then(|quorum| quorum.change(&observed)) {
            let authority = self.authority(process);
            self.tell_engine(process, Input::Quorum { name: QUORUM.into(), facts: change.facts, authority });
            self.wake_leader(process);
        }
    }

    pub fn leader_read(&mut self, process: usize, quorum: Box<RedisQuorum>) {
        let now = Time(self.local(process));
        let Some(machine) = &mut self.processes[process].quorum else { return };
        machine.quorum_read(now, Ok(Some(quorum)));
        self.quorum_changed(process);
        self.wake_leader(process);
    }

    /// A graceful stop: the lock is released, published terms are left for the next process.
    pub fn stop_gracefully(&mut self, process: usize) {
        let boot = self.processes[process].boot;
        if let Some(quorum) = self.processes[process].quorum.as_mut().filter(|_| self.swarm.elects) {
            quorum.stop();
            self.drain_leader(process);
        } else {
            for serial in self.serials(process) {
                self.command(process, serial, Command::Close);
            }
        }
        self.after(LAST_ANSWERS, Event::Exit { process, boot });
    }
}
