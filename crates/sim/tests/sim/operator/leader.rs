//! The election of one replica on the quorum: the shell around `redislease_plan::plan::Leadership`.

use redislease_core::time::Time;
use redislease_plan::api::{RedisQuorum, RedisQuorumStatus};
use redislease_plan::engine::Input;
use redislease_plan::plan::calls::{CallError, Request};
use redislease_plan::plan::{
    Authority, Command, Effect as Planned, Granted, Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts,
};

use crate::api::objects;
use crate::api::objects::{NAMESPACE, QUORUM, cluster};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::event::{Event, Inside};
use crate::operator::state::{LOCK, Leader, Machine, Process, Ticket};
use crate::redis::clock::{MILLI, Micros, SECOND};
use crate::world::World;

/// How often the status of the quorum is compared without an event.
const COMPARED_EVERY: Micros = 15 * SECOND;
/// How long a replica that stops waits for the release of its lock.
const LAST_ANSWERS: Micros = 300 * MILLI;

impl World {
    pub fn new_leader(&self, process: usize) -> Option<Leader> {
        let Process { cluster: of, boot, .. } = self.processes[process];
        let machine = Leadership::new(cluster(of), objects::instance(process), format!("start-{boot}"));
        let (status_writer, shown) = Default::default();
        self.swarm.elects.then_some(Leader { machine, status_writer, shown, due: false })
    }

    /// The authority of this process, and the lock on which it depends.
    fn granted(&self, process: usize) -> (Granted, Option<&Machine>) {
        let for_ever = |authority| (Granted { authority, named_until: Some(Time(u64::MAX)) }, None);
        match &self.processes[process].leader {
            None => for_ever(Authority::Lead),
            Some(leader) if self.is(Bug::AuthorityDoesNotEnd) => for_ever(leader.machine.authority()),
            Some(leader) => (leader.machine.granted(), self.processes[process].machine_of(LOCK)),
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
        let delay = self.rng.between(20, 500);
        let Some(leader) = self.processes[process].leader.as_mut().filter(|leader| !leader.due) else { return };
        leader.due = true;
        self.later(process, delay, Inside::LeaderTurn);
    }

    pub fn leader_turn(&mut self, process: usize) {
        let now = Time(self.local(process));
        let operator = &mut self.processes[process];
        let news = operator.news(LOCK);
        let Some(leader) = &mut operator.leader else { return };
        leader.due = false;
        let quorum = &operator.quorum;
        if quorum.read {
            let facts = LeadershipFacts {
                quorum: quorum.open.clone(),
                quorum_lost: quorum.evaluated && quorum.up < self.swarm.quorum.majority(),
                named: objects::leader_of(&leader.shown.1).map(str::to_owned),
                api_answered_at: operator.calls.answered_at(),
            };
            leader.machine.turn(now, news, &facts);
            if !facts.quorum_lost {
                leader.status_writer.withdraw_claim();
            }
            self.drain_leader(process);
            self.write_quorum(process);
        }
    }

    pub fn drain_leader(&mut self, process: usize) {
        let (boot, mut again) = (self.processes[process].boot, None);
        while self.polls_on(process, boot, "the election") {
            let Some(leader) = &mut self.processes[process].leader else { return };
            let Some(effect) = again.take().or_else(|| leader.machine.poll_effect()) else { return };
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
            LeadershipEffect::Claim => {
                self.processes[process].leader.iter_mut().for_each(|leader| leader.status_writer.claim());
            }
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
        let grant = (self.authority(process), self.processes[process].machine_of(LOCK).is_some());
        let Process { leader, quorum, votes, .. } = &mut self.processes[process];
        let Some(Leader { status_writer, shown: (version, shown), .. }) = leader else { return };
        let (instance, majority) = (objects::instance(process), self.swarm.quorum.majority());
        let compose = |leads: bool| {
            let composed = objects::compose(shown, wall, votes, majority, leads.then_some(&instance));
            (quorum.evaluated && composed.status != *shown).then_some(composed)
        };
        if let Some(status) = status_writer.next(now, grant, Some(shown), compose) {
            let written = objects::quorum((*version, status));
            self.submit(process, Request::QuorumStatus(Box::new(written)), Ticket::Leader);
        }
    }

    pub fn quorum_written(&mut self, process: usize, outcome: &Result<Box<RedisQuorum>, CallError>) {
        let (now, loses_claims) = (Time(self.local(process)), self.is(Bug::ClaimLost));
        let Some(Leader { status_writer, .. }) = &mut self.processes[process].leader else { return };
        status_writer.ended(now, outcome.as_ref().map(|_| ()));
        if loses_claims {
            status_writer.withdraw_claim();
        }
        if let Ok(quorum) = outcome {
            self.quorum_seen(process, objects::status_of(quorum));
        }
        self.wake_leader(process);
    }

    /// Takes a version of the `RedisQuorum`.
    pub fn quorum_seen(&mut self, process: usize, seen: (u64, RedisQuorumStatus)) {
        let now = Time(self.local(process));
        let Some(leader) = &mut self.processes[process].leader else { return };
        if seen.0 > leader.shown.0 {
            leader.status_writer.shown(now, Some(&seen.1));
            leader.shown = seen;
            self.wake_leader(process);
        }
    }

    pub fn leader_read(&mut self, process: usize, quorum: &RedisQuorum) {
        let (now, read) = (Time(self.local(process)), objects::status_of(quorum));
        let named = objects::leader_of(&read.1).map(str::to_owned);
        self.quorum_seen(process, read);
        let Some(leader) = &mut self.processes[process].leader else { return };
        leader.machine.handle(now, LeadershipEvent::QuorumRead(Ok(named)));
        self.wake_leader(process);
    }

    /// A graceful stop: the lock is released, published terms are left for the next process.
    pub fn stop_gracefully(&mut self, process: usize) {
        let (now, boot) = (Time(self.local(process)), self.processes[process].boot);
        if let Some(leader) = &mut self.processes[process].leader {
            leader.machine.handle(now, LeadershipEvent::Stop);
            self.drain_leader(process);
        } else {
            for serial in self.serials(process) {
                self.command(process, serial, Command::Close);
            }
        }
        self.after(LAST_ANSWERS, Event::Exit { process, boot });
    }
}
