//! The calls of one process to its API server: drives the machine that the operator ships.

use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::time::Time;
use redislease_plan::engine::Input;
use redislease_plan::plan::Priority;
use redislease_plan::plan::calls::{Answer, Effect, LeaseName, Outcome, Request};

use crate::api::objects;
use crate::api::objects::{NAMESPACE, QUORUM};
use crate::check::coverage::Sight;
use crate::operator::writer::{Pending, Ticket, lease_of};
use crate::world::World;

/// The name of the lease of a unit.
pub fn lease_name(place: usize, uid: u32) -> LeaseName {
    LeaseName {
        namespace: NAMESPACE.into(),
        name: objects::lease_name(place).into(),
        uid: objects::lease_uid(lease_of(uid)).into(),
    }
}

impl World {
    pub fn submit(&mut self, process: usize, request: Request, ticket: Ticket) {
        let now = Time(self.local(process));
        self.processes[process].writer.calls.submit(now, request, ticket);
        self.dispatch(process);
    }

    /// A write of the status of a lease, or of the role of an object. `priority` is what the reconciler asked for.
    pub fn submit_write(&mut self, process: usize, uid: u32, priority: Priority, request: Request) {
        let object = match &request {
            Request::Role { write, .. } => Some(objects::number(&write.uid)),
            _ => None,
        };
        let pending = Pending { not_after: request.not_after(), priority, sent: false };
        self.processes[process].writer.pending.insert((uid, object), pending);
        self.submit(process, request, Ticket::Lease(uid));
    }

    /// The election asks for any answer of the API server.
    pub fn ask_for_an_answer(&mut self, process: usize) {
        let writer = &mut self.processes[process].writer;
        writer.leader_asks = true;
        writer.calls.probe();
        writer.calls.await_answer();
        self.dispatch(process);
    }

    /// Carries out what the machine of calls asks for now.
    pub fn dispatch(&mut self, process: usize) {
        let now = Time(self.local(process));
        let until = self.decides_until(process);
        self.processes[process].writer.calls.decides_until(QUORUM, until);
        while let Some(effect) = self.processes[process].writer.calls.poll_effect(now) {
            match effect {
                Effect::Send(number, request) => self.send_request(process, number, request),
                Effect::Outcome(ticket, outcome) => self.outcome(process, ticket, outcome),
                Effect::Answered => {
                    if std::mem::take(&mut self.processes[process].writer.leader_asks) {
                        self.wake_leader(process);
                    }
                    self.tell_engine(process, Input::ApiAnswered);
                }
                Effect::Unreachable(_) | Effect::Reachable(_) => {}
            }
        }
    }

    fn send_request(&mut self, process: usize, number: u64, request: Arc<Request>) {
        let late = match &*request {
            Request::Role { lease, write, quorum: Some(_) } => {
                let (lease, object) = (objects::number(&lease.uid), objects::number(&write.uid));
                let by = (process, self.processes[process].boot, lease);
                self.running.role_write(&mut self.check, self.now, by, object);
                self.processes[process].writer.sent(lease, Some(object))
            }
            Request::LeaseStatus { object, .. } => self.processes[process].writer.sent(objects::uid_of(object), None),
            _ => None,
        };
        if let Some(uid) = late {
            self.check.fail(format!("order: the urgent status write of lease {uid} waits, and {request} is written"));
        }
        self.send_call(process, number, request);
    }

    pub fn wake_calls(&mut self, process: usize, now: Time) {
        if self.processes[process].writer.calls.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.dispatch(process);
        }
    }

    pub fn api_reply(&mut self, process: usize, number: u64, answer: Answer) {
        if self.processes[process].writer.calls.waits_for(number) {
            let (now, entropy) = (Time(self.local(process)), Entropy(self.rng.word()));
            self.processes[process].writer.calls.answered(now, number, answer, entropy);
            self.dispatch(process);
        }
    }

    fn outcome(&mut self, process: usize, ticket: Ticket, outcome: Outcome) {
        match (ticket, outcome) {
            (Ticket::Lease(uid), outcome) => self.lease_outcome(process, uid, outcome),
            (Ticket::Workload(key), Outcome::Workload(found)) => self.workload_read(process, key, found),
            (Ticket::Orphan(lease, pod), Outcome::Role(_, answer)) => {
                self.tell_engine(process, Input::OrphanWritten { namespace: NAMESPACE.into(), pod, lease, answer });
            }
            (Ticket::Leader, Outcome::Quorum(Ok(Some(quorum)))) => self.leader_read(process, &quorum),
            (Ticket::Leader, Outcome::QuorumStatus(written)) => {
                if let Ok(quorum) = written {
                    self.learn_quorum(process, &quorum);
                }
            }
            (Ticket::Tokens { node, request }, Outcome::Tokens(Ok(token))) => {
                self.tokens_read(process, node, request, token);
            }
            (ticket, outcome) => self.check.fail(format!("{outcome:?} is no outcome for {ticket:?}")),
        }
    }

    /// Records that a write of a lease has an outcome.
    pub fn write_ended(&mut self, process: usize, uid: u32, object: Option<u32>, withdrawn: bool) {
        let now = Time(self.local(process));
        if self.processes[process].writer.has_outcome(now, uid, object) && withdrawn {
            self.coverage.saw(Sight::WriteExpired);
        }
    }
}
