//! When workloads are read.

use super::*;
use kube::core::Expression;
use serde_json::json;

fn key(name: &str) -> WorkloadKey {
    ("n".into(), Workload { kind: WorkloadKind::Deployment, name: name.into() })
}

fn selector() -> Selector {
    Expression::Equal("app".into(), "a".into()).into()
}

#[test]
fn one_read_serves_all_leases_and_the_next_is_late() {
    let mut workloads = Workloads::default();
    for lease in 0..3 {
        workloads.join(&key("a"), LeaseId(lease), false, Time(0));
    }
    assert_eq!(*workloads.known(&key("a")), Known::Nothing);
    assert_eq!(workloads.next_due(Time(0)), Some(key("a")));
    assert_eq!(workloads.next_due(Time(0)), None);
    let all = [0, 1, 2].map(LeaseId).into();
    assert_eq!(workloads.read(&key("a"), WorkloadRead::Selects(selector()).into(), true, Time(5)).regrouped, all);
    assert_eq!(workloads.next_deadline(), Some(Time(5) + FRESH));
    // The workload was read before: a refused read changes nothing.
    workloads.next_due(Time(5) + FRESH);
    let refused = workloads.read(&key("a"), WorkloadRead::Refused("no".into()).into(), true, Time(5));
    assert!(refused.regrouped.is_empty() && *workloads.known(&key("a")) == Known::Selector(selector()));
    (0..3).for_each(|lease| workloads.leave(&key("a"), LeaseId(lease)));
    assert!(workloads.entries.is_empty() && workloads.next_deadline().is_none());
}

#[test]
fn a_missing_workload_is_read_soon_with_growing_pauses() {
    let mut workloads = Workloads::default();
    workloads.join(&key("a"), LeaseId(1), false, Time(0));
    let mut now = Time(0);
    for pause in [2, 4, 8, 16, 32, 32] {
        assert_eq!(workloads.next_due(now), Some(key("a")));
        workloads.read(&key("a"), WorkloadRead::Missing.into(), false, now);
        assert_eq!(workloads.next_deadline(), Some(now + Millis(pause * 1000)));
        now += Millis(pause * 1000);
    }
    let Known::Unusable(reason, message) = workloads.known(&key("a")) else { panic!("it is missing") };
    assert_eq!(*reason, LeaseReady::InvalidReference);
    assert!(message.contains("Deployment n/a, which does not exist"), "{message}");
}

#[test]
fn a_selector_over_labels_of_the_operator_is_an_invalid_reference() {
    let mut workloads = Workloads::default();
    workloads.join(&key("a"), LeaseId(1), false, Time(0));
    workloads.next_due(Time(0));
    let label = "lease.redislease.io/billing";
    workloads.read(&key("a"), WorkloadRead::SelectsByRole(label.into()).into(), false, Time(0));
    let Known::Unusable(reason, message) = workloads.known(&key("a")) else { panic!("its pods are no candidates") };
    assert_eq!(*reason, LeaseReady::InvalidReference);
    assert!(message.contains("Deployment n/a") && message.contains(label), "{message}");
}

#[test]
fn a_workload_whose_selector_names_a_label_of_the_operator_is_no_candidate() {
    for (kind, is_candidate) in [(WorkloadKind::Deployment, false), (WorkloadKind::CronJob, true)] {
        let mut workloads = Workloads::default();
        let key: WorkloadKey = ("n".into(), Workload { kind, name: "a".into() });
        workloads.join(&key, LeaseId(1), true, Time(0));
        workloads.next_due(Time(0));
        let object = serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}})).unwrap();
        let read = WorkloadRead::SelectsByRole("lease.redislease.io/billing".into());
        let object = WorkloadFacts::of(kind, &object).map(Arc::new);
        workloads.read(&key, WorkloadFound { read, object }, false, Time(0));
        assert_eq!(workloads.object(&key).is_some(), is_candidate, "{kind:?}");
    }
}

#[test]
fn a_workload_that_cannot_be_read_is_unknown_and_no_invalid_reference() {
    let mut workloads = Workloads::default();
    workloads.join(&key("a"), LeaseId(1), false, Time(0));
    workloads.next_due(Time(0));
    let why = "the API server refused: a webhook (403)";
    workloads.read(&key("a"), WorkloadRead::Refused(why.into()).into(), false, Time(0));
    let message = format!(
        "The operator could not read Deployment n/a, which spec.candidates.workloadRef names, and does not know which \
         pods are candidates: {why}"
    );
    assert_eq!(*workloads.known(&key("a")), Known::Unusable(LeaseReady::Starting, message));
    assert_eq!(workloads.next_deadline(), Some(Time(0) + EARLY.min), "it is read again early");
    workloads.next_due(Time(2000));
    let why =
        "the API server refused: deployments.apps \"a\" is forbidden: User \"operator\" cannot get resource (403)";
    workloads.read(&key("a"), WorkloadRead::Refused(why.into()).into(), false, Time(2000));
    let Known::Unusable(LeaseReady::Forbidden, message) = workloads.known(&key("a")) else { panic!("it is a right") };
    assert!(message.contains("no right to read Deployment n/a") && message.contains(why), "{message}");
    workloads.next_due(Time(2000));
    workloads.read(&key("a"), WorkloadRead::Missing.into(), false, Time(2000));
    assert!(matches!(workloads.known(&key("a")), Known::Unusable(LeaseReady::InvalidReference, _)));
}

#[test]
fn the_read_rate_is_shared_and_a_change_schedules_one_early() {
    let mut workloads = Workloads::default();
    for workload in 0..10_000_u64 {
        workloads.join(&key(&workload.to_string()), LeaseId(workload), false, Time(0));
    }
    while let Some(next) = workloads.next_due(Time(0)) {
        workloads.read(&next, WorkloadRead::Selects(selector()).into(), true, Time(0));
    }
    assert_eq!(workloads.next_deadline(), Some(Time(2_000_000)));
    workloads.read_soon(&key("77"), Time(10));
    assert_eq!(workloads.next_deadline(), Some(Time(2010)));
    workloads.read_soon(&key("77"), Time(100));
    assert_eq!(workloads.next_due(Time(2010)), Some(key("77")));
    assert_eq!(workloads.next_due(Time(2010)), None);
}
