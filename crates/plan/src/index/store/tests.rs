#[path = "pod_tests.rs"]
mod pods;
#[path = "workload_tests.rs"]
mod workloads;

use serde_json::json;

use super::*;
use crate::api::conditions::LeaseReady;
use crate::election::Electorate;
use kube::core::Expression;

const NOW: Time = Time(1000);

fn lease(namespace: &str, name: &str, version: u64, candidates: &serde_json::Value) -> RedisLease {
    serde_json::from_value(json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {
            "namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}"),
            "resourceVersion": version.to_string(), "generation": 1,
        },
        "spec": {"quorumRef": {"name": "default"}, "candidates": candidates},
    }))
    .unwrap()
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

fn index() -> Index {
    let mut index = Index::new("redislease-system");
    list(&mut index, Vec::new());
    index
}

fn due(index: &mut Index) -> Vec<LeaseId> {
    std::iter::from_fn(|| index.next_due()).collect()
}

fn electorate(index: &mut Index, id: LeaseId) -> Arc<Electorate> {
    match index.snapshot(id, Time(0)).unwrap().candidates {
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
    let ignoring = || {
        let mut lease = lease("n", "b", 1, &app("a"));
        lease.spec.election.require_ready = false;
        lease
    };
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let b = index.lease_seen(ignoring(), NOW).unwrap();
    index.pod_seen(PodFacts { ready: false, ..pod("n", "p", 1, &[("app", "a")]) }, NOW);
    assert_eq!((electorate(&mut index, a).eligible.len(), electorate(&mut index, b).eligible.len()), (0, 1));
}

#[test]
fn the_last_event_of_a_pod_decides_whether_its_stop_is_proven() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let holder = |index: &mut Index, uid: &str| {
        index.set_holder(a, Some(uid));
        index.snapshot(a, Time(0)).unwrap().holder
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
    index.namespaces.get("n")?.pod("uid-p")?.facts.resource_version.clone()
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
    index.pod_answered(before, pod("n", "p", 4, &[]), NOW);
    assert_eq!(version(&index).as_deref(), Some("5"), "an older answer that arrives later is ignored");
    index.pod_lists().begin();
    index.pod_list_begins();
    let during = index.pod_lists().ask();
    index.pod_answered(during, pod("n", "p", 6, &[]), NOW);
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    assert_eq!(version(&index), None, "it was deleted before the list was made");
    for asked in [before, during, index.pod_lists().ask()] {
        index.pod_answered(asked, pod("n", "p", 7, &[]), NOW);
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
    let knows = |index: &Index| index.namespaces.get("n").is_some_and(|pods| pods.pod("uid-p").is_some());
    let before = index.pod_lists().ask();
    // The watch has requested a list, which the index has not handled yet.
    index.pod_lists().begin();
    let during = index.pod_lists().ask();
    for asked in [before, during] {
        index.pod_answered(asked, pod("n", "p", 1, &[]), NOW);
        assert!(!knows(&index));
    }
    index.pod_lists().end();
    let after = index.pod_lists().ask();
    index.pod_answered(after, pod("n", "p", 1, &[]), NOW);
    assert!(!knows(&index), "the pending list would remove the pod and no event would restore it");
    index.pod_list_begins();
    index.pod_list_ends(NOW);
    for asked in [before, during] {
        index.pod_answered(asked, pod("n", "p", 1, &[]), NOW);
        assert!(!knows(&index));
    }
    index.pod_answered(after, pod("n", "p", 1, &[]), NOW);
    assert!(knows(&index));
    // A list that broke off and begins again.
    index.pod_lists().begin();
    index.pod_lists().begin();
    index.pod_list_begins();
    index.pod_list_begins();
    index.pod_seen(pod("n", "p", 1, &[]), NOW);
    index.pod_lists().end();
    index.pod_list_ends(NOW);
    index.pod_answered(index.pod_lists().ask(), pod("n", "q", 1, &[]), NOW);
    assert!(knows(&index) && index.namespaces["n"].pod("uid-q").is_some());
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
    index.pod_answered(index.pod_lists().ask(), pod("n", "p", 60, &[]), NOW);
    index.pod_seen(pod("n", "p", 31, &[]), NOW);
    index.pod_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("60"));

    let a = index.lease_seen(lease("n", "a", 50, &app("a")), NOW).unwrap();
    let version = |index: &Index| index.lease(a).unwrap().object.as_ref().unwrap().metadata.resource_version.clone();
    index.lease_seen(lease("n", "a", 40, &app("a")), NOW);
    assert_eq!(version(&index).as_deref(), Some("50"));
    index.lease_list_begins();
    index.lease_seen(lease("n", "a", 30, &app("a")), NOW);
    index.lease_list_ends(NOW);
    assert_eq!(version(&index).as_deref(), Some("30"));
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
    let snapshot = index.snapshot(first, Time(0)).unwrap();
    assert!(snapshot.lease.is_none() && !snapshot.has_successor);
    assert_eq!(snapshot.strays.len(), 1, "every pod that carries its label must lose it");
    let second = index.lease_seen(again, NOW).unwrap();
    assert_eq!(due(&mut index), [first, second]);
    assert!(index.snapshot(first, Time(0)).unwrap().has_successor);
    assert!(!index.snapshot(second, Time(0)).unwrap().has_successor);
    // An answer to a write of the first lease says nothing about the second.
    index.lease_answered(second, Arc::new(lease("n", "a", 99, &app("a"))), NOW);
    assert_eq!(index.lease(second).unwrap().object.as_ref().unwrap().metadata.resource_version.as_deref(), Some("9"));
    index.remove(first);
    index.remove(second);
    index.pod_deleted(&pod("n", "p", 2, &[]), NOW);
    assert!(index.snapshot(first, Time(0)).is_none() && index.namespaces.is_empty());
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
    assert!(index.snapshot(ids[1], Time(0)).unwrap().lease.is_some(), "a lease that became unreadable continues");
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
    assert!(matches!(index.snapshot(ids[0], Time(0)).unwrap().candidates, CandidateFacts::Unknown));
    let key = index.next_workload(NOW).unwrap();
    assert_eq!(index.next_workload(NOW), None, "one read for both");
    index.workload_read(&key, WorkloadRead::Missing.into(), NOW);
    assert_eq!(due(&mut index), ids);
    let missing = index.snapshot(ids[0], Time(0)).unwrap().candidates;
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

#[test]
fn a_lease_gets_only_relevant_changes_of_its_quorum() {
    let mut index = index();
    let open = Arc::new(crate::plan::OpenQuorum {
        id: 1,
        name: "default".into(),
        fingerprint: "f".into(),
        quorum: redislease_core::quorum::Quorum::of(3).unwrap(),
        longest_lease: redislease_core::time::Millis(60_000),
        command_timeout: redislease_core::time::Millis(500),
    });
    let facts = |up| {
        Some(Arc::new(QuorumFacts {
            read: true,
            open: Some(open.clone()),
            up,
            evaluated: true,
            ..QuorumFacts::default()
        }))
    };
    let mut with_token = lease("n", "a", 1, &app("a"));
    with_token.status = Some(crate::api::RedisLeaseStatus { fencing_token: Some(42), ..Default::default() });
    let a = index.lease_seen(with_token, NOW).unwrap();
    assert_eq!(index.raised_floors(), [("default".to_owned(), redislease_core::op::Token(42))]);
    assert!(index.raised_floors().is_empty());
    let mut by_hand = lease("n", "a", 2, &app("a"));
    let token = redislease_core::op::Token::FIRST_IMPLAUSIBLE;
    let status = crate::api::RedisLeaseStatus { fencing_token: Some(token.0.cast_signed()), ..Default::default() };
    by_hand.status = Some(status);
    index.lease_seen(by_hand, NOW);
    assert!(index.raised_floors().is_empty(), "no Redis node can have given it");
    let implausible = ImplausibleToken { namespace: "n".into(), name: "a".into(), token };
    assert_eq!(index.implausible_tokens(), [implausible].into());
    assert!(index.implausible_tokens().is_empty());
    due(&mut index);
    assert!(!index.snapshot(a, Time(0)).unwrap().quorum.read, "the quorums are not listed yet");
    index.quorums_read();
    assert_eq!(due(&mut index), [a]);
    let missing = index.snapshot(a, Time(0)).unwrap().quorum;
    assert!(missing.read && missing.obstacle.as_ref().unwrap().1.contains("redislease-system/default, which does not"));
    for (up, concerned) in [(1, true), (2, true), (3, false), (2, false), (1, true)] {
        index.quorum_changed("default", facts(up));
        assert_eq!(!due(&mut index).is_empty(), concerned, "{up}");
        assert_eq!(index.snapshot(a, Time(0)).unwrap().quorum.up, up);
    }
    index.quorum_changed("default", None);
    assert_eq!(due(&mut index), [a]);
}

#[test]
fn an_edit_that_does_not_fit_the_quorum_keeps_the_candidates() {
    let mut index = index();
    let quorum: crate::api::RedisQuorum = serde_json::from_value(json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"namespace": "redislease-system", "name": "default"},
        "spec": {"nodes": [{"name": "a", "address": "a:1"}], "allowSingleNode": true, "maxLeaseDuration": "30s"},
    }))
    .unwrap();
    let valid = Some(Arc::new(crate::api::ValidQuorum::try_from(&quorum).unwrap()));
    index.pod_seen(pod("n", "a", 1, &[("app", "a")]), NOW);
    index.pod_seen(pod("n", "b", 1, &[("app", "b")]), NOW);
    let edit = |version: u64, app_label: &str, duration: &str| {
        let mut edited = lease("n", "l", version, &app(app_label));
        edited.spec.lease_duration = serde_json::from_value(json!(duration)).unwrap();
        edited
    };
    let id = index.lease_seen(edit(1, "a", "30s"), NOW).unwrap();
    index.quorum_changed("default", Some(Arc::new(QuorumFacts { read: true, valid, ..QuorumFacts::default() })));
    let candidate = |index: &mut Index| electorate(index, id).pods().next().unwrap().name.clone();
    assert_eq!(candidate(&mut index), "a");

    index.lease_seen(edit(2, "b", "31s"), NOW);
    assert_eq!(candidate(&mut index), "a");
    assert!(index.snapshot(id, NOW).unwrap().spec.problem.unwrap().contains("maxLeaseDuration"));
    // While the quorum is unknown, nothing says whether the edit fits.
    index.quorum_changed("default", None);
    index.lease_seen(edit(3, "b", "29s"), NOW);
    assert_eq!(candidate(&mut index), "a");

    let valid = Some(Arc::new(crate::api::ValidQuorum::try_from(&quorum).unwrap()));
    index.quorum_changed("default", Some(Arc::new(QuorumFacts { read: true, valid, ..QuorumFacts::default() })));
    assert_eq!(candidate(&mut index), "b");
    assert_eq!(index.snapshot(id, NOW).unwrap().spec.problem, None);
}

#[test]
fn a_namespace_that_is_not_allowed_learns_as_much_as_about_a_missing_quorum() {
    let mut index = index();
    index.quorums_read();
    let id = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let missing = index.snapshot(id, Time(0)).unwrap().quorum.obstacle.clone();
    let quorum: crate::api::RedisQuorum = serde_json::from_value(json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisQuorum",
        "metadata": {"namespace": "redislease-system", "name": "default"},
        "spec": {
            "nodes": [{"name": "a", "address": "a:1"}], "allowSingleNode": true,
            "allowedNamespaces": {"matchLabels": {"team": "shop"}},
        },
    }))
    .unwrap();
    let valid = Some(Arc::new(crate::api::ValidQuorum::try_from(&quorum).unwrap()));
    let mismatch = Some("node a (a:1): another configuration".to_owned());
    index.quorum_changed(
        "default",
        Some(Arc::new(QuorumFacts { read: true, valid, mismatch, ..QuorumFacts::default() })),
    );
    due(&mut index);
    let facts = |index: &mut Index| index.snapshot(id, Time(0)).unwrap().quorum;
    let seen = |index: &mut Index, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        index.namespace_seen(NamespaceFacts { name: "n".into(), labels });
    };

    let unknown = facts(&mut index);
    assert_eq!((unknown.denied, unknown.obstacle.as_ref().unwrap().0), (false, LeaseReady::QuorumUnavailable));

    index.namespace_list_begins();
    seen(&mut index, &[("team", "other")]);
    index.namespace_list_ends();
    assert_eq!(due(&mut index), [id]);
    let denied = facts(&mut index);
    assert_eq!((denied.denied, &denied.obstacle, &denied.mismatch), (true, &missing, &None));

    seen(&mut index, &[("team", "shop")]);
    assert_eq!(due(&mut index), [id]);
    assert!(!facts(&mut index).denied && facts(&mut index).obstacle.is_none());
    seen(&mut index, &[("team", "shop")]);
    assert_eq!(due(&mut index), [], "nothing has changed");

    // A list without the namespace: its labels are unknown, which is no denial.
    index.namespace_list_begins();
    index.namespace_list_ends();
    assert_eq!(due(&mut index), [id]);
    assert!(!facts(&mut index).denied && facts(&mut index).obstacle.is_some());
}
