//! What the index says about the quorum of a lease.

use super::*;

#[test]
fn a_lease_gets_only_relevant_changes_of_its_quorum() {
    let mut index = index();
    let open = Arc::new(samples::open_quorum());
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
    assert_eq!(index.raised_floors(), [("default".to_owned(), Token(42))]);
    assert!(index.raised_floors().is_empty());
    let mut by_hand = lease("n", "a", 2, &app("a"));
    let token = Token::FIRST_IMPLAUSIBLE;
    let status = crate::api::RedisLeaseStatus { fencing_token: Some(token.0.cast_signed()), ..Default::default() };
    by_hand.status = Some(status);
    index.lease_seen(by_hand, NOW);
    assert!(index.raised_floors().is_empty(), "no Redis node can have given it");
    let implausible = ImplausibleToken { namespace: "n".into(), name: "a".into(), token };
    assert_eq!(index.implausible_tokens(), [implausible].into());
    assert!(index.implausible_tokens().is_empty());
    due(&mut index);
    assert!(!index.facts(a, Time(0)).unwrap().quorum.read, "the quorums are not listed yet");
    index.quorums_read();
    assert_eq!(due(&mut index), [a]);
    let missing = index.facts(a, Time(0)).unwrap().quorum;
    assert!(missing.read && missing.obstacle.as_ref().unwrap().1.contains("redislease-system/default, which does not"));
    for (up, concerned) in [(1, true), (2, true), (3, false), (2, false), (1, true)] {
        index.quorum_changed("default", facts(up));
        assert_eq!(!due(&mut index).is_empty(), concerned, "{up}");
        assert_eq!(index.facts(a, Time(0)).unwrap().quorum.up, up);
    }
    index.quorum_changed("default", None);
    assert_eq!(due(&mut index), [a]);
}

#[test]
fn an_edit_that_does_not_fit_the_quorum_keeps_the_candidates() {
    let mut index = index();
    let valid = Some(Arc::new(samples::valid_quorum(&json!({"maxLeaseDuration": "30s"}))));
    index.pod_seen(pod("n", "a", 1, &[("app", "a")]), NOW);
    index.pod_seen(pod("n", "b", 1, &[("app", "b")]), NOW);
    let edit = |version: u64, app_label: &str, duration: &str| {
        let mut edited = lease("n", "l", version, &app(app_label));
        edited.spec.lease_duration = serde_json::from_value(json!(duration)).unwrap();
        edited
    };
    let id = index.lease_seen(edit(1, "a", "30s"), NOW).unwrap();
    let fitting = Some(Arc::new(QuorumFacts { read: true, valid, ..QuorumFacts::default() }));
    index.quorum_changed("default", fitting.clone());
    let candidate = |index: &mut Index| electorate(index, id).pods().next().unwrap().name.clone();
    assert_eq!(candidate(&mut index), "a");

    index.lease_seen(edit(2, "b", "31s"), NOW);
    assert_eq!(candidate(&mut index), "a");
    assert!(index.facts(id, NOW).unwrap().spec.problem.unwrap().contains("maxLeaseDuration"));
    // While the quorum is unknown, nothing says whether the edit fits.
    index.quorum_changed("default", None);
    index.lease_seen(edit(3, "b", "29s"), NOW);
    assert_eq!(candidate(&mut index), "a");

    index.quorum_changed("default", fitting);
    assert_eq!(candidate(&mut index), "b");
    assert_eq!(index.facts(id, NOW).unwrap().spec.problem, None);
}

#[test]
fn a_namespace_that_is_not_allowed_learns_as_much_as_about_a_missing_quorum() {
    let mut index = index();
    index.quorums_read();
    let id = index.lease_seen(lease("n", "a", 1, &app("a")), NOW).unwrap();
    let missing = index.facts(id, Time(0)).unwrap().quorum.obstacle.clone();
    let allowed = json!({"allowedNamespaces": {"matchLabels": {"team": "shop"}}});
    let valid = Some(Arc::new(samples::valid_quorum(&allowed)));
    let mismatch = Some("node a (a:1): another configuration".to_owned());
    index.quorum_changed(
        "default",
        Some(Arc::new(QuorumFacts { read: true, valid, mismatch, ..QuorumFacts::default() })),
    );
    due(&mut index);
    let facts = |index: &mut Index| index.facts(id, Time(0)).unwrap().quorum;
    let seen = |index: &mut Index, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        index.namespace(Watched::Seen(Box::new(NamespaceFacts { name: "n".into(), labels })));
    };

    let unknown = facts(&mut index);
    assert_eq!((unknown.denied, unknown.obstacle.as_ref().unwrap().0), (false, LeaseReady::QuorumUnavailable));

    index.namespace(Watched::ListBegins);
    seen(&mut index, &[("team", "other")]);
    index.namespace(Watched::ListEnds);
    assert_eq!(due(&mut index), [id]);
    let denied = facts(&mut index);
    assert_eq!((denied.denied, &denied.obstacle, &denied.mismatch), (true, &missing, &None));

    seen(&mut index, &[("team", "shop")]);
    assert_eq!(due(&mut index), [id]);
    assert!(!facts(&mut index).denied && facts(&mut index).obstacle.is_none());
    seen(&mut index, &[("team", "shop")]);
    assert_eq!(due(&mut index), [], "nothing has changed");

    // A list without the namespace: its labels are unknown, which is no denial.
    index.namespace(Watched::ListBegins);
    index.namespace(Watched::ListEnds);
    assert_eq!(due(&mut index), [id]);
    assert!(!facts(&mut index).denied && facts(&mut index).obstacle.is_some());
}
