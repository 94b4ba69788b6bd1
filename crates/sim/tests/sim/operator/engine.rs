//! The operator's engine: owns the reconcilers, records events, and runs one turn for each lease that an event concerns.

use std::collections::VecDeque;
use std::sync::Arc;

use redislease::api::RedisLease;
use redislease::api::ValidLease;
use redislease::api::validated::Readiness;
use redislease::plan::{
    CandidateFacts, Effect, Event as Input, Facts, Identity, PermitUse, PermitUses, Permitted, PodKnowledge, Reconciler,
};
use redislease_core::lease::Standing;
use redislease_core::time::Time;

use crate::api::objects::{self, NAMESPACE, QUORUM};
use crate::api::server::Change;
use crate::api::watch::{Kind, Step};
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::trace::{Brief, Note};
use crate::operator::index::Touched;
use crate::operator::keeper::Machine;
use crate::operator::process::{BeforeEffect, Life};
use crate::redis::clock::{MILLI, Micros};
use crate::world::{EFFECTS_AT_ONE_INSTANT, Event, World};

/// One lease in one process.
pub struct Unit {
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
    held_back: Option<Effect>,
    readiness: Readiness,
    /// The permits of the last turn, and their use after it.
    permitted: Permitted,
    permits_used: PermitUses,
    pub checks: super::effects::Checks,
}

impl Unit {
    fn new(cluster: usize, place: usize, uid: u32) -> Self {
        let identity = Identity {
            cluster: objects::cluster(cluster),
            namespace: NAMESPACE.into(),
            name: objects::lease_name(place),
            uid: objects::lease_uid(uid),
        };
        Self {
            uid,
            place,
            reconciler: Reconciler::new(identity),
            answers: VecDeque::new(),
            opening: 0,
            due: false,
            wake_at: None,
            held_back: None,
            readiness: Readiness::Ignored,
            permitted: Permitted::ALL,
            permits_used: PermitUses::default(),
            checks: super::effects::Checks::default(),
        }
    }

    /// The pod of the running or ending term.
    pub fn holder(&self) -> Option<u32> {
        self.reconciler.holder().map(|(_, uid)| objects::number(&uid))
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

    pub fn wake_all(&mut self, process: usize) {
        let all: Vec<u32> = self.processes[process].units.iter().map(|unit| unit.uid).collect();
        for uid in all {
            self.wake_unit(process, uid);
        }
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
        let now = Time(self.local(process));
        if let Step::Listed(state) = &step
            && self.processes[process].index.is_stale(state)
        {
            self.hit(crate::chaos::fault::Fault::StaleList, Some(process));
        }
        if let Step::Listed(state) = &step {
            if kind == Kind::Leases {
                self.learn_leader(process, state.leader.0, state.leader.1.clone());
            }
            let tokens = state.leases.iter().flatten().map(|lease| objects::token(lease));
            let floor = self.processes[process].floor;
            self.processes[process].floor = tokens.chain([floor]).max().unwrap_or(floor);
        }
        if let Step::Changed(Change::Quorum { version, leader }) = step {
            return self.learn_leader(process, version, leader);
        }
        let is_list = matches!(step, Step::Listed(_));
        let index = &mut self.processes[process].index;
        let touched = match step {
            Step::Listed(state) if kind == Kind::Pods => index.list_pods(&state, now),
            Step::Listed(state) if kind == Kind::Slices => index.list_slices(&state),
            Step::Listed(state) => index.list_leases(&state),
            Step::Changed(Change::Slice { version, of, facts }) => index.learn_slice(of, version, facts),
            Step::Changed(Change::Lease { version, place, lease }) => index.learn_lease(place, version, lease),
            Step::Changed(Change::Pod { facts, deleted: false, .. }) => {
                index.learn_pod(objects::number(&facts.uid), &facts, now)
            }
            Step::Changed(Change::Quorum { .. }) => Touched::default(),
            Step::Changed(Change::Pod { facts, .. }) => {
                index.bury(objects::number(&facts.uid), facts.proves_stopped_when_deleted())
            }
        };
        self.touched(process, &touched);
        if is_list {
            self.sweep_slices(process);
        }
    }

    /// Runs a turn for every lease that a change concerns.
    pub fn touched(&mut self, process: usize, touched: &Touched) {
        if touched.places.is_empty() && touched.pods.is_empty() {
            return;
        }
        let cluster = self.processes[process].cluster;
        let operator = &mut self.processes[process];
        let known: Vec<(usize, u32)> = operator.index.leases().collect();
        for (place, uid) in known {
            if !operator.units.iter().any(|unit| unit.uid == uid) {
                operator.units.push(Unit::new(cluster, place, uid));
            }
        }
        let concerned = |unit: &&Unit| {
            touched.places.contains(&unit.place) || unit.holder().is_some_and(|pod| touched.pods.contains(&pod))
        };
        let concerned: Vec<u32> = operator.units.iter().filter(concerned).map(|unit| unit.uid).collect();
        for uid in concerned {
            self.wake_unit(process, uid);
        }
    }

    /// One turn of one lease: takes the events, the newest view and the facts; then carries out the effects.
    pub fn turn(&mut self, process: usize, uid: u32) {
        let now = Time(self.local(process));
        if !self.processes[process].index.leases_listed {
            return;
        }
        let Some(unit) = self.unit(process, uid) else { return };
        unit.due = false;
        let (answers, opening) = (std::mem::take(&mut unit.answers), unit.opening > 0);
        let machine = self.machine_of(process, uid).filter(|_| !opening);
        let view = machine.and_then(|machine| machine.mailbox.take());
        let Some(unit) = self.unit(process, uid) else { return };
        for input in answers.into_iter().chain(view.map(Input::View)) {
            unit.reconciler.handle(now, input);
        }
        let Some(facts) = self.facts(process, uid) else { return };
        let Some(unit) = self.unit(process, uid) else { return };
        unit.permitted = facts.permitted;
        unit.reconciler.handle(now, Input::Facts(Box::new(facts)));
        self.drain_unit(process, uid);
    }

    /// The facts that this process has about one lease.
    fn facts(&mut self, process: usize, uid: u32) -> Option<Facts> {
        let now = Time(self.local(process));
        let wall = self.processes[process].wall.micros(self.now);
        let authority = self.authority(process);
        let api_answers = self.is(Bug::ContendsWithoutAnswer);
        let (gone_is_proof, deleting_is_proof) = (self.is(Bug::GoneIsProof), self.is(Bug::DeletingIsProof));
        let ignores_deletion = self.is(Bug::DeletionIgnored);
        let keeps_address = self.is(Bug::AddressKept);
        let (keeps_endpoints, never_fences) = (self.is(Bug::EndpointKept), self.is(Bug::EndpointNotFenced));
        let operator = &mut self.processes[process];
        let index = &mut operator.index;
        let unit = operator.units.iter_mut().find(|unit| unit.uid == uid)?;
        let found = index.lease(unit.place).filter(|lease| objects::uid_of(lease) == uid).cloned();
        let has_successor = found.is_none() && index.lease(unit.place).is_some();
        if let Some(lease) = &found {
            unit.readiness = readiness(lease, unit.checks.lease.as_ref()).unwrap_or(unit.readiness);
            unit.checks.lease = Some(lease.clone());
        }
        let candidates = if index.pods_listed && found.is_some() {
            CandidateFacts::Known(index.electorate(unit.place, unit.readiness))
        } else {
            CandidateFacts::Unknown
        };
        let strays = index.strays(unit.place, found.is_some());
        let mut slices = index.slices(unit.place);
        if keeps_endpoints || never_fences {
            let latest = unit.checks.lease.as_deref().map(objects::token);
            let held = unit.reconciler.view().filter(|view| matches!(view.standing, Standing::Held(_)));
            let holder = held.and(unit.holder()).map(objects::pod_uid);
            for slice in slices.iter_mut().map(Arc::make_mut) {
                slice.endpoints.retain(|endpoint| !keeps_endpoints || Some(&endpoint.uid) == holder.as_ref());
                slice.token = latest.filter(|_| never_fences && slice.endpoints.is_empty()).or(slice.token);
            }
        }
        let lease = if ignores_deletion { found.or_else(|| unit.checks.lease.clone()) } else { found };
        let mut holder = unit.holder().map_or(PodKnowledge::Unseen, |pod| index.find(pod));
        if let PodKnowledge::Here(sighting) = &mut holder
            && keeps_address
        {
            let sighting = Arc::make_mut(sighting);
            let first = objects::addresses(objects::number(&sighting.facts.uid), 0);
            Arc::make_mut(&mut sighting.facts).addresses = first;
        }
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
            quorum: operator.quorum.clone(),
            candidates,
            strays,
            slices,
            holder,
            pods_listed: index.pods_listed,
            authority,
            stop_at: operator.machines.iter().rev().find(|machine| machine.uid == uid).and_then(Machine::stop_at),
            api_answered_at: if api_answers { Some(now) } else { operator.api_answered_at },
            permitted: operator.permits.permitted(&uid, QUORUM, NAMESPACE),
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
        let Some(place) = self.unit(process, uid).map(|unit| unit.place) else { return };
        let gone = self.processes[process].index.lease(place).is_none_or(|lease| objects::uid_of(lease) != uid);
        let Some(unit) = self.unit(process, uid) else { return };
        if gone && unit.reconciler.is_finished() {
            self.processes[process].units.retain(|unit| unit.uid != uid);
            self.processes[process].permits.forget(&uid);
            self.coverage.saw(Sight::Finished);
            return;
        }
        let Some(deadline) = unit.reconciler.next_deadline() else { return };
        let at = self.processes[process].clock.when(deadline.0).max(now);
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

/// What the lease's spec says about readiness; `None` if the spec is invalid or unchanged.
fn readiness(lease: &Arc<RedisLease>, before: Option<&Arc<RedisLease>>) -> Option<Readiness> {
    if before.is_some_and(|before| before.spec == lease.spec) {
        return None;
    }
    ValidLease::try_from(&**lease).ok().map(|valid| valid.readiness)
}
