//! Leases that a cluster holds: the candidate is a workload.

mod consent;
mod deleted;
mod fence;
mod guarded;
mod marks;
mod unfit;
mod unstoppable;

use kube::core::DynamicObject;
use redislease_core::lease::Refusal;
use redislease_core::op::{Stage, Stored};

use super::*;
use crate::api::conditions::LeaseReady;
use crate::api::validated::{ClusterActivation, WorkloadKind};
use crate::election::{Annotations, Run};

const OWNER: &str = "owner.redislease.io/billing";
const WITHDRAWN: &str = "withdrawn.redislease.io/billing";

fn deployment(replicas: i32) -> WorkloadFacts {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "billing", "namespace": "jobs", "uid": "uid-billing-d", "resourceVersion": "1",
            "annotations": {"redislease.io/activated-by": "billing"}},
        "spec": {"replicas": replicas},
    }))
    .unwrap();
    WorkloadFacts::of(WorkloadKind::Deployment, &object).unwrap()
}

fn spec() -> serde_json::Value {
    json!({
        "granularity": "Cluster",
        "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}},
        "activation": {"scale": {"replicas": 3}},
    })
}

fn held_by_here() -> TermId {
    let holder = Holder("here/uid-here/jobs/billing/billing/uid-billing-d".into());
    TermId { holder, ..term(1, 7, "a") }
}

/// The view after an attempt at this time that a term of this holder refused.
fn refused_by(holder: &str, asked_at: Time) -> View {
    let by = Stored { stage: Stage::Term, attempt: Attempt(5), number: 3, metadata: holder.into() };
    let until = asked_at + Millis(20_000);
    View {
        retry_at: Some(until),
        refused_by: Some(Box::new(by)),
        refusal: Some(Refusal { asked_at, until }),
        ..View::default()
    }
}

const FORBIDDEN: &str =
    "deployments.apps \"billing\" is forbidden: User \"x\" cannot patch resource \"deployments\" (403)";

const DEPLOYMENT: Option<WorkloadKind> = Some(WorkloadKind::Deployment);

/// The write that stops the workload.
const STOP: (Option<PodRole>, PodChange, Option<WorkloadKind>) =
    (Some(PodRole::Standby), PodChange::Run(Run::Replicas(0)), DEPLOYMENT);

const ELSEWHERE: &str = "there/uid-there/jobs/billing/billing/uid-1";

impl Story {
    /// A free lease of a cluster whose workload has this number of replicas.
    fn of_cluster(replicas: i32) -> Self {
        let mut story = Self::new();
        story.store(&spec(), &json!(null));
        story.workload_is(deployment(replicas));
        story
    }

    /// The cluster holds the lease with token 7, and the status says so. Nothing was written to the workload.
    fn published(replicas: i32) -> Self {
        let mut story = Self::of_cluster(replicas).asked();
        story.facts.holder = PodKnowledge::Workload;
        story.elect(held_by_here());
        story
    }

    /// The workload runs because this cluster holds the lease with token 7.
    fn running() -> Self {
        let mut story = Self::published(0);
        story.finish();
        story
    }

    fn switches(&self) -> Vec<(Option<PodRole>, PodChange, Option<WorkloadKind>)> {
        self.role_writes().into_iter().map(|write| (write.role, write.change, write.workload)).collect()
    }

    /// The API server answers reads of the lease and accepts all writes, until nothing is left to write.
    fn finish(&mut self) -> Vec<RoleWrite> {
        let mut writes = Vec::new();
        loop {
            let now = self.role_writes();
            let reads = self.wants(&Effect::Read(Read::Lease));
            if now.is_empty() && !reads {
                return writes;
            }
            writes.extend(now);
            if reads {
                self.read_lease();
            } else {
                self.pods();
            }
        }
    }

    /// The API server answers the pending write of the workload with this outcome.
    fn workload_answered(&mut self, outcome: RoleOutcome) {
        self.role_answered("billing-d", outcome);
    }

    /// Somebody changes the replicas.
    fn scale(&mut self, replicas: i32, version: &str) {
        let run = Run::Replicas(replicas);
        self.workload_is(WorkloadFacts { run, resource_version: Some(version.into()), ..self.workload() });
    }

    /// Somebody changes the workload, which has this version then.
    fn change_workload(&mut self, version: &str, change: impl FnOnce(&mut WorkloadFacts)) {
        let mut workload = WorkloadFacts { resource_version: Some(version.into()), ..self.workload() };
        change(&mut workload);
        self.workload_is(workload);
        self.turn();
    }

    fn workload(&self) -> WorkloadFacts {
        self.facts.workload().unwrap().clone()
    }

    fn run(&self) -> (Option<String>, Run) {
        let workload = self.workload();
        (workload.labels.get(LABEL).cloned(), workload.run)
    }
}

#[test]
fn a_workload_runs_only_when_the_status_names_the_cluster() {
    let mut story = Story::of_cluster(0).asked();
    assert_eq!(story.wanted().as_deref(), Some("billing"));
    story.facts.holder = PodKnowledge::Workload;
    story.view(publishing(held_by_here()));
    assert_eq!(story.switches(), [], "{:?}", story.effects);
    story.write();
    let candidates = story.status().condition(ConditionType::CandidatesAvailable).unwrap();
    assert_eq!((candidates.status.as_str(), candidates.reason.as_str()), ("True", "WorkloadAvailable"));
    story.view(held(held_by_here()));
    let writes: Vec<_> = story.finish().into_iter().map(|write| (write.role, write.change)).collect();
    let runs = PodChange::Run(Run::Replicas(3));
    assert_eq!(writes, [(Some(PodRole::Standby), PodChange::None), (Some(PodRole::Active), runs)]);
    assert_eq!(story.run(), (Some("active".into()), Run::Replicas(3)));
    assert_eq!(story.workload().annotations.get(OWNER).unwrap(), "uid-billing.uid-billing-d");
    story.turn();
    assert_eq!(story.switches(), []);
}

/// Each of these once scaled a running workload to 0.
#[test]
fn a_running_workload_is_not_stopped_without_an_answer() {
    let obstacle = |reason| Some((reason, "why".to_owned()));
    let missing =
        QuorumFacts { read: true, obstacle: obstacle(LeaseReady::InvalidReference), ..QuorumFacts::default() };
    let waits = QuorumFacts { obstacle: obstacle(LeaseReady::QuorumUnavailable), ..quorum(1, "f00d") };
    for (what, quorum) in [("missing quorum", missing), ("waiting quorum", waits), ("free lease", quorum(1, "f00d"))] {
        let mut story = Story::of_cluster(2);
        story.facts.quorum = Arc::new(quorum);
        story.turn();
        story.answer();
        story.view(idle(0));
        story.pass(60_000);
        assert_eq!(story.switches(), [], "{what}");
    }
    let mut story = Story::of_cluster(2);
    story.unfit();
    story.turn();
    story.view(idle(0));
    assert_eq!(story.switches(), [], "unfit spec");
    // The attempt is not answered, or not by a term of another.
    let begun = story.now + Millis(1);
    let own = "here/uid-here/jobs/billing/billing/uid-old";
    let sealed = |mut view: View| {
        view.refusal = None;
        view
    };
    for (what, view) in [
        ("no answer", idle(10_000_000)),
        ("a term of our own", refused_by(own, begun)),
        ("a value of another program", refused_by("?", begun)),
        ("a seal, or too few nodes", sealed(refused_by(ELSEWHERE, begun))),
    ] {
        let mut story = Story::of_cluster(2).asked();
        story.pass(10);
        story.view(view);
        story.pass(1000);
        assert_eq!(story.switches(), [], "{what}");
    }
}

#[test]
fn a_workload_is_stopped_when_another_cluster_answered_after_it_was_seen() {
    let mut story = Story::of_cluster(2);
    story.facts.candidates = CandidateFacts::Unknown;
    story.turn();
    story.view(refused_by(ELSEWHERE, story.now));
    // The refusal is older than what is known about the workload: it is asked for again at once.
    story.now += Millis(5);
    story.workload_is(deployment(2));
    story.turn();
    assert_eq!((story.switches(), story.commands()), (Vec::new(), vec![Command::TryNow]));
    let asked_at = story.now + Millis(5);
    story.now += Millis(10);
    story.view(refused_by(ELSEWHERE, asked_at));
    assert_eq!(story.switches(), [STOP]);
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)));
    assert_eq!(story.workload().annotations.get(WITHDRAWN).unwrap(), "0.1");
    // It is ours now: somebody else's start is corrected without another answer.
    story.scale(5, "9");
    story.pass(10_000);
    assert_eq!(story.switches().len(), 1);
}

/// No attempt can tell that another cluster holds the lease.
#[test]
fn a_suspended_lease_says_that_a_workload_runs_that_it_has_not_started() {
    let mut story = Story::of_cluster(2);
    story.lease_mut().spec.suspend = true;
    story.turn();
    assert_eq!(story.switches(), []);
    let ready = story.ready();
    let runs = "The workload runs, and the operator has not started it";
    assert!(ready.reason == "Suspended" && ready.message.contains(runs), "{ready:?}");
    story.write();
    story.scale(0, "40");
    story.turn();
    assert!(!story.ready().message.contains(runs), "{:?}", story.effects);
}

#[test]
fn an_answer_whose_keys_have_ended_stops_nothing() {
    let mut story = Story::of_cluster(2);
    story.turn();
    story.reconciler.handle(story.now, Event::View(refused_by(ELSEWHERE, story.now)));
    story.pass(20_000);
    assert_eq!(story.switches(), []);
}

/// The start is sent and not answered; the term ends. The withdrawal must not be a write that changes nothing.
#[test]
fn a_withdrawal_moves_the_version_past_a_late_start() {
    let mut story = Story::published(0);
    story.pods();
    story.read_lease();
    assert_eq!(story.role_writes()[0].role, Some(PodRole::Active));
    let before = story.workload();
    assert_eq!(before.annotations.get(WITHDRAWN).unwrap(), "7.1");
    let outcome = RoleOutcome::Unanswered("timeout".into());
    story.reconciler.handle(story.now, Event::RoleWritten { uid: "uid-billing-d".into(), outcome });
    story.view(ending(held_by_here(), EndReason::Deadline));
    let writes = story.role_writes();
    assert_eq!((writes.len(), writes[0].role, writes[0].version.as_deref()), (1, Some(PodRole::Standby), Some("2")));
    assert!(writes[0].marks.contains(&(WITHDRAWN.into(), Some("7.2".into()))), "{writes:?}");
    story.finish();
    story.turn();
    assert_eq!(story.switches(), [], "the withdrawal is stored once");
}

#[test]
fn each_gain_of_authority_withdraws_the_workload_again() {
    let mut story = Story::running();
    story.view(ending(held_by_here(), EndReason::Deadline));
    let status = story.status_to_write();
    story.finish();
    story.write_status(status);
    story.finish();
    story.view(idle(10_000_000));
    story.finish();
    let before = story.workload().annotations.get(WITHDRAWN).cloned();
    story.facts.authority = Authority::Follow;
    story.turn();
    story.facts.authority = Authority::Lead;
    story.turn();
    story.view(idle(10_000_000));
    story.finish();
    assert_ne!(story.workload().annotations.get(WITHDRAWN).cloned(), before);
    // A lower version follows a restore of the API server.
    story.change_workload("1", |_| {});
    assert_eq!(story.role_writes().len(), 1);
}

#[test]
fn a_start_needs_a_status_that_was_read_after_the_object() {
    let mut story = Story::published(0);
    story.pods();
    assert!(story.wants(&Effect::Read(Read::Lease)) && story.role_writes().is_empty(), "{:?}", story.effects);
    // The object changes while the status is read: the answer does not count for the new version.
    story.workload_is(WorkloadFacts { resource_version: Some("40".into()), ..story.workload() });
    story.read_lease();
    assert!(story.wants(&Effect::Read(Read::Lease)) && story.role_writes().is_empty(), "{:?}", story.effects);
    story.read_lease();
    assert_eq!(story.role_writes()[0].version.as_deref(), Some("40"));
}

#[test]
fn a_doubt_moves_only_the_label() {
    let mut story = Story::running();
    let uncertain = uncertain(held_by_here());
    story.view(uncertain);
    assert_eq!(story.switches(), [], "another replica may contradict");
    story.write();
    story.pass(2000);
    assert_eq!(story.switches(), [(Some(PodRole::Standby), PodChange::None, DEPLOYMENT)]);
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(3)));
    // The loss stops it.
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.finish();
    assert_eq!(story.run(), (Some("standby".into()), Run::Replicas(0)));
}

#[test]
fn a_cluster_that_loses_the_lease_stops_its_workload_at_once() {
    let mut story = Story::running();
    story.view(ending(held_by_here(), EndReason::Deadline));
    assert_eq!(story.switches(), [STOP]);
    assert_eq!(story.role_writes()[0].priority, Priority::End, "it waits for no status of other leases");
    assert_eq!(story.commands(), [Command::ReadKeys], "nothing proves that the pods have stopped");
}

#[test]
fn somebody_elses_change_of_the_replicas_is_corrected() {
    let mut story = Story::running();
    story.scale(5, "20");
    story.pass(60_000);
    story.read_lease();
    assert_eq!(story.switches().len(), 1, "{:?}", story.effects);
    story.scale(3, "21");
    story.workload_answered(RoleOutcome::Conflict);
    assert_eq!(story.switches(), []);
}

#[test]
fn without_the_flag_the_workload_is_not_touched() {
    let mut story = Story::of_cluster(2);
    story.facts.allowed = Allowed::default();
    story.turn();
    let ready = story.ready();
    story.view(idle(0));
    assert_eq!((story.wanted(), story.switches()), (None, Vec::new()));
    assert_eq!(ready.reason, LeaseReady::ActivationNotAllowed.as_str());
    assert!(ready.message.contains("--allow-scale (rbac.allowScale in the chart)"), "{}", ready.message);
}

#[test]
fn events_about_a_cluster_name_no_pod() {
    let mut story = Story::running();
    story.lose(held_by_here());
    assert_eq!(story.reported(NoticeReason::LeaseLost).on_pods, []);
}

#[test]
fn a_status_that_lost_the_term_stops_no_workload_while_the_term_is_held() {
    let mut story = Story::running();
    story.store(&spec(), &json!({"fencingToken": 6}));
    story.turn();
    story.read_lease();
    assert_eq!(story.switches(), [], "{:?}", story.effects);
    assert_eq!(story.run().1, Run::Replicas(3));
}

/// The spec was changed to one that does not fit the quorum, and the operator was restarted: it does not know which workload the
/// lease has.
#[test]
fn while_the_candidates_are_unknown_a_running_workload_keeps_its_marks() {
    let old = Story::running();
    let workload = old.workload();
    let mut story = Story::of_cluster(3);
    story.facts.lease = old.facts.lease.clone();
    story.facts.candidates = CandidateFacts::Unknown;
    story.facts.stray_workloads = vec![Arc::new(workload.clone())];
    story.spec = old.spec.clone();
    story.turn();
    story.view(adopting(held_by_here()));
    story.view(held(held_by_here()));
    assert_eq!(story.role_writes(), [], "{:?}", story.effects);
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.facts.stray_workloads = Vec::new();
    story.workload_is(workload);
    story.turn();
    assert_eq!(story.switches(), [STOP], "after the correction it is stopped");
}

#[test]
fn a_workload_that_is_not_the_candidate_any_more_blocks_no_attempt() {
    let mut workload = Story::running().workload();
    let mut story = Story::new();
    workload.resource_version = Some("70".into());
    story.facts.stray_workloads = vec![Arc::new(workload)];
    story.turn();
    let uid = story.role_writes()[0].uid.clone();
    story.event(Event::RoleWritten { uid, outcome: refusal(FORBIDDEN) });
    story.answer();
    assert_eq!(story.wanted(), Some("a".to_owned()), "{:?}", story.effects);
}

#[test]
fn each_way_of_activation_needs_its_flag() {
    let scale = Allowed { scale: true, ..Allowed::default() };
    let suspend = Allowed { suspend: true, ..Allowed::default() };
    for (version, kind, activation, flag) in [
        ("apps/v1", "Deployment", json!({"scale": {"replicas": 3}}), scale),
        ("batch/v1", "CronJob", json!({"suspend": true}), suspend),
    ] {
        let mut wanted = spec();
        wanted["candidates"]["workloadRef"] = json!({"apiVersion": version, "kind": kind, "name": "billing"});
        wanted["activation"] = activation;
        let mut story = Story::of_cluster(0);
        story.store(&wanted, &json!(null));
        for allowed in [Allowed::default(), scale, suspend] {
            story.facts.allowed = allowed;
            story.turn();
            let obstacle = activation::obstacle(&story.facts);
            assert_eq!(obstacle.is_none(), allowed == flag, "{kind} {allowed:?}: {obstacle:?}");
        }
    }
}

#[test]
fn a_workload_is_suspended_unless_it_is_active() {
    for (role, is_suspended) in [(PodRole::Active, false), (PodRole::Standby, true)] {
        let switched = activation::switched(ClusterActivation::Suspend, &deployment(1), role, None);
        assert_eq!(switched.change, PodChange::Run(Run::Suspended(is_suspended)));
    }
}
