//! Which leases the change of a pod concerns.

use super::*;
use crate::index::pods::REMEMBERED;

#[test]
fn a_pod_event_names_the_leases_it_concerns() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let b = index.lease_seen(lease("n", "b", 1, &app("b")), NOW).unwrap();
    let elsewhere = index.lease_seen(lease("m", "a", 1, &app("a")), NOW).unwrap();
    assert_eq!(due(&mut index), [a, elsewhere, b], "new, namespaces in turn");
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    assert_eq!(due(&mut index), [a]);
    index.pod_seen(pod("n", "p", 2, &[("app", "a")]), NOW);
    assert_eq!(due(&mut index), [], "a new resource version alone");
    assert_eq!(electorate(&mut index, a).eligible[0].resource_version.as_deref(), Some("2"), "but a write names it");
    index.pod_seen(pod("n", "p", 3, &[("app", "a"), ("lease.redislease.io/b", "active")]), NOW);
    assert_eq!(due(&mut index), [b], "the pod carries the label of b, which does not concern a");
    let strays = index.facts(b, Time(0)).unwrap().strays;
    assert_eq!((strays.len(), index.facts(a, Time(0)).unwrap().strays.len()), (1, 0));
    index.pod_seen(
        PodFacts { ready: false, ..pod("n", "p", 4, &[("app", "b"), ("lease.redislease.io/b", "active")]) },
        NOW,
    );
    assert_eq!(due(&mut index), [a, b], "the pod matched a before and matches b now");
    assert_eq!(index.facts(b, Time(0)).unwrap().strays, [], "a candidate is no stray");
    index.pod_deleted(&pod("n", "p", 5, &[("app", "b")]), NOW);
    assert_eq!(due(&mut index), [b]);
    assert_eq!((electorate(&mut index, a).total(), electorate(&mut index, b).total()), (0, 0));
}

#[test]
fn the_same_facts_again_replace_nothing() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    let before = electorate(&mut index, a);
    due(&mut index);
    answered_now(&mut index, pod("n", "p", 1, &[("app", "a")]));
    index.pod_seen(pod("n", "p", 1, &[("app", "a")]), NOW);
    assert_eq!(due(&mut index), []);
    assert!(Arc::ptr_eq(&before, &electorate(&mut index, a)), "one copy of the facts, not one for each event");
}

#[test]
fn the_holder_is_known_even_without_matching_labels() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    index.pod_seen(pod("n", "p", 1, &[("app", "other")]), NOW);
    index.set_holder(a, Some("uid-p"));
    due(&mut index);
    assert!(matches!(index.facts(a, Time(0)).unwrap().holder, PodKnowledge::Here(_)));
    index.pod_seen(PodFacts { ready: false, ..pod("n", "p", 2, &[("app", "other")]) }, NOW);
    assert_eq!(due(&mut index), [a]);
    index.pod_deleted(&PodFacts { stopped: true, ..pod("n", "p", 3, &[]) }, NOW);
    assert_eq!(due(&mut index), [a]);
    assert_eq!(index.facts(a, Time(0)).unwrap().holder, PodKnowledge::Gone { stopped: true });
    index.set_holder(a, Some("uid-q"));
    assert_eq!(index.facts(a, Time(0)).unwrap().holder, PodKnowledge::Unseen);
    index.pod_missing("n", "uid-q", true, NOW);
    assert_eq!(due(&mut index), [a], "its node is off");
    assert_eq!(index.facts(a, Time(0)).unwrap().holder, PodKnowledge::Gone { stopped: true });
}

#[test]
fn deleted_pods_are_forgotten_unless_a_lease_names_them() {
    let mut index = index();
    let a = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let stopped = |number: u32| PodFacts { stopped: true, ..pod("n", &format!("p{number}"), 1, &[]) };
    let known = |index: &Index, number: u32| {
        let found = index.pods.find("n", &format!("uid-p{number}"));
        found == PodKnowledge::Gone { stopped: true }
    };
    index.set_holder(a, Some("uid-p0"));
    let most = u32::try_from(REMEMBERED).unwrap();
    (0..=most + 10).for_each(|number| index.pod_deleted(&stopped(number), NOW));
    assert_eq!([0, 1, 11, 12, most + 10].map(|number| known(&index, number)), [true, false, false, true, true]);
    assert_eq!(index.facts(a, Time(0)).unwrap().holder, PodKnowledge::Gone { stopped: true });

    // The lease names another pod: the first one is forgotten with the others of its age.
    index.set_holder(a, None);
    (most + 11..=3 * most).for_each(|number| index.pod_deleted(&stopped(number), NOW));
    assert_eq!([0, 2 * most, 2 * most + 1].map(|number| known(&index, number)), [false, false, true]);
}
