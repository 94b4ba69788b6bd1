//! The calls of one process to its API server: drives the machine that the operator ships.

use redislease_core::backoff::Entropy;
use redislease_core::time::Time;
use redislease_plan::engine::Input;
use redislease_plan::plan::calls::{Answer, Effect, Key, Outcome, Request};

use crate::api::objects::QUORUM;
use crate::operator::state::Ticket;
use crate::world::World;

impl World {
    pub fn submit(&mut self, process: usize, request: Request, ticket: Ticket) {
        let now = Time(self.local(process));
        self.processes[process].calls.submit(now, request, ticket);
        self.dispatch(process);
    }

    pub fn withdraw(&mut self, process: usize, key: &Key) {
        self.processes[process].calls.withdraw(key);
        self.dispatch(process);
    }

    pub fn probe(&mut self, process: usize) {
        self.processes[process].calls.probe();
        self.dispatch(process);
    }

    /// Carries out what the machine of calls asks for now.
    pub fn dispatch(&mut self, process: usize) {
        let now = Time(self.local(process));
        let until = self.decides_until(process);
        self.processes[process].calls.decides_until(QUORUM, until);
        while let Some(effect) = self.processes[process].calls.poll_effect(now) {
            if self.crashes_before_effect(process) {
                return;
            }
            match effect {
                Effect::Send(number, request) => {
                    self.sees_request(process, &request);
                    self.send_call(process, number, request);
                }
                Effect::Outcome(ticket, outcome) => self.outcome(process, ticket, outcome),
                Effect::Answered => {
                    let quorum = self.processes[process].quorum.as_ref();
                    if quorum.is_some_and(|quorum| quorum.leadership().awaits_api_answer()) {
                        self.wake_leader(process);
                    }
                    self.tell_engine(process, Input::ApiAnswered);
                }
                Effect::Unreachable(_) | Effect::Reachable(_) => {}
            }
        }
    }

    pub fn api_reply(&mut self, process: usize, number: u64, answer: Answer) {
        if self.processes[process].calls.waits_for(number) {
            let (now, entropy) = (Time(self.local(process)), Entropy(self.rng.word()));
            self.processes[process].calls.answered(now, number, answer, entropy);
            self.dispatch(process);
        }
    }

    fn outcome(&mut self, process: usize, ticket: Ticket, outcome: Outcome) {
        match (ticket, outcome) {
            (Ticket::Engine(caller), outcome) => self.engine_outcome(process, caller, outcome),
            (Ticket::Leader, Outcome::Quorum(Ok(Some(quorum)))) => self.leader_read(process, quorum),
            (Ticket::Leader, Outcome::QuorumStatus(outcome)) => self.quorum_written(process, outcome),
            (Ticket::Tokens { node, request }, Outcome::Tokens(Ok(token))) => {
                self.tokens_read(process, node, request, token);
            }
            (ticket, outcome) => self.check.fail(format!("{outcome:?} is no outcome for {ticket:?}")),
        }
    }
}
