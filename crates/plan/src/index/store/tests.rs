mod pods;
mod quorums;
mod workloads;

use kube::core::Expression;
use serde_json::json;

use super::*;
use crate::api::conditions::LeaseReady;
use crate::election::Electorate;
use crate::plan::CandidateFacts;
use crate::samples;

const NOW: Time = Time(1000);

fn lease(namespace: &str, name: &str, version: u64, candidates: &serde_json::Value) -> RedisLease {
    let mut lease = samples::lease(namespace, name, &json!({"candidates": candidates}));
    lease.metadata.resource_version = Some(version.to_string());
    lease.metadata.generation = version.try_into().ok();
    lease
}

fn app(app: &str) -> serde_json::Value {
    json!({"selector": {"matchLabels": {"app": app}}})
}

fn of_deployment(name: &str) -> serde_json::Value {
    json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}})
}

fn pod(namespace: &str, name: &str, version: u64, labels: &[(&str, &str)]) -> PodFacts {
    PodFacts {
        namespace: namespace.into(),
        resource_version: Some(version.to_string()),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..PodFacts::running(name)
    }
}

fn answered(index: &mut Index, asked: Asked, facts: PodFacts) {
    index.answered(asked, Candidate::Pod(Arc::new(facts)), NOW);
}

fn answered_now(index: &mut Index, facts: PodFacts) {
    answered(index, index.pod_lists().ask(), facts);
}

fn index() -> Index {
    let mut index = Index::new("redislease-system");
    list(&mut index, Vec::new());
    index
}

fn due(index: &mut Index) -> Vec<LeaseId> {
    std::iter::from_fn(|| index.next_due()).collect()
}

fn electorate(index: &mut Index, id: LeaseId) -> Arc<Electorate> {
    match index.facts(id, Time(0)).unwrap().candidates {
        CandidateFacts::Known(electorate) => electorate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_thousand_leases_over_one_set_of_pods_do_not_delay_another_tenant() {
    let mut index = index();
    let mut large = Vec::new();
    for number in 0..2000 {
        large.push(index.lease_seen(lease("large", &format!("l{number}"), 1, &app("a")), NOW).unwrap());
    }
    let small = index.lease_seen(lease("small", "only", 1, &app("a")), NOW).unwrap();
    for number in 0..200 {
        index.pod_seen(pod("large", &format!("p{number}"), 1, &[("app", "a")]), NOW);
    }
    assert_eq!(due(&mut index).len(), 2001, "each lease once, however many events there were");
    let before = electorate(&mut index, large[0]);
    assert_eq!(before.total(), 200);
    assert!(large.iter().all(|id| Arc::ptr_eq(&before, &electorate(&mut index, *id))), "one electorate for all");

    index.pod_seen(PodFacts { ready: false, ..pod("large", "p7", 2, &[("app", "a")]) }, NOW);
    index.pod_seen(PodFacts { ready: false, ..pod("large", "p8", 2, &[("app", "a")]) }, NOW);
    index.pod_seen(pod("small", "p", 1, &[("app", "a")]), NOW);
    assert_eq!(index.due(), 2001);
    let first: Vec<LeaseId> = (0..2).filter_map(|_| index.next_due()).collect();
    assert!(first.contains(&small), "the other tenant's lease is the first or the second");
    let after = electorate(&mut index, large[0]);
    assert!(!Arc::ptr_eq(&before, &after) && large.iter().all(|id| Arc::ptr_eq(&after, &electorate(&mut index, *id))));
    // The pods themselves are shared, not copied.
    let unchanged = before.find("uid-p1").unwrap();
    assert!(Arc::ptr_eq(unchanged, after.find("uid-p1").unwrap()));

    due(&mut index);
    index.pod_seen(pod("large", "p9", 2, &[("app", "a"), ("lease.redislease.io/l3", "standby")]), NOW);
    assert_eq!(due(&mut index), [large[3]], "a role concerns only its own lease");
}

#[test]
fn readiness_that_is_not_required_makes_another_electorate() {
    let mut index = index();
    let mut ignoring = lease("n", "b", 1, &app("a"));
    ignoring.spec.election.require_ready = false;
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let b = index.lease_seen(ignoring, NOW).unwrap();
    index.pod_seen(PodFacts { ready: false, ..pod("n", "p", 1, &[("app", "a")]) }, NOW);
    assert_eq!((electorate(&mut index, a).eligible.len(), electorate(&mut index, b).eligible.len()), (0, 1));
}

#[test]
fn the_last_event_of_a_pod_decides_whether_its_stop_is_proven() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let holder = |index: &mut Index, uid: &str| {
        index.set_holder(a, Some(uid));
        index.facts(a, Time(0)).unwrap().holder
    };
    for (name, stopped) in [("p", true), ("q", false)] {
        index.pod_seen(pod("n", name, 1, &[]), NOW);
        index.pod_deleted(&PodFacts { stopped, ..pod("n", name, 2, &[]) }, NOW);
    }
    assert_eq!(holder(&mut index, "uid-p"), PodKnowledge::Gone { stopped: true });
    assert_eq!(holder(&mut index, "uid-q"), PodKnowledge::Gone { stopped: false });
    index.pod_missing("n", "uid-p", false, NOW);
    assert_eq!(holder(&mut index, "uid-p"), PodKnowledge::Gone { stopped: true }, "a proof is not removed");
    // Seen stopped, then missing.
    index.pod_seen(PodFacts { stopped: true, ..pod("n", "r", 1, &[]) }, NOW);
    index.pod_missing("n", "uid-r", false, NOW);
    assert_eq!(holder(&mut index, "uid-r"), PodKnowledge::Gone { stopped: true });
    // The pod is missing from a new list.
    index.pod_seen(pod("n", "s", 1, &[]), NOW);
    list(&mut index, Vec::new());
    assert_eq!(holder(&mut index, "uid-s"), PodKnowledge::Gone { stopped: false });
}

/// The version in which the pod `p` is known.
fn version(index: &Index) -> Option<String> {
    index.pods.namespace("n")?.pod("uid-p")?.facts.resource_version.clone()
}

/// Handles a list of pods as the watch does.
fn list(index: &mut Index, pods: Vec<PodFacts>) {
    index.pod_lists().begin();
    index.pod_list_begins();
    for pod in pods {
        index.pod_seen(pod, NOW);
    }
    index.pod_lists().end();
    index.pod_list_ends(NOW);
}

#[test]
fn an_answer_neither_replaces_a_list_nor_restores_a_pod() {
    let mut index = index();
    let before = index.pod_lists().ask();
    index.pod_seen(pod("n", "p", 5, &[]), NOW);
    answered(&mut index, before, pod("n", "p", 4, &[]));
    assert_eq!(version(&index).as_deref(), Some("5"), "an older answer that arrives later is ignored");
    index.pod_lists().begin();
    index.pod_list_begins();
    let during = index.pod_lists().ask();
    answered(&mut index, during, pod("n", "p", 6, &[]));
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    assert_eq!(version(&index), None, "it was deleted before the list was made");
    for asked in [before, during, index.pod_lists().ask()] {
        answered(&mut index, asked, pod("n", "p", 7, &[]));
        assert_eq!(version(&index), None, "an answer does not restore a deleted pod");
    }
    index.pod_seen(pod("n", "p", 8, &[]), NOW);
    assert_eq!(
        version(&index).as_deref(),
        Some("8"),
        "a watch event adds the pod: it was created after the list was made"
    );
}

#[test]
fn an_answer_adds_a_pod_only_if_no_list_has_begun_since_it_was_asked_for() {
    let mut index = index();
    let knows = |index: &Index| index.pods.namespace("n").is_some_and(|pods| pods.pod("uid-p").is_some());
    let before = index.pod_lists().ask();
    // The watch has requested a list, which the index has not handled yet.
    index.pod_lists().begin();
    let during = index.pod_lists().ask();
    for asked in [before, during] {
        answered(&mut index, asked, pod("n", "p", 1, &[]));
        assert!(!knows(&index));
    }
    index.pod_lists().end();
    let after = index.pod_lists().ask();
    answered(&mut index, after, pod("n", "p", 1, &[]));
    assert!(!knows(&index), "the pending list would remove the pod and no event would restore it");
    index.pod_list_begins();
    index.pod_list_ends(NOW);
    for asked in [before, during] {
        answered(&mut index, asked, pod("n", "p", 1, &[]));
        assert!(!knows(&index));
    }
    answered(&mut index, after, pod("n", "p", 1, &[]));
    assert!(knows(&index));
    // A list that broke off and begins again.
    index.pod_lists().begin();
    index.pod_lists().begin();
    index.pod_list_begins();
    index.pod_list_begins();
    index.pod_seen(pod("n", "p", 1, &[]), NOW);
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    answered_now(&mut index, pod("n", "q", 1, &[]));
    assert!(knows(&index) && index.pods.namespace("n").unwrap().pod("uid-q").is_some());
}

#[test]
fn a_complete_list_counts_even_with_lower_versions() {
    let mut index = index();
    index.pod_seen(pod("n", "p", 50, &[]), NOW);
    index.pod_seen(pod("n", "p", 40, &[]), NOW);
    assert_eq!(version(&index).as_deref(), Some("50"), "a late event is ignored");
    // etcd was restored from a backup.
    index.pod_list_begins();
    index.pod_seen(pod("n", "p", 30, &[]), NOW);
    assert_eq!(version(&index).as_deref(), Some("50"), "the list is not complete");
    index.pod_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("30"));
    // An answer that arrives during the list is newer than the list.
    index.pod_list_begins();
    answered_now(&mut index, pod("n", "p", 60, &[]));
    index.pod_seen(pod("n", "p", 31, &[]), NOW);
    index.pod_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("60"));
    // After another restore, a write conflicts, and the read that follows is answered before and after the list shows the pod.
    index.pod_list_begins();
    answered_now(&mut index, pod("n", "p", 35, &[]));
    index.pod_seen(pod("n", "p", 35, &[]), NOW);
    answered_now(&mut index, pod("n", "p", 35, &[]));
    index.pod_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("35"), "each later write would conflict");
    // The backup knows a pod that was deleted since.
    index.pod_deleted(&pod("n", "p", 36, &[]), NOW);
    index.pod_list_begins();
    index.pod_seen(pod("n", "p", 35, &[]), NOW);
    answered_now(&mut index, pod("n", "p", 35, &[]));
    index.pod_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("35"));

    let a = index.lease_seen(lease("n", "a", 50, &app("a")), NOW).unwrap();
    let version = |index: &Index| index.lease(a).unwrap().object.as_ref().unwrap().metadata.resource_version.clone();
    index.lease_seen(lease("n", "a", 40, &app("a")), NOW);
    assert_eq!(version(&index).as_deref(), Some("50"));
    index.lease_list_begins();
    index.lease_seen(lease("n", "a", 30, &app("a")), NOW);
    index.lease_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("30"));
}

/// Each history of etcd counts on from its backup.
#[test]
fn after_a_restore_another_content_can_have_the_version_that_is_known() {
    let mut index = index();
    let held = lease("n", "a", 4, &app("a"));
    let a = index.lease_seen(held.clone(), NOW).unwrap();
    due(&mut index);
    index.lease_seen(held, NOW);
    assert_eq!(due(&mut index), [], "the same");
    let mut restored = lease("n", "a", 4, &app("a"));
    restored.spec.suspend = true;
    index.lease_list_begins();
    index.lease_seen(restored, NOW);
    index.lease_list_ends(NOW);
    assert_eq!(due(&mut index), [a]);
    assert!(index.lease(a).unwrap().object.as_ref().unwrap().spec.suspend);
}

#[test]
fn a_lease_that_is_created_again_is_another_lease() {
    let mut index = index();
    let first = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    index.pod_seen(pod("n", "p", 1, &[("app", "a"), ("lease.redislease.io/a", "active")]), NOW);
    due(&mut index);
    let mut again = lease("n", "a", 9, &app("a"));
    again.metadata.uid = Some("another".into());
    index.lease_gone(&lease("n", "a", 8, &app("a")).metadata);
    assert_eq!(due(&mut index), [first]);
    let snapshot = index.facts(first, Time(0)).unwrap();
    assert!(snapshot.lease.is_none() && !snapshot.has_successor);
    assert_eq!(snapshot.strays.len(), 1, "every pod that carries its label must lose it");
    let second = index.lease_seen(again, NOW).unwrap();
    assert_eq!(due(&mut index), [first, second]);
    assert!(index.facts(first, Time(0)).unwrap().has_successor);
    assert!(!index.facts(second, Time(0)).unwrap().has_successor);
    // An answer to a write of the first lease says nothing about the second.
    index.lease_answered(second, Arc::new(lease("n", "a", 99, &app("a"))), NOW);
    assert_eq!(index.lease(second).unwrap().object.as_ref().unwrap().metadata.resource_version.as_deref(), Some("9"));
    index.remove(first);
    index.remove(second);
    index.pod_deleted(&pod("n", "p", 2, &[]), NOW);
    assert!(index.facts(first, Time(0)).is_none() && index.pods.namespaces().next().is_none());
}

#[test]
fn what_is_known_about_a_namespace_that_cannot_be_listed_stays() {
    let mut index = index();
    let ids = ["n", "m"].map(|namespace| index.lease_seen(lease(namespace, "a", 1, &app("a")), NOW).unwrap());
    for namespace in ["n", "m"] {
        index.pod_seen(pod(namespace, &format!("p-{namespace}"), 1, &[("app", "a")]), NOW);
        index.lease_unreadable(&lease(namespace, "broken", 1, &app("a")).metadata);
    }
    due(&mut index);
    index.lease_list_begins();
    index.leases_unlisted("m");
    assert!(index.lease_list_ends(NOW), "the unreadable one of n is deleted");
    index.pod_lists().begin();
    index.pod_list_begins();
    index.pods_unlisted("m");
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    assert_eq!(ids.map(|id| index.facts(id, Time(0)).unwrap().lease.is_some()), [false, true]);
    let namespaces = index.pods.namespaces().filter(|(_, pods)| pods.uids().next().is_some());
    assert_eq!(namespaces.map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["m"]);
    assert_eq!(index.leases.unreadable.len(), 1);
}

#[test]
fn a_list_deletes_the_leases_that_it_does_not_contain() {
    let mut index = index();
    let ids = ["a", "b"].map(|name| index.lease_seen(lease("n", name, 1, &app("a")), NOW).unwrap());
    index.lease_unreadable(&lease("n", "broken", 1, &app("a")).metadata);
    due(&mut index);
    index.lease_list_begins();
    index.lease_seen(lease("n", "b", 1, &app("a")), NOW);
    index.lease_unreadable(&lease("n", "broken", 1, &app("a")).metadata);
    assert!(!index.lease_list_ends(NOW));
    assert_eq!(due(&mut index), [ids[0]], "the same version of b changes nothing");
    index.lease_list_begins();
    index.lease_unreadable(&lease("n", "b", 2, &app("a")).metadata);
    assert!(index.lease_list_ends(NOW), "a lease that could not be read is deleted");
    assert!(index.facts(ids[1], Time(0)).unwrap().lease.is_some(), "a lease that became unreadable continues");
}

#[test]
fn an_unreadable_lease_that_was_created_again_ends_the_earlier_one() {
    let mut index = index();
    let first = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    index.lease_list_begins();
    let again = ObjectMeta { uid: Some("another".into()), ..lease("n", "a", 2, &app("a")).metadata };
    index.lease_unreadable(&again);
    index.lease_list_ends(NOW);
    assert!(index.facts(first, Time(0)).unwrap().lease.is_none());
    assert_eq!(index.leases.unreadable.len(), 1);
}

/// Each namespace has a list and a watch of its own.
#[test]
fn a_list_restores_no_version_that_the_watch_of_a_complete_part_has_replaced() {
    let mut index = index();
    let id = index.lease_seen(lease("n", "a", 1000, &app("a")), NOW).unwrap();
    index.pod_seen(pod("n", "p", 1000, &[("app", "a")]), NOW);
    index.lease_list_begins();
    index.pod_lists().begin();
    index.pod_list_begins();
    for version in [880, 1005] {
        index.lease_seen(lease("n", "a", version, &app("a")), NOW);
        index.pod_seen(pod("n", "p", version, &[("app", "a")]), NOW);
    }
    index.lease_list_ends(NOW);
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    let shown = index.facts(id, Time(0)).unwrap().lease.unwrap().metadata.resource_version.clone();
    assert_eq!((shown.as_deref(), version(&index).as_deref()), (Some("1005"), Some("1005")));
}

#[test]
fn labels_of_leases_that_do_not_exist_are_orphans() {
    let mut index = index();
    index.pod_seen(pod("n", "p", 1, &[("lease.redislease.io/gone", "active")]), NOW);
    let mut annotated = pod("n", "q", 1, &[("lease.redislease.io/broken", "active")]);
    annotated.annotations = [("token.redislease.io/here".to_owned(), "7".to_owned())].into_iter().collect();
    index.pod_seen(annotated, NOW);
    index.lease_unreadable(&lease("n", "broken", 1, &app("a")).metadata);
    index.lease_seen(lease("n", "here", 1, &app("a")), NOW).unwrap();
    let orphans = index.orphans();
    let orphans: Vec<_> =
        orphans.iter().map(|one| (one.object.object().name, one.lease.as_str(), one.unreadable)).collect();
    assert_eq!(orphans, [("q", "broken", true), ("p", "gone", false)]);
}

#[test]
fn the_candidates_of_a_workload_are_known_once_it_was_read() {
    let mut index = index();
    let ids = ["a", "b"].map(|name| index.lease_seen(lease("n", name, 1, &of_deployment("d")), NOW).unwrap());
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    due(&mut index);
    assert!(matches!(index.facts(ids[0], Time(0)).unwrap().candidates, CandidateFacts::Unknown));
    let key = index.next_workload(NOW).unwrap();
    assert_eq!(index.next_workload(NOW), None, "one read for both");
    index.workload_read(&key, WorkloadRead::Missing.into(), NOW);
    assert_eq!(due(&mut index), ids);
    let missing = index.facts(ids[0], Time(0)).unwrap().candidates;
    assert!(matches!(missing, CandidateFacts::Unusable(LeaseReady::InvalidReference, _)), "{missing:?}");
    let later = index.next_deadline().unwrap();
    assert_eq!(index.next_workload(later).as_ref(), Some(&key));
    let selector = Expression::Equal("app".into(), "a".into()).into();
    index.workload_read(&key, WorkloadRead::Selects(selector).into(), later);
    assert_eq!(due(&mut index), ids);
    assert_eq!(electorate(&mut index, ids[1]).total(), 1);
    let usual = index.next_deadline().unwrap();
    index.pod_deleted(&pod("n", "p", 2, &[]), later);
    assert!(
        index.next_deadline().unwrap() < usual,
        "the workload's last pod is deleted: it may have been created again"
    );
}

#[test]
fn a_workload_that_is_read_before_the_pods_are_listed_is_not_one_without_pods() {
    let selector = || Expression::Equal("app".into(), "a".into()).into();
    let again = |listed: bool| {
        let mut index = if listed { index() } else { Index::new("redislease-system") };
        index.lease_seen(lease("n", "a", 1, &of_deployment("d")), NOW).unwrap();
        let key = index.next_workload(NOW).unwrap();
        index.workload_read(&key, WorkloadRead::Selects(selector()).into(), NOW);
        index.next_deadline().unwrap()
    };
    // With thousands of workloads, a hurried read of each after a restart would delay those that are really missing.
    assert!(again(false) > again(true), "{:?} is not later than {:?}", again(false), again(true));
}
