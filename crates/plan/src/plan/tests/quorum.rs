//! One RedisQuorum in one replica, without a connection unless a test says otherwise.

use super::*;
use crate::api::conditions::LeaseReady;
use crate::api::quorum::NodeState;
use crate::api::{RedisQuorum, RedisQuorumStatus};

const NOW: Time = Time(1_000_000);

/// A replica that follows. It knows the quorum with this status.
fn following(status: Option<RedisQuorumStatus>) -> QuorumReconciler {
    let cluster = Cluster { name: "here".into(), uid: "uid-here".into() };
    let mut quorum = QuorumReconciler::new(cluster, "operator-0".into(), "1".into());
    quorum.take(RedisQuorum { status, ..samples::quorum(&json!({})) }, true);
    quorum
}

/// A status that another replica has written.
fn status_of_another() -> RedisQuorumStatus {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let leader = json!({"instance": "operator-1", "since": "2026-01-01T00:00:00Z", "transitions": 1});
    serde_json::from_value(json!({"conditions": [ready], "leader": leader})).unwrap()
}

/// A process that has read the secrets.
fn unconnected() -> ObservedQuorum {
    ObservedQuorum { tried: true, secrets_read: true, ..ObservedQuorum::default() }
}

fn turn(quorum: &mut QuorumReconciler, now: Time) -> Authority {
    quorum.turn(now, News::default(), &unconnected(), Some(now));
    while quorum.poll_effect().is_some() {}
    quorum.leadership().authority()
}

/// The status that it writes now.
fn written(quorum: &mut QuorumReconciler, now: Time) -> Option<RedisQuorumStatus> {
    let authority = quorum.leadership().authority();
    quorum.next_status(now, jiff::Timestamp::UNIX_EPOCH, authority, &unconnected()).1?.status
}

#[test]
fn a_node_that_was_reached_or_has_failed_was_tried() {
    let [up, waits, down] = [NodeState::Up, NodeState::Quarantined, NodeState::Down].map(|state| (state, false));
    assert!(all_tried([up, waits, (NodeState::Misconfigured, false), (NodeState::Down, true)]));
    assert!(!all_tried([up, waits, down]), "it was not reached yet");
}

/// The watch shows them, and an answer may be older.
#[test]
fn a_read_restores_no_deleted_resource_and_replaces_none_that_was_created_again() {
    let resource = |uid: &str| {
        let mut quorum = RedisQuorum { status: Some(status_of_another()), ..samples::quorum(&json!({})) };
        quorum.metadata.uid = Some(uid.into());
        quorum
    };
    let uid = |quorum: &QuorumReconciler| quorum.resource().and_then(|known| known.metadata.uid.clone());
    let mut quorum = following(None);
    quorum.take(resource("first"), false);
    quorum.deleted();
    quorum.quorum_read(NOW, Ok(Some(Box::new(resource("first")))));
    assert_eq!((uid(&quorum), quorum.is_retiring()), (None, true));
    quorum.take(resource("second"), false);
    quorum.quorum_read(NOW, Ok(Some(Box::new(resource("first")))));
    assert_eq!(uid(&quorum).as_deref(), Some("second"));
}

#[test]
fn a_replica_whose_system_does_not_open_the_quorum_decides_nothing_while_another_one_is_named() {
    for (status, authority) in [(Some(status_of_another()), Authority::Follow), (None, Authority::Lead)] {
        let mut quorum = following(status);
        assert!(quorum.next_step(None).is_some());
        quorum.not_opened("Too many open files".into());
        assert_eq!(turn(&mut quorum, NOW), authority);
    }
}

#[test]
fn a_quorum_that_the_system_did_not_open_is_opened_again() {
    let mut quorum = following(None);
    quorum.not_opened("Too many open files".into());
    assert!(quorum.next_step(None).is_none(), "not at once");
    let obstacle =
        |quorum: &mut QuorumReconciler| quorum.change(&unconnected()).unwrap().facts.unwrap().obstacle.clone();
    let message = "RedisQuorum redislease-system/default cannot be used: Too many open files";
    // The spec is not the cause.
    assert_eq!(obstacle(&mut quorum), Some((LeaseReady::QuorumUnavailable, message.into())));
    assert!(quorum.open_again() && !quorum.open_again());
    assert!(quorum.next_step(None).is_some());
    assert_eq!(obstacle(&mut quorum), None);
    assert_eq!(quorum.change(&unconnected()), None, "the engine knows it");
}

/// Nothing is to be corrected: the leases end on the old nodes.
#[test]
fn a_replaced_quorum_is_unavailable_and_not_invalid() {
    let mut quorum = following(None);
    let observed = ObservedQuorum { open: Some(Arc::new(samples::open_quorum())), ..unconnected() };
    assert!(quorum.next_step(Some("f00d")).is_none());
    let change = quorum.change(&observed).unwrap();
    let facts = change.facts.unwrap();
    assert_eq!((change.retiring, facts.replaced, &facts.open), (Some(1), true, &None));
    let (reason, message) = facts.obstacle.clone().unwrap();
    assert_eq!(reason, LeaseReady::QuorumUnavailable);
    assert!(message.contains("it was replaced by one of another configuration"), "{message}");
    let fingerprint = samples::valid_quorum(&json!({})).fingerprint();
    assert!(quorum.next_step(Some(&fingerprint)).is_some());
    assert_eq!(quorum.change(&observed).unwrap().retiring, None);
}

/// A process that was paused may carry out the effects of a turn only after the next one.
#[test]
fn a_claim_counts_only_while_the_quorum_is_lost() {
    let later = NOW + Millis(10_000);
    let open = Some(Arc::new(samples::open_quorum()));
    let nodes = ["a", "b"].map(|name| serde_json::from_value(json!({"name": name, "state": "Up"})).unwrap());
    let connected = ObservedQuorum { open, nodes: nodes.into(), ..unconnected() };
    for (then, claims) in [(unconnected(), true), (connected, false)] {
        for polls_between in [true, false] {
            let mut quorum = following(Some(status_of_another()));
            quorum.invalid("it cannot be opened".into());
            turn(&mut quorum, NOW);
            assert_eq!(written(&mut quorum, NOW), None);
            let soon = NOW + Millis(5000);
            quorum.turn(soon, News::default(), &unconnected(), Some(soon));
            quorum.turn(later, News::default(), &unconnected(), Some(later));
            while polls_between && quorum.poll_effect().is_some() {}
            quorum.turn(later, News::default(), &then, Some(later));
            while quorum.poll_effect().is_some() {}
            let leader = written(&mut quorum, later).and_then(|status| status.leader);
            assert_eq!(leader.is_some_and(|leader| leader.instance == "operator-0"), claims);
        }
    }
}

/// A time in the past would wake the controller at once, again and again.
#[test]
fn a_deleted_quorum_waits_for_no_status() {
    let mut quorum = following(None);
    turn(&mut quorum, NOW);
    assert!(written(&mut quorum, NOW).is_some());
    quorum.status_written(NOW, Err(calls::CallError::Conflict));
    assert!(quorum.deadlines(false, true)[1].is_some());
    quorum.deleted();
    assert_eq!(quorum.deadlines(false, true)[1], None);
}

/// A rollout would replace the one that reaches it.
#[test]
fn a_process_without_a_majority_is_behind_one_that_has_shown_it() {
    let mut quorum = following(None);
    quorum.invalid("the nodes are not waited for".into());
    let is_ready = |quorum: &mut QuorumReconciler, authority| quorum.is_ready(authority, &unconnected());
    assert!(is_ready(&mut quorum, Authority::Follow), "no process has shown anything");
    // The reason for Ready can be another one than the nodes: a Secret that was deleted.
    for (states, is_behind) in [(["Up", "Down", "Down"], false), (["Up", "Up", "Down"], true), (["Down"; 3], true)] {
        let nodes = states.map(|state| json!({"name": "a", "state": state}));
        let status = RedisQuorumStatus { nodes: serde_json::from_value(json!(nodes)).unwrap(), ..status_of_another() };
        quorum.take(RedisQuorum { status: Some(status), ..samples::quorum(&json!({"nodes": []})) }, true);
        assert_eq!(is_ready(&mut quorum, Authority::Follow), !is_behind, "{states:?}");
    }
    assert!(is_ready(&mut quorum, Authority::Lead), "it is the last one");
}

/// Its timer would expire again and again, until the API server answers.
#[test]
fn a_quorum_whose_secret_is_unread_needs_no_turn() {
    let mut quorum = following(Some(status_of_another()));
    turn(&mut quorum, NOW);
    assert!(quorum.deadlines(false, true)[0].is_some());
    assert_eq!(quorum.deadlines(false, false)[0], None);
    quorum.invalid("its address is no address".into());
    assert!(quorum.deadlines(false, false)[0].is_some(), "no secret is needed");
}

/// A list may show etcd as it was restored from a backup.
#[test]
fn an_older_version_counts_only_in_a_list() {
    let version = |version: &str| {
        let mut quorum = samples::quorum(&json!({}));
        quorum.metadata.resource_version = Some(version.into());
        quorum
    };
    let mut quorum = following(None);
    let known = |quorum: &QuorumReconciler| quorum.resource().unwrap().metadata.resource_version.clone().unwrap();
    for (next, listed, expected) in [("9", false, "9"), ("8", false, "9"), ("8", true, "8"), ("10", false, "10")] {
        quorum.take(version(next), listed);
        assert_eq!(known(&quorum), expected);
    }
}
