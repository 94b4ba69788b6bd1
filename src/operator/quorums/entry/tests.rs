//! The entry of one quorum without an API server.

use prometheus::Registry;
use redislease_lock::keeper::Keeper;
use serde_json::json;

use super::*;
use crate::metrics::operator::OperatorMetrics;
use crate::metrics::panics::Panics;
use crate::operator::authority::Authorities;
use redislease_plan::api::RedisQuorumStatus;
use redislease_plan::election::Cluster;
use redislease_plan::index::ListCount;

/// An entry whose replica follows.
fn following() -> (QuorumEntry, Writer) {
    let registry = Registry::new();
    let panics = Panics::register(&registry).unwrap();
    let metrics = OperatorMetrics::register(&registry, &["quorum"], &panics).unwrap();
    let keeper = Keeper::start(panics.keeper_observer()).unwrap();
    let writer = Writer::new("operator-0".into(), ListCount::default(), metrics, Authorities::default(), || {});
    let mut entry = QuorumEntry::new(Replica {
        cluster: Cluster { name: "here".into(), uid: "uid".into() },
        instance: "operator-0".into(),
        process: "1".into(),
        keeper: Arc::new(keeper),
        writer: writer.clone(),
    });
    entry.take(RedisQuorum::new("default", serde_json::from_str(r#"{"nodes": []}"#).unwrap()), true);
    (entry, writer)
}

fn quorum_of_three() -> RedisQuorum {
    let nodes: Vec<_> =
        ["a", "b", "c"].iter().map(|name| json!({"name": name, "address": format!("{name}:6379")})).collect();
    RedisQuorum::new("default", serde_json::from_value(json!({"nodes": nodes})).unwrap())
}

/// The error of a system that has no file descriptor left.
fn too_many_files() -> StartError {
    StartError::System { quorum: "default".into(), source: std::io::Error::from_raw_os_error(24) }
}

#[test]
fn a_replica_whose_system_does_not_open_the_quorum_decides_nothing_while_another_one_is_named() {
    let named: RedisQuorumStatus = serde_json::from_value(json!({
        "leader": {"instance": "operator-1", "since": "2026-01-01T00:00:00Z", "transitions": 1},
    }))
    .unwrap();
    for (status, authority) in [(Some(named), Authority::Follow), (None, Authority::Lead)] {
        let (mut entry, _) = following();
        entry.take(RedisQuorum { status, ..quorum_of_three() }, true);
        assert!(matches!(entry.next_step(), Step::Open(..)));
        entry.opened(Err(too_many_files()));
        entry.elect(|| {});
        assert_eq!(entry.election().grant().authority(clock::now()), authority);
    }
}

#[test]
fn a_quorum_that_the_system_did_not_open_is_opened_again() {
    let (mut entry, _) = following();
    entry.take(quorum_of_three(), true);
    assert!(matches!(entry.next_step(), Step::Open(..)));
    assert!(entry.opened(Err(too_many_files())).is_none());
    assert!(matches!(entry.next_step(), Step::None), "not at once");
    let facts = entry.facts("default", "system").unwrap();
    let (reason, message) = facts.obstacle.clone().unwrap();
    // The spec is not the cause.
    assert_eq!(reason, LeaseReady::QuorumUnavailable);
    assert!(message.contains("cannot start the thread of its nodes: Too many open files"), "{message}");
    assert!(entry.open_again() && !entry.open_again());
    assert!(matches!(entry.next_step(), Step::Open(..)));
    assert_eq!(entry.facts("default", "system").unwrap().obstacle, None);
}

#[test]
fn a_claim_ends_with_the_loss_of_the_quorum() {
    for (quorum, is_lost) in [(quorum_of_three(), false), (shown("True"), true)] {
        let (mut entry, writer) = following();
        entry.take(quorum, true);
        entry.problem = Some("it cannot be opened".into());
        entry.status_writer.claim();
        entry.elect(|| {});
        let status = entry.next_status(&writer).and_then(|resource| resource.status).expect("a status");
        let names_this = status.leader.is_some_and(|leader| leader.instance == "operator-0");
        assert_eq!(names_this, is_lost);
    }
}

/// Nothing is to be corrected: the leases end on the old nodes.
#[test]
fn a_replaced_quorum_is_unavailable_and_not_invalid() {
    let (mut entry, _) = following();
    entry.take(quorum_of_three(), true);
    entry.retiring = true;
    let (reason, message) = entry.facts("default", "system").unwrap().obstacle.clone().unwrap();
    assert_eq!(reason, LeaseReady::QuorumUnavailable);
    assert!(message.contains("RedisQuorum system/default cannot be used: it was replaced"), "{message}");
}

/// One that reaches no node must not say for the others that the quorum is lost.
#[test]
fn a_follower_writes_its_name_when_it_claims_and_nothing_else() {
    let (mut entry, writer) = following();
    entry.take(shown("True"), true);
    entry.problem = Some("it cannot be opened".into());
    assert!(entry.next_status(&writer).is_none());
    assert_eq!(entry.show_at(), None);
    entry.status_writer.claim();
    let status = entry.next_status(&writer).and_then(|resource| resource.status).expect("a claim");
    assert_eq!(status.leader.as_ref().map(|leader| leader.instance.as_str()), Some("operator-0"));
    let before = shown("True").status.unwrap();
    assert_eq!(RedisQuorumStatus { leader: before.leader.clone(), ..status }, before);
}

/// A time in the past would wake the controller at once, again and again.
#[test]
fn a_deleted_quorum_waits_for_no_status() {
    let (mut entry, writer) = following();
    entry.take(shown("True"), true);
    entry.status_writer.claim();
    entry.problem = Some("it cannot be opened".into());
    assert!(entry.next_status(&writer).is_some());
    entry.status_written(Err(CallError::Conflict), &writer);
    assert!(entry.show_at().is_some());
    entry.resource_gone();
    assert_eq!(entry.show_at(), None);
}

/// A status that another replica has written.
fn shown(ready: &str) -> RedisQuorum {
    let condition = json!({
        "type": "Ready", "status": ready, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let leader = json!({"instance": "operator-1", "since": "2026-01-01T00:00:00Z", "transitions": 1});
    let status = serde_json::from_value(json!({"conditions": [condition], "leader": leader})).unwrap();
    RedisQuorum { status: Some(status), ..quorum_of_three() }
}

/// A rollout would replace the one that reaches it.
#[test]
fn a_process_without_a_majority_is_behind_one_that_has_shown_it() {
    let (mut entry, _) = following();
    assert!(!entry.is_behind(), "no process has shown anything");
    // The reason for Ready can be another one than the nodes: a Secret that was deleted.
    for (states, is_behind) in [(["Up", "Down", "Down"], false), (["Up", "Up", "Down"], true), (["Down"; 3], true)] {
        let mut resource = shown("False");
        let nodes = states.map(|state| json!({"name": "a", "state": state}));
        resource.status.as_mut().unwrap().nodes = serde_json::from_value(json!(nodes)).unwrap();
        entry.take(resource, true);
        assert_eq!(entry.is_behind(), is_behind, "{states:?}");
    }
}

/// Its timer would expire again and again, until the API server answers.
#[test]
fn a_quorum_whose_secret_is_unread_needs_no_turn() {
    let (mut entry, _) = following();
    let named: RedisQuorumStatus = serde_json::from_value(json!({
        "leader": {"instance": "operator-1", "since": "2026-01-01T00:00:00Z", "transitions": 1},
    }))
    .unwrap();
    entry.take(
        RedisQuorum {
            status: Some(named.clone()),
            ..RedisQuorum::new("default", serde_json::from_str(r#"{"nodes": []}"#).unwrap())
        },
        true,
    );
    assert!(entry.is_read(), "its spec is invalid");
    entry.elect(|| {});
    assert!(entry.elect_at().is_some());
    let mut quorum = quorum_of_three();
    quorum.spec.auth = serde_json::from_value(json!({"secretRef": {"name": "redis"}})).unwrap();
    entry.take(RedisQuorum { status: Some(named), ..quorum }, true);
    entry.elect(|| {});
    assert!(!entry.is_read());
    assert_eq!(entry.elect_at(), None);
}
