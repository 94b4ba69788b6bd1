//! Leases that a cluster holds: the candidate is a workload.

use kube::core::DynamicObject;

use super::*;
use crate::api::conditions::LeaseReady;
use crate::api::names::PodRole;
use crate::api::validated::WorkloadKind;
use crate::election::Run;

const ROLE: &str = "lease.redislease.io/billing";

fn deployment(replicas: i32) -> PodFacts {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "billing", "namespace": "jobs", "uid": "uid-billing-d", "resourceVersion": "1"},
        "spec": {"replicas": replicas},
    }))
    .unwrap();
    PodFacts::of_workload(WorkloadKind::Deployment, &object).unwrap()
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

impl Story {
    /// A free lease of a cluster whose workload has this number of replicas.
    fn of_cluster(replicas: i32) -> Self {
        let mut story = Self::new();
        story.store(&spec(), &json!(null));
        story.candidates(&[deployment(replicas)]);
        story
    }

    /// The workload runs because this cluster holds the lease with token 7.
    fn running() -> Self {
        let mut story = Self::of_cluster(0);
        story.turn();
        story.answer();
        story.holder(deployment(0));
        story.view(publishing(held_by_here()));
        story.write();
        story.view(held(held_by_here()));
        story.pods();
        story
    }

    fn switches(&self) -> Vec<(Option<PodRole>, PodChange, Option<WorkloadKind>)> {
        self.role_writes().into_iter().map(|write| (write.role, write.change, write.workload)).collect()
    }
}

#[test]
fn a_workload_runs_only_when_the_status_names_the_cluster() {
    let mut story = Story::of_cluster(0);
    story.turn();
    story.answer();
    assert_eq!(story.wanted().as_deref(), Some("billing"));
    story.holder(deployment(0));
    story.view(publishing(held_by_here()));
    assert!(story.switches().iter().all(|(role, ..)| *role != Some(PodRole::Active)), "{:?}", story.effects);
    story.write();
    let status = story.facts.lease.as_ref().unwrap().status.as_ref().unwrap();
    let candidates = status.condition(ConditionType::CandidatesAvailable).unwrap();
    assert_eq!((candidates.status.as_str(), candidates.reason.as_str()), ("True", "WorkloadAvailable"));
    story.view(held(held_by_here()));
    let runs = PodChange::Run(Run::Replicas(3));
    assert_eq!(story.switches(), [(Some(PodRole::Active), runs, Some(WorkloadKind::Deployment))]);
    story.pods();
    assert_eq!(story.switches(), []);
}

#[test]
fn a_workload_without_the_lease_is_scaled_to_zero() {
    let mut story = Story::of_cluster(2);
    let refused = View { retry_at: Some(Time(10_000_000)), ..View::default() };
    story.turn();
    story.view(refused);
    assert_eq!(
        story.switches(),
        [(Some(PodRole::Standby), PodChange::Run(Run::Replicas(0)), Some(WorkloadKind::Deployment))]
    );
}

#[test]
fn a_cluster_that_loses_the_lease_stops_its_workload_at_once() {
    let mut story = Story::running();
    story.view(ending(held_by_here(), EndReason::Deadline));
    let stops = PodChange::Run(Run::Replicas(0));
    assert_eq!(story.switches(), [(Some(PodRole::Standby), stops, Some(WorkloadKind::Deployment))]);
    assert_eq!(story.commands(), [], "nothing proves that the pods have stopped");
}

#[test]
fn somebody_elses_change_of_the_replicas_is_corrected() {
    let mut story = Story::running();
    let changed = |replicas| PodFacts {
        labels: [(ROLE.to_owned(), "active".to_owned())].into(),
        annotations: [("token.redislease.io/billing".to_owned(), "7".to_owned())].into_iter().collect(),
        ..deployment(replicas)
    };
    story.candidates(&[changed(5)]);
    story.turn();
    assert_eq!(story.switches().len(), 1, "{:?}", story.effects);
    story.candidates(&[changed(3)]);
    story.event(Event::RoleWritten { uid: "uid-billing-d".into(), outcome: RoleOutcome::Conflict });
    assert_eq!(story.switches(), []);
}

#[test]
fn without_the_flag_the_workload_is_not_touched() {
    let mut story = Story::of_cluster(2);
    story.facts.allowed = Allowed::default();
    story.turn();
    let status = story.status_write().unwrap().status;
    story.view(idle(0));
    assert_eq!((story.wanted(), story.switches()), (None, Vec::new()));
    let ready = status.condition(ConditionType::Ready).unwrap();
    assert_eq!(ready.reason, LeaseReady::InvalidSpec.as_str());
    assert!(ready.message.contains("--allow-scale"), "{}", ready.message);
}

#[test]
fn events_about_a_cluster_name_no_pod() {
    let mut story = Story::running();
    story.view(ending(held_by_here(), EndReason::Deadline));
    story.write();
    assert_eq!(story.reported(NoticeReason::LeaseLost).on_pods, []);
}

#[test]
fn a_workload_that_vanished_ends_the_term_without_proof() {
    let mut story = Story::running();
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.facts.candidates = CandidateFacts::Unusable(LeaseReady::InvalidReference, "it does not exist".into());
    story.turn();
    assert_eq!(story.commands(), [Command::End { term: held_by_here(), proof: false }]);
    assert!(!deployment(0).proves_stopped_when_deleted());
}
