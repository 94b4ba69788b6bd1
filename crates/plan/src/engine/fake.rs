//! A scripted machine, and a world that carries out the effects of an engine with such machines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redislease_core::time::Time;
use serde_json::json;

use crate::api::RedisLease;
use crate::election::{Cluster, PodFacts, PodObject};
use crate::engine::{Config, Effect, Engine, Input, Machine, Surroundings, Watched};
use crate::index::{Index, LeaseId};
use crate::plan::calls::{Request, RoleAnswer};
use crate::plan::{
    Allowed, Authority, CandidateFacts, Effect as Planned, Event, Facts, Identity, News, PERMITS, PermitUses,
    Permitted, PodKnowledge, RoleOutcome,
};
use crate::samples;

/// The text of a warning that panics when it is carried out.
pub const PANICS: &str = "panic";

/// What the operator may use.
pub const ALLOWED: Allowed = Allowed { scheduling_gate: false, scale: false, suspend: true };

/// The events that a machine received, and its next steps.
#[derive(Debug, Default)]
pub struct Script {
    pub seen: Vec<String>,
    pub effects: Vec<Planned>,
    pub deadline: Option<Time>,
    pub holder: Option<(String, String)>,
    pub awaits: bool,
    pub permits: PermitUses,
    pub panics: bool,
    pub finished: bool,
    /// The last facts.
    pub facts: Option<Box<Facts>>,
    /// How many machines there were.
    pub machines: u32,
}

thread_local! {
    /// By the name of the lease.
    static SCRIPTS: RefCell<BTreeMap<String, Script>> = RefCell::default();
}

pub fn script<T>(name: &str, change: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPTS.with_borrow_mut(|scripts| change(scripts.entry(name.to_owned()).or_default()))
}

/// The events since the last call.
pub fn seen(name: &str) -> Vec<String> {
    script(name, |script| std::mem::take(&mut script.seen))
}

pub struct Scripted(String);

impl Machine for Scripted {
    type Config = ();

    fn new((): &(), identity: Identity) -> Self {
        script(&identity.name, |script| script.machines += 1);
        Self(identity.name)
    }

    fn handle(&mut self, _: Time, event: Event) {
        if let Event::Facts(facts) = &event {
            script(&self.0, |script| script.facts = Some(facts.clone()));
        }
        let text = match event {
            Event::Facts(facts) => {
                let candidates = match facts.candidates {
                    CandidateFacts::Known(electorate) => electorate.total().to_string(),
                    CandidateFacts::Unknown => "?".to_owned(),
                    CandidateFacts::Unusable(..) => "none".to_owned(),
                };
                let holder = match facts.holder {
                    PodKnowledge::Unseen => "unseen",
                    PodKnowledge::Here(_) | PodKnowledge::Workload => "here",
                    PodKnowledge::Gone { stopped: true } => "stopped",
                    PodKnowledge::Gone { stopped: false } => "gone",
                };
                let lease = if facts.lease.is_some() { "" } else { " no lease" };
                let Permitted { attempt, end, other } = facts.permitted;
                let names = [(attempt, " no attempt"), (end, " no end"), (other, " no other")];
                let refused: String = names.into_iter().filter(|(granted, _)| !granted).map(|(_, name)| name).collect();
                format!("facts {candidates} {holder}{lease}{refused}")
            }
            Event::View(view) => format!("view {:?}", view.standing.term().map(|term| term.id.token.0)),
            Event::RoleWritten { uid, outcome } => format!("role {uid} {outcome:?}"),
            Event::LeaseRead(read) => format!("read {}", read.is_ok()),
            other => format!("{other:?}"),
        };
        let panics = script(&self.0, |script| {
            script.seen.push(text);
            script.panics
        });
        assert!(!panics, "planned by the test");
    }

    fn poll_effect(&mut self) -> Option<Planned> {
        script(&self.0, |script| (!script.effects.is_empty()).then(|| script.effects.remove(0)))
    }

    fn next_deadline(&self) -> Option<Time> {
        script(&self.0, |script| script.deadline)
    }

    fn holder(&self) -> Option<(String, String)> {
        script(&self.0, |script| script.holder.clone())
    }

    fn awaits_api_answer(&self) -> bool {
        script(&self.0, |script| script.awaits)
    }

    fn permit_uses(&self) -> PermitUses {
        script(&self.0, |script| script.permits)
    }

    fn is_finished(&self) -> bool {
        script(&self.0, |script| script.finished)
    }
}

/// What the engine's shell knows and answers.
#[derive(Default)]
pub struct Outside {
    pub now: Time,
    pub news: BTreeMap<LeaseId, News>,
    /// The authority of this replica; `None`: it leads.
    pub authority: Option<Authority>,
    /// When the API server answered last.
    pub api_answered_at: Option<Time>,
    pub wall: jiff::Timestamp,
    /// Whether reports on pods are refused.
    pub refuses_reports: bool,
    /// Whether withdrawing a status panics.
    pub withdraw_panics: bool,
    done: Vec<String>,
}

pub struct World<M: Machine = Scripted> {
    pub engine: Engine<M>,
    pub state: Outside,
}

/// The advice in the text of a mistake.
fn advice(note: &str) -> &str {
    note.split_once(": ").map_or("", |(_, advice)| advice)
}

impl<M: Machine<Config = ()>> World<M> {
    pub fn empty() -> Self {
        SCRIPTS.take();
        let cluster = Arc::new(Cluster { name: "c".into(), uid: "u".into() });
        let config = Config { cluster, allowed: ALLOWED, permits: PERMITS, machines: () };
        Self { engine: Engine::new(config, Index::new("system")), state: Outside::default() }
    }

    pub fn take(&mut self, input: Input) {
        self.engine.handle(self.state.now, input);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            if let Some(answer) = self.carry_out_one(effect) {
                self.engine.handle(self.state.now, answer);
            }
        }
    }

    /// Notes the effect. Returns an input if it panics or is refused.
    fn carry_out_one(&mut self, effect: Effect) -> Option<Input> {
        let note = match effect {
            Effect::Lease(subject, effect) => {
                let withdraw = self.state.withdraw_panics && effect == Planned::WithdrawStatus;
                if withdraw || effect == Planned::Warn(PANICS.into()) {
                    return Some(self.panicked(subject.id));
                }
                format!("{}/{} {effect:?}", subject.name, subject.incarnation)
            }
            Effect::Hide(_) => "hide".into(),
            Effect::DoNotCount(_) => "do not count".into(),
            Effect::Forget(_) => "forget".into(),
            Effect::AwaitAnswer => "await".into(),
            Effect::Call(_, Request::Workload((_, workload))) => format!("read {}", workload.name),
            Effect::Call(_, Request::Role { lease, write, .. }) => {
                format!("{} on {}: {:?} {:?}", lease.name, write.pod, write.role, write.token)
            }
            Effect::Call(caller, request) => format!("{caller:?}: {request}"),
            Effect::ReportOnLease(subject, problem) => format!("{}: {}", subject.name, advice(&problem.note)),
            Effect::ReportOnPod(pod, problem) if self.state.refuses_reports => {
                self.note(format!("refused {}", pod.uid));
                return Some(Input::ReportRefused { pod: pod.uid, problem });
            }
            Effect::ReportOnPod(pod, problem) => {
                format!("{}/{} ({}): {}", pod.namespace, pod.name, pod.uid, advice(&problem.note))
            }
            Effect::RaiseFloor(quorum, token) => format!("floor {quorum} {}", token.0),
            Effect::FloorsComplete => "floors complete".into(),
            Effect::Implausible(token) => format!("{token:?}"),
        };
        self.note(note);
        None
    }

    fn panicked(&mut self, lease: LeaseId) -> Input {
        self.note("panic".into());
        Input::Panicked { lease, message: "planned by the test".into() }
    }

    fn note(&mut self, text: String) {
        self.state.done.push(text);
    }

    /// What was done since the last call.
    pub fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.state.done)
    }

    /// Gives the next lease its turn. Returns whether one was due.
    pub fn turn(&mut self) -> bool {
        let Some(id) = self.engine.next_due(self.state.now) else { return false };
        let surroundings = Surroundings {
            news: self.state.news.remove(&id).unwrap_or_default(),
            authority: self.state.authority.unwrap_or(Authority::Lead),
            authority_gains: 0,
            api_answered_at: self.state.api_answered_at,
            wall: self.state.wall,
        };
        let turn = AssertUnwindSafe(|| self.engine.turn(self.state.now, id, surroundings));
        if catch_unwind(turn).is_err() {
            let input = self.panicked(id);
            self.engine.handle(self.state.now, input);
        }
        self.carry_out();
        true
    }

    pub fn work(&mut self) {
        self.take(Input::Wake);
        while self.turn() {}
    }

    /// Sets the authority on the quorum `default`.
    pub fn lead(&mut self, authority: Option<Authority>) {
        self.state.authority = authority;
        self.take(Input::Authority("default".into(), authority.unwrap_or(Authority::Lead)));
    }
}

impl World {
    pub fn new() -> Self {
        Self::empty()
    }

    /// A world in which everything is listed.
    pub fn listed() -> Self {
        let mut world = Self::new();
        world.take(Input::Lease(Watched::ListBegins));
        world.take(Input::Lease(Watched::ListEnds));
        world.take(Input::Pod(Watched::ListBegins));
        world.take(Input::Pod(Watched::ListEnds));
        world.take(Input::QuorumsRead);
        world.done();
        world
    }

    pub fn lease(&mut self, namespace: &str, name: &str) -> LeaseId {
        self.take(Input::Lease(Watched::Seen(Box::new(lease(namespace, name)))));
        *self.engine.leases.keys().last().unwrap()
    }

    pub fn pod(&mut self, name: &str) {
        self.take(Input::Pod(Watched::Seen(Box::new(pod(name)))));
    }

    pub fn at(&mut self, now: u64) {
        self.state.now = Time(now);
    }
}

pub fn lease(namespace: &str, name: &str) -> RedisLease {
    samples::lease(namespace, name, &json!({}))
}

pub fn pod(name: &str) -> PodFacts {
    let pod: PodObject = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "a"}},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    PodFacts::from(&pod)
}

pub fn role(outcome: RoleOutcome) -> RoleAnswer {
    RoleAnswer { outcome, found: None }
}
