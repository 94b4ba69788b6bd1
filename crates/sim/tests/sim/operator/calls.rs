//! The calls of one process to its API server: drives the machine that the operator ships.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redislease_core::backoff::Entropy;
use redislease_core::time::Time;
use redislease_plan::api::names::PodRole;
use redislease_plan::engine::Input;
use redislease_plan::index::WorkloadKey;
use redislease_plan::plan::calls::{Answer, Calls, Effect, LeaseName, Outcome, Request};
use redislease_plan::plan::{Priority, StatusOutcome};

use crate::api::objects::{self, NAMESPACE, QUORUM};
use crate::check::coverage::Sight;
use crate::operator::engine::lease_of;
use crate::operator::process::Process;
use crate::redis::clock::Micros;
use crate::world::{Event, World};

/// The caller of a call.
#[derive(Clone, Debug)]
pub enum Ticket {
    /// The unit of a lease.
    Lease(u32),
    Workload(WorkloadKey),
    /// The role of a lease that does not exist: its name, and the object's UID.
    Orphan(String, String),
    Leader,
    /// The admission of a node. `request` is [`Peer::tokens_asked`].
    ///
    /// [`Peer::tokens_asked`]: crate::operator::admission::Peer::tokens_asked
    Tokens {
        node: usize,
        request: u64,
    },
}

/// A write of a lease without an outcome so far.
struct Pending {
    not_after: Option<Time>,
    /// As the reconciler asked for it.
    priority: Priority,
    sent: bool,
}

pub struct Writer {
    pub calls: Calls<Ticket>,
    /// By unit; with the pod or workload for a write of a role, without it for a write of the status.
    pending: BTreeMap<(u32, Option<u32>), Pending>,
    /// The leases whose last write of the status was refused: the next one may have to wait.
    refused: BTreeSet<u32>,
    /// Whether the election waits for any answer of the API server.
    leader_asks: bool,
    wake_at: Option<Micros>,
}

impl Writer {
    pub fn new(concurrency: usize) -> Self {
        Self {
            calls: Calls::new(concurrency),
            pending: BTreeMap::new(),
            refused: BTreeSet::new(),
            leader_asks: false,
            wake_at: None,
        }
    }

    /// Whether a write of the status, or of the role of an object, has no outcome yet.
    pub fn has(&self, uid: u32, object: Option<u32>) -> bool {
        self.pending.contains_key(&(uid, object))
    }

    /// The role writes of one lease without an outcome.
    pub fn roles_of(&self, uid: u32) -> usize {
        self.pending.keys().filter(|(unit, object)| *unit == uid && object.is_some()).count()
    }

    /// Whether a pod's label `active` is being written.
    pub fn is_labelling_active(&self) -> bool {
        let active =
            |call: &Request| matches!(call, Request::Role { write, .. } if write.role == Some(PodRole::Active));
        self.calls.in_flight().any(active)
    }

    /// A write has an outcome. Returns whether its deadline has passed.
    pub fn has_outcome(&mut self, now: Time, uid: u32, object: Option<u32>) -> bool {
        let pending = self.pending.remove(&(uid, object));
        pending.and_then(|pending| pending.not_after).is_some_and(|until| until <= now)
    }

    pub fn status_written(&mut self, uid: u32, outcome: &StatusOutcome) {
        match outcome {
            StatusOutcome::Written(_) => _ = self.refused.remove(&lease_of(uid)),
            StatusOutcome::Conflict | StatusOutcome::Gone | StatusOutcome::Refused(_) => {
                self.refused.insert(lease_of(uid));
            }
            StatusOutcome::Unanswered(_) | StatusOutcome::Withdrawn => {}
        }
    }

    /// A write is sent. Returns a lease whose more urgent write waits although nothing delays it.
    fn sent(&mut self, lease: u32, object: Option<u32>) -> Option<u32> {
        let of = |unit: &u32, which: &Option<u32>| lease_of(*unit) == lease && *which == object;
        let sent = self.pending.iter_mut().find(|((unit, which), pending)| of(unit, which) && !pending.sent);
        let (_, sent) = sent?;
        sent.sent = true;
        if sent.priority != Priority::Counts {
            return None;
        }
        // After a list that lacked the lease, the write of its earlier unit may still be under way.
        let is_busy = |of: u32| {
            self.pending.iter().any(|((unit, which), pending)| {
                which.is_none() && pending.sent && *unit != of && lease_of(*unit) == lease_of(of)
            })
        };
        let waits = |((unit, which), pending): &(&(u32, Option<u32>), &Pending)| {
            let is_urgent = matches!(pending.priority, Priority::End | Priority::Publication);
            which.is_none() && is_urgent && !pending.sent && !self.refused.contains(&lease_of(*unit)) && !is_busy(*unit)
        };
        self.pending.iter().find(waits).map(|((unit, _), _)| *unit)
    }
}

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
        self.dispatch_later(process);
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

    fn dispatch_later(&mut self, process: usize) {
        let Process { writer, clock, boot, .. } = &mut self.processes[process];
        let Some(deadline) = writer.calls.next_deadline() else { return };
        let at = clock.when(deadline.0).max(self.now);
        if writer.wake_at.is_none_or(|earlier| at < earlier || earlier < self.now) {
            writer.wake_at = Some(at);
            let boot = *boot;
            self.at(at, Event::Dispatch { process, boot });
        }
    }

    pub fn dispatch_timer(&mut self, process: usize) {
        let writer = &mut self.processes[process].writer;
        if writer.wake_at.is_some_and(|at| at <= self.now) {
            writer.wake_at = None;
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
