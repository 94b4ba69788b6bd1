//! Tests of one reconciler. [`Story`] executes its effects: it keeps the facts, records the effects, and answers.

mod attempts;
mod authority;
mod gate;
mod guarded;
mod handover;
mod key_reads;
mod leadership;
mod permits;
mod publication;
mod quorums;
mod roles;
mod terms;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_core::lease::{EndReason, EndingView, Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::{Millis, Time};
use serde_json::json;

use super::*;
use crate::api::conditions::{ConditionReason as _, ConditionStatus, ConditionType};
use crate::api::{RedisLease, ValidLease};
use crate::election::{Annotations, Cluster, Electorate, Eligibility, PodFacts, Sighting, WorkloadFacts};
use crate::samples;
use crate::status::{Notice, NoticeReason};

/// The lease of the specs below, in milliseconds.
const LEASE: u64 = 30_000;

#[derive(Clone)]
pub(super) struct Story {
    pub now: Time,
    pub reconciler: Reconciler,
    pub facts: Facts,
    spec: SpecCache,
    /// The effects of the last turn.
    pub effects: Vec<Effect>,
    /// Whether a read of the pods that may be started is answered at once: they are the known ones.
    pub reads_pods: bool,
}

pub(super) fn term(attempt: u128, token: u64, pod: &str) -> TermId {
    let holder = format!("here/uid-here/jobs/billing/{pod}/uid-{pod}");
    TermId { attempt: Attempt(attempt), token: Token(token), holder: Holder(holder.into()) }
}

pub(super) fn term_view(id: TermId) -> TermView {
    TermView { id, valid_until: Some(Time(1_000_000_000)), stop_at: Some(Time(1_000_000_000)), failed_rounds: 0 }
}

pub(super) fn publishing(id: TermId) -> View {
    View { standing: Standing::Publishing(term_view(id)), ..View::default() }
}

pub(super) fn held(id: TermId) -> View {
    View { standing: Standing::Held(term_view(id)), ..View::default() }
}

pub(super) fn idle(retry_at: u64) -> View {
    View { retry_at: Some(Time(retry_at)), ..View::default() }
}

pub(super) fn ending(id: TermId, reason: EndReason) -> View {
    let ending = EndingView { id, reason, sealed: false, keys_until: Time(10_000_000) };
    View { ending: Some(Box::new(ending)), retry_at: Some(Time(10_000_000)), ..View::default() }
}

pub(super) fn pod(name: &str) -> PodFacts {
    PodFacts { namespace: "jobs".into(), resource_version: Some("1".into()), ..PodFacts::running(name) }
}

impl Story {
    /// A free lease with the candidates `a` and `b`, on three healthy nodes.
    pub fn new() -> Self {
        let cluster = Arc::new(Cluster { name: "here".into(), uid: "uid-here".into() });
        let identity =
            Identity { cluster, namespace: "jobs".into(), name: "billing".into(), uid: "uid-billing".into() };
        let now = Time(1_000_000);
        let facts = Facts {
            quorum: Arc::new(quorum(1, "f00d")),
            pods_listed: true,
            authority: Authority::Lead,
            permitted: Permitted::ALL,
            allowed: Allowed { scheduling_gate: true, scale: true, suspend: true },
            wall: jiff::Timestamp::from_second(1_795_238_400).unwrap(),
            ..Facts::default()
        };
        let spec = SpecCache::default();
        let mut story = Self {
            now,
            reconciler: Reconciler::new(&(), identity),
            facts,
            spec,
            effects: Vec::new(),
            reads_pods: true,
        };
        story.store(&json!({}), &json!(null));
        story.candidates(&[pod("a"), pod("b")]);
        story
    }

    /// The reconciler has asked its keeper to acquire the lease for `a`.
    pub fn wanting_a() -> Self {
        let mut story = Self::new();
        story.turn();
        story.answer();
        story
    }

    /// `a` has acquired the lease with token 7, and its term is to be published.
    pub fn publishing_by_a() -> Self {
        let mut story = Self::wanting_a();
        story.view(publishing(term(1, 7, "a")));
        story
    }

    /// `a` holds the lease with token 7, and status and labels show it.
    pub fn held_by_a() -> Self {
        let mut story = Self::wanting_a();
        story.holder(pod("a"));
        story.view(publishing(term(1, 7, "a")));
        story.write();
        story.view(held(term(1, 7, "a")));
        story.pods();
        story
    }

    /// As [`Story::held_by_a`]; then `a` has stopped, its term has ended, and `b` is the only candidate.
    pub fn after_a_stopped() -> Self {
        let mut story = Self::held_by_a();
        story.holder(PodFacts { stopped: true, finished: true, ..pod("a") });
        story.candidates(&[pod("b")]);
        story.turn();
        story.facts.holder = PodKnowledge::Unseen;
        story.view(idle(0));
        story
    }

    /// The resource on the API server.
    pub fn store(&mut self, spec: &serde_json::Value, status: &serde_json::Value) {
        let mut whole = json!({
            "quorumRef": {"name": "default"},
            "candidates": {"selector": {"matchLabels": {"app": "billing"}}},
            "leaseDuration": "30s", "renewInterval": "5s", "gracePeriod": "10s"
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let generation = self.facts.lease.as_ref().map_or(1, |lease| lease.metadata.generation.unwrap() + 1);
        let metadata = json!({"name": "billing", "namespace": "jobs", "uid": "uid-billing",
            "generation": generation, "resourceVersion": "10"});
        let object = json!({"apiVersion": "redislease.io/v1alpha1", "kind": "RedisLease", "metadata": metadata,
            "spec": whole, "status": status});
        let lease: RedisLease = serde_json::from_value(object).unwrap();
        self.spec.read(&lease);
        self.facts.lease = Some(Arc::new(lease));
    }

    /// The spec does not fit the RedisQuorum.
    pub fn unfit(&mut self) {
        let valid = Some(Arc::new(samples::valid_quorum(&json!({"maxLeaseDuration": "15s"}))));
        self.facts.quorum = Arc::new(QuorumFacts { valid, ..(*self.facts.quorum).clone() });
    }

    pub fn candidates(&mut self, pods: &[PodFacts]) {
        let lease = self.facts.lease.as_deref().and_then(|lease| ValidLease::try_from(lease).ok());
        let eligibility = lease.as_ref().map(Eligibility::from).unwrap_or_default();
        let pods = pods.iter().cloned().map(Arc::new);
        self.facts.candidates = CandidateFacts::Known(Arc::new(Electorate::of(pods, &eligibility)));
    }

    /// The facts about the holder's pod.
    pub fn holder(&mut self, pod: PodFacts) {
        self.facts.holder = PodKnowledge::Here(Arc::new(Sighting::now(pod, self.now, None)));
    }

    pub fn turn(&mut self) -> &[Effect] {
        self.effects.clear();
        self.settle()
    }

    fn settle(&mut self) -> &[Effect] {
        self.spec.compare(self.facts.quorum.valid.as_deref());
        self.facts.spec = self.spec.facts().clone();
        self.reconciler.handle(self.now, Event::Facts(Box::new(self.facts.clone())));
        while let Some(effect) = self.reconciler.poll_effect() {
            self.effects.push(effect);
        }
        if self.reads_pods && self.wants(&Effect::Read(Read::Startable)) {
            self.effects.retain(|effect| *effect != Effect::Read(Read::Startable));
            self.reconciler.handle(self.now, Event::StartableRead { answered: true });
            return self.settle();
        }
        &self.effects
    }

    /// Somebody deletes the lease. A finalizer keeps it.
    pub fn lease_is_deleted(&mut self) {
        let mut lease = self.facts.lease.as_deref().unwrap().clone();
        lease.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.facts.wall));
        self.facts.lease = Some(Arc::new(lease));
        self.turn();
    }

    pub fn view(&mut self, view: View) -> &[Effect] {
        self.event(Event::View(view))
    }

    pub fn event(&mut self, event: Event) -> &[Effect] {
        self.reconciler.handle(self.now, event);
        self.turn()
    }

    pub fn pass(&mut self, millis: u64) -> &[Effect] {
        self.now += Millis(millis);
        self.turn()
    }

    /// The API server answers a call.
    pub fn answer(&mut self) -> &[Effect] {
        self.facts.api_answered_at = Some(self.now);
        self.turn()
    }

    /// The API server accepts the status write of the last turn.
    pub fn write(&mut self) -> &[Effect] {
        let write = self.status_write().expect("a status is to be written");
        let mut lease = self.facts.lease.as_deref().unwrap().clone();
        lease.status = Some(Arc::unwrap_or_clone(write.status));
        let version: u64 = lease.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        lease.metadata.resource_version = Some((version + 1).to_string());
        let lease = Arc::new(lease);
        self.facts.lease = Some(lease.clone());
        self.event(Event::StatusWritten(StatusOutcome::Written(lease)))
    }

    /// The API server accepts every role write, including those that follow, until none is left. Returns them in order:
    /// pod and role.
    pub fn pods(&mut self) -> Vec<(String, Option<String>)> {
        let mut order = Vec::new();
        loop {
            let writes: Vec<RoleWrite> = self.role_writes();
            if writes.is_empty() {
                return order;
            }
            for write in writes {
                order.push((write.pod.clone(), write.role.map(|role| role.as_str().to_owned())));
                self.apply(&write);
                self.reconciler.handle(
                    self.now,
                    Event::RoleWritten { uid: write.uid.clone(), outcome: RoleOutcome::Written(None) },
                );
            }
            self.turn();
        }
    }

    fn apply(&mut self, write: &RoleWrite) {
        if write.dry_run {
            return;
        }
        let CandidateFacts::Known(electorate) = &self.facts.candidates else { return };
        if let Some(workload) = electorate.workload() {
            return self.workload_is(written(workload, write));
        }
        let mut pods: Vec<PodFacts> = electorate.pods().map(|pod| pod.as_ref().clone()).collect();
        for pod in pods.iter_mut().filter(|pod| pod.uid == write.uid) {
            if write.change == PodChange::Delete {
                pod.deletion_grace = Some(core::time::Duration::from_secs(30));
                continue;
            }
            store(write, &mut pod.labels, &mut pod.annotations);
            if write.change == PodChange::Start {
                pod.gates = Box::default();
            }
        }
        self.candidates(&pods);
    }

    /// The API server answers a read of the lease.
    pub fn read_lease(&mut self) {
        let lease = self.facts.lease.clone();
        self.event(Event::LeaseRead(Ok(lease)));
    }

    /// The only candidate is this workload.
    pub fn workload_is(&mut self, workload: WorkloadFacts) {
        self.facts.candidates = CandidateFacts::Known(Arc::new(Electorate::of_workload(Arc::new(workload))));
    }

    pub fn status_write(&self) -> Option<StatusWrite> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::WriteStatus(write) => Some((**write).clone()),
            _ => None,
        })
    }

    pub fn role_writes(&self) -> Vec<RoleWrite> {
        let of = |effect: &Effect| match effect {
            Effect::WriteRole(write) => Some(write.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    /// The event of this reason that the last turn reports.
    pub fn reported(&self, reason: NoticeReason) -> Notice {
        let of = |effect: &Effect| match effect {
            Effect::Report(notice) if notice.reason == reason => Some(notice.clone()),
            _ => None,
        };
        self.effects.iter().find_map(of).unwrap_or_else(|| panic!("{:?}", self.effects))
    }

    pub fn commands(&self) -> Vec<Command> {
        let of = |effect: &Effect| match effect {
            Effect::Keeper(command) => Some(command.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    /// Whether a machine is started.
    pub fn opens(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Open { .. }))
    }

    pub fn wanted(&self) -> Option<String> {
        self.commands().into_iter().find_map(|command| match command {
            Command::Want(holder) => holder.0.parse().ok().map(|name: crate::election::HolderName| name.pod),
            _ => None,
        })
    }

    pub fn wants(&self, effect: &Effect) -> bool {
        self.effects.contains(effect)
    }
}

/// The API server stores label and annotations.
fn store(write: &RoleWrite, labels: &mut BTreeMap<String, String>, annotations: &mut Annotations) {
    let label = "lease.redislease.io/billing".to_owned();
    match write.role {
        Some(role) => labels.insert(label, role.as_str().into()),
        None => labels.remove(&label),
    };
    write.annotations("billing").iter().for_each(|(key, value)| annotations.set(key, value.as_deref()));
}

/// The workload as the API server stores it after this write.
fn written(workload: &WorkloadFacts, write: &RoleWrite) -> WorkloadFacts {
    let mut workload = workload.clone();
    store(write, &mut workload.labels, &mut workload.annotations);
    let version: u64 = workload.resource_version.as_ref().unwrap().parse().unwrap();
    workload.resource_version = Some((version + 1).to_string());
    if let PodChange::Run(run) = write.change {
        workload.run = run;
    }
    workload
}

pub(super) fn quorum(id: u64, fingerprint: &str) -> QuorumFacts {
    let open = OpenQuorum { id, fingerprint: fingerprint.into(), ..samples::open_quorum() };
    QuorumFacts { read: true, open: Some(Arc::new(open)), up: 3, evaluated: true, ..QuorumFacts::default() }
}
