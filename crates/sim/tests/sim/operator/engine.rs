//! The operator's engine: owns the reconcilers, records events, and runs one turn for each lease that an event concerns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redislease_core::lease::{Refusal, Standing, View};
use redislease_core::op::{Attempt, Stage, Stored};
use redislease_core::time::{Millis, Time};
use redislease_plan::api::RedisLease;
use redislease_plan::election::PodFacts;
use redislease_plan::index::{LeaseId, Snapshot};
use redislease_plan::plan::{
    Allowed, Authority, Effect, Event as Input, Facts, Identity, PermitUse, PermitUses, Permitted, PodKnowledge,
    Reconciler,
};

use crate::api::objects::{self, NAMESPACE, QUORUM};
use crate::api::server::{Change, State};
use crate::api::watch::{Kind, Step};
use crate::chaos::bug::Bug;
use crate::chaos::fault::Fault;
use crate::check::coverage::Sight;
use crate::check::trace::{Brief, Note};
use crate::operator::keeper::Machine;
use crate::operator::process::{BeforeEffect, Life};
use crate::redis::clock::{MILLI, Micros};
use crate::world::{EFFECTS_AT_ONE_INSTANT, Event, World};

/// The difference between the numbers of units for the same lease.
const AGAIN: u32 = 1_000_000;

/// One lease in one process.
pub struct Unit {
    pub id: LeaseId,
    /// The number of the lease's UID. If an old list lacks the lease, and it is seen again later, the index takes it for
    /// another lease. The unit of that has a greater number: [`lease_of`] is the same.
    pub uid: u32,
    pub place: usize,
    pub reconciler: Reconciler,
    /// The events since the last turn.
    pub answers: VecDeque<Input>,
    /// How many machines are still to be opened: views of an earlier one are ignored.
    pub opening: u32,
    /// Whether a turn is scheduled.
    pub due: bool,
    wake_at: Option<Micros>,
    /// An effect that was polled when the process was paused. It is carried out when the process continues.
    pub held_back: Option<Effect>,
    /// The permits of the last turn, and their use after it.
    permitted: Permitted,
    permits_used: PermitUses,
    pub checks: super::effects::Checks,
}

impl Unit {
    fn new(id: LeaseId, uid: u32, identity: Identity) -> Self {
        Self {
            id,
            uid,
            place: objects::number(&identity.name) as usize,
            reconciler: Reconciler::new(identity),
            answers: VecDeque::new(),
            opening: 0,
            due: false,
            wake_at: None,
            held_back: None,
            permitted: Permitted::ALL,
            permits_used: PermitUses::default(),
            checks: super::effects::Checks::default(),
        }
    }
}

impl World {
    pub fn unit(&mut self, process: usize, uid: u32) -> Option<&mut Unit> {
        self.processes[process].units.iter_mut().find(|unit| unit.uid == uid)
    }

    /// Schedules one turn for the lease, for all events until then.
    pub fn wake_unit(&mut self, process: usize, uid: u32) {
        let (low, high) = if self.chaos { self.swarm.engine_delay } else { (20, MILLI) };
        let delay = self.rng.between(low, high);
        let boot = self.processes[process].boot;
        let Some(unit) = self.unit(process, uid).filter(|unit| !unit.due) else { return };
        unit.due = true;
        self.after(delay, Event::Turn { process, boot, uid });
    }

    /// Records an event of the lease for the next turn.
    pub fn answer(&mut self, process: usize, uid: u32, answer: Input) {
        if let Some(unit) = self.unit(process, uid) {
            unit.answers.push_back(answer);
            self.wake_unit(process, uid);
        }
    }

    /// An event of a watch.
    pub fn watched(&mut self, process: usize, kind: Kind, step: Step) {
        let no_grace = self.is(Bug::NextStartsTooEarly);
        let now = Time(self.local(process));
        match step {
            Step::ListBegins => {
                let index = &mut self.processes[process].index;
                match kind {
                    Kind::Leases => index.lease_list_begins(),
                    Kind::Pods => index.pod_list_begins(),
                }
            }
            Step::Listed { state, is_stale } => self.listed(process, kind, &state, is_stale),
            Step::Changed(Change::Lease { version, lease, deleted }) => {
                self.observed(process, version);
                if deleted {
                    self.processes[process].index.lease_gone(&lease.metadata);
                } else {
                    self.lease_seen(process, &lease);
                }
            }
            Step::Changed(Change::Pod { version, facts, deleted }) => {
                self.observed(process, version);
                let index = &mut self.processes[process].index;
                if deleted {
                    index.pod_deleted(&facts, now);
                } else {
                    let mut facts = PodFacts::clone(&facts);
                    if no_grace && facts.deletion_grace.is_some() {
                        facts.deletion_grace = Some(Duration::ZERO);
                    }
                    index.pod_seen(facts, now);
                }
            }
            Step::Changed(Change::Quorum { version, leader }) => self.learn_leader(process, version, leader),
        }
        self.wake_marked(process);
    }

    /// A list is complete. It can be older than what is known.
    fn listed(&mut self, process: usize, kind: Kind, state: &State, is_stale: bool) {
        let now = Time(self.local(process));
        if is_stale && state.version < self.processes[process].newest {
            self.hit(Fault::StaleList, Some(process));
        }
        match kind {
            Kind::Leases => {
                self.learn_leader(process, state.leader.0, state.leader.1.clone());
                for lease in state.leases.iter().flatten() {
                    self.lease_seen(process, lease);
                }
                let operator = &mut self.processes[process];
                operator.index.lease_list_ends(now);
                operator.floor_complete = true;
            }
            Kind::Pods => {
                let index = &mut self.processes[process].index;
                state.pods.values().for_each(|facts| index.pod_seen(PodFacts::clone(facts), now));
                index.pod_list_ends(now);
            }
        }
    }

    /// Records the version of an observed object.
    pub fn observed(&mut self, process: usize, version: u64) {
        let newest = &mut self.processes[process].newest;
        *newest = version.max(*newest);
    }

    fn lease_seen(&mut self, process: usize, lease: &RedisLease) {
        let now = Time(self.local(process));
        let operator = &mut self.processes[process];
        let Some(id) = operator.index.lease_seen(lease.clone(), now) else { return };
        let Some(entry) = operator.index.lease(id) else { return };
        let identity = Identity {
            cluster: objects::cluster(operator.cluster),
            namespace: entry.namespace.to_string(),
            name: entry.name.clone(),
            uid: entry.uid.clone(),
        };
        let uid = objects::uid_of(lease);
        let earlier = operator.earlier_units.entry(uid).or_default();
        operator.units.push(Unit::new(id, uid + *earlier * AGAIN, identity));
        *earlier += 1;
    }

    /// Schedules a turn for every lease that an event concerns, as the index says.
    pub fn wake_marked(&mut self, process: usize) {
        let operator = &mut self.processes[process];
        for (_, token) in operator.index.raised_floors() {
            operator.floor = operator.floor.max(token);
        }
        while let Some(id) = self.processes[process].index.next_due() {
            let unit = self.processes[process].units.iter().find(|unit| unit.id == id);
            if let Some(uid) = unit.map(|unit| unit.uid) {
                self.wake_unit(process, uid);
            }
        }
    }

    /// The newest observed version of a lease, if its resource exists.
    pub fn resource(&mut self, process: usize, uid: u32) -> Option<Arc<RedisLease>> {
        let id = self.unit(process, uid)?.id;
        self.processes[process].index.lease(id)?.object.clone()
    }

    /// One turn of one lease: takes the events, the newest view and the facts; then carries out the effects.
    pub fn turn(&mut self, process: usize, uid: u32) {
        let now = Time(self.local(process));
        let Some(unit) = self.unit(process, uid) else { return };
        unit.due = false;
        let (answers, opening) = (std::mem::take(&mut unit.answers), unit.opening > 0);
        let machine = self.machine_of(process, uid).filter(|_| !opening);
        let views = machine.map(|machine| [machine.before.take(), machine.mailbox.take()]).into_iter().flatten();
        let views: Vec<View> = views.flatten().collect();
        let views: Vec<View> = views.into_iter().map(|view| self.plant_in_view(process, view)).collect();
        let Some(unit) = self.unit(process, uid) else { return };
        for input in answers.into_iter().chain(views.into_iter().map(Input::View)) {
            unit.reconciler.handle(now, input);
        }
        let Some(facts) = self.facts(process, uid) else { return };
        let Some(unit) = self.unit(process, uid) else { return };
        unit.permitted = facts.permitted;
        unit.reconciler.handle(now, Input::Facts(Box::new(facts)));
        self.drain_unit(process, uid);
    }

    /// Plants an answer to an attempt that no attempt has got.
    fn plant_in_view(&self, process: usize, mut view: View) -> View {
        if self.is(Bug::StoppedWithoutAnswer) && view.standing == Standing::Idle {
            let now = Time(self.local(process));
            let metadata = "elsewhere/cluster-9/team/lease-0/lease-0/pod-uid-0".into();
            let by = Stored { stage: Stage::Term, attempt: Attempt(1), number: 1, metadata };
            view.refusal = Some(Refusal { asked_at: now, until: now + Millis(60_000) });
            view.refused_by = Some(Box::new(by));
        }
        view
    }

    /// The facts that this process has about one lease.
    fn facts(&mut self, process: usize, uid: u32) -> Option<Facts> {
        let now = Time(self.local(process));
        let wall = self.processes[process].wall.micros(self.now);
        let authority = self.authority(process);
        let api_answers = self.is(Bug::ContendsWithoutAnswer);
        let (gone_is_proof, deleting_is_proof) = (self.is(Bug::GoneIsProof), self.is(Bug::DeletingIsProof));
        let ignores_deletion = self.is(Bug::DeletionIgnored);
        let operator = &mut self.processes[process];
        let unit = operator.units.iter_mut().find(|unit| unit.uid == uid)?;
        let holder = unit.reconciler.holder();
        operator.index.set_holder(unit.id, holder.as_ref().map(|(_, uid)| uid.as_str()));
        let Snapshot {
            lease,
            has_successor,
            spec,
            quorum,
            candidates,
            strays,
            stray_workloads,
            mut holder,
            pods_listed,
        } = operator.index.snapshot(unit.id, now)?;
        if let Some(lease) = &lease {
            unit.checks.lease = Some(lease.clone());
        }
        let lease = if ignores_deletion { lease.or_else(|| unit.checks.lease.clone()) } else { lease };
        match &mut holder {
            PodKnowledge::Gone { stopped } if gone_is_proof => *stopped = true,
            PodKnowledge::Here(sighting) if deleting_is_proof && sighting.facts.deletion_grace.is_some() => {
                holder = PodKnowledge::Gone { stopped: true };
            }
            _ => {}
        }
        Some(Facts {
            lease,
            has_successor,
            authority: if quorum.read { authority } else { Authority::Follow },
            spec,
            quorum,
            candidates,
            strays,
            stray_workloads,
            holder,
            pods_listed,
            stop_at: operator.machines.iter().rev().find(|machine| machine.uid == uid).and_then(Machine::stop_at),
            api_answered_at: if api_answers { Some(now) } else { operator.writer.calls.answered_at() },
            permitted: operator.permits.permitted(&uid, QUORUM, NAMESPACE),
            allowed: Allowed { scheduling_gate: true, scale: true, suspend: true },
            wall: jiff::Timestamp::from_microsecond(wall as i64).unwrap(),
        })
    }

    /// Carries out the effects of the reconciler. Between any two effects the process may crash or pause.
    pub fn drain_unit(&mut self, process: usize, uid: u32) {
        let boot = self.processes[process].boot;
        for effects in 0.. {
            if self.processes[process].life != Life::Running || self.processes[process].boot != boot {
                return;
            }
            if effects == EFFECTS_AT_ONE_INSTANT {
                return self.check.fail(format!("a turn of lease {uid} has more than {effects} effects"));
            }
            let Some(unit) = self.unit(process, uid) else { return };
            let Some(effect) = unit.held_back.take().or_else(|| unit.reconciler.poll_effect()) else { break };
            match self.before_effect(process, uid, None) {
                BeforeEffect::Continue => {}
                BeforeEffect::Crashed => return,
                BeforeEffect::Paused => {
                    if let Some(unit) = self.unit(process, uid) {
                        unit.held_back = Some(effect);
                    }
                    return;
                }
            }
            self.note(Note::Planned { process, uid, effect: &Brief::of(&effect) });
            let again = self.is(Bug::EffectRepeated).then(|| effect.clone());
            self.carry_out_plan(process, uid, effect);
            if let Some(unit) = self.unit(process, uid).filter(|_| again.is_some()) {
                unit.held_back = again;
            }
        }
        self.record_permits(process, uid);
        self.rearm(process, uid);
    }

    /// Records the lease's use of permits, and gives a turn to those that can have one now.
    fn record_permits(&mut self, process: usize, uid: u32) {
        let (attempt_kept, write_kept) = (self.is(Bug::PermitKept), self.is(Bug::WritePermitKept));
        let Some(unit) = self.unit(process, uid) else { return };
        let (mut uses, had) = (unit.reconciler.permit_uses(), unit.permits_used);
        let keep = |usage: &mut PermitUse, had: PermitUse, kept: bool| {
            if kept && had == PermitUse::Uses {
                *usage = had;
            }
        };
        keep(&mut uses.attempt, had.attempt, attempt_kept);
        keep(&mut uses.end, had.end, write_kept);
        unit.permits_used = uses;
        let permitted = unit.permitted;
        if uses.attempt == PermitUse::Waits {
            self.coverage.saw(Sight::AttemptWaited);
        }
        if uses.end == PermitUse::Waits || uses.other == PermitUse::Waits {
            self.coverage.saw(Sight::StatusWaited);
        }
        self.processes[process].permits.record(&uid, QUORUM, &NAMESPACE.into(), permitted, uses);
        while let Some(other) = self.processes[process].permits.offer() {
            self.wake_unit(process, other);
        }
    }

    /// Sets the timer of the lease, or removes a lease that is finished.
    fn rearm(&mut self, process: usize, uid: u32) {
        let (now, boot) = (self.now, self.processes[process].boot);
        let gone = self.resource(process, uid).is_none();
        let Some(unit) = self.unit(process, uid) else { return };
        if gone && unit.reconciler.is_finished() {
            let id = unit.id;
            self.processes[process].index.remove(id);
            self.processes[process].units.retain(|unit| unit.uid != uid);
            self.processes[process].permits.forget(&uid);
            self.coverage.saw(Sight::Finished);
            return;
        }
        let Some(deadline) = unit.reconciler.next_deadline() else { return };
        let due = self.processes[process].clock.when(deadline.0).max(now);
        let at = if self.is(Bug::TimerEndsAtOnce) { now } else { due };
        let Some(unit) = self.unit(process, uid) else { return };
        if unit.wake_at.is_none_or(|earlier| at < earlier || earlier < now) {
            unit.wake_at = Some(at);
            self.at(at, Event::Due { process, boot, uid });
        }
    }

    /// A timer of a lease. Only the last one that was set counts.
    pub fn timer(&mut self, process: usize, uid: u32) {
        let now = self.now;
        let local = Time(self.local(process));
        let Some(unit) = self.unit(process, uid) else { return };
        if unit.wake_at.is_none_or(|at| at > now) {
            return;
        }
        unit.wake_at = None;
        if unit.reconciler.next_deadline().is_some_and(|deadline| deadline <= local) {
            if !unit.due {
                self.turn(process, uid);
            }
        } else {
            self.rearm(process, uid);
        }
    }

    /// After a pause: carries out the effects that were held back.
    pub fn drain_units(&mut self, process: usize) {
        let all: Vec<u32> = self.processes[process].units.iter().map(|unit| unit.uid).collect();
        for uid in all {
            self.drain_unit(process, uid);
        }
    }
}

/// The number of the UID of a lease.
pub const fn lease_of(unit: u32) -> u32 {
    unit % AGAIN
}
