//! A scripted machine, an interface that records calls, and an engine with both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use redislease_core::op::Token;
use redislease_core::time::Time;
use redislease_plan::api::RedisLease;
use redislease_plan::election::{Cluster, PodFacts};
use redislease_plan::index::{Index, LeaseId, WorkloadKey};
use redislease_plan::plan::calls::RoleAnswer;
use redislease_plan::plan::{
    Allowed, Authority, CandidateFacts, Effect, Event, Identity, PermitUses, Permitted, PodKnowledge, RoleOutcome,
    RoleWrite,
};
use serde_json::json;

use crate::operator::engine::{Engine, Input, Machine, Outside, PodName, Subject, Watched};
use crate::operator::quorums::QuorumUpdate;
use crate::operator::slot::News;
use redislease_plan::annotations::Problem;

/// The text of a warning that panics when it is carried out.
pub(super) const PANICS: &str = "panic";

/// The events that a machine received, and its next steps.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub seen: Vec<String>,
    pub effects: Vec<Effect>,
    pub deadline: Option<Time>,
    pub holder: Option<(String, String)>,
    pub awaits: bool,
    pub permits: PermitUses,
    pub panics: bool,
    pub finished: bool,
    /// How many machines there were.
    pub machines: u32,
}

thread_local! {
    /// By the name of the lease.
    static SCRIPTS: RefCell<BTreeMap<String, Script>> = RefCell::default();
}

pub(super) fn script<T>(name: &str, change: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPTS.with_borrow_mut(|scripts| change(scripts.entry(name.to_owned()).or_default()))
}

/// The events since the last call.
pub(super) fn seen(name: &str) -> Vec<String> {
    script(name, |script| std::mem::take(&mut script.seen))
}

pub(super) struct Scripted(String);

impl Machine for Scripted {
    fn new(identity: Identity) -> Self {
        script(&identity.name, |script| script.machines += 1);
        Self(identity.name)
    }

    fn handle(&mut self, _: Time, event: Event) {
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

    fn poll_effect(&mut self) -> Option<Effect> {
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

/// Records calls.
#[derive(Clone, Default)]
pub(super) struct Fake(pub Rc<RefCell<State>>);

#[derive(Default)]
pub(super) struct State {
    pub now: Time,
    pub news: BTreeMap<LeaseId, News>,
    pub attempts: usize,
    /// The authority of this replica; `None`: it leads.
    pub authority: Option<Authority>,
    pub allowed: Allowed,
    /// Whether reports on pods are refused.
    pub refuses_reports: bool,
    /// Whether the next removal of a lease panics.
    pub forget_panics: bool,
    /// Whether withdrawing a status panics.
    pub withdraw_panics: bool,
    pub done: Vec<String>,
}

impl Fake {
    pub fn done(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().done)
    }

    pub fn note(&self, text: impl Into<String>) {
        self.0.borrow_mut().done.push(text.into());
    }
}

impl Outside for Fake {
    fn now(&self) -> Time {
        self.0.borrow().now
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn api_answered_at(&self) -> Option<Time> {
        None
    }

    fn await_answer(&mut self) {
        self.note("await");
    }

    fn attempts_wait(&mut self, leases: usize) {
        self.0.borrow_mut().attempts = leases;
    }

    fn authority(&self, _: &str) -> Authority {
        self.0.borrow().authority.unwrap_or(Authority::Lead)
    }

    fn news(&mut self, lease: LeaseId) -> News {
        self.0.borrow_mut().news.remove(&lease).unwrap_or_default()
    }

    fn carry_out(&mut self, lease: Subject<'_>, effect: Effect) {
        let Subject { name, incarnation, .. } = lease;
        assert_ne!(effect, Effect::Warn(PANICS.into()), "planned by the test");
        let panics = self.0.borrow().withdraw_panics && effect == Effect::WithdrawStatus;
        assert!(!panics, "planned by the test");
        self.note(format!("{name}/{incarnation} {effect:?}"));
    }

    fn hide(&mut self, _: LeaseId) {
        self.note("resource gone");
    }

    fn forget(&mut self, _: LeaseId) {
        let panics = std::mem::take(&mut self.0.borrow_mut().forget_panics);
        assert!(!panics, "planned by the test");
        self.note("forget");
    }

    fn turned(&mut self, _: Duration, panicked: bool) {
        if panicked {
            self.note("panic");
        }
    }

    fn read_workload(&mut self, (_, workload): WorkloadKey) {
        self.note(format!("read {}", workload.name));
    }

    fn allowed(&self) -> Allowed {
        self.0.borrow().allowed
    }

    fn write_orphan(&mut self, _: &str, lease: &str, write: RoleWrite) {
        self.note(format!("{lease} on {}: {:?} {:?}", write.pod, write.role, write.token));
    }

    fn report_on_lease(&mut self, lease: Subject<'_>, problem: &Problem) {
        let advice = problem.note.split_once(": ").map_or("", |(_, advice)| advice);
        self.note(format!("{}: {advice}", lease.name));
    }

    fn report_on_pod(&mut self, pod: PodName<'_>, problem: &Problem) -> bool {
        let refuses = self.0.borrow().refuses_reports;
        let advice = problem.note.split_once(": ").map_or("", |(_, advice)| advice);
        let outcome = if refuses { "refused " } else { "" };
        self.note(format!("{outcome}{}/{} ({}): {advice}", pod.namespace, pod.name, pod.uid));
        !refuses
    }

    fn quorum(&mut self, update: &QuorumUpdate) {
        self.note(format!("quorum {}", update.name));
    }

    fn raise_floor(&mut self, quorum: &str, token: Token) {
        self.note(format!("floor {quorum} {}", token.0));
    }

    fn floors_complete(&mut self) {
        self.note("floors complete");
    }
}

pub(super) struct World {
    pub engine: Engine<Scripted, Fake>,
    pub fake: Fake,
}

impl World {
    pub fn new() -> Self {
        SCRIPTS.take();
        let fake = Fake::default();
        let cluster = Cluster { name: "c".into(), uid: "u".into() };
        Self { engine: Engine::new(cluster, Index::new("system"), fake.clone()), fake }
    }

    /// A world in which everything is listed.
    pub fn listed() -> Self {
        let mut world = Self::new();
        world.engine.take(Input::Lease(Watched::ListBegins));
        world.engine.take(Input::Lease(Watched::ListEnds));
        world.engine.take(Input::Pod(Watched::ListBegins));
        world.engine.take(Input::Pod(Watched::ListEnds));
        world.engine.take(Input::QuorumsRead);
        world.fake.done();
        world
    }

    pub fn lease(&mut self, namespace: &str, name: &str) -> LeaseId {
        self.engine.take(Input::Lease(Watched::Seen(Box::new(lease(namespace, name)))));
        *self.engine.leases.keys().last().unwrap()
    }

    pub fn pod(&mut self, name: &str) {
        self.engine.take(Input::Pod(Watched::Seen(Box::new(pod(name)))));
    }

    pub fn work(&mut self) {
        assert!(self.engine.work(Instant::now() + Duration::from_mins(1)));
    }

    pub fn at(&mut self, now: u64) {
        self.fake.0.borrow_mut().now = Time(now);
    }
}

pub(super) fn lease(namespace: &str, name: &str) -> RedisLease {
    serde_json::from_value(json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": "a"}}}},
    }))
    .unwrap()
}

pub(super) fn pod(name: &str) -> PodFacts {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "a"}},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    PodFacts::from(&pod)
}

pub(super) fn role(outcome: RoleOutcome) -> RoleAnswer {
    RoleAnswer { outcome, found: None }
}
