#[path = "orphans_tests.rs"]
mod orphans;
#[path = "panic_tests.rs"]
mod panics;
#[path = "permits_tests.rs"]
mod permits;
#[path = "slices_tests.rs"]
mod slices;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use redislease_core::lease::{Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::quorum::Quorum;
use serde_json::json;

use super::*;
use crate::api::RedisLease;
use crate::election::PodFacts;
use crate::operator::index::{WorkloadKey, WorkloadRead};
use crate::operator::leadership::Grant;
use crate::operator::quorums::QuorumUpdate;
use crate::operator::slot::News;
use crate::operator::writer::{PodFound, RoleAnswer, SliceAnswer};
use crate::plan::{
    Authority, CandidateFacts, Command, OpenQuorum, PodKnowledge, QuorumFacts, Read, Reconciler, RoleOutcome,
    RoleWrite, SliceFacts, SliceWrite, StatusOutcome,
};

/// The text of a warning that panics when it is carried out.
const PANICS: &str = "panic";

/// The events that a machine received, and its next steps.
#[derive(Debug, Default)]
struct Script {
    seen: Vec<String>,
    effects: Vec<Effect>,
    deadline: Option<Time>,
    holder: Option<(String, String)>,
    awaits: bool,
    permits: PermitUses,
    panics: bool,
    finished: bool,
    /// How many machines there were.
    machines: u32,
}

thread_local! {
    /// By the name of the lease.
    static SCRIPTS: RefCell<BTreeMap<String, Script>> = RefCell::default();
}

fn script<T>(name: &str, change: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPTS.with_borrow_mut(|scripts| change(scripts.entry(name.to_owned()).or_default()))
}

/// The events since the last call.
fn seen(name: &str) -> Vec<String> {
    script(name, |script| std::mem::take(&mut script.seen))
}

struct Scripted(String);

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
                    PodKnowledge::Here(_) => "here",
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
struct Fake(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    now: Time,
    news: BTreeMap<LeaseId, News>,
    attempts: usize,
    /// Whether the next removal of a lease panics.
    forget_panics: bool,
    done: Vec<String>,
}

impl Fake {
    fn done(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().done)
    }

    fn note(&self, text: impl Into<String>) {
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
        Authority::Lead
    }

    fn news(&mut self, lease: LeaseId) -> News {
        self.0.borrow_mut().news.remove(&lease).unwrap_or_default()
    }

    fn carry_out(&mut self, lease: Subject<'_>, effect: Effect) {
        let Subject { name, incarnation, .. } = lease;
        assert_ne!(effect, Effect::Warn(PANICS.into()), "planned by the test");
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

    fn write_orphan(&mut self, _: &str, lease: &str, write: RoleWrite) {
        self.note(format!("{lease} on {}: {:?} {:?}", write.pod, write.role, write.token));
    }

    fn write_orphan_slice(&mut self, slice: &SliceFacts, write: SliceWrite) {
        self.note(format!("{} on {}: {:?}", slice.lease, write.name, write.change));
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

struct World {
    engine: Engine<Scripted, Fake>,
    fake: Fake,
}

impl World {
    fn new() -> Self {
        SCRIPTS.take();
        let fake = Fake::default();
        let cluster = Cluster { name: "c".into(), uid: "u".into() };
        Self { engine: Engine::new(cluster, Index::new("system"), fake.clone()), fake }
    }

    /// A world in which everything is listed.
    fn listed() -> Self {
        let mut world = Self::new();
        world.engine.take(Input::Lease(Watched::ListBegins));
        world.engine.take(Input::Lease(Watched::ListEnds));
        world.engine.take(Input::Pod(Watched::ListBegins));
        world.engine.take(Input::Pod(Watched::ListEnds));
        world.engine.take(Input::QuorumsRead);
        world.fake.done();
        world
    }

    fn lease(&mut self, namespace: &str, name: &str) -> LeaseId {
        self.engine.take(Input::Lease(Watched::Seen(Box::new(lease(namespace, name)))));
        *self.engine.leases.keys().last().unwrap()
    }

    fn pod(&mut self, name: &str) {
        self.engine.take(Input::Pod(Watched::Seen(Box::new(pod(name)))));
    }

    fn work(&mut self) {
        assert!(self.engine.work(Instant::now() + Duration::from_mins(1)));
    }

    fn at(&mut self, now: u64) {
        self.fake.0.borrow_mut().now = Time(now);
    }
}

fn lease(namespace: &str, name: &str) -> RedisLease {
    serde_json::from_value(json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": "a"}}}},
    }))
    .unwrap()
}

fn pod(name: &str) -> PodFacts {
    PodFacts { labels: [("app".to_owned(), "a".to_owned())].into(), ..PodFacts::running(name) }
}

fn role(outcome: RoleOutcome) -> RoleAnswer {
    RoleAnswer { outcome, found: None }
}

#[test]
fn a_turn_takes_answers_then_the_view_then_the_facts() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.work();
    assert_eq!(seen("a"), ["facts 0 unseen"]);
    world.pod("p");
    let answer = Answer::Role("uid-p".into(), role(RoleOutcome::Written));
    world.engine.take(Input::Answer { lease: id, incarnation: 0, answer });
    let term = TermId { attempt: Attempt(1), token: Token(7), holder: Holder("c/u/n/a/p/uid-p".into()) };
    let held = Standing::Held(TermView { id: term, valid_until: None, stop_at: None, failed_rounds: 0 });
    let view = Some(View { standing: held, ..View::default() });
    world.fake.0.borrow_mut().news.insert(id, News { view, ..News::default() });
    script("a", |script| {
        script.holder = Some(("p".into(), "uid-p".into()));
        script.effects = vec![Effect::Probe, Effect::Keeper(Command::Forget)];
    });
    world.work();
    assert_eq!(seen("a"), ["role uid-p Written", "view Some(7)", "facts 1 here"]);
    assert_eq!(world.fake.done(), ["a/0 Probe", "a/0 Keeper(Forget)"]);
    world.work();
    assert_eq!(seen("a"), [""; 0], "nothing is due");
}

#[test]
fn a_holder_that_a_new_list_could_not_read_is_still_there() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.pod("p");
    script("a", |script| script.holder = Some(("p".into(), "uid-p".into())));
    world.work();
    let metadata = ObjectMeta { uid: Some("uid-p".into()), ..ObjectMeta::default() };
    for event in [Watched::ListBegins, Watched::Unreadable(Box::new(metadata)), Watched::ListEnds] {
        world.engine.take(Input::Pod(event));
    }
    let holder = world.engine.index.snapshot(id).unwrap().holder;
    assert!(matches!(holder, PodKnowledge::Here(_)), "{holder:?}");
}

#[test]
fn what_an_answer_shows_is_in_the_facts_of_the_turn() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    script("a", |script| script.holder = Some(("p".into(), "uid-p".into())));
    world.work();
    for (answer, knows) in [
        (Answer::Holder("uid-p".into(), Ok(PodFound::Gone)), "facts 0 gone"),
        (Answer::Node("uid-p".into(), Ok(true)), "facts 0 stopped"),
    ] {
        seen("a");
        world.engine.take(Input::Answer { lease: id, incarnation: 0, answer });
        world.work();
        assert_eq!(seen("a").last().map(String::as_str), Some(knows));
    }
    let mut newer = lease("n", "a");
    newer.metadata.resource_version = Some("2".into());
    let answer = Answer::Status(StatusOutcome::Written(Arc::new(newer)));
    world.engine.take(Input::Answer { lease: id, incarnation: 0, answer });
    world.work();
    let object = world.engine.index.lease(id).unwrap().object.clone().unwrap();
    assert_eq!(object.metadata.resource_version.as_deref(), Some("2"));
}

#[test]
fn time_and_answers_of_the_api_server_are_followed_by_turns() {
    let mut world = World::listed();
    world.lease("n", "a");
    script("a", |script| (script.deadline, script.awaits) = (Some(Time(500)), true));
    world.work();
    assert_eq!(world.fake.done(), ["await"]);
    assert_eq!(world.engine.next_deadline(), Some(Time(500)));
    seen("a");
    world.at(499);
    world.work();
    assert_eq!(seen("a").len(), 0);
    script("a", |script| script.deadline = None);
    world.at(500);
    world.work();
    assert_eq!((seen("a").len(), world.engine.next_deadline()), (1, None));
    world.engine.take(Input::ApiAnswered);
    script("a", |script| script.awaits = false);
    world.work();
    world.engine.take(Input::ApiAnswered);
    world.work();
    assert_eq!(seen("a").len(), 1, "the lease does not wait for an answer any more");
}

#[test]
fn a_lease_whose_resource_is_gone_is_forgotten_when_it_is_finished() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    world.work();
    world.engine.take(Input::Lease(Watched::Deleted(Box::new(lease("n", "a")))));
    world.work();
    assert_eq!(seen("a").last().map(String::as_str), Some("facts ? unseen no lease"));
    assert_eq!(world.fake.done(), ["resource gone"]);
    script("a", |script| script.finished = true);
    world.engine.shown(id);
    world.work();
    assert_eq!(world.fake.done(), ["resource gone", "forget"]);
    assert!(world.engine.leases.is_empty() && world.engine.index.lease(id).is_none());
}

#[test]
fn workloads_are_read_and_floors_raised() {
    let mut world = World::listed();
    let mut of_workload = lease("n", "a");
    of_workload.spec.candidates =
        serde_json::from_value(json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}))
            .unwrap();
    of_workload.status = Some(crate::api::RedisLeaseStatus { fencing_token: Some(42), ..Default::default() });
    world.engine.take(Input::Lease(Watched::Seen(Box::new(of_workload))));
    world.pod("p");
    world.work();
    assert_eq!(world.fake.done(), ["floor default 42", "read d"]);
    assert_eq!(seen("a"), ["facts ? unseen"]);
    let key = (
        "n".into(),
        crate::api::validated::Workload { kind: crate::api::validated::WorkloadKind::Deployment, name: "d".into() },
    );
    let selector = kube::core::Expression::Equal("app".into(), "a".into()).into();
    world.engine.take(Input::Workload(key, WorkloadRead::Selects(selector)));
    world.work();
    assert_eq!(seen("a"), ["facts 1 unseen"]);
    assert!(world.engine.next_deadline().is_some(), "it is read again");
    let grant = Grant::of(Authority::Lead);
    let update = QuorumUpdate { name: "default".into(), facts: None, connection: None, retiring: None, grant };
    world.engine.take(Input::Quorum(update));
    assert_eq!(
        world.fake.done(),
        ["quorum default", "floor default 42"],
        "a quorum that is opened later gets its floor too"
    );
}

#[test]
fn a_refused_read_is_reported_as_refused() {
    let mut world = World::listed();
    let id = world.lease("n", "a");
    script("a", |script| script.effects = vec![Effect::Read(Read::Lease)]);
    world.work();
    assert_eq!(world.fake.done(), ["a/0 Read(Lease)"]);
    seen("a");
    world.engine.take(Input::Answer { lease: id, incarnation: 0, answer: Answer::Lease(Err("no".into())) });
    world.work();
    assert_eq!(seen("a"), ["read false", "facts 0 unseen"]);
}

/// After a restart the terms must be renewed in time. With many leases the list takes longer than a lease may last.
#[test]
fn a_term_that_a_status_names_is_adopted_before_the_list_of_leases_ends() {
    let fake = Fake::default();
    let cluster = Cluster { name: "c".into(), uid: "u".into() };
    let mut engine = Engine::<Reconciler, Fake>::new(cluster, Index::new("system"), fake.clone());
    let open = OpenQuorum {
        id: 1,
        name: "default".into(),
        fingerprint: "f00d".into(),
        quorum: Quorum::of(3).unwrap(),
        longest_lease: Millis(60_000),
        command_timeout: Millis(500),
    };
    let open = Some(Arc::new(open));
    let facts = QuorumFacts { read: true, open, up: 3, evaluated: true, ..QuorumFacts::default() };
    let grant = Grant::of(Authority::Lead);
    let name = "default".into();
    engine.take(Input::Quorum(QuorumUpdate {
        name,
        facts: Some(Arc::new(facts)),
        connection: None,
        retiring: None,
        grant,
    }));
    engine.take(Input::QuorumsRead);
    let mut held = lease("n", "a");
    let holder = json!({"cluster": "c", "namespace": "n", "pod": "p", "podUID": "uid-p"});
    let status = json!({"attempt": format!("{:032x}", 5), "fencingToken": 7, "holder": holder});
    held.status = Some(serde_json::from_value(status).unwrap());
    engine.take(Input::Lease(Watched::ListBegins));
    engine.take(Input::Lease(Watched::Seen(Box::new(held))));
    assert!(engine.work(Instant::now() + Duration::from_mins(1)));
    let done = fake.done();
    let adopts = done.iter().filter(|done| done.contains("Keeper(Adopt(")).count();
    assert_eq!(adopts, 1, "{done:?}");
    assert!(!engine.index.is_listed());
}
