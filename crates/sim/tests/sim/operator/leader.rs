//! The election of one replica on the quorum: the shell around `redislease_plan::plan::Leadership`.

use redislease_core::time::Time;
use redislease_plan::api::RedisQuorum;
use redislease_plan::engine::Input;
use redislease_plan::plan::calls::Request;
use redislease_plan::plan::{
    Authority, Command, Effect as Planned, Granted, Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts,
};

use crate::api::objects;
use crate::api::objects::{NAMESPACE, QUORUM, cluster};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Polled;
use crate::event::{Event, Inside};
use crate::operator::state::{LOCK, Leader, Machine, Process, Ticket};
use crate::redis::clock::{MILLI, Micros};
use crate::world::World;

/// How long a replica that stops waits for the release of its lock.
const LAST_ANSWERS: Micros = 300 * MILLI;

impl World {
    pub fn new_leader(&self, process: usize) -> Option<Leader> {
        let Process { cluster: of, boot, .. } = self.processes[process];
        let machine = || Leadership::new(cluster(of), objects::instance(process), format!("start-{boot}"));
        self.swarm.elects.then(|| Leader { machine: machine(), named: (0, None), due: false, asks: false })
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
                named: leader.named.1.clone(),
                api_answered_at: operator.calls.answered_at(),
            };
            leader.machine.turn(now, news, &facts);
            self.drain_leader(process);
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
                let operator = &mut self.processes[process];
                operator.leader.iter_mut().for_each(|leader| leader.asks = true);
                operator.calls.await_answer();
                self.probe(process);
            }
            LeadershipEffect::ReadQuorum => {
                let request = Request::Quorum { namespace: NAMESPACE.into(), name: QUORUM.into() };
                self.submit(process, request, Ticket::Leader);
            }
            LeadershipEffect::Claim => self.claim_leadership(process),
            LeadershipEffect::Authority(authority) => {
                if authority == Authority::Lead {
                    self.claim_leadership(process);
                }
                self.tell_engine(process, Input::Authority(QUORUM.into(), authority));
            }
        }
    }

    /// Writes the leader with the version that was read. One write for each change.
    fn claim_leadership(&mut self, process: usize) {
        let Some(leader) = &self.processes[process].leader else { return };
        let instance = objects::instance(process);
        if leader.named.1.as_ref() != Some(&instance) {
            let quorum = objects::quorum(leader.named.0, Some(instance));
            self.submit(process, Request::QuorumStatus(Box::new(quorum)), Ticket::Leader);
        }
    }

    /// Takes the leader that a version of the `RedisQuorum` names.
    pub fn learn_leader(&mut self, process: usize, named: (u64, Option<String>)) {
        let Some(leader) = &mut self.processes[process].leader else { return };
        if named.0 > leader.named.0 {
            leader.named = named;
            self.wake_leader(process);
            // A claim of another replica has replaced the name of the leader: its next status restores it.
            if self.authority(process) == Authority::Lead {
                self.claim_leadership(process);
            }
        }
    }

    pub fn leader_read(&mut self, process: usize, quorum: &RedisQuorum) {
        let now = Time(self.local(process));
        let named = objects::leader_of(quorum);
        self.learn_leader(process, named.clone());
        if let Some(leader) = &mut self.processes[process].leader {
            leader.machine.handle(now, LeadershipEvent::QuorumRead(Ok(named.1)));
            self.wake_leader(process);
        }
    }

    pub fn leader_timer(&mut self, process: usize, now: Time) {
        let deadline = self.processes[process].leader.as_ref().and_then(|leader| leader.machine.next_deadline());
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.wake_leader(process);
        }
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
