//! The steps of a process. A step takes one input, and then turns until nothing changes any more, except for the answers to its calls.

use std::collections::VecDeque;
use std::sync::Arc;

use redislease_core::lease::{Refusal, View};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Millis, Time};
use redislease_plan::api::ValidLease;
use redislease_plan::election::{Candidate, Electorate, Eligibility, Sighting};
use redislease_plan::plan::{
    Allowed, Authority, CandidateFacts, Effect, Event, Facts, Machine as _, OpenQuorum, Permitted, PodChange,
    PodKnowledge, QuorumFacts, Read, RoleOutcome, SpecFacts, StatusOutcome,
};

use crate::keeper::Keeper;
use crate::objects;
use crate::planted::Planted;
use crate::process::{Input, Out, Process, Step};
use crate::tables::{Call, Tables};

/// More turns than this without an input are a loop.
const TURNS: usize = 40;

/// What all processes share.
pub struct Shared {
    spec: SpecFacts,
    eligibility: Eligibility,
    quorum: Arc<QuorumFacts>,
    wall: jiff::Timestamp,
    pub bug: Option<Planted>,
}

impl Shared {
    pub fn new(kind: objects::Kind, bug: Option<Planted>) -> Self {
        let spec = Arc::new(ValidLease::try_from(&objects::lease(kind)).unwrap());
        let open = OpenQuorum {
            id: 1,
            name: "default".into(),
            fingerprint: "f00d".into(),
            quorum: Quorum::ONE,
            longest_lease: Millis(60_000),
            command_timeout: Millis(500),
        };
        // While nodes are not known to vote, the keys are not read: a read each lease duration would take the steps of the time.
        let quorum = QuorumFacts { read: true, open: Some(Arc::new(open)), ..QuorumFacts::default() };
        Self {
            eligibility: Eligibility::from(&*spec),
            spec: SpecFacts { valid: Some(spec), problem: None, is_unfit: false },
            quorum: Arc::new(quorum),
            wall: jiff::Timestamp::from_second(1_795_238_400).unwrap(),
            bug,
        }
    }

    fn is(&self, bug: Planted) -> bool {
        self.bug == Some(bug)
    }
}

/// A step that is being computed.
struct Stepping<'a> {
    shared: &'a Shared,
    tables: &'a mut Tables,
    process: Process,
    inbox: VecDeque<Event>,
    out: Vec<Out>,
}

/// The step of a process.
pub fn step(shared: &Shared, tables: &mut Tables, number: u32, input: Input) -> Arc<Step> {
    if let Some(known) = tables.known(number, input) {
        return known;
    }
    let process = tables.processes.get(number).clone();
    let mut stepping = Stepping { shared, tables, process, inbox: VecDeque::new(), out: Vec::new() };
    stepping.take(input);
    stepping.settle();
    let Stepping { process, out, .. } = stepping;
    let next = tables.processes.number(process);
    tables.remember(number, input, Step { next, out })
}

impl Stepping<'_> {
    fn take(&mut self, input: Input) {
        let written = |place: usize, outcome: RoleOutcome, tables: &Tables, process: &Process| {
            let uid = tables.object_of(process.objects[place]).object().uid.to_owned();
            Event::RoleWritten { uid, outcome }
        };
        let lease = |number: u32, tables: &Tables| tables.lease_of(number).clone();
        let unanswered = || "no answer".to_owned();
        let event = match input {
            Input::Starts => return,
            Input::LeaseSeen(lease) => return self.learn_lease(lease),
            Input::ObjectSeen(place, object) => return self.learn_object(place, object),
            Input::Time(now) => {
                self.process.now = now;
                return;
            }
            Input::Authority(authority) => {
                self.process.is_first |= self.process.authority == Authority::Follow;
                self.process.authority = authority;
                return;
            }
            Input::Keeper(turn) => {
                if let Some((term, proof)) = self.process.keeper.turn(turn) {
                    self.out.push(Out::End(term, proof));
                }
                return;
            }
            Input::StatusStored(stored) => {
                self.learn_lease(stored);
                Event::StatusWritten(StatusOutcome::Written(lease(stored, self.tables)))
            }
            Input::StatusConflict => Event::StatusWritten(StatusOutcome::Conflict),
            Input::StatusUnanswered => Event::StatusWritten(StatusOutcome::Unanswered(unanswered())),
            Input::StatusWithdrawn => Event::StatusWritten(StatusOutcome::Withdrawn),
            Input::LeaseRead(read) => {
                self.learn_lease(read);
                Event::LeaseRead(Ok(Some(lease(read, self.tables))))
            }
            Input::RoleStored(place, object) => {
                self.learn_object(place, object);
                let ended = self.process.keeper.ending.map_or(0, |(term, _)| term);
                if self.shared.is(Planted::StatusEndNotFenced) && self.tables.object_shows(object).is_standby {
                    self.process.withdrawn = ended;
                }
                written(place, RoleOutcome::Written(None), self.tables, &self.process)
            }
            Input::RoleConflict(place, object) => {
                self.learn_object(place, object);
                written(place, RoleOutcome::Conflict, self.tables, &self.process)
            }
            Input::RoleUnanswered(place) => {
                written(place, RoleOutcome::Unanswered(unanswered()), self.tables, &self.process)
            }
            Input::RoleWithdrawn(place) => written(place, RoleOutcome::Withdrawn, self.tables, &self.process),
        };
        self.inbox.push_back(event);
    }

    fn learn_lease(&mut self, lease: u32) {
        if self.tables.lease_shows(lease).version > self.tables.lease_shows(self.process.lease).version {
            self.process.lease = lease;
        }
    }

    fn learn_object(&mut self, place: usize, object: u32) {
        let known = self.process.objects[place];
        if self.tables.object_shows(object).version > self.tables.object_shows(known).version {
            self.process.objects[place] = object;
        }
    }

    /// Turns until nothing changes any more.
    fn settle(&mut self) {
        self.inbox.extend(self.unread().map(Event::View));
        for _ in 0..TURNS {
            while let Some(event) = self.inbox.pop_front() {
                self.process.reconciler.handle(Time(self.process.now), event);
            }
            let facts = self.facts();
            self.process.reconciler.handle(Time(self.process.now), Event::Facts(Box::new(facts)));
            while let Some(effect) = self.process.reconciler.poll_effect() {
                self.carry_out(effect);
            }
            self.inbox.extend(self.unread().map(Event::View));
            if self.inbox.is_empty() {
                return;
            }
        }
        self.out.push(Out::Spins);
    }

    /// The view that the reconciler has not read.
    fn unread(&self) -> Option<View> {
        let view = self.view();
        let read = self.process.reconciler.view()?;
        (self.process.keeper.is_open && view != *read).then_some(view)
    }

    /// The view of the keeper.
    fn view(&self) -> View {
        let mut view = self.process.keeper.view();
        if self.shared.is(Planted::StoppedWithoutAnswer) && view.refused_by.is_none() && view.retry_at.is_some() {
            let answered = Keeper { refused: Some((9, 1)), ..Keeper::default() }.view();
            view.refused_by = answered.refused_by;
            view.refusal = Some(Refusal { asked_at: Time(u64::MAX / 4), until: Time(u64::MAX / 2) });
        }
        view
    }

    fn facts(&mut self) -> Facts {
        let Process { keeper, authority, now, lease, .. } = &self.process;
        let (now, authority) = (Time(*now), *authority);
        let lease = Some(self.tables.lease_of(*lease).clone());
        let stop_at = keeper.stop_at();
        Facts {
            lease,
            spec: self.shared.spec.clone(),
            quorum: self.shared.quorum.clone(),
            candidates: CandidateFacts::Known(self.electorate()),
            holder: self.holder(now),
            pods_listed: true,
            authority,
            stop_at,
            api_answered_at: Some(now),
            permitted: Permitted::ALL,
            allowed: Allowed { scheduling_gate: true, scale: true, suspend: true },
            wall: self.shared.wall,
            ..Facts::default()
        }
    }

    fn seen(&self, object: u32) -> Candidate {
        let candidate = self.tables.object_of(object).clone();
        match self.shared.bug {
            Some(bug) => bug.seen(candidate),
            None => candidate,
        }
    }

    /// The candidates. Every other term prefers the other pod.
    fn electorate(&mut self) -> Arc<Electorate> {
        let turned = self.tables.lease_shows(self.process.lease).latest % 2 == 1;
        let key = (self.process.objects.clone(), turned);
        if let Some(known) = self.tables.electorates.get(&key) {
            return known.clone();
        }
        let candidates: Vec<Candidate> = key.0.iter().map(|object| self.seen(*object)).collect();
        let pods = candidates.iter().filter_map(|one| match one {
            Candidate::Pod(pod) => Some(pod.clone()),
            Candidate::Workload(_) => None,
        });
        let mut electorate = match &candidates[..] {
            [Candidate::Workload(workload)] => Electorate::of_workload(workload.clone()),
            _ => Electorate::of(pods, &self.shared.eligibility),
        };
        if turned {
            electorate.eligible.reverse();
        }
        let electorate = Arc::new(electorate);
        self.tables.electorates.insert(key, electorate.clone());
        electorate
    }

    fn holder(&self, now: Time) -> PodKnowledge {
        let Some((_, uid)) = self.process.reconciler.holder() else { return PodKnowledge::Unseen };
        let known = self.process.objects.iter().map(|object| self.seen(*object)).find(|one| one.object().uid == uid);
        match known {
            None => PodKnowledge::Unseen,
            Some(Candidate::Workload(_)) => PodKnowledge::Workload,
            Some(Candidate::Pod(pod)) => PodKnowledge::Here(Arc::new(Sighting::now(pod, now, None))),
        }
    }

    fn place(&self, uid: &str) -> usize {
        let is_it = |object: &u32| self.tables.object_of(*object).object().uid == uid;
        self.process.objects.iter().position(is_it).unwrap()
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Open { config, .. } => self.process.keeper.open(&config),
            Effect::Keeper(command) => {
                if let Some((term, proof)) = self.process.keeper.command(Time(self.process.now), &command) {
                    self.out.push(Out::End(term, proof));
                }
            }
            Effect::WriteStatus(write) => self.call(Call::Status(*write)),
            Effect::WithdrawStatus => self.out.push(Out::WithdrawStatus),
            Effect::WriteRole(mut write) => {
                let place = self.place(&write.uid);
                if let Some(bug) = self.shared.bug {
                    bug.change(&mut write);
                    let shows = self.tables.object_shows(self.process.objects[place]);
                    let ended = self.process.keeper.ending.map_or(0, |(term, _)| term);
                    let is_again = ended > 0 && self.process.withdrawn >= ended;
                    if bug.swallows(&write, shows, self.process.is_first, is_again) {
                        self.process.is_first = false;
                        let written = Event::RoleWritten { uid: write.uid, outcome: RoleOutcome::Written(None) };
                        return self.inbox.push_back(written);
                    }
                }
                if write.change != PodChange::Delete {
                    self.process.is_first = false;
                }
                self.call(Call::Role(place, write));
            }
            Effect::WithdrawRole { uid } => self.out.push(Out::WithdrawRole(self.place(&uid))),
            Effect::Read(Read::Lease) if self.shared.is(Planted::StartFromCachedStatus) => {
                let known = self.tables.lease_of(self.process.lease).clone();
                self.inbox.push_back(Event::LeaseRead(Ok(Some(known))));
            }
            Effect::Read(Read::Lease) => self.call(Call::ReadLease),
            Effect::Read(Read::Holder { uid, .. }) => self.inbox.push_back(Event::HolderRead { uid, answered: true }),
            Effect::Read(Read::Startable) => self.inbox.push_back(Event::StartableRead { answered: true }),
            Effect::Read(Read::Node { .. }) => self.inbox.push_back(Event::NodeRead),
            Effect::RaiseFloor(_) | Effect::Probe | Effect::Report(_) | Effect::Measure(_) | Effect::Warn(_) => {}
        }
    }

    fn call(&mut self, call: Call) {
        let number = self.tables.calls.number(call);
        self.out.push(Out::Call(number));
    }
}
