//! The election of one replica on the quorum: the shell around `redislease_plan::plan::Leadership`.

use redislease_core::time::Time;
use redislease_plan::api::RedisQuorum;
use redislease_plan::engine::Input;
use redislease_plan::plan::calls::Request;
use redislease_plan::plan::{
    Authority, Command, Effect as Planned, Leadership, LeadershipEffect, LeadershipEvent, LeadershipFacts, News,
};

use crate::api::objects;
use crate::api::objects::{NAMESPACE, QUORUM, cluster};
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::event::{Event, Inside};
use crate::operator::state::{LOCK, Leader, Machine, Polled, Ticket, instance};
use crate::redis::clock::{MILLI, Micros};
use crate::world::World;

/// How long a replica that stops waits for the release of its lock.
const LAST_ANSWERS: Micros = 300 * MILLI;

impl World {
    pub fn new_leader(&self, process: usize) -> Option<Leader> {
        let Self { swarm, processes, .. } = self;
        let of = &processes[process];
        let machine = Leadership::new(cluster(of.cluster), instance(process), format!("start-{}", of.boot));
        let leader = Leader { machine, named: (0, None), views: None, due: false, asks: false };
        swarm.elects.then_some(leader)
    }

    /// What this process may decide now.
    pub fn authority(&self, process: usize) -> Authority {
        let Some(leader) = &self.processes[process].leader else { return Authority::Lead };
        if self.is(Bug::AuthorityDoesNotEnd) {
            return leader.machine.authority();
        }
        let now = Time(self.local(process));
        leader.machine.granted().at(now, self.lock(process).map(Machine::stop_at))
    }

    /// Until when this process decides about leases.
    pub fn decides_until(&self, process: usize) -> Time {
        let leader = self.processes[process].leader.as_ref().filter(|_| !self.is(Bug::AuthorityDoesNotEnd));
        let lock_until = self.lock(process).map(Machine::stop_at);
        leader.map_or(Time(u64::MAX), |leader| leader.machine.granted().decides_until(lock_until))
    }

    /// The lock on which the authority of this process depends.
    fn lock(&self, process: usize) -> Option<&Machine> {
        self.processes[process].machine_of(LOCK)
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
        let quorum = operator.quorum.clone();
        let api_answered_at = operator.calls.answered_at();
        let majority = self.swarm.quorum.majority();
        let news = if quorum.read { operator.news(LOCK) } else { News::default() };
        let Some(leader) = &mut operator.leader else { return };
        leader.due = false;
        if !quorum.read {
            return;
        }
        let facts = LeadershipFacts {
            quorum: quorum.open.clone(),
            quorum_lost: quorum.evaluated && quorum.up < majority,
            named: leader.named.1.clone(),
            api_answered_at,
        };
        leader.machine.turn(now, news, &facts);
        self.drain_leader(process);
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
        match effect {
            LeadershipEffect::Open { quorum, config } => {
                let order = Planned::Open { quorum: Some(quorum), keys: Vec::new(), config };
                self.send_order(process, LOCK, order);
            }
            LeadershipEffect::Keeper(command) => {
                if matches!(command, Command::End { .. }) {
                    self.coverage.saw(Sight::LeadershipReleased);
                }
                self.send_order(process, LOCK, Planned::Keeper(command));
            }
            LeadershipEffect::Probe => self.ask_for_an_answer(process),
            LeadershipEffect::ReadQuorum => {
                let request = Request::Quorum { namespace: NAMESPACE.into(), name: QUORUM.into() };
                self.submit(process, request, Ticket::Leader);
            }
            LeadershipEffect::Claim => self.claim_leadership(process),
            LeadershipEffect::Authority(authority) => {
                self.note(Note::Authority { process, authority });
                self.coverage.saw(Sight::of_authority(authority));
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
        let instance = instance(process);
        if leader.named.1.as_ref() != Some(&instance) {
            let quorum = objects::quorum(leader.named.0, Some(instance));
            self.submit(process, Request::QuorumStatus(Box::new(quorum)), Ticket::Leader);
        }
    }

    pub fn learn_leader(&mut self, process: usize, version: u64, named: Option<String>) {
        let Some(leader) = &mut self.processes[process].leader else { return };
        if version > leader.named.0 {
            leader.named = (version, named);
            self.wake_leader(process);
            // A claim of another replica has replaced the name of the leader: its next status restores it.
            if self.authority(process) == Authority::Lead {
                self.claim_leadership(process);
            }
        }
    }

    /// The `RedisQuorum` in an answer.
    pub fn learn_quorum(&mut self, process: usize, quorum: &RedisQuorum) -> Option<String> {
        let (version, named) = objects::leader_of(quorum);
        self.learn_leader(process, version, named.clone());
        named
    }

    pub fn leader_read(&mut self, process: usize, quorum: &RedisQuorum) {
        let now = Time(self.local(process));
        let named = self.learn_quorum(process, quorum);
        if let Some(leader) = &mut self.processes[process].leader {
            leader.machine.handle(now, LeadershipEvent::QuorumRead(Ok(named)));
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
