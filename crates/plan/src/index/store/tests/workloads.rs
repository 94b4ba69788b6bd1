//! Workloads that are candidates themselves.

use kube::core::DynamicObject;
use kube::core::Expression;
use redislease_core::time::Millis;

use super::*;
use crate::api::validated::{Workload, WorkloadKind};
use crate::election::{Run, WorkloadFacts};

fn of_cluster(name: &str, version: u64) -> RedisLease {
    let mut lease = lease("n", name, version, &of_deployment("d"));
    lease.spec.granularity = crate::api::lease::Granularity::Cluster;
    lease.spec.activation = serde_json::from_value(json!({"scale": {"replicas": 3}})).unwrap();
    lease
}

fn deployment(uid: &str, version: u64, replicas: i32) -> WorkloadFound {
    marked(uid, version, replicas, &json!({}))
}

fn marked(uid: &str, version: u64, replicas: i32, annotations: &serde_json::Value) -> WorkloadFound {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n", "uid": uid, "resourceVersion": version.to_string(), "annotations": annotations},
        "spec": {"replicas": replicas},
    }))
    .unwrap();
    let object = WorkloadFacts::of(WorkloadKind::Deployment, &object).unwrap();
    let selector = Expression::Equal("app".into(), "a".into()).into();
    WorkloadFound { read: WorkloadRead::Selects(selector), object: Some(Arc::new(object)) }
}

fn replicas(index: &mut Index, id: LeaseId) -> Vec<(String, Run)> {
    let electorate = electorate(index, id);
    electorate.workload().iter().map(|one| (one.uid.clone(), one.run)).collect()
}

#[test]
fn the_workload_is_the_only_candidate_and_is_read_often() {
    let mut index = index();
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    due(&mut index);
    assert!(matches!(index.facts(id, Time(0)).unwrap().candidates, CandidateFacts::Unknown));
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, deployment("u1", 5, 0), NOW);
    assert_eq!(due(&mut index), [id]);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(0))]);
    assert!(index.next_deadline().unwrap() <= NOW + Millis(10_000), "somebody else may switch it");

    // An older read changes nothing, a newer one does. A list of pods says nothing about workloads.
    index.workload_read(&key, deployment("u1", 4, 9), NOW);
    list(&mut index, vec![pod("n", "p", 1, &[("app", "a")])]);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(0))]);
    due(&mut index);
    index.workload_read(&key, deployment("u1", 6, 3), NOW);
    assert_eq!(due(&mut index), [id]);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(3))]);
}

/// Such a workload, for example a CronJob without labels, was called unusable at each start of the operator.
#[test]
fn a_workload_needs_no_selector_to_be_the_candidate() {
    let mut index = Index::new("redislease-system");
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, WorkloadFound { read: WorkloadRead::SelectsNothing, ..deployment("u1", 5, 3) }, NOW);
    assert!(matches!(index.facts(id, Time(0)).unwrap().candidates, CandidateFacts::Unknown), "the pods are not listed");
    list(&mut index, Vec::new());
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(3))]);
    // Authority was gained, and the right to read the workload is missing now.
    index.workloads_of_quorum("default", NOW);
    assert!(matches!(index.facts(id, Time(0)).unwrap().candidates, CandidateFacts::Unknown), "it is read again");
    let why = "deployments.apps \"d\" is forbidden: User \"operator\" cannot get resource \"deployments\"";
    index.workload_read(&key, WorkloadRead::Refused(why.into()).into(), NOW);
    let candidates = index.facts(id, Time(0)).unwrap().candidates;
    assert!(matches!(candidates, CandidateFacts::Unusable(LeaseReady::Forbidden, _)), "{candidates:?}");
}

#[test]
fn a_workload_that_is_deleted_or_created_again_is_no_proof() {
    let mut index = index();
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    index.set_holder(id, Some("u1"));
    assert_eq!(index.facts(id, Time(0)).unwrap().holder, PodKnowledge::Workload);
    index.workload_read(&key, deployment("u2", 9, 3), NOW);
    assert_eq!(index.facts(id, Time(0)).unwrap().holder, PodKnowledge::Gone { stopped: false });
    assert_eq!(replicas(&mut index, id), [("u2".into(), Run::Replicas(3))]);
    // A failed read says nothing.
    due(&mut index);
    index.workload_read(&key, WorkloadRead::Refused("no".into()).into(), NOW);
    assert_eq!((due(&mut index), replicas(&mut index, id).len()), (Vec::new(), 1));
    index.workload_read(&key, WorkloadRead::Missing.into(), NOW);
    assert!(matches!(index.facts(id, Time(0)).unwrap().candidates, CandidateFacts::Unusable(..)));
}

#[test]
fn a_lease_that_becomes_one_of_a_cluster_waits_for_the_next_read() {
    let mut index = index();
    let id = index.lease_seen(lease("n", "a", 1, &of_deployment("d")), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    index.lease_seen(of_cluster("a", 2), NOW);
    assert!(matches!(index.facts(id, Time(0)).unwrap().candidates, CandidateFacts::Unknown));
    assert_eq!(index.next_workload(NOW).as_ref(), Some(&key), "it is read at once");
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    assert_eq!(replicas(&mut index, id).len(), 1);
    // Another lease of the same workload, and then none.
    let other = index.lease_seen(of_cluster("b", 1), NOW).unwrap();
    assert_eq!(replicas(&mut index, other).len(), 1);
    for id in [id, other] {
        let metadata = index.lease(id).unwrap().object.as_ref().unwrap().metadata.clone();
        index.lease_gone(&metadata);
        index.remove(id);
    }
    assert!(index.pods.namespaces().next().is_none());
}

#[test]
fn other_workloads_do_not_delay_the_reads_of_a_candidate() {
    let mut index = index();
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    for number in 0..100 {
        index.lease_seen(lease("n", &number.to_string(), 1, &of_deployment(&format!("other-{number}"))), NOW).unwrap();
    }
    index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    while let Some(key) = index.next_workload(NOW) {
        let found = deployment("u", 5, 3);
        index.workload_read(&key, if key.1.name == "d" { found } else { found.read.into() }, NOW);
    }
    assert_eq!(index.next_deadline(), Some(NOW + Millis(10_000)));
}

#[test]
fn a_change_is_read_at_once_and_at_most_once_a_second() {
    let mut index = index();
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    // It changes while it is read: it is known as of the answer, which may be older than the change, and read again.
    index.workload_changed(&(key.clone(), BTreeSet::new()), NOW);
    index.workload_read(&key, deployment("u1", 5, 0), NOW);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(0))]);
    let next = NOW + Millis(1000);
    assert_eq!(index.next_deadline(), Some(next));
    assert_eq!(index.next_workload(next).as_ref(), Some(&key));
    index.workload_read(&key, deployment("u1", 6, 3), next);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(3))]);
    assert_eq!(index.next_deadline(), Some(next + Millis(60_000)), "a watch shows its changes, unless it has failed");
    index.workload_changed(&(key.clone(), BTreeSet::new()), next + Millis(400));
    assert_eq!(index.next_deadline(), Some(next + Millis(1000)));
    let other = ("n".into(), Workload { kind: WorkloadKind::Deployment, name: "other".into() });
    index.workload_changed(&(other, BTreeSet::new()), next);
}

#[test]
fn after_a_change_of_authority_the_workload_is_unknown_until_it_was_read() {
    let mut index = index();
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.pod_seen(pod("n", "p", 1, &[]), NOW);
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    due(&mut index);
    index.workloads_of_quorum("default", NOW);
    assert!(matches!(index.facts(id, NOW).unwrap().candidates, CandidateFacts::Unknown));
    assert_eq!(index.next_workload(NOW).as_ref(), Some(&key));
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    assert_eq!((due(&mut index), replicas(&mut index, id).len()), (vec![id], 1));
    // The same while it is read: that answer says nothing.
    index.workload_changed(&(key.clone(), BTreeSet::new()), NOW + Millis(5000));
    assert_eq!(index.next_workload(NOW + Millis(5000)).as_ref(), Some(&key));
    index.workloads_of_quorum("default", NOW + Millis(5000));
    index.workload_read(&key, deployment("u1", 6, 3), NOW + Millis(5000));
    assert!(matches!(index.facts(id, NOW).unwrap().candidates, CandidateFacts::Unknown));
}

#[test]
fn a_read_after_a_restore_of_the_api_server_wins_with_a_lower_version() {
    let mut index = index();
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, deployment("u1", 500, 3), NOW);
    let later = NOW + Millis(20_000);
    assert_eq!(index.next_workload(later).as_ref(), Some(&key));
    index.workload_read(&key, deployment("u1", 7, 0), later);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(0))]);
    // A read that was sent before the last write was answered says nothing.
    let later = later + Millis(20_000);
    assert_eq!(index.next_workload(later).as_ref(), Some(&key));
    let asked = index.pod_lists().ask();
    index.answered(asked, Candidate::Workload(deployment("u1", 9, 3).object.unwrap()), later);
    index.workload_read(&key, deployment("u1", 8, 0), later);
    assert_eq!(replicas(&mut index, id), [("u1".into(), Run::Replicas(3))]);
}

/// A selector that only requires that a label is absent matches every object.
#[test]
fn a_selector_never_selects_a_workload() {
    let mut index = index();
    index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, deployment("u1", 5, 3), NOW);
    let absent = json!({"selector": {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}});
    let pods = index.lease_seen(lease("n", "b", 1, &absent), NOW).unwrap();
    assert_eq!(electorate(&mut index, pods).total(), 0);
    index.workload_read(&key, deployment("u1", 6, 2), NOW);
    assert_eq!(electorate(&mut index, pods).total(), 0);
}

fn strays(index: &mut Index, id: LeaseId) -> Vec<String> {
    index.facts(id, NOW).unwrap().stray_workloads.iter().map(|one| one.uid.clone()).collect()
}

#[test]
fn a_workload_that_is_no_candidate_any_more_is_a_stray_until_its_marks_are_removed() {
    let owned = json!({"owner.redislease.io/a": "uid-a.u1", "redislease.io/activated-by": "a"});
    let mut index = index();
    let id = index.lease_seen(of_cluster("a", 1), NOW).unwrap();
    let key = index.next_workload(NOW).unwrap();
    index.workload_read(&key, marked("u1", 5, 3, &owned), NOW);
    assert_eq!((strays(&mut index, id), replicas(&mut index, id).len()), (vec![], 1), "the candidate is no stray");
    index.lease_seen(lease("n", "a", 2, &of_deployment("d")), NOW);
    assert_eq!(strays(&mut index, id), ["u1"], "granularity Pod");
    // No pod has the UID of the holder.
    index.answered_missing("n", "u1", None, NOW);
    assert_eq!(strays(&mut index, id), ["u1"]);
    let after = marked("u1", 6, 3, &json!({})).object.unwrap();
    let asked = index.pod_lists().ask();
    due(&mut index);
    index.answered(asked, Candidate::Workload(after), NOW);
    assert_eq!((due(&mut index), strays(&mut index, id)), (vec![id], vec![]));
}

/// The granularity, or the workload of the lease, has changed while no process ran.
#[test]
fn after_a_restart_the_watch_shows_the_workloads_that_carry_marks() {
    let owned = json!({"owner.redislease.io/a": "uid-a.u1", "owner.redislease.io/gone": "uid-gone.u1"});
    let mut index = index();
    let id = index.lease_seen(lease("n", "a", 1, &app("x")), NOW).unwrap();
    list(&mut index, vec![]);
    due(&mut index);
    let key: WorkloadKey = ("n".into(), Workload { kind: WorkloadKind::Deployment, name: "d".into() });
    index.workload_changed(&(key.clone(), ["a".to_owned(), "gone".to_owned()].into()), NOW);
    assert_eq!(index.next_workload(NOW).as_ref(), Some(&key));
    index.workload_read(&key, marked("u1", 5, 3, &owned), NOW);
    assert_eq!((due(&mut index), strays(&mut index, id)), (vec![id], vec!["u1".to_owned()]));
    let orphans: Vec<_> = index.orphans().into_iter().map(|one| one.lease).collect();
    assert_eq!(orphans, ["gone"], "no lease has this name");
    // It is deleted.
    index.workload_changed(&(key.clone(), BTreeSet::new()), NOW + Millis(5000));
    assert_eq!(index.next_workload(NOW + Millis(5000)).as_ref(), Some(&key));
    index.workload_read(&key, WorkloadRead::Missing.into(), NOW + Millis(5000));
    assert_eq!((strays(&mut index, id), index.orphans().len(), index.next_deadline()), (vec![], 0, None));
}

/// The CustomResourceDefinition was replaced by one without these fields.
#[test]
fn a_lease_whose_spec_lost_fields_without_a_change_keeps_its_workload() {
    let mut index = index();
    let generation = |mut lease: RedisLease, generation| {
        lease.metadata.generation = Some(generation);
        lease
    };
    let pruned = |version| lease("n", "a", version, &of_deployment("d"));
    let id = index.lease_seen(generation(of_cluster("a", 1), 1), NOW).unwrap();
    let granularity = |index: &Index| index.lease(id).unwrap().object.as_ref().unwrap().spec.granularity;
    index.lease_list_begins();
    index.lease_seen(generation(pruned(2), 1), NOW);
    index.lease_list_ends(NOW);
    index.lease_answered(id, Arc::new(generation(pruned(3), 1)), NOW);
    assert_eq!(granularity(&index), crate::api::lease::Granularity::Cluster);
    assert_eq!(index.lease(id).unwrap().object.as_ref().unwrap().metadata.resource_version.as_deref(), Some("3"));
    index.lease_seen(generation(pruned(4), 2), NOW);
    assert_eq!(granularity(&index), crate::api::lease::Granularity::Pod, "somebody changed it");
}
